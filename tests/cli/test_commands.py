"""The commands as a user types them: exact text, both streams, exit codes. On the fake engine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runner import cli

LEAF = "project-brain/tree/auth/session-store.md"
THREAD = "project-brain/threads/webhook-delivery"
OPEN = ("--personas", "red-team,ops-readiness", "--feedback", "Is it ready?", "--profile", "fake", "-q")


@pytest.fixture
def project(demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project folder of a writable example brain, as the working directory."""
    folder = demo.parent if demo.name == "project-brain" else demo
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PROJECT_BRAIN_VERBOSITY", raising=False)
    return folder


def debate(*argv: str) -> int:
    """Run one command line."""
    return cli.run(list(argv))


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below the folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    """-h as well as --help; every command has a help line."""
    assert debate("-h") == 0
    text = capsys.readouterr().out
    for name, command in cli.COMMANDS.items():
        assert command.__doc__
        assert re.search(rf"(?m)^  {name} +\S", text)
    assert debate("--version") == 0
    assert re.fullmatch(r"debate-runner \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_every_command_is_in_the_readme() -> None:
    """Documentation is tested: a command that a reader cannot find is not there."""
    text = (Path(__file__).parents[2] / "README.md").read_text()
    for name in cli.COMMANDS:
        assert f"`debate {name}" in text


def test_terse_lines(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The specification's form: one line, then Done."""
    assert debate("open", LEAF, *OPEN) == 0
    out, err = capsys.readouterr()
    where = r"project-brain/tree/auth/session-store\.md"
    assert re.fullmatch(rf"Opened debate round-01 on {where} \(2 reviewers, (\d [A-Z-]+(, )?)+\)\. Done\.\n", out)
    nothing = "warning: proposed-patches.md is empty: no claim was conceded\n"
    assert "FAKE" not in out and err == ("" if "CONCEDE" in out else nothing)
    assert debate("close", LEAF, "--patches-status", "rejected") == 0
    assert capsys.readouterr().out == (
        "Closed debate round-01 on project-brain/tree/auth/session-store.md (patches rejected, decided). Done.\n"
    )


def test_verbosity_from_config_environment_and_flag(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """config.yaml, over it the environment, over both -v."""
    (project / "project-brain/config.yaml").write_text("verbosity: normal\n")
    debate("open", LEAF, *OPEN)
    out = capsys.readouterr().out
    assert "  round folder   project-brain/tree/auth/debate/session-store/round-01\n" in out
    assert "FAKE ENGINE: no model read this document" in out
    assert (
        "Review proposed-patches.md and apply what you accept in a separate commit, "
        "then run multi-agent-debate --close to finish the round.\n"
    ) in out
    assert "git add project-brain/tree/auth/ && git commit -m 'debate(session-store): round-01 open — scope=leaf" in out
    assert out.endswith("\nDone.\n") and "Calls:" not in out
    monkeypatch.setenv("PROJECT_BRAIN_VERBOSITY", "terse")
    debate("close", LEAF, "--patches-status", "rejected")
    assert capsys.readouterr().out.count("\n") == 1
    debate("open", LEAF, *OPEN, "-vv")
    assert "\nCalls:\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "path", "hint"),
    [
        ("rejected", LEAF, "Round abandoned. Artifact is unchanged content-wise. "
         "Consider whether the personas or feedback need adjustment before retrying."),
        ("rejected", THREAD, "Round abandoned. Artifact is unchanged content-wise. "
         "Consider whether the personas or feedback need adjustment before retrying."),
    ],
)  # fmt: skip
def test_next_step_hints(project: Path, capsys: pytest.CaptureFixture[str], status: str, path: str, hint: str) -> None:
    """Close says what comes next, in the specification's words."""
    debate("open", path, *OPEN)
    capsys.readouterr()
    assert debate("close", path, "--patches-status", status, "-v") == 0
    assert f"\n{hint}\n" in capsys.readouterr().out


def test_json_is_one_document_on_success(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the keys that the specification passes forward."""
    assert debate("open", LEAF, *OPEN, "--json") == 0
    opened = json.loads(capsys.readouterr().out)
    assert opened["schema"] == "open/1" and opened["ok"] is True and opened["debate_commit"] is None
    assert (opened["artifact_path"], opened["scope"], opened["round_number"]) == (
        "tree/auth/session-store.md",
        "leaf",
        1,
    )
    assert sum(opened["verdict_summary"].values()) == opened["claims"]
    assert debate("status", LEAF, "--json") == 0
    assert json.loads(capsys.readouterr().out)["state"] == "open"
    assert debate("close", LEAF, "--patches-status", "applied", "--json") == 0
    closed = json.loads(capsys.readouterr().out)
    assert (closed["schema"], closed["patches_status"], closed["restored_status"]) == ("close/1", "applied", "decided")
    assert isinstance(closed["carry_forward_seed"], bool)


def test_json_is_one_document_on_failure(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also for wrong usage; stderr stays empty."""
    assert debate("close", LEAF, "--patches-status", "applied", "--json") == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "schema": "error/1",
        "ok": False,
        "error": {
            "code": "refused",
            "message": "the leaf's status is decided; close wants hardening",
            "hint": f"open a round first: debate open {LEAF}",
            "path": LEAF,
            "line": None,
            "exit": 1,
        },
    }
    assert err == ""
    assert debate("open", "--json", "--nonsense") == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"


def test_all_that_is_missing_is_said_at_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody is asked without a terminal, and nothing is written."""
    before = tree(project)
    assert debate("open", LEAF) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(
        "debate: missing: personas and feedback\nhint: --personas with names of § 10.2 (fresh-eyes-reader, "
    )
    assert '; --feedback "what should this round address?" (or @file, or -)\n' in err
    assert tree(project) == before


def test_run_infers_open_and_close(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A decided leaf and an active thread are opened; a hardening leaf and a thread with an open round are closed."""
    for path in (LEAF, THREAD):
        assert debate("run", path, *OPEN) == 0
        assert capsys.readouterr().out.startswith("Opened debate round-01")
        assert debate("run", "--artifact-path", path, "--patches-status", "partial") == 0
        assert capsys.readouterr().out.startswith("Closed debate round-01")


def test_run_without_a_path_takes_the_artifact_here(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside a thread's folder, or a leaf's own."""
    monkeypatch.chdir(project / THREAD)
    assert debate("run", *OPEN) == 0
    assert "threads/webhook-delivery/thread.md" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("--mode", "close"), 1, "the leaf's status is decided; close wants hardening"),
        (("--mode", "close", "--open"), 2, "--mode cannot be close and open at once"),
        (("--mode", "sideways"), 2, "--mode must be open or close, not 'sideways'"),
        (("--scope", "thread"), 1, "--scope=thread does not fit: this is a leaf"),
        (("--scope", "tree"), 2, "--scope must be leaf or thread, not 'tree'"),
        (("--review-mode", "half"), 2, "--review-mode must be full or delta, not 'half'"),
        (("--profile", "gpuu"), 2, "no config named 'gpuu'"),
        (("--model", "org/name"), 2, "no such model file"),
        (("--feedback", "@/nowhere"), 2, "--feedback: cannot be read: No such file or directory"),
        (("--artifact-path", "x.md"), 2, "PATH and --artifact-path name different artifacts"),
    ],
)
def test_run_refusals(
    project: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], code: int, message: str
) -> None:
    """What, where, what to do; nothing written."""
    before = tree(project)
    assert debate("run", LEAF, *argv) == code
    out, err = capsys.readouterr()
    assert out == "" and message in err.splitlines()[0]
    assert tree(project) == before


def test_run_refuses_a_status_that_allows_neither(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Named, with what would do."""
    leaf = project / LEAF
    leaf.write_text(re.sub("(?m)^status:.*$", "status: draft", leaf.read_text()))
    assert debate("run", LEAF) == 1
    assert "the leaf's status is draft: there is no round to open or to close" in capsys.readouterr().err


def test_the_audit_log_is_opt_in_and_has_a_line_per_invocation(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refusals too."""
    log = project / "project-brain/.audit-log.jsonl"
    debate("open", LEAF, *OPEN)
    assert not log.exists()
    (project / "project-brain/config.yaml").write_text("audit_log: true\n")
    assert debate("close", LEAF, "--patches-status", "applied") == 0
    assert debate("close", LEAF, "--patches-status", "applied") == 1
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(x["op"], x["exit"], x["artifacts"], x["dry_run"]) for x in lines] == [
        ("close", 0, ["tree/auth/session-store.md"], False),
        ("close", 1, ["tree/auth/session-store.md"], False),
    ]
    assert lines[0]["details"]["patches_status"] == "applied" and lines[1]["details"] == {"error": "refused"}


def test_an_unexpected_error_is_one_line(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback, exit 2, and how to see more."""
    monkeypatch.delenv("DEBATE_TRACEBACK", raising=False)
    monkeypatch.setattr("runner.brain.artifact.load", lambda *_: 1 / 0)
    assert debate("status", LEAF) == 2
    assert capsys.readouterr().err == (
        "debate: unexpected error: ZeroDivisionError: division by zero\n"
        "hint: this is a fault of debate-runner; set DEBATE_TRACEBACK=1 to see where, and report it\n"
    )


def test_foreign_text_is_printed_as_it_is(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rich markup in a title or a path is text."""
    leaf = project / LEAF
    leaf.write_text(leaf.read_text().replace("Session store", "see [(probe) [red]x[/]"))
    odd = leaf.with_name("a[red]b[-].md")
    leaf.rename(odd)
    assert debate("status", str(odd)) == 0
    assert "project-brain/tree/auth/a[red]b[-].md: leaf, decided\n" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [("--help",), ("close", "--help"), ("status", LEAF)])
def test_light_commands_import_nothing_heavy(project: Path, argv: tuple[str, ...]) -> None:
    """Help, close and status run on a machine without engines, and load no engine, template or schema library."""
    code = (
        "import sys; from runner import cli; code = cli.run(sys.argv[1:]); "
        "heavy = {'numpy', 'llama_cpp', 'llguidance', 'torch', 'jinja2', 'dulwich', 'rich.console'}; "
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.stderr.strip() == "[]"


def test_sigterm_is_143() -> None:
    """The shell's convention, with a word on how to go on."""
    code = (
        "import os, signal, sys; from runner import cli\n"
        "from runner.cli import models\n"
        "from runner import manifests\n"
        "manifests.manifests = lambda project: os.kill(os.getpid(), signal.SIGTERM) or signal.pause()\n"
        "sys.exit(cli.run(['models', 'list']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=20,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        143, "debate: terminated; `debate resume` goes on from what is on disk\n",
    )  # fmt: skip
