"""Precondition 7, on real repositories made in-process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dulwich import porcelain

from runner.brain import artifact, history, worktree
from runner.errors import Refused

LEAF = "project-brain/tree/auth/session-store.md"
ROUND = "project-brain/tree/auth/debate/session-store/round-01"


@pytest.fixture
def project(demo: Path) -> Path:
    """The project folder of a writable example brain."""
    return demo.parent if demo.name == "project-brain" else demo


def found(project: Path) -> list[str] | None:
    """What `changes` says of the leaf."""
    leaf = artifact.load(project / "project-brain", project / LEAF, None)
    return worktree.changes(leaf, history.history_folder(leaf))


def commit(project: Path) -> None:
    """Commit everything there is."""
    porcelain.add(str(project), [str(p) for p in project.rglob("*") if p.is_file() and ".git" not in p.parts])
    porcelain.commit(str(project), message=b"x", author=b"a <a@b>", committer=b"a <a@b>")


def test_outside_a_work_tree_nothing_is_checked(project: Path) -> None:
    """No repository: None, which is not the same as clean."""
    assert found(project) is None


def test_clean_after_a_commit_and_untracked_before(project: Path) -> None:
    """Untracked counts, committed does not."""
    porcelain.init(str(project))
    assert found(project) == [LEAF]
    commit(project)
    assert found(project) == []


def test_only_the_artifact_its_history_and_the_index_files_count(project: Path) -> None:
    """A neighbour's change, and a sibling leaf's round, are nobody's business here."""
    porcelain.init(str(project))
    commit(project)
    (project / "project-brain/tree/auth/token-rotation.md").write_text("changed")
    other = project / "project-brain/tree/auth/debate/token-rotation/round-01"
    other.mkdir(parents=True)
    (other / "defender.md").write_text("x")
    assert found(project) == []
    (project / "project-brain/thread-index.md").write_text("x")
    (project / ROUND).mkdir(parents=True)
    (project / ROUND / "défender x.md").write_text("x")
    assert found(project) == ["project-brain/thread-index.md", f"{ROUND}/défender x.md"]


def test_modified_staged_and_deleted_count(project: Path) -> None:
    """Whatever differs between the last commit, the index and the file."""
    porcelain.init(str(project))
    commit(project)
    leaf = project / LEAF
    before = leaf.read_bytes()
    leaf.write_bytes(before + b"more\n")
    assert found(project) == [LEAF]
    porcelain.add(str(project), [str(leaf)])
    leaf.write_bytes(before)
    assert found(project) == [LEAF]


def test_ignored_files_do_not_count(project: Path) -> None:
    """The journal of a round is ignored by the round's own .gitignore."""
    porcelain.init(str(project))
    commit(project)
    run = project / ROUND / ".run"
    run.mkdir(parents=True)
    (run / "journal.jsonl").write_text("{}")
    assert found(project) == [f"{ROUND}/.run/journal.jsonl"]
    (run / ".gitignore").write_text("journal.jsonl\n")
    assert found(project) == [f"{ROUND}/.run/.gitignore"]


def test_a_damaged_repository_is_refused_with_a_hint(project: Path) -> None:
    """No traceback, and a way out."""
    porcelain.init(str(project))
    commit(project)
    for folder in (project / ".git" / "objects").iterdir():
        shutil.rmtree(folder)
    with pytest.raises(Refused, match="the git work tree cannot be read") as caught:
        found(project)
    assert caught.value.hint == "repair it, or give --allow-dirty"
