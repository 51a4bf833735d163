"""Taking a round back: the tree is as it was, and nothing that a person wrote is lost."""

from __future__ import annotations

import shutil

import pytest
from faults import Killed
from helpers import (
    FOLDER,
    LEAF,
    THREAD,
    abort,
    changed,
    close,
    copy,
    load,
    open_,
    place_of,
    profile,
    replace,
    resume,
    state,
    tree,
    write,
)

from runner import runs, store
from runner.errors import Incomplete, Refused
from runner.rounds import conduct

SEED = b'---\nid: "x"\n---\n\n## major: The limit is a guess.\n'


@pytest.fixture
def ill(root) -> str:
    """A profile whose second reviewer never answers."""
    return profile(root, "ill", faults={"reviewer/fresh-eyes-reader*": "timeout"})


@pytest.mark.parametrize("path", [LEAF, FOLDER, THREAD])
def test_abort(root, script, ill, path):
    """Every file and folder of the round goes; the artifact was never touched."""
    before = tree(root, local=True)
    with pytest.raises(Incomplete):
        open_(root, path, ill)
    assert tree(root) != before
    assert abort(root, path) == ()
    assert tree(root, local=True) == before


def test_abort_twice(root, script, ill):
    """The second time there is nothing to abort."""
    with pytest.raises(Incomplete):
        open_(root, name=ill)
    abort(root)
    with pytest.raises(Refused, match="this artifact has no round"):
        abort(root)


def test_open_after_abort(root, tmp_path, script, ill):
    """The number is free again, and nothing of the first attempt shows."""
    whole = copy(root, tmp_path / "whole")
    open_(whole)
    with pytest.raises(Incomplete):
        open_(root, name=ill)
    abort(root)
    open_(root)
    assert changed(tree(whole), tree(root)) == []


def test_earlier_rounds_stay(root, script, ill):
    """Only the interrupted round goes; index.md has the bytes of before."""
    open_(root)
    close(root)
    before = tree(root, local=True)
    with pytest.raises(Incomplete):
        open_(root, name=ill)
    assert place_of(root).number == 2
    assert abort(root) == ()
    assert tree(root, local=True) == before


def test_files_of_a_person(root, script, ill):
    """What was changed or added in the round's folder moves to debate/.aborted-round-01/, with its path."""
    before = tree(root, local=True)
    with pytest.raises(Incomplete):
        open_(root, name=ill)
    place = place_of(root)
    write(place.folder / "notes.md", b"added\n")
    write(place.folder / "tryouts/red-team.md", b"changed\n")
    write(place.run / "mine.txt", b"added, too\n")
    assert abort(root) == (
        ".aborted-round-01/.run/mine.txt",
        ".aborted-round-01/notes.md",
        ".aborted-round-01/tryouts/red-team.md",
    )
    kept = "tree/area/debate/limits/.aborted-round-01/"
    after = tree(root, local=True)
    assert {name: data for name, data in after.items() if name not in before and not name.endswith("/")} == {
        f"{kept}.run/mine.txt": b"added, too\n",
        f"{kept}notes.md": b"added\n",
        f"{kept}tryouts/red-team.md": b"changed\n",
    }
    assert changed(before, {name: data for name, data in after.items() if name in before}) == []


def test_the_same_name_twice(root, script, ill):
    """A second aborted round-01 does not overwrite what the first left."""
    for text in (b"one\n", b"two\n", b"two\n"):
        with pytest.raises(Incomplete):
            open_(root, name=ill)
        write(place_of(root).folder / "notes.md", text)
        abort(root)
    kept = root / "tree/area/debate/limits/.aborted-round-01"
    assert {p.name: p.read_bytes() for p in kept.iterdir()} == {"notes.md": b"one\n", "notes.md.2": b"two\n"}


@pytest.fixture
def almost_open(root, script, monkeypatch):
    """Killed between the seed's deletion and the flip: index.md has the row, the seed is gone."""
    open_(root, FOLDER)
    close(root, FOLDER, "rejected")
    write((root / FOLDER).parent / "debate/next-round-seed.md", SEED)
    before = tree(root, local=True)

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(conduct, "flip", killed)
        with pytest.raises(Killed):
            open_(root, FOLDER)
    assert (state(root, FOLDER), place_of(root, FOLDER).number) == ("interrupted", 2)
    assert not (place_of(root, FOLDER).history / "next-round-seed.md").exists()
    return root, before


def test_index_and_seed_come_back(almost_open):
    """Their old bytes, from undo/."""
    root, before = almost_open
    assert abort(root, FOLDER) == ()
    assert tree(root, local=True) == before


def test_index_changed_by_someone(almost_open):
    """index.md with another's edit is kept aside; the old bytes come back."""
    root, before = almost_open
    index = place_of(root, FOLDER).history / "index.md"
    index.write_bytes(index.read_bytes() + b"\nA note.\n")
    theirs = index.read_bytes()
    assert abort(root, FOLDER) == (".aborted-round-02/index.md",)
    assert (index.parent / ".aborted-round-02/index.md").read_bytes() == theirs
    after = tree(root, local=True)
    assert [n for n in changed(before, after) if ".aborted-round-02" not in n] == []


def test_new_seed_of_someone(almost_open):
    """A seed written meanwhile is kept aside, too."""
    root, _ = almost_open
    history = place_of(root, FOLDER).history
    write(history / "next-round-seed.md", b"## nit: Mine.\n")
    assert abort(root, FOLDER) == (".aborted-round-02/next-round-seed.md",)
    assert (history / "next-round-seed.md").read_bytes() == SEED
    assert (history / ".aborted-round-02/next-round-seed.md").read_bytes() == b"## nit: Mine.\n"


def test_torn_journal(root, script, ill):
    """A damaged journal does not stop an abort; what it no longer tells apart is kept aside."""
    before = tree(root, local=True)
    with pytest.raises(Incomplete):
        open_(root, name=ill)
    place = place_of(root)
    data = place.journal.read_bytes()
    place.journal.write_bytes(b"\xff" + data[: len(data) // 3])
    moved = abort(root)
    assert ".aborted-round-01/tryouts/red-team.md" in moved
    assert [n for n in changed(before, tree(root, local=True)) if "limits/" not in n] == ["tree/area/debate/"]


@pytest.mark.parametrize("rounds", [0, 1])
def test_killed_while_deleting(root, script, ill, monkeypatch, rounds):
    """Renamed away and not yet deleted: abort again deletes the rest, and so does the next open."""
    for _ in range(rounds):
        open_(root)
        close(root)
    before = tree(root, local=True)
    with pytest.raises(Incomplete):
        open_(root, name=ill)

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(Killed):
            abort(root)
    gone = root / f"tree/area/debate/limits/.round-0{rounds + 1}.gone"
    assert gone.is_dir()
    place, moved, what = runs.abort_round(load(root))
    assert (place.number, moved, what) == (rounds + 1, (), "round")
    assert tree(root, local=True) == before


def test_open_sweeps_what_an_abort_left(root, script):
    """A renamed-away round does not stay beside the next one."""
    gone = root / "tree/area/pipeline/debate/.round-01.gone"
    write(gone / "defender.md", b"x")
    open_(root, FOLDER)
    assert not gone.exists()


def test_half_aborted(root, script, ill):
    """Once begun, an abort is finished by abort; open, close and resume refuse and say so."""
    with pytest.raises(Incomplete):
        open_(root, name=ill)
    write(place_of(root).run / "abort", b"")
    hint = f"`debate abort {root / LEAF}` "
    for command in (lambda: open_(root), lambda: resume(root, name=ill), lambda: close(root)):
        with pytest.raises(Refused) as caught:
            command()
        assert hint in str(caught.value)
    assert abort(root) == ()


def test_locked(root, script, ill):
    """While another command works in the history folder, abort waits for nobody."""
    with pytest.raises(Incomplete):
        open_(root, name=ill)
    before = tree(root, local=True)
    history = place_of(root).history
    with store.Lock(history), pytest.raises(Refused) as caught:
        abort(root)
    assert (caught.value.code, str(caught.value)) == (
        "locked",
        f"{history}: another debate command is working in this folder\n"
        "hint: wait until it has ended, then run this again",
    )
    assert tree(root, local=True) == before


def test_changed_round_is_not_moved_twice(root, script, ill, monkeypatch):
    """An abort that is killed after it moved a file aside moves it once."""
    with pytest.raises(Incomplete):
        open_(root, name=ill)
    write(place_of(root).folder / "notes.md", b"mine\n")

    class Last(store.Disk):
        def replace(self, source, target):
            if target.name.endswith(".gone"):
                raise Killed
            super().replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(store, "disk", Last())
        with pytest.raises(Killed):
            abort(root)
    assert abort(root) == (".aborted-round-01/notes.md",)
    kept = root / "tree/area/debate/limits/.aborted-round-01"
    assert [p.name for p in kept.iterdir()] == ["notes.md"]


def test_artifact_edits_stay(root, script, ill):
    """Abort never touches the artifact."""
    with pytest.raises(Incomplete):
        open_(root, name=ill)
    replace(root / LEAF, "two seconds", "three seconds")
    raw = (root / LEAF).read_bytes()
    abort(root)
    assert (root / LEAF).read_bytes() == raw
