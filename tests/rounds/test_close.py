"""Closing: applied, partial, rejected; what is written, in which order, and what is never touched."""

from __future__ import annotations

import hashlib

import pytest
from faults import FaultyDisk, Killed, QuickDisk
from helpers import (
    ALONE,
    AT,
    FOLDER,
    LEAF,
    THREAD,
    TWO,
    abort,
    changed,
    close,
    copy,
    load,
    open_,
    place_of,
    record,
    replace,
    resume,
    state,
    tree,
    write,
)

from runner import runs, store
from runner.brain.index import COLUMNS, read
from runner.errors import Integrity, Refused
from runner.rounds import close as closing

HOME = "tree/area/pipeline/debate"
C4 = (
    "\n\n## round-01/C-04 nit: Doubt about old.\n\n> The old version stays for a week.\n\n"
    "REJECT · line 17 · confidence 0.85, cause measured, both label orders agreed\n\nReason: Because of C-04.\n"
)


@pytest.mark.parametrize(
    ("status", "word", "seeded"),
    [("applied", "closed", True), ("partial", "closed", True), ("rejected", "abandoned", False)],
)
def test_close_of_a_leaf(root, script, status, word, seeded):
    """The row is closed, the status comes back, source_debate stays; open issues go on unless rejected."""
    raw = (root / FOLDER).read_bytes()
    opened = open_(root, FOLDER)
    issues = (opened.place.folder / "open-issues.md").read_bytes()
    before = tree(root)
    closed = close(root, FOLDER, status)
    after = tree(root)
    names = [f"{HOME}/index.md", f"{HOME}/round-01/baseline.md", FOLDER]
    assert changed(before, after) == sorted([*names, *([f"{HOME}/next-round-seed.md"] if seeded else [])])
    assert after[FOLDER] == raw.replace(b'"decided"', b"decided\nsource_debate: debate/round-01")
    assert after[f"{HOME}/round-01/baseline.md"] == after[FOLDER]
    assert after.get(f"{HOME}/next-round-seed.md") == (issues if seeded else None)
    old, new = "| open |  |  | (pending) |\n", f"| {word} | {status} | {AT} | (pending) |\n"
    assert after[f"{HOME}/index.md"] == before[f"{HOME}/index.md"].replace(old.encode(), new.encode())
    assert (closed.restored, closed.seeded, closed.patches_status) == ("decided", seeded, status)
    assert closed.files == (
        "debate/index.md",
        *(["debate/next-round-seed.md"] if seeded else []),
        "pipeline.md",
        "debate/round-01/baseline.md",
    )
    assert state(root, FOLDER) == "closed"


def test_specified_comes_back(root, script):
    """A specified leaf is specified again; its comment stays, its quotes give way to a plain word."""
    raw = (root / ALONE).read_bytes()
    open_(root, ALONE)
    close(root, ALONE)
    assert (root / ALONE).read_bytes() == raw.replace(
        b"'specified' # soon\nsource_thread: x\n",
        b"specified # soon\nsource_thread: x\nsource_debate: debate/round-01\n",
    )


@pytest.mark.parametrize("status", ["applied", "rejected"])
def test_close_of_a_thread(root, script, status):
    """A thread's file is not touched."""
    open_(root, THREAD)
    raw = (root / THREAD).read_bytes()
    closed = close(root, THREAD, status)
    assert (root / THREAD).read_bytes() == raw
    assert closed.restored is None
    assert (root / "threads/webhooks/debate/round-01/baseline.md").read_bytes() == raw


def test_patches_were_applied(root, script):
    """The baseline holds the body as it is at close, patches and all."""
    open_(root)
    replace(root / LEAF, "The limit is the same for all shops.", "Each shop has its own limit.")
    close(root)
    assert b"Each shop has its own limit." in (place_of(root).folder / "baseline.md").read_bytes()
    assert (place_of(root).folder / "baseline.md").read_bytes() == (root / LEAF).read_bytes()


def test_no_seed_without_entries(root, script):
    """No `## ` entry, no seed: headings in the front matter or in code are none."""
    place = open_(root).place
    write(place.folder / "open-issues.md", b"---\nnote: |\n  ## no\n---\n\n# Open\n\n```\n## no\n```\n")
    assert close(root).seeded is False
    assert not (place.history / "next-round-seed.md").exists()


def test_hand_edited_issues(root, script):
    """open-issues.md edited by a person: every byte goes into the seed, and the file keeps them."""
    place = open_(root).place
    theirs = b"\xef\xbb\xbfmine\r\n\r\n## blocker: Ask the shops.\r\n\xff\n  "
    write(place.folder / "open-issues.md", theirs)
    assert close(root).seeded is True
    assert (place.history / "next-round-seed.md").read_bytes() == theirs
    assert (place.folder / "open-issues.md").read_bytes() == theirs


# ---- revisit -------------------------------------------------------------------------------------------------------


def test_revisit(root, script):
    """A flagged REJECT becomes an entry of open-issues.md, and so of the seed."""
    place = open_(root).place
    path = place.folder / "open-issues.md"
    before = path.read_text()
    assert "C-04" not in before
    closed = close(root, revisit=("C-04",))
    assert path.read_text() == before.rstrip("\n") + C4
    assert (place.history / "next-round-seed.md").read_text() == path.read_text()
    assert closed.files[0] == "debate/limits/round-01/open-issues.md"


def test_revisit_adds_an_entry_once(root, script):
    """Already listed (by the synthesizer) or named twice: one entry."""
    place = open_(root, synthesizer=True).place
    before = (place.folder / "open-issues.md").read_text()
    assert before.count("## round-01/C-04 ") == 1
    close(root, revisit=("C-04", "C-04"))
    assert (place.folder / "open-issues.md").read_text() == before


def test_revisit_named_twice(root, script):
    """Named twice on the command line: one entry."""
    place = open_(root).place
    close(root, revisit=("C-04", "C-04"))
    assert (place.folder / "open-issues.md").read_text().count("## round-01/C-04 ") == 1


# ---- rounds that the pack made -------------------------------------------------------------------------------------


@pytest.fixture
def packed(root) -> None:
    """An open round without `.run/`, with an index of other columns."""
    folder = root / HOME
    for name in ("feedback-in.md", "defender.md", "tryouts/red-team.md", "proposed-patches.md"):
        write(folder / "round-01" / name, b"x\n")
    write(folder / "round-01/personas.yaml", b"round: 1\n")
    write(folder / "round-01/open-issues.md", b"# Open\n\n## OI-01: A name.\n")
    write(
        folder / "index.md",
        b"# Debate\n\n| Round | Started | Open issues |\n|--:|---|--:|\n| 1 | today | 1 |\n\nEnd.\n",
    )
    replace(
        root / FOLDER, 'status: "decided"\n', "status: hardening\npre_hardening_status: decided\n"
        "source_debate: debate/round-01\n",
    )  # fmt: skip


def test_close_of_a_round_of_the_pack(root, packed):
    """Its row is found, its columns stay, ours come after them; no `.run/` is left."""
    before = tree(root)
    closed = close(root, FOLDER, "partial")
    after = tree(root)
    assert changed(before, after) == sorted(
        [f"{HOME}/index.md", f"{HOME}/round-01/baseline.md", f"{HOME}/next-round-seed.md", FOLDER]
    )
    assert after[f"{HOME}/index.md"].decode() == (
        "# Debate\n\n| Round | Started | Open issues | Status | Patches | Closed | Close commit |\n"
        "|--:|---|--:| --- | --- | --- | --- |\n"
        "| 1 | today | 1 | closed | partial | 2026-01-02T03:04:05Z | (pending) |\n\nEnd.\n"
    )
    assert closed.seeded is True
    assert state(root, FOLDER) == "closed"


def test_revisit_needs_a_record(root, packed):
    """Without a record no claim can be looked up."""
    before = tree(root)
    with pytest.raises(Refused) as caught:
        close(root, FOLDER, revisit=("C-01",))
    assert str(caught.value) == (
        f"{root / HOME}/round-01: this round has no record, so --revisit cannot find its claims\n"
        "hint: add the issue to open-issues.md by hand"
    )
    assert tree(root) == before


def test_round_of_ours_after_one_of_the_packs(root, packed, script):
    """The next round continues the history, the index and its columns; the pack's issue is carried on."""
    close(root, FOLDER)
    opened = open_(root, FOLDER)
    assert opened.place.number == 2
    row = read((root / HOME / "index.md").read_bytes(), "x").rows[2]
    assert row.cells["Started"] == ""
    assert {c: row.cells[c] for c in ("Round", "Status", "Reviewers")} == {
        "Round": "round-02",
        "Status": "open",
        "Reviewers": ", ".join(TWO),
    }
    assert set(COLUMNS) <= set(row.cells)
    assert "## OI-01: A name." in (opened.place.folder / "feedback-in.md").read_text()


# ---- killed --------------------------------------------------------------------------------------------------------


def count(monkeypatch, command) -> int:
    disk = FaultyDisk(0)
    monkeypatch.setattr(store, "disk", disk)
    command()
    monkeypatch.setattr(store, "disk", QuickDisk())
    return disk.done


def kill(monkeypatch, nth, command) -> None:
    monkeypatch.setattr(store, "disk", FaultyDisk(nth))
    with pytest.raises(Killed):
        command()
    monkeypatch.setattr(store, "disk", QuickDisk())


@pytest.mark.parametrize(("path", "status"), [(FOLDER, "applied"), (THREAD, "partial"), (FOLDER, "rejected")])
def test_killed_at_every_operation(root, tmp_path, script, monkeypatch, path, status):
    """Closed again, the tree is the undisturbed one, whatever status is given now; aborted, it is the one before."""
    open_(root, path)
    before = tree(root)
    whole = copy(root, tmp_path / "whole")
    total = count(monkeypatch, lambda: close(whole, path, status, ("C-04",)))
    assert total > 20
    for n in range(1, total + 1):
        one = copy(root, tmp_path / f"n{n}")
        kill(monkeypatch, n, lambda one=one: close(one, path, status, ("C-04",)))
        other = copy(one, tmp_path / f"a{n}")
        if state(one, path) == "closed":
            assert changed(tree(whole), tree(one)) == [], n
            continue
        begun = state(one, path) == "closing"
        assert begun or state(one, path) == "open"
        close(one, path, *((None,) if begun else (status, ("C-04",))))
        assert changed(tree(whole), tree(one)) == [], n
        if begun:
            assert runs.abort_round(load(other, path))[1:] == ((), "close")
            assert changed(before, tree(other)) == [], n
            assert state(other, path) == "open"


def test_undo_killed_at_every_operation(root, tmp_path, script, monkeypatch):
    """Taking a close back, killed anywhere, is finished by the next abort."""
    open_(root, FOLDER)
    before = tree(root)
    total = count(monkeypatch, lambda: close(copy(root, tmp_path / "whole"), FOLDER))
    kill(monkeypatch, total - 1, lambda: close(root, FOLDER))
    assert state(root, FOLDER) == "closing"
    steps = count(monkeypatch, lambda: abort(copy(root, tmp_path / "counted"), FOLDER))
    for n in range(1, steps + 1):
        one = copy(root, tmp_path / f"n{n}")
        kill(monkeypatch, n, lambda one=one: abort(one, FOLDER))
        if state(one, FOLDER) == "closing":
            abort(one, FOLDER)
        assert changed(before, tree(one)) == [], n


@pytest.fixture
def half_closed(root, script, monkeypatch, tmp_path):
    """All of a close is done but the end of it."""
    open_(root, FOLDER)
    total = count(monkeypatch, lambda: close(copy(root, tmp_path / "whole"), FOLDER))
    kill(monkeypatch, total - 1, lambda: close(root, FOLDER))
    return root


def test_half_closed(half_closed):
    """Open and resume refuse, naming close."""
    root = half_closed
    before = tree(root)
    with pytest.raises(Refused) as caught:
        open_(root, FOLDER)
    assert (
        str(caught.value)
        == f"{root / HOME}/round-01: round-01 is half closed\nhint: `debate close {root / FOLDER}` finishes that"
    )
    with pytest.raises(Refused) as caught:
        resume(root, FOLDER)
    assert (
        str(caught.value) == f"{root / FOLDER}: round-01 is closing\nhint: `debate close {root / FOLDER}` finishes that"
    )
    assert tree(root) == before


def test_edits_after_a_killed_close(half_closed):
    """What others wrote since stays: finishing sets only what close sets."""
    root = half_closed
    replace(root / FOLDER, 'title: "Pipeline"', "title: Renamed")
    replace(root / HOME / "index.md", "# Pipeline: debate rounds", "# Rounds")
    close(root, FOLDER)
    assert b"title: Renamed\nstatus: decided\nsource_debate: debate/round-01\n" in (root / FOLDER).read_bytes()
    assert b"# Rounds\n" in (root / HOME / "index.md").read_bytes()
    assert state(root, FOLDER) == "closed"


def test_edits_after_a_killed_close_then_abort(half_closed):
    """Taken back, only close's own lines go."""
    root = half_closed
    replace(root / FOLDER, 'title: "Pipeline"', "title: Renamed")
    replace(root / HOME / "index.md", "# Pipeline: debate rounds", "# Rounds")
    write(root / HOME / "next-round-seed.md", b"mine\n")
    abort(root, FOLDER)
    head = (root / FOLDER).read_text().split("---\n")[1]
    assert "title: Renamed\nstatus: hardening\n" in head
    assert "pre_hardening_status: decided\n" in head
    index = (root / HOME / "index.md").read_text()
    assert "# Rounds\n" in index
    assert "| open |  |  | (pending) |" in index
    assert (root / HOME / "next-round-seed.md").read_bytes() == b"mine\n"
    assert state(root, FOLDER) == "open"
    close(root, FOLDER)
    assert state(root, FOLDER) == "closed"


def test_damaged_close(half_closed):
    """A close.json that cannot be read: exit 5, and what to do."""
    root = half_closed
    path = place_of(root, FOLDER).run / "close.json"
    path.write_bytes(b"{}")
    with pytest.raises(Integrity) as caught:
        close(root, FOLDER)
    assert str(caught.value) == (
        f"{path}: the interrupted close cannot be read\nhint: remove this file and close again"
    )


def test_damaged_record(root, script):
    """A record that cannot be read: exit 5, nothing is written."""
    place = open_(root).place
    place.record.write_bytes(b"{")
    before = tree(root)
    with pytest.raises(Integrity) as caught:
        close(root, revisit=("C-04",))
    assert str(caught.value) == f"{place.record}: the record cannot be read\nhint: restore it from a copy"
    assert tree(root) == before


def test_closed_by_someone_else_meanwhile(root, script):
    """The preconditions hold under the lock, or nothing is written."""
    open_(root)
    stale = load(root)
    close(root, status="rejected")
    before = tree(root)
    with pytest.raises(Refused, match="the leaf's status is decided; close wants hardening"):
        closing.close(place_of(root), stale, "applied", AT)
    assert tree(root) == before


def test_record_stays(root, script):
    """Close changes nothing that the record vouches for."""
    place = open_(root).place
    close(root)
    for file in record(place)["files"]:
        assert hashlib.sha256((place.folder / file["path"]).read_bytes()).hexdigest() == file["sha256"]
