"""debate harden, close --all, report merge and the gates, from the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import profile, tree, write
from many import leaf

from runner import cli
from runner.engines.fake import FakeEngine
from runner.errors import RunnerError

LIMITS = "tree/area/limits.md"
RUN = ("harden", "--profile", "fake", "--personas", "red-team,ops-readiness", "--feedback", "Ready?", "--allow-dirty")


def said(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out)


def test_lines(root, capsys):
    """A line per artifact on stdout, progress on stderr, exit 0."""
    assert cli.run([*RUN]) == 0
    shown = capsys.readouterr()
    assert [line.split()[:2] for line in shown.out.splitlines()[:-1]] == [
        ["done", p] for p in ("threads/webhooks/thread.md:", "tree/alone/backups.md:", f"{LIMITS}:",
                              "tree/area/other.md:", "tree/area/pipeline/pipeline.md:")
    ]  # fmt: skip
    assert shown.out.splitlines()[-1].startswith("5 done; ")
    assert "[5/5] done" in shown.err


def test_json_progress(root, capsys):
    """--progress json: one object per line on stderr; stdout is one document."""
    assert cli.run([*RUN, "--progress", "json", "--json"]) == 0
    shown = capsys.readouterr()
    lines = [json.loads(line) for line in shown.err.splitlines()]
    assert [x["done"] for x in lines] == [1, 2, 3, 4, 5]
    assert lines[0]["left_s"] is None
    assert lines[-1]["left_s"] == 0
    assert json.loads(shown.out)["counts"]["done"] == 5


def test_nothing_to_do(root, capsys):
    """Nothing selected: exit 0, said, and in the report."""
    assert cli.run([*RUN, "--status", "parked", "--report", "r.json"]) == 0
    assert capsys.readouterr().out == "nothing to do\n"
    assert json.loads(Path("r.json").read_text())["artifacts"] == []


def test_a_name_with_a_line_break(root, capsys):
    """It never begins a line of its own, on either stream."""
    leaf(root, "tree/area/x\n::error::boom.md")
    for more in ((), ("--dry-run",)):
        cli.run([*RUN, *more])
        shown = capsys.readouterr()
        assert "boom" in shown.out
        assert not [x for x in (shown.out + shown.err).splitlines() if x.startswith("::")]


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        (("--shard", "3/2"), 2, "--shard must be i/n"),
        (("--progress", "loud"), 2, "--progress must be one of"),
        (("--fail-on", "huge"), 2, "'huge' is no severity"),
        (("--known", "gone.json"), 2, "--known: cannot be read"),
        (("tree/gone.md",), 2, "no such file or folder"),
        (("--changed-since", "main"), 2, "in no git work tree"),
        (("--review-mode", "half"), 2, "--review-mode must be"),
    ],
)
def test_wrong_options(root, capsys, more, code, says):
    """Found before anything is written."""
    before = tree(root)
    assert cli.run([*RUN, *more]) == code
    assert says in capsys.readouterr().err
    assert tree(root) == before


def test_feedback_is_required(root, capsys):
    """From the option or the profile; else exit 1."""
    assert cli.run([*RUN[:5]]) == 1
    assert "missing: feedback" in capsys.readouterr().err
    write(root.parent / "configs/told.yaml", b"engine: fake\nroles: {default: fake}\nfeedback: Ready?\n")
    assert cli.run(["harden", "--profile", "told", "--personas", "red-team", "--allow-dirty", "-q"]) == 0


def test_dry_run(root, capsys):
    """The list, and nothing else."""
    before = tree(root)
    assert cli.run([*RUN, "--dry-run", "--limit", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "threads/webhooks/thread.md", "tree/alone/backups.md", "2 selected",
    ]  # fmt: skip
    assert tree(root) == before


def test_failures_have_an_exit_code(root, capsys):
    """One artifact without a whole round: exit 4, named, the others done; the report is there."""
    profile(root, "broken", faults={"reviewer/ops-readiness*": "timeout"})
    code = cli.run([*RUN[:2], "broken", *RUN[3:], LIMITS, "--report", "out/r.json", "-q"])
    shown = capsys.readouterr()
    assert code == 4
    assert shown.out.startswith("failed   tree/area/limits.md: interrupted: 1 of 2 reviewers answered")
    assert "debate: incomplete: 1 of 1 artifacts have no whole round" in shown.err
    report = json.loads(Path("out/r.json").read_text())
    assert (report["schema"], report["ok"], report["exit"]) == ("bulk/1", False, 4)
    assert report["artifacts"][0]["record"] is None


def test_shards_and_merge(root, capsys):
    """Reports of shards joined are the report of the whole; an artifact that is in two is refused."""
    for i in (1, 2, 3):
        assert cli.run([*RUN, "--shard", f"{i}/3", "--report", f"s{i}.json", "-q", "--scratch", "out"]) == 0
    capsys.readouterr()
    parts = [f"s{i}.json" for i in (1, 2, 3) if Path(f"s{i}.json").exists()]
    assert cli.run(["report", "merge", *parts, "--out", "all.json"]) == 0
    joined = json.loads(Path("all.json").read_text())
    assert [a["path"] for a in joined["artifacts"]] == sorted(a["path"] for a in joined["artifacts"])
    assert (joined["counts"]["done"], len(joined["artifacts"])) == (5, 5)
    assert all(a["record"]["schema"] == "round/1" for a in joined["artifacts"])
    assert cli.run(["report", "merge", parts[0], parts[0]]) == 2
    assert "is in two of these reports" in capsys.readouterr().err
    write(root.parent / "cut.json", b'{"schema": "bulk/1", "art')
    assert cli.run(["report", "merge", "cut.json"]) == 2
    assert "was its run cut off" in capsys.readouterr().err


def test_gate(root, capsys):
    """--fail-on: exit 3 with the rule named; --known: only what is new counts; none: 0."""
    assert cli.run([*RUN, "--fail-on", "nit:any", "--report", "r.json", "-q"]) == 3
    assert "debate: --fail-on nit:any: " in capsys.readouterr().err
    assert Path("r.json").exists()
    assert cli.run([*RUN, "--fail-on", "none", "-q"]) == 0
    assert cli.run(["export", "json", "r.json", "--out", "known.json"]) == 0
    assert cli.run([*RUN, "--fail-on", "nit:any", "--known", "known.json", "-q"]) == 0
    assert cli.run([*RUN, "--fail-on", "nit:any>1000", "-q"]) == 0


@pytest.mark.parametrize("command", ["open", "run"])
def test_gate_of_one_round(root, capsys, command):
    """The same on a single round; the round is written all the same."""
    options = [f"project-brain/{LIMITS}", *RUN[1:], "--fail-on", "nit:any", "-q"]
    assert cli.run([command, *options]) == 3
    assert (root / "tree/area/debate/limits/round-01/.run/record.json").exists()
    assert "--fail-on nit:any" in capsys.readouterr().err


def test_gate_and_incomplete(root, capsys):
    """Incomplete is exit 4, whatever the gate says."""
    profile(root, "half", faults={"reviewer/ops-readiness*": "timeout"})
    code = cli.run(["open", f"project-brain/{LIMITS}", "--profile", "half", *RUN[3:], "--min-reviewers", "1", "-q",
                    "--fail-on", "nit:any"])  # fmt: skip
    assert code == 4


def test_close_all(root, capsys):
    """Every open round is closed; one that cannot be is named and costs the exit code; again: nothing to do."""
    leaf(root, "tree/area/draft.md", "draft")
    assert cli.run([*RUN, "-q"]) == 0
    capsys.readouterr()
    assert cli.run(["close", "--all", "--patches-status", "rejected", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "5 rounds would be closed as rejected"
    assert cli.run(["close", "--all", "--patches-status", "rejected", "--json"]) == 0
    rows = said(capsys)["rounds"]
    assert [(r["closed"], r["round"]) for r in rows] == [(True, "round-01")] * 5
    assert "hardening" not in (root / LIMITS).read_text()
    assert cli.run(["close", "--all", "--patches-status", "rejected"]) == 0
    assert capsys.readouterr().out == "nothing to do\n"


def test_close_all_wants_a_status(root, capsys):
    """One for all; nothing is asked."""
    assert cli.run(["close", "--all"]) == 2
    assert "--all needs --patches-status" in capsys.readouterr().err


def test_interrupted_and_run_again(root):
    """Ctrl-C in a real process: exit 130; the same command finishes."""
    profile(root, "dead", faults={"12": "sigkill"})
    command = [sys.executable, "-m", "runner.cli", *RUN, "-q"]
    command[command.index("fake")] = "dead"
    assert subprocess.run(command, capture_output=True, check=False).returncode == -9
    assert cli.run([*RUN, "-q"]) == 0


def test_a_report_of_a_run_that_was_cut_off(root, capsys, monkeypatch):
    """Killed, or with an engine that died: the report is never an earlier one, and says what is not finished."""
    assert cli.run([*RUN, "--scratch", "out", "--report", "r.json", "-q"]) == 0
    assert json.loads(Path("r.json").read_text())["ok"]
    profile(root, "dead", faults={"12": "sigkill"})
    command = [sys.executable, "-m", "runner.cli", *RUN, "--report", "r.json", "-q"]
    command[command.index("fake")] = "dead"
    assert subprocess.run(command, capture_output=True, check=False).returncode == -9
    killed = json.loads(Path("r.json").read_text())
    assert (killed["ok"], killed["exit"], killed["counts"]["failed"]) == (False, 4, 5)
    assert {a["why"] for a in killed["artifacts"]} == {"not reached"}

    def dies(self: FakeEngine) -> None:
        if json.loads(Path("r.json").read_text()) and sum(1 for _ in Path().rglob("record.json")) >= 2:
            raise RunnerError("llama_decode failed with -3", code="engine")
        return step(self)

    step = FakeEngine.step
    monkeypatch.setattr(FakeEngine, "step", dies)
    shutil.rmtree("out")
    assert cli.run([*RUN, "--report", "r.json", "-q"]) == 2
    assert "llama_decode failed with -3" in capsys.readouterr().err
    cut = json.loads(Path("r.json").read_text())
    assert (cut["ok"], cut["exit"], len(cut["artifacts"])) == (False, 2, 5)
    assert cut["counts"]["done"] >= 1
    assert {a["why"] for a in cut["artifacts"] if a["status"] == "failed"} == {
        "not finished: llama_decode failed with -3"
    }
    monkeypatch.setattr(FakeEngine, "step", step)
    assert cli.run([*RUN, "--report", "r.json", "-q"]) == 0
    assert json.loads(Path("r.json").read_text())["counts"]["done"] == 5
