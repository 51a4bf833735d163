"""`debate brief` as it is typed: what is printed where, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner import cli
from runner.debates.folder import RunFolder
from runner.engines import fake
from runner.values import Reply, Request

HANDOFF = "FILES: a.py\nDEBATE_TRIGGER: reviewer-rejection-2\n\n## Reviewer findings\n\nToo much.\n"
SESSION = "reviewer_loop_count: 2\ndebate_used: false\ndebate_round: 1\n"
SAID = {
    "file": "a.py", "quote": "def find(name):", "kind": "auth", "problem": "Anyone may call it.", "severity": "major",
}  # fmt: skip
MERGED = {"consensus": "Ask who calls.", "action_items": ["Check the caller."], "dissent": ["It may be public."]}
BLOCK = """**FAKE ENGINE: no model read these files; every word here is made up.**

## Critics

- The critics stopped after round 1 of 2: both say nothing is left.

### Security-critic

1. **major, auth**, a.py, line 1: Anyone may call it.

   > def find(name):

### Simplicity-critic

1. **major, auth**, a.py, line 1: Anyone may call it.

   > def find(name):

## Consensus

Ask who calls.

## Action items

1. Check the caller.

## Dissent

- It may be public.

## Brief Path

.ai/context/debates/T-1.md

## Usage Report

Model: default
Class: thinking
Tokens: 30/15

DONE
"""
SETS = (
    "the coordinator sets debate_round: 2\nthe coordinator sets debate_used: true\n"
    "the coordinator sets NEXT_AGENT: bug-fix\n"
)


def answer(request: Request) -> Reply:
    said = MERGED if request.key.startswith("synthesizer") else {"concerns": [SAID], "nothing_left": True}
    return Reply(request.key, json.dumps(said), "stop", tokens_in=10, tokens_out=5)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {
        ".ai/handoffs/T-1.md": HANDOFF,
        ".ai/context/session.md": SESSION,
        "a.py": "def find(name):\n    return name\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(fake, "answer", answer)
    return tmp_path


def brief(*args: str) -> int:
    return cli.run(["brief", *args, "--profile", "fake", "-q"])


def test_block(workspace, capsys):
    """stdout is the block alone, ending in DONE; what the coordinator sets is on stderr; the session stays as it is."""
    assert brief("T-1") == 0
    shown = capsys.readouterr()
    assert shown.out == BLOCK
    assert shown.err == SETS
    assert (workspace / ".ai/context/session.md").read_text() == SESSION


def test_lite(workspace, capsys):
    """--lite: a summary, the path and DONE."""
    assert brief("T-1", "--lite") == 0
    assert capsys.readouterr().out.split("**\n\n")[1] == (
        "## Summary\n\n- Consensus: Ask who calls.\n- Action: Check the caller.\n- Dissent: It may be public.\n\n"
        "## Brief Path\n\n.ai/context/debates/T-1.md\n\nDONE\n"
    )


def test_json(workspace, capsys):
    """--json: one document with the record and what the coordinator sets."""
    assert brief("T-1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {k: found[k] for k in ("schema", "ok", "exit", "complete", "consensus", "path", "set")} == {
        "schema": "brief/1", "ok": True, "exit": 0, "complete": True, "consensus": "Ask who calls.",
        "path": ".ai/context/debates/T-1.md",
        "set": {"debate_round": 2, "debate_used": True, "NEXT_AGENT": "bug-fix"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "files", "code", "message"),
    [
        (("a/b",), {}, 2, "debate: 'a/b' is no TASK_ID\n"),
        (("T-2",), {}, 1, "debate: .ai/handoffs/T-2.md: the handoff is missing\n"),
        (("T-1",), {".ai/handoffs/T-1.md": "DT: x\n"}, 1, "debate: .ai/handoffs/T-1.md:1: DT is 'x', not reviewer-rej"),
        (
            ("T-1",),
            {".ai/context/session.md": "reviewer_loop_count: 1\ndebate_used: true\n"},
            1,
            "debate: .ai/context/session.md: reviewer_loop_count is 1, not 2 or more; debate_used is true, not false\n",
        ),
        (
            ("T-1",),
            {".ai/context/session.md": "debate_used: no\ndebate_used: no\n"},
            1,
            "debate: .ai/context/session.md: debate_used is there twice, in lines 1 and 2 (line 2)\n",
        ),
        (("T-1", "--session", "other.md"), {}, 1, "debate: other.md: the session file is missing\n"),
        (("T-1", "--workspace", "nowhere"), {}, 2, "debate: nowhere: no such folder\n"),
        (("T-1",), {"a.py": "\0"}, 1, "debate: none of FILES can be read: a.py: binary\n"),
    ],
)
def test_refused(workspace, capsys, args, files, code, message):
    """What cannot be done is one line that names it, and a hint; nothing is written."""
    for name, text in files.items():
        (workspace / name).write_text(text)
    assert brief(*args) == code
    shown = capsys.readouterr()
    assert (shown.out, shown.err.startswith(message)) == ("", True), shown.err
    assert "\nhint: " in shown.err
    assert not (workspace / ".ai/context/debates").exists()


def test_force(workspace, capsys):
    """--force debates without a session file, and says so."""
    (workspace / ".ai/context/session.md").unlink()
    assert brief("T-1", "--force") == 0
    shown = capsys.readouterr()
    note = "The guard was overridden with --force: the session file is missing."
    assert f"## Critics\n\n- {note}\n" in shown.out
    assert shown.err.startswith(f"warning: {note}\n")


def test_not_read_in_full(workspace, capsys):
    """A file that was there and was not read: the brief is printed, and the exit is 4; a missing one is only named."""
    (workspace / ".ai/handoffs/T-1.md").write_text("FILES: a.py, gone.py\n")
    assert brief("T-1") == 0
    (workspace / ".ai/handoffs/T-1.md").write_text("FILES: a.py, b.bin\n")
    (workspace / "b.bin").write_bytes(b"\0")
    capsys.readouterr()
    assert brief("T-1") == 4
    shown = capsys.readouterr()
    assert shown.out.endswith("\nDONE\n") and "- Not read: b.bin (binary).\n" in shown.out
    assert "debate: incomplete (partial): not read in full: b.bin: binary\n" in shown.err
    assert shown.err.endswith(SETS)


def failing(workspace: Path, **by_key: str) -> None:
    faults = "".join(f'    "{key}": {word}\n' for key, word in by_key.items())
    text = f"engine: fake\nroles: {{default: fake}}\nfake:\n  faults:\n{faults}" if faults else "engine: fake\n"
    (workspace / "configs").mkdir(exist_ok=True)
    (workspace / "configs/fake.yaml").write_text(text)


def test_gap_then_resume(workspace, capsys):
    """A critic without an answer: exit 4, and the hint's command completes the brief."""
    failing(workspace, **{"simplicity-critic*": "timeout"})
    assert brief("T-1") == 4
    shown = capsys.readouterr()
    assert "### Simplicity-critic\n\nNo usable answer (timeout): this critic's view is missing.\n" in shown.out
    assert shown.err == (
        "debate: incomplete (partial): no usable answer to simplicity-critic/r1\n"
        "hint: debate resume .ai/context/debates/.run-T-1\n"
    )
    assert brief("T-1") == 1
    assert "the last brief of this task is partial" in capsys.readouterr().err
    failing(workspace)
    assert cli.run(["resume", ".ai/context/debates/.run-T-1", "-q"]) == 0
    assert "Nothing is left" not in (shown := capsys.readouterr()).out and shown.out.endswith("\nDONE\n")
    assert shown.err == SETS


@pytest.mark.parametrize("where", [".ai/context/debates/.run-T-1", ".ai/context/debates/T-1.md"])
def test_interrupted_then_abort(workspace, capsys, where):
    """No critic answers: exit 4, no brief; abort takes the run back."""
    failing(workspace, **{"*": "error"})
    assert brief("T-1") == 4
    assert "no critic gave a usable answer" in capsys.readouterr().err
    assert not (workspace / ".ai/context/debates/T-1.md").exists()
    assert cli.run(["abort", where]) == 0
    assert capsys.readouterr().out == "Aborted the brief T-1. Done.\n"
    assert list((workspace / ".ai/context/debates").iterdir()) == []
    assert brief("T-1") == 4


def test_workspace_and_session_are_found_from_here(workspace, monkeypatch, capsys):
    """From a folder below, the workspace is the nearest one above with .ai; --session counts from here."""
    (workspace / "src").mkdir()
    monkeypatch.chdir(workspace / "src")
    assert brief("T-1") == 0
    assert brief("T-1", "--session", "../.ai/context/session.md", "--workspace", "..") == 0
    capsys.readouterr()
    debates = workspace / ".ai/context/debates"
    assert RunFolder(debates, debates / ".run-T-1~1").record.exists()


def test_help(capsys):
    """The command explains itself."""
    assert cli.run(["brief", "--help"]) == 0
    shown: Any = capsys.readouterr().out
    for option in ("TASK_ID", "--lite", "--session", "--force", "--workspace", "--isolate"):
        assert option in shown
