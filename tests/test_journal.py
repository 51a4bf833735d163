"""The journal: what it takes, what it gives back, and what a crash can do to it."""

from __future__ import annotations

import itertools
import json

import pytest
from faults import FaultyDisk, QuickDisk
from hypothesis import given, settings
from hypothesis import strategies as st

from runner import store
from runner.errors import Integrity, RunnerError
from runner.journal import Journal, family
from runner.values import Reply

HEADER = {"version": "1.0", "artifact": "a.md"}
FLOW = "a.md round-01"


def ticking():
    ticks = itertools.count()
    return lambda: f"t{next(ticks)}"


def opened(path, header=HEADER):
    journal = Journal(ticking())
    journal.open(FLOW, path, header)
    return journal


def reply(key, finish="stop", text="x"):
    return Reply(key, text, finish, tokens_in=3, scores=(-0.5, -1.0))


@pytest.fixture(autouse=True, scope="module")
def quick():
    """These tests open files by the hundred; that a sync happens is seen in the log of operations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "disk", QuickDisk())
        yield


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.jsonl"


# ---- writing and reading -------------------------------------------------------------------------------------------


def test_exact_bytes(path):
    """One compact line each: header, reply, note; `at` comes last."""
    journal = opened(path)
    journal.add(FLOW, "d1", Reply("r/1", "é\n", "stop", 7, 0, 2, 1, (), 9))
    journal.note(FLOW, {"file": "index.md", "sha256": "ab"})
    journal.sync()
    assert path.read_text().splitlines() == [
        '{"header":{"version":"1.0","artifact":"a.md"},"at":"t0"}',
        '{"key":"r/1","digest":"d1","reply":{"key":"r/1","text":"é\\n","finish":"stop","tokens_in":7,'
        '"tokens_cached":0,"tokens_out":2,"forced":1,"scores":[],"ms":9},"at":"t1"}',
        '{"file":"index.md","sha256":"ab","at":"t2"}',
    ]


def test_answer_after_reopening(path):
    """What was recorded is answered, now and by the next process; what was not, is not."""
    first = opened(path)
    first.add(FLOW, "d1", reply("r/1"))
    first.add(FLOW, "d2", reply("r/1~2", "timeout"))
    first.close(FLOW)
    for journal in (first, opened(path)):
        assert journal.answer(FLOW, "r/1", "d1") == reply("r/1")
        assert journal.answer(FLOW, "r/1~2", "d2") == reply("r/1~2", "timeout")
        assert journal.answer(FLOW, "r/2", "d1") is None
        assert list(journal.replies(FLOW)) == ["r/1", "r/1~2"]
    assert first.lines(FLOW) == opened(path).lines(FLOW)


@settings(max_examples=50, deadline=None)
@given(text=st.text(st.characters(codec=None, exclude_categories=())), key=st.text(min_size=1))
def test_any_text_survives(tmp_path_factory, text, key):
    """A reply of any characters, lone surrogates too, is read back equal."""
    path = tmp_path_factory.mktemp("j") / "journal.jsonl"
    journal = opened(path)
    journal.add(FLOW, "d", reply(key, text=text))
    journal.close(FLOW)
    assert opened(path).answer(FLOW, key, "d") == reply(key, text=text)


def test_header_once_per_version(path):
    """Opening again under the same version adds nothing; under another, a header."""
    opened(path)
    opened(path)
    opened(path, HEADER | {"version": "1.1"})
    headers = [line["header"]["version"] for line in opened(path, HEADER | {"version": "1.1"}).lines(FLOW)]
    assert headers == ["1.0", "1.1"]


def test_open_gives_the_file(path):
    """`open` returns what it read."""
    file = Journal(ticking()).open(FLOW, path, HEADER)
    assert (file.path, file.header, file.lines) == (path, HEADER, [{"header": HEADER, "at": "t0"}])


def test_note_once(path):
    """once: a line with the same content is not written again, by a resumed run either."""
    for _ in range(2):
        journal = opened(path)
        journal.note(FLOW, {"event": "opened"}, once=True)
        journal.note(FLOW, {"event": "asked", "n": 1}, once=True)
    journal.note(FLOW, {"event": "opened"})
    assert [line.get("event") for line in opened(path).lines(FLOW)] == [None, "opened", "asked", "opened"]


def test_flows_go_to_their_own_files(tmp_path):
    """Each flow has its file; keys do not meet."""
    journal = Journal(ticking())
    for name in ("a", "b"):
        journal.open(name, tmp_path / name, HEADER)
        journal.add(name, f"d{name}", reply("r"))
    assert journal.answer("a", "r", "da") == reply("r")
    assert journal.answer("b", "r", "db") == reply("r")


def test_unknown_flow(path):
    """A flow whose journal was never opened is named."""
    with pytest.raises(RunnerError) as caught:
        opened(path).note("b.md", {})
    assert caught.value.message == "no journal is open for the flow b.md"


def test_missing_folder(tmp_path):
    """A folder that is not there is explained."""
    with pytest.raises(RunnerError) as caught:
        opened(tmp_path / "none" / "journal.jsonl")
    assert caught.value.message == "cannot open: No such file or directory"


def test_unreadable(tmp_path):
    """A path that is no file is explained."""
    with pytest.raises(RunnerError) as caught:
        opened(tmp_path)
    assert str(caught.value) == f"{tmp_path}: cannot read: Is a directory"


# ---- sync ----------------------------------------------------------------------------------------------------------


def test_sync_touches_what_changed(tmp_path, monkeypatch):
    """One sync per file that got something since the last time."""
    journal = Journal(ticking())
    for name in ("a", "b", "c"):
        journal.open(name, tmp_path / name, HEADER)
    disk = FaultyDisk(0)
    monkeypatch.setattr(store, "disk", disk)
    journal.sync()
    journal.add("a", "d", reply("r"))
    journal.add("a", "d", reply("s"))
    journal.note("c", {"event": "x"})
    journal.sync()
    journal.sync()
    assert disk.log == ["write", "write", "write", "fsync", "fsync"]


def test_close_syncs_and_a_later_line_reopens(path, monkeypatch):
    """Closing makes the lines durable; a line after that is no error."""
    journal = opened(path)
    journal.note(FLOW, {"event": "x"})
    disk = FaultyDisk(0)
    monkeypatch.setattr(store, "disk", disk)
    journal.close(FLOW)
    journal.close(FLOW)
    journal.close("never opened")
    journal.note(FLOW, {"event": "y"})
    journal.sync()
    assert disk.log == ["fsync", "open", "write", "fsync"]
    assert [line.get("event") for line in opened(path).lines(FLOW)] == [None, "x", "y"]


# ---- damage --------------------------------------------------------------------------------------------------------


def full_journal(path):
    journal = opened(path)
    journal.add(FLOW, "d1", reply("r/1"))
    journal.add(FLOW, "d2", reply("r/2", text="é决"))
    journal.close(FLOW)
    return path.read_bytes()


def test_torn_at_every_byte_of_the_last_line(path):
    """Any tear in the last line costs that line alone; the file is whole again and can be added to."""
    data = full_journal(path)
    start = data.rstrip(b"\n").rfind(b"\n") + 1
    for size in range(start, len(data)):
        path.write_bytes(data[:size])
        journal = opened(path)
        assert path.read_bytes() == data[:start]
        assert (journal.answer(FLOW, "r/1", "d1"), journal.answer(FLOW, "r/2", "d2")) == (reply("r/1"), None)
        journal.add(FLOW, "d2", reply("r/2"))
        journal.close(FLOW)
        assert opened(path).answer(FLOW, "r/2", "d2") == reply("r/2")


def test_torn_header(path):
    """A file that tore in its first line is begun anew."""
    opened(path)
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        opened(path)
        assert path.read_bytes() == data


def test_crash_while_cutting(path, monkeypatch):
    """Dying while the tail is cut off loses nothing more."""
    data = full_journal(path)
    whole = data[: data.rstrip(b"\n").rfind(b"\n") + 1]
    for nth in (1, 2, 3):
        path.write_bytes(data[:-5])
        monkeypatch.setattr(store, "disk", FaultyDisk(nth))
        with pytest.raises(BaseException):  # noqa: B017 - death
            opened(path)
        monkeypatch.setattr(store, "disk", QuickDisk())
        assert path.read_bytes().startswith(whole)
        assert list(opened(path).replies(FLOW)) == ["r/1"]


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (1, b'{"key":"r/1"}'),
        (1, b"[]"),
        (1, b'{"header":3}'),
        (2, b'{"key":"r/1","digest":"d1","rep'),
        (2, b'{"key":"r/1","digest":"d1","reply":{"key":"r/1"}}'),
        (2, b'{"key":"r/9","digest":"d1","reply":{"key":"r/1","text":"","finish":"stop"}}'),
        (2, b'{"key":"r/1","digest":1,"reply":{"key":"r/1","text":"","finish":"stop"}}'),
        (2, b'{"key":"r/1","digest":"d","reply":{"key":"r/1","text":"","finish":"stop","new":1}}'),
        (2, b'{"pass":"two"}'),
        (2, b"\xff\xfe"),
        (3, b""),
    ],
)
def test_damaged_line(path, number, line):
    """A line that is not what we wrote is an error with file and line, and the file is left alone."""
    lines = full_journal(path).split(b"\n")
    lines[number - 1] = line
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(Integrity) as caught:
        opened(path)
    assert str(caught.value) == (
        f"{path}:{number}: this line of the journal is damaged\n"
        "hint: restore the file from a copy, or give this run up and start anew"
    )
    assert path.read_bytes() == b"\n".join(lines)


# ---- changed requests ----------------------------------------------------------------------------------------------


def test_changed_request_same_version(path):
    """The same version asking something else under a key is an error that names it."""
    full_journal(path)
    with pytest.raises(Integrity) as caught:
        opened(path).answer(FLOW, "r/1", "other")
    assert str(caught.value) == (
        f"{path}: the request r/1 has changed since its reply was recorded\n"
        "hint: what it was built from is not what it was: restore it, or give this run up and start anew"
    )


def test_changed_request_other_version(path):
    """After an upgrade the recorded reply stands, with one warning however often it is resumed."""
    full_journal(path)
    for _ in range(2):
        journal = opened(path, HEADER | {"version": "1.1"})
        for _ in range(2):
            assert journal.answer(FLOW, "r/1", "other") == reply("r/1")
        assert journal.answer(FLOW, "r/2", "d2") == reply("r/2", text="é决")
        journal.close(FLOW)
        assert [line["warning"] for line in journal.lines(FLOW) if "warning" in line] == [
            "the request r/1 differs under version 1.1: the reply recorded under version 1.0 stands"
        ]


def test_each_reply_is_held_to_its_own_version(path):
    """What the new version asked, the new version must ask again in the same words."""
    full_journal(path)
    newer = opened(path, HEADER | {"version": "1.1"})
    newer.add(FLOW, "d3", reply("r/3"))
    newer.close(FLOW)
    newer = opened(path, HEADER | {"version": "1.1"})
    with pytest.raises(Integrity, match="the request r/3 has changed"):
        newer.answer(FLOW, "r/3", "other")


# ---- passes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "name"),
    [("r", "r"), ("r~2", "r"), ("r~12", "r"), ("r~x", "r~x"), ("a~2/b", "a~2/b"), ("p2/C-09~3", "p2/C-09")],
)
def test_family(key, name):
    """A retry belongs to the key it retries."""
    assert family(key) == name


def test_passes(path):
    """The highest pass recorded, 1 if none."""
    journal = opened(path)
    assert journal.passes(FLOW) == 1
    for n in (2, 3):
        journal.note(FLOW, {"pass": n})
        assert opened(path).passes(FLOW) == n


@pytest.mark.parametrize(
    ("finishes", "passes", "expected"),
    [
        (["timeout"], 1, ()),
        (["timeout", "error"], 1, ("r",)),
        (["timeout", "stop"], 1, ()),
        (["timeout", "error"], 2, ()),
        (["timeout", "error", "error"], 2, ()),
        (["timeout", "error", "error", "length"], 2, ("r",)),
        (["timeout", "error", "error", "stop"], 2, ()),
    ],
)
def test_exhausted_by_finish(path, finishes, passes, expected):
    """A key with 2 tries per pass and no good last one is used up."""
    journal = opened(path)
    if passes > 1:
        journal.note(FLOW, {"pass": passes})
    for n, finish in enumerate(finishes, 1):
        journal.add(FLOW, "d", reply("r" if n == 1 else f"r~{n}", finish))
    journal.close(FLOW)
    assert opened(path).exhausted(FLOW) == expected


def test_exhausted_by_end_line(path):
    """The last end line of the present pass counts (it knows of replies that could not be parsed)."""
    journal = opened(path)
    journal.note(FLOW, {"end": "partial", "exhausted": ["s", "r~2"]})
    assert journal.exhausted(FLOW) == ("r", "s")
    journal.note(FLOW, {"end": "partial", "exhausted": ["t"]})
    assert journal.exhausted(FLOW) == ("t",)
    journal.note(FLOW, {"pass": 2})
    assert journal.exhausted(FLOW) == ()
    journal.note(FLOW, {"end": "done"})
    assert journal.exhausted(FLOW) == ()


def test_at_comes_from_the_clock(path):
    """Every line carries the moment it was written."""
    journal = opened(path)
    journal.note(FLOW, {"event": "x"})
    assert [json.loads(line)["at"] for line in path.read_text().splitlines()] == ["t0", "t1"]
