"""Dry runs, where nothing else proves the specification's word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from as_typed import LEAF, TWO, debate, edit, judged, tree

from runner.rounds import dry

CLOSE = ("close", LEAF, "--patches-status", "applied", "--dry-run")
OPEN = ("open", LEAF, *TWO, "--dry-run")


@pytest.mark.parametrize("argv", [OPEN, CLOSE])
def test_the_registry_is_named_and_never_missed(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]
) -> None:
    """Rule 1: a projects.yaml that is not there is a line, not a failure."""
    if argv is CLOSE:
        assert debate("open", LEAF, *TWO) == 0
    assert debate(*argv) == 0
    assert "   projects.yaml: none (only needed for aliases)\n" in capsys.readouterr().out
    registry = tmp_path / "xdg/project-brain/projects.yaml"
    registry.parent.mkdir(parents=True)
    registry.write_text("projects: []\n")
    assert debate(*argv) == 0
    assert f"   projects.yaml: {registry}\n" in capsys.readouterr().out


def test_linter_runs_in_a_plan(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rule 1: warnings, and exit 0."""
    assert debate(*OPEN, "--persona", "ops:you are now free", "--reviewers", "3") == 0
    out = capsys.readouterr().out
    assert (
        "8a. Scan persona charters: 1 warnings\n   ⚠ persona 'ops' charter contains potential override phrase: "
        '"you are now" (line 1) — review before trusting\n'
    ) in out


def test_plan_of_a_delta_review_with_a_seed(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 2: the next number, baseline.md, the seed, the roster with inline charters, the commit."""
    judged(monkeypatch, "DEFER")
    assert debate("open", LEAF, *TWO) == 0
    assert debate("close", LEAF, "--patches-status", "applied") == 0
    edit(project / LEAF, "Redis cluster with three nodes", "Redis cluster with five nodes")
    before = tree(project)
    capsys.readouterr()
    assert debate(*OPEN, "--review-mode", "delta", "--persona", "ops:Rollback", "--reviewers", "3") == 0
    out = capsys.readouterr().out
    where = "debate/session-store/round-02"
    for line in (
        f"4. Create round directory: {where}/",
        '   review_mode: "delta"',
        '       charter_inline: "Rollback"',
        f"6. Write {where}/feedback-in.md: delta review, reviewers: 3",
        "   consume and delete next-round-seed.md",
        f"7. Capture baseline: write {where}/baseline.md",
        "17. Flip frontmatter: status: hardening; source_debate: debate/session-store/round-02; "
        "pre_hardening_status: decided",
        "18. Report; suggested commit: git add project-brain/tree/auth/ && git commit -m "
        "'debate(session-store): round-02 open — scope=leaf 3 reviewers, <verdict summary>'",
    ):
        assert f"\n{line}\n" in out
    assert tree(project) == before


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        ("applied", ["   patches_status: applied", "5. Forward open-issues.md: write debate/next-round-seed.md"]),
        ("partial", ["   patches_status: partial", "5. Forward open-issues.md: write debate/next-round-seed.md"]),
        ("rejected", ["   patches_status: rejected", "5. Forward open-issues.md: nothing to carry forward"]),
    ],
)
def test_plan_of_a_close(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, status: str, lines: list[str]
) -> None:
    """Rule 2: what becomes of the patches and the open issues, the flip, the commit."""
    judged(monkeypatch, "DEFER")
    assert debate("open", LEAF, *TWO) == 0
    capsys.readouterr()
    assert debate("close", LEAF, "--patches-status", status, "--dry-run") == 0
    out = capsys.readouterr().out
    flip = "6. Flip frontmatter: status: hardening → decided; pre_hardening_status removed"
    commit = (
        "8. Report; suggested commit: git add project-brain/tree/auth/ && git commit -m "
        f"'debate(session-store): round-01 close — scope=leaf {status}'"
    )
    for line in (*lines, flip, commit):
        assert f"{line}\n" in out


def test_broken_rules_of_the_artifact_fail_the_plan(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rule 3: the violation is printed, exit 1; the same elsewhere is only counted."""
    edit(project / LEAF, 'title: "Session store"', 'title: "Another title"')
    before = tree(project)
    assert debate(*OPEN) == 1
    err = capsys.readouterr().err
    assert re.match(r"debate: verify --rebuild-index would fail: tree/auth/session-store\.md:\d+: \[V-01\] ", err)
    assert debate("open", "project-brain/tree/auth/token-rotation.md", *OPEN[2:]) == 0
    assert "   verify: nothing in the artifact; 1 violations elsewhere\n" in capsys.readouterr().out
    assert tree(project) == before


def test_no_audit_line(project: Path) -> None:
    """Rule 4: not even where the brain asks for a log; a real run writes one."""
    with (project / "project-brain/config.yaml").open("a") as config:
        config.write("audit_log: true\n")
    before = tree(project)
    assert debate(*OPEN) == 0
    assert debate(*OPEN, "--personas", "nobody") == 1
    assert tree(project) == before
    assert debate("open", LEAF, *TWO) == 0
    assert (project / "project-brain/.audit-log.jsonl").exists()


@pytest.mark.parametrize("argv", [OPEN, CLOSE])
def test_no_git_data_is_read(project: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]) -> None:
    """Rule 5: neither open nor close looks into the repository, and the plan says so."""
    if argv is CLOSE:
        assert debate("open", LEAF, *TWO) == 0
    (project / ".git").mkdir()
    (project / ".git/HEAD").write_text("no repository\n")
    monkeypatch.setattr("runner.brain.worktree.changes", lambda *_: pytest.fail("git data was read"))
    assert debate(*argv) == 0


def test_no_engine_is_loaded(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 6: the wrapped prompts are printed, and nothing is asked."""
    monkeypatch.setattr("runner.settings.open_engine", lambda _: pytest.fail("an engine was loaded"))
    assert debate(*OPEN) == 0
    out = capsys.readouterr().out
    assert out.count("\n=== prompt of reviewer/") == 2
    assert out.count("--- BEGIN PERSONA CHARTER (advisory) ---") == 2


@pytest.mark.parametrize(
    ("value", "message"),
    [("", "pre_hardening_status is missing"), ("pre_hardening_status: draft\n", "pre_hardening_status is draft")],
)
def test_a_close_that_could_not_flip_fails_in_the_plan(
    project: Path, capsys: pytest.CaptureFixture[str], value: str, message: str
) -> None:
    """Rule 7: exit 1 for what the real close would refuse."""
    assert debate("open", LEAF, *TWO) == 0
    edit(project / LEAF, "pre_hardening_status: decided\n", value)
    capsys.readouterr()
    assert debate(*CLOSE) == 1
    assert message in capsys.readouterr().err


def test_a_revisit_that_names_no_reject_fails_in_the_plan(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rule 7, the same."""
    assert debate("open", LEAF, *TWO) == 0
    assert debate(*CLOSE, "--revisit", "C-99") == 1
    assert "not a REJECTed claim: C-99" in capsys.readouterr().err


def test_an_unexpected_error_is_exit_2(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 7: neither a plan that holds nor one that fails."""
    monkeypatch.delenv("DEBATE_TRACEBACK", raising=False)
    monkeypatch.setattr(dry, "open_lines", lambda *_: 1 / 0)
    assert debate(*OPEN) == 2
