"""Two processes at one leaf: one round, and the other is told why not."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from helpers import (
    FOLDER,
    LEAF,
    abort,
    changed,
    close,
    copy,
    load,
    open_,
    place_of,
    plan,
    profile,
    resume,
    settings,
    state,
    tree,
)

from runner import runs, store
from runner.errors import Incomplete, Refused, RunnerError
from runner.rounds import abort as aborting

FORK = multiprocessing.get_context("fork")


def _open(root: Path, path: str, barrier: Barrier, answer: Connection) -> None:
    """In a child: plan, meet the other, open; send what came of it."""
    try:
        planned = plan(root, path, "one")
        barrier.wait(30)
        runs.open_round(planned, settings(root, "one"), clock=lambda: "2026-01-02T03:04:05Z")
        answer.send("opened")
    except RunnerError as error:
        answer.send(f"{type(error).__name__} {error.code}")
    except BaseException as error:
        answer.send(repr(error))
    finally:
        os._exit(0)  # no pytest in the child


def _race(root: Path, path: str) -> list[str]:
    barrier, pairs = FORK.Barrier(2), [FORK.Pipe(duplex=False) for _ in range(2)]
    children = [FORK.Process(target=_open, args=(root, path, barrier, sender)) for _, sender in pairs]
    for child in children:
        child.start()
    answers = [receiver.recv() for receiver, _ in pairs]
    for child in children:
        child.join(30)
    for pair in pairs:
        for end in pair:
            end.close()
    return answers


@pytest.mark.parametrize(("path", "times"), [(LEAF, 30), (FOLDER, 20)])
def test_two_open_one_leaf(root, tmp_path, path, times):
    """Exactly one wins; the other is refused; the tree is that of a single run."""
    profile(root, "one", claims=1)
    whole = copy(root, tmp_path / "whole")
    open_(whole, path, "one")
    expected = tree(whole)
    for n in range(times):
        one = copy(root, tmp_path / f"n{n}")
        answers = _race(one, path)
        assert answers.count("opened") == 1, answers
        loser = next(answer for answer in answers if answer != "opened")
        assert loser in ("Refused locked", "Refused claimed", "Refused interrupted", "Refused refused"), answers
        assert changed(expected, tree(one)) == []


def test_folder_removed_under_the_lock(root, script, tmp_path):
    """A lock on a folder that its last holder has removed is no lock."""
    folder = tmp_path / "history"
    folder.mkdir()
    lock = store.Lock(folder)
    flock = store.fcntl.flock

    def removed_first(descriptor: int, how: int) -> None:
        flock(descriptor, how)
        folder.rmdir()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.fcntl, "flock", removed_first)
        with pytest.raises(Refused) as caught, lock:
            pass
    assert caught.value.code == "locked"


def test_loser_leaves_the_winners_folder(root, script):
    """Refused by the lock, open does not take away the empty folder that the winner has just made."""
    planned = plan(root)
    history = root / "tree/area/debate/limits"
    history.mkdir(parents=True)
    with store.Lock(history), pytest.raises(Refused, match="another debate command is working in this folder"):
        runs.open_round(planned, settings(root))
    assert history.is_dir()


def test_close_and_resume_are_locked_out(root, script):
    """Every command that writes wants the lock first."""
    place = open_(root).place
    before = tree(root, local=True)
    with store.Lock(place.history):
        for command in (lambda: close(root), lambda: resume(root)):
            with pytest.raises(Refused) as caught:
                command()
            assert caught.value.code == "locked"
    assert tree(root, local=True) == before


def test_stale_abort(root, script):
    """An abort that was decided on before someone else finished the round does not remove it."""
    with pytest.raises(Incomplete):
        open_(root, name=profile(root, "ill", faults={"reviewer/red-team*": "timeout"}))
    stale, place = load(root), place_of(root)
    abort(root)
    open_(root)
    before = tree(root, local=True)
    with pytest.raises(Refused, match="round-01 changed meanwhile"):
        aborting.abort(place, stale, "interrupted")
    assert (tree(root, local=True), state(root)) == (before, "open")
