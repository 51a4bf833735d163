"""A debate on the disk: its files, a crash at every step, resume, a real kill. On the fake engine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from faults import FaultyDisk, Killed, QuickDisk

from runner import settings, store
from runner.debates import ask, folder
from runner.debates.ask import Options
from runner.debates.folder import RunFolder
from runner.errors import Integrity, Refused, RunnerError, UsageError
from runner.values import Document

QUESTION = "Should we store sessions in Redis or in Postgres?"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(store, "disk", QuickDisk())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))


def clock() -> str:
    return "2026-03-01T09:00:00Z"


def profile(project: Path, **fake: Any) -> str:
    """A profile of the fake engine with these options."""
    project.mkdir(parents=True, exist_ok=True)
    path = project / "fake.yaml"
    path.write_text(json.dumps({"engine": "fake", "roles": {"default": "fake"}, "fake": fake}))
    return str(path)


def planned(project: Path, fake: dict[str, Any] | None = None, question: str = QUESTION, **options: Any) -> ask.Plan:
    s = settings.settings(profile(project, **(fake or {})), None, project)
    return ask.plan(Options(question, out=project / "out", **options), s, None, project, project, clock)


def start(project: Path, fake: dict[str, Any] | None = None, **options: Any) -> ask.Done:
    return ask.start(planned(project, fake, **options), clock)


def resume(project: Path, fake: dict[str, Any] | None = None) -> ask.Done:
    found = folder.find(project / "out")
    assert found is not None
    s = settings.settings(profile(project, **(fake or {})), None, project)
    return ask.resume(found[1], ask.stored(found[1]), s, clock)


def tree(project: Path) -> dict[str, bytes]:
    """Every file but the journal, whose order tells when replies came, and the inputs, which name the profile."""
    out = project / "out"
    left = ("journal.jsonl", "inputs.json")
    return {
        p.relative_to(out).as_posix(): p.read_bytes()
        for p in sorted(out.rglob("*"))
        if p.is_file() and p.name not in left
    }


def record(project: Path) -> dict[str, Any]:
    return json.loads((project / "out/.run/record.json").read_text())


def test_files(tmp_path: Path) -> None:
    """Prompt and output of each seat, later rounds in their own folder, the synthesis, our own state apart."""
    done = start(tmp_path, rounds=2)
    assert done.complete and list(done.files) == [
        "antithesis.output", "antithesis.prompt", "round-2/antithesis.output", "round-2/antithesis.prompt",
        "round-2/thesis.output", "round-2/thesis.prompt", "synthesis.md", "synthesis.prompt", "thesis.output",
        "thesis.prompt",
    ]  # fmt: skip
    assert (tmp_path / "out/.run/.gitignore").read_text() == "journal.jsonl\ninputs/\n"
    assert (tmp_path / "out/synthesis.md").read_text().startswith("**FAKE ENGINE: no model read this question;")


def test_record(tmp_path: Path) -> None:
    """What was asked, the seats, each call, each file's sha256."""
    start(tmp_path, rounds=2, fields={"stakes": "Money"})
    data = record(tmp_path)
    assert (data["schema"], data["complete"], data["fake"], data["format"]) == ("ask/1", True, True, "dialectic")
    assert data["context"] == "CONTEXT FOR DEBATE:\n- Stakes: Money" and data["asked_at"] == clock()
    assert [(s["name"], [r["status"] for r in s["rounds"]]) for s in data["seats"]] == [
        ("thesis", ["done", "done"]), ("antithesis", ["done", "done"]),
    ]  # fmt: skip
    assert [c["key"] for c in data["calls"]] == sorted(c["key"] for c in data["calls"]) and len(data["calls"]) >= 5
    for file in data["files"]:
        assert file["sha256"] == store.sha256_file(tmp_path / "out" / file["path"])
    assert {f["path"] for f in data["files"]} == {p for p in tree(tmp_path) if not p.startswith(".run")}
    assert data["novelty"][1]["arguments"] == 4 == len(data["novelty"][1]["nearest"])
    assert data["warnings"] == [ask.ONE_MODEL]


def test_default_folder(tmp_path: Path) -> None:
    """debates/<date>-<slug>, and -2 when it is taken."""
    plan = planned(tmp_path)
    assert ask.plan(Options(QUESTION), plan.settings, None, tmp_path, tmp_path, clock).out == (
        tmp_path / "debates/2026-03-01-should-we-store-sessions-in-redis-or-in"
    )
    assert ask.slug("決策?") == "question" and ask.slug("x" * 90) == "question"
    assert [start(tmp_path).place.folder.name for _ in range(2)] == ["out", "out-2"]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"form": "duel"}, UsageError, "--format must be dialectic, redteam, council, not 'duel'"),
        ({"form": "council", "agents": 2}, Refused, "council has 3 seats, not 2"),
        ({"rounds": 0}, UsageError, "--rounds must be 1 or more, not 0"),
        ({"question": " "}, Refused, "the question is empty"),
        ({"context": "word " * 201}, Refused, "the context has 201 words"),
        ({"models": ("a", "b")}, UsageError, "the fake engine takes no models by name"),
    ],
)
def test_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], error: type[RunnerError], text: str
) -> None:
    """A wrong question costs nothing: no folder, no engine."""
    with pytest.raises(error, match=text):
        planned(tmp_path / "p", **options)
    assert [p.name for p in (tmp_path / "p").iterdir()] == ["fake.yaml"]


def test_templates_of_the_project_win(tmp_path: Path) -> None:
    """File by file; a faulty one is told before anything is written."""
    own = tmp_path / "prompts/ask"
    own.mkdir(parents=True)
    (own / "thesis.md.j2").write_text("Sing for {{ given }}")
    start(tmp_path)
    assert "Sing for We should store sessions in Redis." in (tmp_path / "out/thesis.prompt").read_text()
    (own / "thesis.md.j2").write_text("{{ nonsense }}")
    with pytest.raises(UsageError, match="does not render"):
        planned(tmp_path)


# ---- gaps and resume -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["timeout", "degenerate", "error", "length"])
def test_a_gap_is_filled_by_resume(tmp_path: Path, fault: str) -> None:
    """Partial: the synthesis is written with its Gaps. Resumed: the gap's file is gone, the synthesis is another."""
    done = start(tmp_path, {"faults": {"round-1/thesis*": fault}})
    missing = ask.incomplete(done)
    assert missing is not None and missing.exit_code == 4 and missing.reason == "partial"
    assert "thesis.gap" in done.files and "thesis.output" not in done.files and "## Gaps" in ask.readable(done.place)
    assert folder.state(done.place) == "partial"
    again = resume(tmp_path)
    assert again.complete and ask.incomplete(again) is None
    assert "thesis.gap" not in again.files and "thesis.output" in again.files
    assert "## Gaps" not in ask.readable(again.place)
    assert [c["key"] for c in record(tmp_path)["calls"] if c["key"].startswith("round-1/thesis")] == [
        "round-1/thesis", "round-1/thesis~2", "round-1/thesis~3",
    ]  # fmt: skip


def test_nobody_answers(tmp_path: Path) -> None:
    """No synthesis, only gaps; resume asks all again."""
    done = start(tmp_path, {"faults": {"round-1/*": "timeout"}})
    assert "synthesis.md" not in done.files and ask.incomplete(done) is not None
    assert {f for f in done.files if f.endswith(".gap")} == {"thesis.gap", "antithesis.gap"}
    assert resume(tmp_path).complete


def test_a_failed_synthesis_is_asked_again(tmp_path: Path) -> None:
    """The seats' files stay as they were, and the seats are not asked again."""
    start(tmp_path, {"faults": {"synthesis*": "error"}})
    before = (tmp_path / "out/thesis.output").read_bytes()
    assert resume(tmp_path).complete
    assert (tmp_path / "out/thesis.output").read_bytes() == before
    assert [c["key"] for c in record(tmp_path)["calls"]] == [
        "round-1/antithesis", "round-1/thesis", "synthesis", "synthesis~2", "synthesis~3",
    ]  # fmt: skip


def test_a_done_debate_is_not_resumed(tmp_path: Path) -> None:
    """There is nothing to do."""
    start(tmp_path)
    with pytest.raises(Refused, match="nothing to resume: this debate is done"):
        resume(tmp_path)


def test_an_edited_file_stops_resume(tmp_path: Path) -> None:
    """It is not written over."""
    start(tmp_path, {"faults": {"round-1/thesis*": "timeout"}})
    (tmp_path / "out/synthesis.md").write_text("Mine.")
    with pytest.raises(Integrity, match="changed by hand"):
        resume(tmp_path)
    assert (tmp_path / "out/synthesis.md").read_text() == "Mine."


def test_prompts_come_from_the_stored_inputs(tmp_path: Path) -> None:
    """A template that was edited meanwhile strands nothing."""
    start(tmp_path, {"faults": {"synthesis*": "error"}})
    own = tmp_path / "prompts/ask"
    own.mkdir(parents=True)
    (own / "thesis.md.j2").write_text("Sing for {{ given }}")
    assert resume(tmp_path).complete
    assert "Sing" not in (tmp_path / "out/thesis.prompt").read_text()


def test_inputs_come_back_equal(tmp_path: Path) -> None:
    """What is stored is what was planned."""
    plan = planned(tmp_path, fields={"leaning": "Redis"}, agents=3, rounds=2)
    done = ask.start(plan, clock)
    assert ask.stored(done.place) == plan.inputs
    data = json.loads(done.place.inputs.read_text())
    del data["debate"]["question"]
    done.place.inputs.write_text(json.dumps(data))
    with pytest.raises(Integrity, match="the stored inputs cannot be read"):
        ask.stored(done.place)


def test_killed_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the nth operation of the disk, for every n: resume (or abort, before anything is stored) gives the same."""
    counting = FaultyDisk(0)
    monkeypatch.setattr(store, "disk", counting)
    start(tmp_path / "0", rounds=2)
    whole = tree(tmp_path / "0")
    resumed = aborted = 0
    for n in range(1, counting.done + 1):
        project = tmp_path / str(n)
        monkeypatch.setattr(store, "disk", QuickDisk())
        plan = planned(project, rounds=2)
        monkeypatch.setattr(store, "disk", FaultyDisk(n))
        with pytest.raises(Killed):
            ask.start(plan, clock)
        monkeypatch.setattr(store, "disk", QuickDisk())
        found = folder.find(project / "out")
        state = folder.state(found[1]) if found else "none"
        if state == "none":
            aborted += 1
            if found:
                folder.abort(found[1])
            elif (project / "out").exists():
                (project / "out").rmdir()  # an empty folder
            start(project, rounds=2)
        elif state == "interrupted":
            resumed += 1
            resume(project)
        assert tree(project) == whole, (n, state)
    assert resumed > 20 and aborted > 3


def test_the_folder_is_locked_while_it_runs(tmp_path: Path) -> None:
    """A second command in the folder is refused, at the first run as on resume."""
    seen: list[str] = []

    def told(_: Document) -> None:
        found = folder.find(tmp_path / "out")
        assert found is not None
        with pytest.raises(Refused, match="another debate command") as caught, found[1].lock():
            pass
        seen.append(caught.value.code)

    ask.start(planned(tmp_path, {"faults": {"synthesis*": "error"}}), clock, told=told)
    place = RunFolder(tmp_path / "out", tmp_path / "out/.run")
    s = settings.settings(profile(tmp_path), None, tmp_path)
    ask.resume(place, ask.stored(place), s, clock, told=told)
    assert seen == ["locked"] * 11


def test_an_abort_under_way_is_not_resumed(tmp_path: Path) -> None:
    """Only an abort goes on from there."""
    start(tmp_path, {"faults": {"synthesis*": "error"}})
    (tmp_path / "out/.run/abort").write_text("")
    with pytest.raises(Refused, match="nothing to resume: this debate is aborting"):
        resume(tmp_path)


CHILD = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
import test_ask_run as t
t.start(Path(sys.argv[1]), {{"faults": {{sys.argv[2]: "sigkill"}}}}, rounds=2)
"""


@pytest.mark.parametrize("where", ["1", "round-1/antithesis", "round-2/thesis", "synthesis"])
def test_really_killed(tmp_path: Path, where: str) -> None:
    """SIGKILL at a reply: resumed, the files are the undisturbed ones, and nothing recorded is asked again."""
    here = Path(__file__).resolve().parent
    code = CHILD.format(paths=[str(here.parents[1]), str(here.parent), str(here)])
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "p"), where], check=False)
    assert done.returncode == -signal.SIGKILL
    journal = tmp_path / "p/out/.run/journal.jsonl"
    known = journal.read_bytes()
    resume(tmp_path / "p")
    start(tmp_path / "whole", rounds=2)
    assert tree(tmp_path / "p") == tree(tmp_path / "whole")
    assert journal.read_bytes().startswith(known)
    keys = [line["key"] for line in map(json.loads, journal.read_text().splitlines()) if "key" in line]
    assert len(keys) == len(set(keys))


def test_no_clock_in_a_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same question tomorrow is the same requests."""

    def digests(project: Path, at: str) -> dict[str, str]:
        monkeypatch.setattr(sys.modules[__name__], "clock", lambda: at)
        start(project, rounds=2, fields={"stakes": "Money"})
        lines = (project / "out/.run/journal.jsonl").read_text().splitlines()
        return {d["key"]: d["digest"] for d in map(json.loads, lines) if "digest" in d}

    today = digests(tmp_path / "a", "2026-03-01T09:00:00Z")
    assert len(today) >= 5
    assert digests(tmp_path / "b", "2026-03-02T19:10:11Z") == today
