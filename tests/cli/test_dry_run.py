"""Dry runs: nothing written, no engine, no git; the numbered plan; exit 0, 1, 2."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path

import pytest

from runner import cli, config

LEAF = "project-brain/tree/auth/session-store.md"
THREAD = "project-brain/threads/webhook-delivery"
OPEN = ("--personas", "red-team,ops-readiness", "--feedback", "Is it ready?", "--dry-run")


@pytest.fixture
def project(demo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose engines cannot be loaded and whose git data cannot be read."""
    monkeypatch.chdir(demo.parent)
    monkeypatch.setattr("runner.settings.open_engine", lambda _: pytest.fail("an engine was loaded"))
    monkeypatch.setattr("runner.brain.worktree.changes", lambda *_: pytest.fail("git data was read"))
    return demo.parent


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below the folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("path", [LEAF, THREAD])
def test_open_plan(project: Path, capsys: pytest.CaptureFixture[str], path: str) -> None:
    """The steps of the specification in order, the prompts after them, and nothing on disk."""
    before = tree(project)
    assert cli.run(["open", path, *OPEN, "--profile", "fake"]) == 0
    out = capsys.readouterr().out
    steps = re.findall(r"(?m)^(\d+a?)\. ", out.split("\n=== prompt")[0])
    assert steps == [*map(str, range(1, 9)), "8a", *map(str, range(9, 19))]
    assert "   not checked in a dry run: working tree\n" in out
    assert "   reviewer/red-team: " in out and " tokens of prompt, at most " in out
    assert out.count("--- BEGIN PERSONA CHARTER (advisory) ---") == 2
    flip = "17. Flip frontmatter: last_debate_round: debate/round-01\n"
    if path == LEAF:
        flip = (
            "17. Flip frontmatter: status: hardening; source_debate: debate/session-store/round-01; "
            "pre_hardening_status: decided\n"
        )
    assert flip in out
    assert tree(project) == before


def test_it_also_plans_on_a_read_only_brain_without_the_model(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The missing file is a line, tokens are unknown, exit 0."""
    monkeypatch.setattr("runner.manifests.find_spec", lambda _: None)
    monkeypatch.setattr("runner.manifests.model_folders", lambda _: (Path(config.bundled("models")),))
    for folder in [project, *project.rglob("*")]:
        folder.chmod(folder.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    assert cli.run(["open", LEAF, *OPEN]) == 0
    out = capsys.readouterr().out
    assert "the model file SmolLM2-135M-Instruct.Q4_1.gguf is missing" in out
    assert "reviewer/red-team: tokens unknown, " in out


def test_a_precondition_that_fails_is_exit_1(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a real run."""
    assert cli.run(["open", LEAF, *OPEN, "--personas", "nobody", "--profile", "fake"]) == 1
    assert cli.run(["close", LEAF, "--patches-status", "applied", "--dry-run"]) == 1
    assert "close wants hardening" in capsys.readouterr().err


def test_wrong_usage_is_exit_2(project: Path) -> None:
    """As everywhere."""
    assert cli.run(["open", LEAF, "--dry-run", "--nonsense"]) == 2


def test_close_plan(demo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight steps, nothing on disk."""
    monkeypatch.chdir(demo.parent)
    argv = ["open", LEAF, *OPEN[:-1], "--profile", "fake", "-q"]
    assert cli.run(argv) == 0
    capsys.readouterr()
    before = tree(demo.parent)
    assert cli.run(["run", LEAF, "--close", "--patches-status", "rejected", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"(?m)^(\d+)\. ", out) == [str(n) for n in range(1, 9)]
    assert "4. Close the round in debate/index.md: abandoned, patches rejected\n" in out
    assert "5. Forward open-issues.md: nothing to carry forward\n" in out
    assert "6. Flip frontmatter: status: hardening → decided; pre_hardening_status removed\n" in out
    assert tree(demo.parent) == before


def test_no_heavy_package_is_imported_for_a_plan_without_a_tokenizer(project: Path) -> None:
    """Scaffold mode plans on a machine that has no engine."""
    import subprocess

    code = (
        "import sys; from runner import cli; code = cli.run(sys.argv[1:]); "
        "print(sorted({'llama_cpp', 'llguidance', 'torch', 'dulwich'} & set(sys.modules)), file=sys.stderr); "
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "open", LEAF, *OPEN, "--engine", "none"], capture_output=True, text=True,
        check=True, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "[]" and "tokens unknown" in done.stdout
