"""F. Files, concurrency and crashes, each class on a whole round.

Also proved elsewhere: F1 with two processes in tests/rounds/test_concurrency.py, F2 and F5 at every operation of the
disk in tests/rounds/test_crash.py, F4 with real kills in tests/rounds/test_kill.py, F7 in tests/rounds/test_refuse.py.
"""

# ruff: noqa: N802 (a test has its class's letter in its name)

from __future__ import annotations

import errno
import os

import pytest
from faults import FaultyDisk, Killed, QuickDisk
from helpers import (
    AT,
    FOLDER,
    LEAF,
    abort,
    answered,
    changed,
    close,
    copy,
    open_,
    place_of,
    plan,
    profile,
    resume,
    settings,
    state,
    tree,
    write,
)  # fmt: skip
from hostile import FEEDBACK, Says, claim, debate

from runner import runs, store
from runner.errors import Refused, RunnerError

SENTENCE = "The limit is the same for all shops."
GOOD = [claim(SENTENCE, "Each shop has its own limit.")]
PATH = f"project-brain/{LEAF}"
EIGHT = tuple(f"p{n}: look at part {n}" for n in range(8))


def test_F1_two_runs(root, says):
    """Both planned before either began: one opens round-01, the other is refused and writes nothing."""
    says(Says(GOOD))
    first, second = plan(root), plan(root)
    runs.open_round(first, settings(root), clock=lambda: AT)
    before = tree(root)
    with pytest.raises(Refused, match="the leaf's status is hardening"):
        runs.open_round(second, settings(root), clock=lambda: AT)
    assert tree(root) == before


def test_F2_leftovers_and_torn_lines(root, says, capsys):
    """A half-written temporary file, a torn last line of the journal, nonsense in convenience files: nothing stops."""
    fine = {"self-test": '{"action":"none","replacement":""}'}
    says(Says(GOOD, raw=fine | {"defender/C-0*": ("", "timeout")}))
    with pytest.raises(RunnerError):
        open_(root)
    place = place_of(root)
    torn = place.journal.read_bytes()
    place.journal.write_bytes(torn + b'{"key": "defender/C-01", "text": "CON')
    write(place.folder / ".defender.md.abc.debate-tmp", b"half")
    write(root / "config.yaml", b"{verbosity: [")
    write(root / "aliases.yaml", b"\xff\xfe{{{")
    write(root / ".audit-log.jsonl", b'{"torn')
    assert debate("doctor", "--profile", "fake") == 0
    assert ".defender.md.abc.debate-tmp" in capsys.readouterr().out
    says(Says(GOOD))
    assert debate("resume", PATH, "-q") == 0
    assert not (place.folder / ".defender.md.abc.debate-tmp").exists()
    assert debate("patches", PATH, "--apply", "P-01") == 0
    log = place.run / "applied.jsonl"
    log.write_bytes(log.read_bytes() + b'{"patches": ["P-')
    assert debate("close", PATH, "--patches-status", "partial") == 0


def test_F3_eight_at_once(root, says):
    """Eight reviewers whose replies come back in any order: each is in the journal once, and the files are the same."""
    made = []
    for seed in (1, 2):
        says(Says(GOOD))
        name = profile(root, "many", seed=seed, per_step=8)
        opened = open_(root, FOLDER, name, personas=(), ad_hoc=EIGHT, reviewers=8)
        keys = answered(opened.place)
        assert len(keys) == len(set(keys)) and sum(k.startswith("reviewer/") for k in keys) == 8
        made.append({n: b for n, b in tree(opened.place.folder).items() if n.endswith(".md") and "transcript" not in n})
        close(root, FOLDER, status="rejected")
        opened.place.folder.rename(root / f"gone-{seed}")
        (opened.place.history / "index.md").unlink()
    assert changed(*made) == []


def test_F4_resume_wastes_nothing(root, says):
    """Killed after two of four reviewers: exactly the other two and the defender are asked; the front matter flips
    once, and a second resume has nothing to do."""
    personas = ("red-team", "fresh-eyes-reader", "simplicity-critic", "ops-readiness")
    theme = {"title": "T", "text": "Text.", "claims": ["C-01"]}
    synthesis = {"themes": [theme], "tensions": [], "revisit": []}
    says(Says(GOOD))
    with pytest.raises(RunnerError):
        open_(root, name=profile(root, "killed", per_step=1, faults={3: "crash"}), personas=personas, reviewers=4)
    known = answered(place_of(root))
    assert len(known) == 2
    said = Says(GOOD, synthesis=synthesis)
    says(said)
    resume(root)
    asked = [q.key for q in said.asked]
    assert set(asked) & set(known) == set() and len(asked) == len(set(asked))
    assert sum(k.startswith(("reviewer/", "defender/prior")) for k in [*asked, *known]) == 6
    assert sum(k.startswith("defender/C-") for k in asked) == 4 * 3 and asked[-1] == "synthesizer"
    assert (root / LEAF).read_text().count("status: hardening") == 1
    assert debate("resume", PATH) == 1


@pytest.mark.parametrize("take_back", [False, True])
def test_F5_half_open(root, says, monkeypatch, tmp_path, take_back):
    """Died after the index row, before the flip: status says what to do, resume finishes, abort takes all back."""
    before, other = tree(root), copy(root, tmp_path / "whole")
    says(Says(GOOD))
    count = FaultyDisk(0)
    monkeypatch.setattr(store, "disk", count)
    open_(other)
    whole = tree(other)
    last = max(n for n, word in enumerate(count.log, 1) if word == "replace")  # the flip itself
    monkeypatch.setattr(store, "disk", FaultyDisk(last))
    with pytest.raises(Killed):
        open_(root)
    monkeypatch.setattr(store, "disk", QuickDisk())
    assert state(root) == "interrupted" and b"status: decided" in (root / LEAF).read_bytes()
    assert "| open |" in (root / "tree/area/debate/limits/index.md").read_text()
    if take_back:
        abort(root)
        assert changed(before, tree(root)) == []
    else:
        resume(root)
        assert changed(whole, tree(root)) == []


def test_F7_links_out_of_the_brain(root, tmp_path, capsys):
    """A leaf that is a link to outside: refused, the target named, nothing read into a file."""
    outside = tmp_path / "secret.md"
    write(outside, (root / LEAF).read_bytes())
    (root / "tree/area/link.md").symlink_to(outside)
    assert debate("open", "project-brain/tree/area/link.md", "--personas", "red-team", *FEEDBACK) == 1
    assert capsys.readouterr().err.startswith(f"debate: artifact_path escapes brain_path: {outside}\nhint: ")


@pytest.mark.parametrize(
    ("number", "word"),
    [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "check the owner"), (errno.EROFS, "read-only")],
)
def test_F7_disk_that_refuses(root, says, monkeypatch, capsys, number, word):
    """Full, forbidden or read-only, at whatever write: one message with file and hint; the artifact is whole, and what
    was begun is finished or taken back."""
    says(Says(GOOD))
    before = (root / LEAF).read_bytes()
    for nth in (1, 4, 9, 30, 60):
        disk = FaultyDisk(nth, lambda: OSError(number, os.strerror(number)), killed=False)
        monkeypatch.setattr(store, "disk", disk)
        code = debate("open", PATH, "--personas", "red-team", *FEEDBACK)
        monkeypatch.setattr(store, "disk", QuickDisk())
        err = capsys.readouterr().err
        assert code != 0 and "unexpected" not in err and word in err.splitlines()[1], (nth, err)
        assert (root / LEAF).read_bytes() == before
        if debate("status", PATH) == 0 and "(interrupted)" in capsys.readouterr().out:
            assert debate("abort", PATH) == 0
        capsys.readouterr()


def test_F7_modes_are_kept(root, says):
    """Mode bits of the artifact and the index stay, whatever the umask."""
    says(Says(GOOD))
    (root / LEAF).chmod(0o640)
    old = os.umask(0o077)
    try:
        opened = open_(root)
        close(root, status="rejected")
    finally:
        os.umask(old)
    assert (root / LEAF).stat().st_mode & 0o777 == 0o640
    index = opened.place.history / "index.md"
    index.chmod(0o664)
    open_(root)
    assert index.stat().st_mode & 0o777 == 0o664
