"""debate export: what a path stands for, where the report goes, and the exit code."""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
from pathlib import Path

import pytest

from runner import cli

LEAF = "project-brain/tree/auth/session-store.md"
ROUND = "project-brain/tree/auth/debate/session-store/round-01"
OPEN = ("--personas", "red-team,ops-readiness", "--feedback", "Is it ready?", "--profile", "fake", "-q")


@pytest.fixture
def project(demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project folder of an example brain with one round open, as the working directory."""
    monkeypatch.chdir(demo.parent)
    assert cli.run(["open", LEAF, *OPEN]) == 0
    return demo.parent


@pytest.fixture
def export(capsys: pytest.CaptureFixture[str]):
    """Run `debate export …`: (exit code, stdout, stderr)."""

    def run(*argv: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.run(["export", *argv])
        return code, *capsys.readouterr()

    return run


def record(project: Path) -> Path:
    return project / ROUND / ".run" / "record.json"


def change(path: Path, **changed: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changed))


@pytest.mark.parametrize("path", [LEAF, ROUND, ROUND + "/.run/record.json", "project-brain/tree/auth", "project-brain"])
def test_what_a_path_stands_for(project, export, path):
    """The artifact, its round, its record, a folder that holds it: the same one round."""
    code, out, err = export("json", path)
    (artifact,) = json.loads(out)["artifacts"]
    assert (code, err, artifact["file"], artifact["round"]) == (0, "", LEAF, 1)
    assert artifact["findings"] and all(x["columns"] for x in artifact["findings"] if x["anchor"] == "exact")


def test_a_path_twice_is_one_round(project, export):
    """Two paths of one round are one artifact of the report."""
    assert len(json.loads(export("json", LEAF, ROUND)[1])["artifacts"]) == 1


def test_paths_from_the_repository(project, export):
    """Where .git lies, that is what a file's path counts from."""
    (project.parent / ".git").mkdir()
    (artifact,) = json.loads(export("json", LEAF)[1])["artifacts"]
    assert artifact["file"] == f"{project.name}/{LEAF}"


def test_out(project, export):
    """--out writes the file and says nothing; every format can be written."""
    for name in ("json", "sarif", "junit", "annotations", "codequality", "html", "markdown"):
        assert export(name, LEAF, "--out", f"out.{name}") == (0, "", "")
        assert (project / f"out.{name}").read_text(encoding="utf-8") == export(name, LEAF)[1]


def test_gate(project, export):
    """Exit 3 when it trips, and the report is written before that."""
    conceded = json.loads(record(project).read_bytes())
    for v in conceded["verdicts"]:
        v["verdict"] = "CONCEDE"
    change(record(project), verdicts=conceded["verdicts"])
    code, out, err = export("sarif", LEAF, "--fail-on", "nit", "--out", "x.sarif")
    assert (code, out, (project / "x.sarif").exists()) == (3, "", True)
    assert err.startswith("--fail-on nit: ") and err.count("\n") == 1
    assert export("sarif", LEAF, "--fail-on", "nit>999")[0] == 0
    assert export("sarif", LEAF)[0] == 0
    assert export("json", LEAF, "--fail-on", "nit", "--known", "x.sarif")[0] == 0


def test_incomplete(project, export):
    """Exit 4 with every gate, and a line that says what is missing; no confidence makes up for it."""
    change(record(project), complete=False, exhausted=["synthesizer"])
    for gate in ("none", "nit:any", "blocker@1>99"):
        code, out, err = export("json", LEAF, "--fail-on", gate)
        assert (code, json.loads(out)["complete"]) == (4, False)
        assert err.startswith("incomplete: tree/auth/session-store.md: no usable answer to synthesizer\n")


def test_round_of_the_pack(project, export):
    """A round without .run/ is exit 1, saying what is missing."""
    shutil.rmtree(project / ROUND / ".run")
    for path in (LEAF, ROUND):
        assert export("json", path) == (
            1, "",
            f"debate: {ROUND}: this round has no record (.run/record.json): it was not made by debate-runner\n"
            "hint: only rounds that debate-runner made can be exported\n",
        )  # fmt: skip


def test_interrupted_round(project, export):
    """A round without its record is not exported as if it were empty; in a folder it is named and exit 4."""
    record(project).unlink()
    code, out, err = export("json", ROUND)
    assert (code, out) == (1, "")
    assert err.startswith(f"debate: {ROUND}: this round was interrupted: .run/record.json is missing\n")
    code, out, err = export("json", "project-brain/tree")
    assert (code, json.loads(out)["artifacts"][0]["status"]) == (4, "failed")
    assert "this round was interrupted" in err


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": "round/1"}', b"\xff\xfe", b"[" * 100_000])
def test_damaged_record(project, export, content):
    """A record that is damaged is exit 5 and one line, never a report."""
    record(project).write_bytes(content)
    code, out, err = export("markdown", ROUND)
    assert (code, out, len(err.splitlines())) == (5, "", 2)
    assert err.startswith(f"debate: {ROUND}/.run/record.json: the record ")


def test_record_that_points_out_of_the_brain(project, export):
    """A record's path is no reason to read a file elsewhere: the record stands on its own."""
    body = "secret " * 1000
    (project / "secret.md").write_text(f"---\na: b\n---\n{body}")
    sha256 = hashlib.sha256(body.encode()).hexdigest()
    data = json.loads(record(project).read_bytes())
    change(record(project), artifact=data["artifact"] | {"path": "../secret.md", "sha256_body": sha256})
    code, out, _ = export("html", ROUND)
    assert code == 0 and "secret secret" not in out


def test_nothing_there(project, export):
    """A folder without rounds, and a path that is none, are refused."""
    (project / "empty").mkdir()
    assert export("json", "empty")[0] == 1
    assert export("json", "nowhere.md")[0] == 1
    assert export("json", "nowhere.json")[0] == 1


def test_no_round_yet(project, export):
    """An artifact without a round is refused, naming `debate open`."""
    code, _, err = export("json", "project-brain/tree/auth/token-rotation.md")
    assert (code, "this artifact has no round" in err, "debate open" in err) == (1, True, True)


def test_bulk_report(project, export):
    """A report of `harden`: reviewed, skipped and failed artifacts, with the text beside them."""
    rows = [
        {"path": "tree/auth/session-store.md", "status": "done", "why": "", "round": "x",
         "record": json.loads(record(project).read_bytes())},
        {"path": "tree/b.md", "status": "skipped", "why": "status is parked"},
        {"path": "tree/c.md", "status": "failed", "why": "no such file"},
    ]  # fmt: skip
    Path("report.json").write_text(json.dumps({"schema": "bulk/1", "artifacts": rows, "settings": {}, "wall_s": 1}))
    code, out, err = export("json", "report.json")
    data = json.loads(out)
    assert (code, [a["status"] for a in data["artifacts"]]) == (4, ["done", "skipped", "failed"])
    assert data["artifacts"][0]["file"] == LEAF and data["artifacts"][0]["findings"][0]["columns"]
    assert err == "incomplete: tree/c.md: no such file\n"
    Path("report.json").write_text(json.dumps({"schema": "bulk/1", "artifacts": [7]}))
    assert export("json", "report.json")[0] == 5


def test_scratch_folder(project, export):
    """Rounds outside the brain, the highest of each artifact."""
    for number in ("round-01", "round-02"):
        shutil.copytree(project / ROUND, project / "scratch" / "auth" / "session-store" / number)
    data = json.loads((project / "scratch/auth/session-store/round-02/.run/record.json").read_bytes())
    change(project / "scratch/auth/session-store/round-02/.run/record.json", round=data["round"] + 1)
    (artifact,) = json.loads(export("json", "scratch")[1])["artifacts"]
    assert (artifact["round"], artifact["file"]) == (2, LEAF)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("pdf", LEAF), "debate: no format named 'pdf'\n"),
        (("sarf", LEAF), "debate: no format named 'sarf'\nhint: did you mean 'sarif'?\n"),
        (("json", LEAF, "--fail-on", "high"), "debate: --fail-on: 'high' is no severity\n"),
        (("json", LEAF, "--known", "gone"), "debate: gone: --known: cannot be read: No such file or directory\n"),
        (("json",), "debate: Missing argument"),
    ],
)
def test_usage(project, export, argv, message):
    """Wrong usage is exit 2 and one message, and nothing is written."""
    code, out, err = export(*argv)
    assert (code, out) == (2, "")
    assert err.startswith(message)


def test_ask_and_brief(project, export, monkeypatch):
    """The folder of an ask and the file of a brief are found by their records."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "export"))
    samples = importlib.import_module("export_samples")
    for path, data in (("debates/x/.run", samples.ask()), (".ai/briefs/.run-T-1", samples.brief())):
        (project / path).mkdir(parents=True)
        (project / path / "record.json").write_text(json.dumps(data))
    assert json.loads(export("json", "debates/x")[1])["artifacts"][0]["question"] == "Shall we?"
    (artifact,) = json.loads(export("json", ".ai/briefs/T-1.md")[1])["artifacts"]
    assert artifact["findings"][0]["file"].endswith("/src/login.py")
    assert export("sarif", "debates/x")[0] == 0
