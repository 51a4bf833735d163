"""Close, where nothing else proves the specification's word."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from as_typed import LEAF, SPECIFIED, THREAD, TWO, debate, edit, judged, tree
from dulwich import porcelain

from runner.brain import artifact
from runner.cli import questions, report

DIRTY = "warning: uncommitted changes: project-brain/tree/auth/debate/session-store/"


@pytest.fixture
def opened(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with an open round whose claims are all deferred."""
    judged(monkeypatch, "DEFER")
    assert debate("open", LEAF, *TWO) == 0
    capsys.readouterr()
    return project


@pytest.fixture
def dirty(opened: Path) -> Path:
    """The same in a git work tree; nothing of the round is committed."""
    porcelain.init(str(opened))
    porcelain.add(str(opened), [str(opened / "project-brain/CONVENTIONS.md")])
    porcelain.commit(str(opened), message=b"x", author=b"a <a@b>", committer=b"a <a@b>")
    return opened


# ---- inputs --------------------------------------------------------------------------------------------------------


def test_patches_status_is_asked_on_a_terminal(opened: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the specification's three sentences, as its word."""
    assert questions.STATUSES == {
        "Applied in a separate commit": "applied",
        "Partially applied — some rejected": "partial",
        "Rejected — don't land any": "rejected",
    }
    monkeypatch.setattr(questions, "interactive", lambda _: True)
    monkeypatch.setattr(questions, "patches_status", lambda: "partial")
    assert debate("close", LEAF) == 0
    index = opened / "project-brain/tree/auth/debate/session-store/index.md"
    assert "| closed | partial |" in index.read_text()


# ---- a dirty tree --------------------------------------------------------------------------------------------------


def test_applied_on_a_dirty_tree_wants_a_yes(dirty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Warned, listed, and refused where nobody can say yes; nothing written."""
    before = tree(dirty / "project-brain")
    assert debate("close", LEAF, "--patches-status", "applied") == 1
    err = capsys.readouterr().err
    assert DIRTY in err
    assert err.endswith(f"debate: {LEAF}: uncommitted changes\nhint: commit them first, or give --yes\n")
    assert tree(dirty / "project-brain") == before


@pytest.mark.parametrize("flag", [True, False])
def test_a_yes_goes_on(
    dirty: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, flag: bool
) -> None:
    """--yes, or an answer on a terminal."""
    monkeypatch.setattr(questions, "interactive", lambda _: True)
    monkeypatch.setattr(questions, "confirm", lambda _: not flag)
    assert debate("close", LEAF, "--patches-status", "applied", *(["--yes"] if flag else [])) == 0
    assert DIRTY in capsys.readouterr().err


def test_a_no_does_not(dirty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The round stays open."""
    monkeypatch.setattr(questions, "interactive", lambda _: True)
    monkeypatch.setattr(questions, "confirm", lambda _: False)
    before = tree(dirty / "project-brain")
    assert debate("close", LEAF, "--patches-status", "applied") == 1
    assert tree(dirty / "project-brain") == before


@pytest.mark.parametrize("status", ["partial", "rejected"])
def test_partial_and_rejected_only_say_so(dirty: Path, capsys: pytest.CaptureFixture[str], status: str) -> None:
    """Open leaves the tree dirty by design."""
    assert debate("close", LEAF, "--patches-status", status) == 0
    assert DIRTY in capsys.readouterr().err


# ---- report --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "closed", "hint"),
    [
        (
            LEAF, {"patches_status": "applied", "seeded": False, "restored": "decided"},
            "Leaf is decided. Ready for derive-impl-spec (if decided) or ai-build (if specified).",
        ),
        (
            SPECIFIED, {"patches_status": "applied", "seeded": False, "restored": "specified"},
            "Leaf is specified. Ready for derive-impl-spec (if decided) or ai-build (if specified).",
        ),
        (
            THREAD, {"patches_status": "partial", "seeded": False, "restored": None},
            "Thread continues at active/refining. Patches are in proposed-patches.md. "
            "Run another round with multi-agent-debate --scope=thread whenever you're ready.",
        ),
        (
            LEAF, {"patches_status": "applied", "seeded": True, "restored": "decided"},
            "Seed written at debate/next-round-seed.md — next --open invocation will pick it up.",
        ),
        (
            THREAD, {"patches_status": "rejected", "seeded": False, "restored": None},
            "Round abandoned. Artifact is unchanged content-wise. "
            "Consider whether the personas or feedback need adjustment before retrying.",
        ),
    ],
)  # fmt: skip
def test_next_step(project: Path, path: str, closed: dict[str, object], hint: str) -> None:
    """Step 8's hints, word for word."""
    found = artifact.load(project / "project-brain", Path(path), None)
    assert report.next_step(SimpleNamespace(**closed), found) == hint  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "where", "slug", "scope", "unchanged"),
    [
        (LEAF, "project-brain/tree/auth/", "session-store", "leaf", "  status         decided\n"),
        (THREAD, f"{THREAD}/", "webhook-delivery", "thread", "  thread         unchanged\n"),
    ],
)
def test_report_of_close(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    path: str, where: str, slug: str, scope: str, unchanged: str,
) -> None:  # fmt: skip
    """Step 8: files, status, the commit to copy."""
    judged(monkeypatch, "DEFER")
    assert debate("open", path, *TWO) == 0
    before = tree(project / where)
    assert debate("close", path, "--patches-status", "partial", "-v") == 0
    after = tree(project / where)
    out = capsys.readouterr().out
    files = out.split("  files          ")[1].split("\n")[0].split(", ")
    assert sorted(files) == [name for name in after if after[name] != before.get(name)]
    assert any(name.endswith("next-round-seed.md") for name in files)
    assert unchanged in out
    assert f"  git add {where} && git commit -m 'debate({slug}): round-01 close — scope={scope} partial'\n" in out


def test_terse_line_of_a_thread(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The thread is said to be unchanged."""
    assert debate("open", THREAD, *TWO) == 0
    capsys.readouterr()
    assert debate("close", THREAD, "--patches-status", "rejected") == 0
    assert capsys.readouterr().out == (
        "Closed debate round-01 on project-brain/threads/webhook-delivery/thread.md "
        "(patches rejected, thread unchanged). Done.\n"
    )


# ---- an abort that was killed at its last step ---------------------------------------------------------------------


def test_abort_finishes_an_abort(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The round's folder, renamed away and not yet removed, goes."""
    before = tree(project)
    argv = ("--personas", "red-team", "--feedback", "Ready?", "--engine", "none")
    assert debate("open", LEAF, *argv) == 4
    history = project / "project-brain/tree/auth/debate/session-store"
    (history / "round-01").rename(history / ".round-01.gone")
    capsys.readouterr()
    assert debate("abort", LEAF) == 0
    assert capsys.readouterr().out == f"Aborted round-01 on {LEAF}. Done.\n"
    assert tree(project) == before and not history.exists()


def test_preconditions_before_anything_is_asked(
    opened: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leaf that cannot be given its status back is refused first."""
    edit(opened / LEAF, "pre_hardening_status: decided\n", "")
    monkeypatch.setattr(questions, "interactive", lambda _: True)
    monkeypatch.setattr(questions, "patches_status", lambda: pytest.fail("asked"))
    assert debate("close", LEAF) == 1
    assert "pre_hardening_status is missing; it must be decided or specified" in capsys.readouterr().err
