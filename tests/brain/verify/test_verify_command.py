"""debate verify as a user types it: text, both streams, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from verify_broken import HOOKS, SESSION, add, apply, edit, thread

from runner.cli.verify import verify
from runner.errors import RunnerError

TITLE = f"{SESSION}:15: [V-01] the heading 'Session store' differs from the title 'Sessions'"
ID = f"{HOOKS}:2: [N-01] warning: the id 'W' is no slug (2 to 40 characters, lower case, single hyphens between words)"


def debate(*argv: str) -> int:
    """Run `debate verify`; errors come as they are raised."""
    app = typer.Typer()
    app.command()(verify)
    code = app(args=list(argv), standalone_mode=False)
    assert isinstance(code, int)
    return code


@pytest.fixture(autouse=True)
def brain(demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example brain, as the working directory."""
    monkeypatch.chdir(demo)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
    return demo


def test_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit 0."""
    assert debate() == 0
    assert capsys.readouterr() == ("0 errors, 0 warnings (15 files read)\n", "")


def test_errors_and_warnings(brain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """file:line: [CODE] message, by file; errors give exit 1."""
    apply(brain, (edit(SESSION, '"Session store"', '"Sessions"'), edit(HOOKS, '"webhook-delivery"', '"W"')))
    assert debate() == 1
    assert capsys.readouterr().out == f"{ID}\n{TITLE}\n1 error, 1 warning (15 files read)\n"


def test_warnings_fail_only_when_asked(brain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings alone: exit 0, or 1 with --warnings-as-errors."""
    apply(brain, (edit(HOOKS, '"webhook-delivery"', '"W"'),))
    assert (debate(), debate("--warnings-as-errors")) == (0, 1)
    assert capsys.readouterr().out == f"{ID}\n0 errors, 1 warning (15 files read)\n" * 2


def test_json(brain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One document on stdout; `ok` says what the exit code says."""
    apply(brain, (edit(HOOKS, '"webhook-delivery"', '"W"'),))
    assert debate("--json", "--warnings-as-errors") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["errors"], found["summary"]) == (False, [], {"errors": 0, "warnings": 1, "files": 15})
    assert [w["code"] for w in found["warnings"]] == ["N-01"]


def test_scopes(brain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--thread and --path look at a part."""
    apply(brain, (edit(SESSION, '"Session store"', '"Sessions"'),))
    assert (debate("--thread", "webhook-delivery"), debate("--path", "tree/ops"), debate("--path", SESSION)) == (
        0,
        0,
        1,
    )
    assert [line for line in capsys.readouterr().out.splitlines() if "read" in line] == [
        "0 errors, 0 warnings (4 files read)",
        "0 errors, 0 warnings (2 files read)",
        "1 error, 0 warnings (1 file read)",
    ]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--brain", "tree"), "Brain root not found: --brain=tree holds no CONVENTIONS.md"),
        (("--thread", "none"), "--thread=none: neither threads/ nor archive/ has a folder of that name"),
        (("--rebuild-index", "--path", "tree"), "--rebuild-index takes the whole brain: no --thread, no --path"),
        (("--dry-run",), "--dry-run goes with --rebuild-index; a check never writes"),
    ],
)
def test_could_not_run(argv: tuple[str, ...], message: str) -> None:
    """Exit 2, which is not the 1 of a brain out of order."""
    with pytest.raises(RunnerError) as error:
        debate(*argv)
    assert (error.value.message, error.value.exit_code) == (message, 2)


def test_rebuild(brain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Says what it wrote; again, says that there is no change."""
    assert (debate("--rebuild-index"), debate("--rebuild-index")) == (0, 0)
    assert capsys.readouterr().out == (
        "thread-index.md: written\ncurrent-state.md: written\nthread-index.md: no change\ncurrent-state.md: no change\n"
    )
    assert (brain / "current-state.md").read_text().startswith("<!--\nMade by `debate verify --rebuild-index`")


def test_rebuild_dry_run(brain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A diff on stdout, exit 0, nothing written; without changes, a line that says so."""
    assert debate("--rebuild-index", "--dry-run") == 0
    assert capsys.readouterr().out.startswith("--- /dev/null\n+++ b/thread-index.md\n@@ -0,0 ")
    assert not (brain / "thread-index.md").exists()
    debate("--rebuild-index")
    capsys.readouterr()
    assert debate("--rebuild-index", "--dry-run") == 0
    assert capsys.readouterr().out == "no changes\n"


def test_rebuild_json(brain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What changed, and the diff."""
    debate("--rebuild-index")
    apply(brain, (add("threads/new/thread.md", thread("new")),))
    capsys.readouterr()
    assert debate("--rebuild-index", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["changed"]) == (True, ["thread-index.md", "current-state.md"])
    assert "+| `new` | New | refining |" in found["diff"]


def test_rebuild_refused(brain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every broken source is named, the first in the error; exit 1."""
    apply(brain, (edit(HOOKS, '"refining"', '"x"'), edit(SESSION, 'owner: "mara"\n', "")))
    with pytest.raises(RunnerError) as error:
        debate("--rebuild-index")
    assert (error.value.exit_code, error.value.path) == (1, HOOKS)
    assert capsys.readouterr().err == f"{SESSION}:1: [V-06] the field owner is missing; every leaf needs it\n"
