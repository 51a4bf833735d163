"""Killed at every operation of the disk, each command can be finished, or taken back, as if nothing had happened."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import FaultyDisk, Killed, QuickDisk
from helpers import (
    FOLDER,
    LEAF,
    THREAD,
    Engines,
    abort,
    answered,
    changed,
    close,
    copy,
    load,
    make,
    open_,
    place_of,
    profile,
    resume,
    state,
    tree,
    write,
)

from runner import store
from runner.brain import history
from runner.errors import Refused, RunnerError
from runner.rounds import inputs
from runner.rounds.folder import Round

SEED = b"---\nkind: x\n---\n\n# Open\n\n## major: The limit is a guess.\n"


def fresh(project: Path) -> tuple[Path, str]:
    """A first round: every folder is new."""
    return make(project), LEAF


def seeded(project: Path) -> tuple[Path, str]:
    """A second round: index.md and a seed are there."""
    root = make(project)
    open_(root, FOLDER)
    close(root, FOLDER, "rejected")
    write((root / FOLDER).parent / "debate" / "next-round-seed.md", SEED)
    return root, FOLDER


def thread(project: Path) -> tuple[Path, str]:
    return make(project), THREAD


CASES = [fresh, seeded, thread]
Case = Callable[[Path], tuple[Path, str]]


def kill(monkeypatch: pytest.MonkeyPatch, nth: int, command: Callable[[], object]) -> bool:
    """Run the command on a disk that dies at its nth operation; False when it was done before."""
    disk = FaultyDisk(nth)
    monkeypatch.setattr(store, "disk", disk)
    try:
        command()
    except Killed:
        return True
    finally:
        monkeypatch.setattr(store, "disk", QuickDisk())
    return False


def count(monkeypatch: pytest.MonkeyPatch, command: Callable[[], object]) -> int:
    """How many operations the command takes."""
    disk = FaultyDisk(0)
    monkeypatch.setattr(store, "disk", disk)
    command()
    monkeypatch.setattr(store, "disk", QuickDisk())
    return disk.done


def latest(root: Path, path: str) -> Round | None:
    folder = history.history_folder(load(root, path))
    numbers = history.rounds(folder) if folder.exists() else []
    return Round(folder, numbers[-1], path) if numbers else None


def finish(root: Path, path: str, rounds: int, engines: Engines) -> None:
    """What a person does after the crash: resume, or abort and open again where nothing was stored yet."""
    place = latest(root, path)
    if place is None or place.number < rounds:
        open_(root, path, "one")
    elif inputs.load(place.run) is None:
        abort(root, path)
        open_(root, path, "one")
    else:
        known = answered(place)
        resume(root, path, "one")
        assert set(engines.asked) & set(known) == set()


@pytest.fixture(params=CASES, ids=lambda case: case.__name__)
def case(request, tmp_path) -> tuple[Path, str, int]:
    """(brain before open, artifact, number of the round to open)."""
    root, path = request.param(tmp_path / "base")
    profile(root, "one", claims=1)
    return root, path, 2 if request.param is seeded else 1


def test_open_killed(case, tmp_path, monkeypatch, engines):
    """Open dies at operation n. Resumed: the undisturbed tree, and no recorded reply is asked again.

    Aborted: the tree of before, or the round is open and abort says so.
    """
    base, path, number = case
    whole = copy(base, tmp_path / "whole")
    total = count(monkeypatch, lambda: open_(whole, path, "one"))
    assert (total > 80, state(whole, path)) == (True, "open")
    opened = 0
    for n in range(1, total + 1, 1 if number == 2 else 2):
        root = copy(base, tmp_path / f"n{n}")
        assert kill(monkeypatch, n, lambda root=root: open_(root, path, "one"))
        opened += check_abort(base, copy(root, tmp_path / f"a{n}"), path, number)
        finish(root, path, number, engines)
        assert changed(tree(whole), tree(root)) == [], n
    assert opened < 2  # the sync of the artifact's folder, after the flip


def check_abort(base: Path, root: Path, path: str, number: int) -> int:
    """Abort after the crash leaves the tree as it was; 1 when the round was open already."""
    place = latest(root, path)
    if place is None or place.number < number:
        # Stopped before the claim: there is no round; empty folders of the history may be there.
        assert [name for name in changed(tree(base), tree(root)) if not name.endswith("/")] == []
    elif state(root, path) == "open":
        with pytest.raises(Refused, match="is open; only an interrupted round can be aborted"):
            abort(root, path)
        return 1
    else:
        assert abort(root, path) == ()
        assert changed(tree(base, local=True), tree(root, local=True)) == []
    return 0


def test_resume_killed_then_resumed(case, tmp_path, monkeypatch, engines):
    """Open dies, the resume dies, too, at any operation: the next resume ends in the undisturbed tree."""
    base, path, number = case
    whole = copy(base, tmp_path / "whole")
    total = count(monkeypatch, lambda: open_(whole, path, "one"))
    for first in (total // 2, total - 8):
        half = copy(base, tmp_path / f"half{first}")
        kill(monkeypatch, first, lambda half=half: open_(half, path, "one"))
        rest = count(
            monkeypatch, lambda half=half, first=first: resume(copy(half, tmp_path / f"r{first}"), path, "one")
        )
        for n in range(1, rest + 1, 5):
            root = copy(half, tmp_path / f"h{first}n{n}")
            assert kill(monkeypatch, n, lambda root=root: resume(root, path, "one"))
            finish(root, path, number, engines)
            assert changed(tree(whole), tree(root)) == [], n


def test_abort_killed_then_aborted(case, tmp_path, monkeypatch):
    """Abort dies at operation n: aborted again, the tree is the one before open."""
    base, path, _ = case
    whole = copy(base, tmp_path / "whole")
    total = count(monkeypatch, lambda: open_(whole, path, "one"))
    half = copy(base, tmp_path / "half")
    kill(monkeypatch, total - 2, lambda: open_(half, path, "one"))  # in the flip: index and seed are done
    steps = count(monkeypatch, lambda: abort(copy(half, tmp_path / "counted"), path))
    for n in range(1, steps + 1):
        root = copy(half, tmp_path / f"n{n}")
        assert kill(monkeypatch, n, lambda root=root: abort(root, path))
        assert abort(root, path) == ()
        assert changed(tree(base, local=True), tree(root, local=True)) == [], n


def test_resume_of_a_partial_round_killed(tmp_path, script, monkeypatch, engines):
    """Pass 2 dies at operation n: resumed, it is still pass 2, and ends in the undisturbed tree."""
    base = make(tmp_path / "base")
    engines.faults = {"reviewer/fresh-eyes-reader*": "timeout"}
    assert open_(base, THREAD, min_reviewers=1).result.exhausted == ("reviewer/fresh-eyes-reader",)
    engines.faults = {}
    whole = copy(base, tmp_path / "whole")
    total = count(monkeypatch, lambda: resume(whole, THREAD))
    for n in range(1, total + 1, 3):
        root = copy(base, tmp_path / f"n{n}")
        assert kill(monkeypatch, n, lambda root=root: resume(root, THREAD))
        assert state(root, THREAD) == "open"
        known = answered(place_of(root, THREAD))
        resume(root, THREAD)
        assert set(engines.asked) & set(known) == set()
        assert changed(tree(whole), tree(root)) == [], n


def test_disk_full(tmp_path, script, monkeypatch, engines):
    """An error of the disk at operation n ends the command with a message; once there is room, resume finishes."""
    base = make(tmp_path / "base")
    profile(base, "one", claims=1)
    whole = copy(base, tmp_path / "whole")
    total = count(monkeypatch, lambda: open_(whole, LEAF, "one"))
    for n in range(1, total + 1, 6):
        root = copy(base, tmp_path / f"n{n}")
        disk = FaultyDisk(n, lambda: OSError(errno.ENOSPC, "x"), killed=False)
        monkeypatch.setattr(store, "disk", disk)
        with pytest.raises(RunnerError) as caught:
            open_(root, LEAF, "one")
        monkeypatch.setattr(store, "disk", QuickDisk())
        assert (caught.value.code, caught.value.exit_code) == ("disk", 2)
        assert caught.value.hint == "the disk is full: free some space, then run the command again"
        finish(root, LEAF, 1, engines)
        assert changed(tree(whole), tree(root)) == [], n
