"""The run folder by itself: claim, inputs, state, abort, and a crash at every step of an abort."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults import FaultyDisk, Killed, QuickDisk

from runner import store
from runner.debates import folder
from runner.debates.folder import Files, RunFolder
from runner.errors import Integrity, Refused, RunnerError
from runner.journal import Journal
from runner.values import Document

FLOW = "ask"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "disk", QuickDisk())


@dataclass(frozen=True)
class Some:
    text: str
    many: tuple[str, ...] = ()


def begun(wanted: Path, schema: str = "ask/1") -> tuple[RunFolder, Journal, Files]:
    """A run with its inputs stored and its journal open."""
    place = folder.claim(wanted)
    folder.store_inputs(place, schema, Some("déjà \ud800", ("a",)))
    journal = Journal(lambda: "T")
    journal.open(FLOW, place.journal, {"version": "1"})
    return place, journal, Files(place, journal, FLOW)


def files(path: Path) -> list[str]:
    return sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())


def test_a_taken_folder_gets_a_number(tmp_path: Path) -> None:
    """Nothing is written into a folder that is there."""
    (tmp_path / "x").mkdir()
    assert [folder.claim(tmp_path / "x").folder.name for _ in range(2)] == ["x-2", "x-3"]
    assert files(tmp_path / "x") == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """One line that names the folder and the reason."""
    (tmp_path / "file").write_text("")
    with pytest.raises(RunnerError, match=r"is not a folder|Not a directory"):
        folder.claim(tmp_path / "file" / "x")


def test_inputs_come_back(tmp_path: Path) -> None:
    """Plain values as stored, torn characters too; another schema or half a file is Integrity."""
    place, _, _ = begun(tmp_path / "x")
    assert folder.load_inputs(place, "ask/1") == {"text": "déjà \ud800", "many": ["a"]}
    with pytest.raises(Integrity, match="the stored inputs cannot be read"):
        folder.load_inputs(place, "brief/1")
    place.inputs.write_bytes(place.inputs.read_bytes()[:-5])
    with pytest.raises(Integrity, match="the stored inputs cannot be read"):
        folder.load_inputs(place, "ask/1")
    place.inputs.unlink()
    with pytest.raises(Refused, match="it can only be aborted"):
        folder.load_inputs(place, "ask/1")


def test_states(tmp_path: Path) -> None:
    """What lies there says how far the run has come."""
    place = folder.claim(tmp_path / "x")
    assert folder.state(place) == "none"
    folder.store_inputs(place, "ask/1", Some(""))
    assert folder.state(place) == "interrupted"
    for complete, state in ((False, "partial"), (True, "done")):
        place.record.write_text(json.dumps({"complete": complete}))
        assert folder.state(place) == state
    place.record.write_text("{")
    with pytest.raises(Integrity, match="the record cannot be read"):
        folder.state(place)
    place.abort.write_text("")
    assert folder.state(place) == "aborting"


def test_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of an ask, from outside and from within; a run folder beside a brief, and the brief's file."""
    place, _, _ = begun(tmp_path / "x")
    monkeypatch.chdir(tmp_path / "x")
    for path in (tmp_path / "x", tmp_path / "x" / ".run", Path()):
        assert folder.find(path) == ("ask", place)
    brief = RunFolder(tmp_path, tmp_path / ".run-T-1")
    folder.store_inputs(brief, "brief/1", Some(""))
    assert folder.find(tmp_path / "T-1.md") == folder.find(tmp_path / ".run-T-1") == ("brief", brief)
    bare = folder.claim(tmp_path / "bare")
    assert folder.find(bare.folder) == ("ask", bare)
    assert folder.find(tmp_path / "nothing") is None and folder.find(tmp_path) is None


def test_files_of_others_are_not_written_over(tmp_path: Path) -> None:
    """A file changed by hand stops the run; the same bytes, and our own earlier ones, do not."""
    place, _, out = begun(tmp_path / "x")
    out.publish(FLOW, Document("round-2/a.md", "One."))
    out.publish(FLOW, Document("round-2/a.md", "Two."))
    assert (place.folder / "round-2/a.md").read_text() == "Two.\n"
    (place.folder / "round-2/a.md").write_text("Mine.\n")
    with pytest.raises(Integrity, match="changed by hand while the debate runs") as caught:
        out.publish(FLOW, Document("round-2/a.md", "Three."))
    assert caught.value.exit_code == 5
    assert (place.folder / "round-2/a.md").read_text() == "Mine.\n"


def test_a_file_from_before_may_be_replaced(tmp_path: Path) -> None:
    """Only the very bytes that were named."""
    place, journal, _ = begun(tmp_path / "x")
    (place.folder / "b.md").write_text("Old.\n")
    out = Files(place, journal, FLOW, replaces={"b.md": folder.publish.sha256(b"Old.\n")})
    out.write("b.md", b"New.\n")
    assert (place.folder / "b.md").read_bytes() == b"New.\n"
    out = Files(place, journal, FLOW, replaces={"c.md": folder.publish.sha256(b"Old.\n")})
    (place.folder / "c.md").write_text("Edited.\n")
    with pytest.raises(Integrity):
        out.write("c.md", b"New.\n")


def test_note_marks_markdown_only(tmp_path: Path) -> None:
    """A fake engine's word stands on every file that could be taken for real."""
    place, journal, _ = begun(tmp_path / "x")
    out = Files(place, journal, FLOW, "FAKE")
    out.publish(FLOW, Document("a.md", "Text."))
    out.publish(FLOW, Document("a.prompt", "Text."))
    assert (place.folder / "a.md").read_text() == "FAKE\n\nText.\n"
    assert (place.folder / "a.prompt").read_text() == "Text.\n"


def test_lock(tmp_path: Path) -> None:
    """Of two commands in one folder the second is refused."""
    place, _, _ = begun(tmp_path / "x")
    with place.lock(), pytest.raises(Refused, match="another debate command"), place.lock():
        pass


# ---- abort ---------------------------------------------------------------------------------------------------------


def half_done(wanted: Path) -> RunFolder:
    """An interrupted run with a file of ours, one of ours that someone edited, and one of someone else's."""
    place, journal, out = begun(wanted)
    out.publish(FLOW, Document("a.prompt", "Ours."))
    out.publish(FLOW, Document("round-2/a.output", "Ours."))
    journal.close(FLOW)
    (place.folder / "round-2/a.output").write_text("Edited.\n")
    (place.folder / "mine.txt").write_text("Mine.\n")
    return place


LEFT = {".aborted-x/mine.txt": "Mine.\n", ".aborted-x/round-2/a.output": "Edited.\n"}


def test_abort_takes_back_and_moves_aside(tmp_path: Path) -> None:
    """What we wrote goes; what we did not write is kept."""
    moved = folder.abort(half_done(tmp_path / "x"))
    assert {p: (tmp_path / p).read_text() for p in files(tmp_path)} == LEFT
    assert sorted(Path(m).name for m in moved) == ["a.output", "mine.txt"]


def test_abort_of_a_done_run_is_refused(tmp_path: Path) -> None:
    """There is nothing interrupted to take back."""
    place, _, out = begun(tmp_path / "x")
    out.record("ask/1", {"complete": True})
    with pytest.raises(Refused, match="this run is done"):
        folder.abort(place)


def test_abort_of_a_brief(tmp_path: Path) -> None:
    """Beside a brief only its own files go, and the earlier brief comes back."""
    place = RunFolder(tmp_path, tmp_path / ".run-T-1")
    folder.store_inputs(place, "brief/1", Some(""))
    journal = Journal(lambda: "T")
    journal.open(FLOW, place.journal, {"version": "1"})
    (tmp_path / "other.md").write_text("Other.\n")
    (tmp_path / "T-1.md").write_text("Old.\n")
    out = Files(place, journal, FLOW, replaces={"T-1.md": folder.publish.sha256(b"Old.\n")})
    out.write("T-1.md", b"New.\n")
    assert folder.abort(place, lambda: {"T-1.md": b"Old.\n"}) == ()
    assert {p: (tmp_path / p).read_text() for p in files(tmp_path)} == {"T-1.md": "Old.\n", "other.md": "Other.\n"}


def test_a_killed_abort_is_finished_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at every operation of the disk: the next abort leaves the same."""
    counting = FaultyDisk(0)
    place = half_done(tmp_path / "0" / "x")
    monkeypatch.setattr(store, "disk", counting)
    folder.abort(place)
    for n in range(1, counting.done + 1):
        monkeypatch.setattr(store, "disk", QuickDisk())
        place = half_done(tmp_path / str(n) / "x")
        monkeypatch.setattr(store, "disk", FaultyDisk(n))
        with pytest.raises(Killed):
            folder.abort(place)
        monkeypatch.setattr(store, "disk", QuickDisk())
        assert folder.find(place.folder) is not None, n
        folder.abort(place)
        assert {p: (tmp_path / str(n) / p).read_text() for p in files(tmp_path / str(n))} == LEFT, n


def test_a_killed_abort_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a file is gone or moved, the run is `aborting`, whatever else lies there."""
    place = half_done(tmp_path / "x")
    disk = FaultyDisk(8)
    monkeypatch.setattr(store, "disk", disk)
    with pytest.raises(Killed):
        folder.abort(place)
    assert folder.state(place) == "aborting" and not (place.folder / "a.prompt").exists(), disk.log


def test_the_journal_knows_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's sha256 is on the disk before the file is."""
    place, _, out = begun(tmp_path / "x")
    disk = FaultyDisk(0)
    monkeypatch.setattr(store, "disk", disk)
    out.write("a", b"x")
    assert disk.log[:4] == ["write", "fsync", "open", "write"]
    assert b'"file":"a"' in place.journal.read_bytes()


def test_what_a_killed_abort_renamed_away_goes_with_the_next_claim(tmp_path: Path) -> None:
    """A folder that was renamed away and not yet removed."""
    (tmp_path / ".x.gone").mkdir()
    (tmp_path / ".x.gone" / "a").write_text("")
    folder.claim(tmp_path / "x")
    assert not (tmp_path / ".x.gone").exists()
