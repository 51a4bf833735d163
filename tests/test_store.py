"""Atomic writes, claims and locks: what holds when any single operation fails."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import subprocess
import sys

import pytest
from faults import FaultyDisk, Killed

from runner import store
from runner.errors import Refused, RunnerError

OLD, NEW = b"old\r\nbytes", b"new bytes, longer than before"


def disk_full():
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "leaf.md"
    path.write_bytes(OLD)
    return path


# ---- write_atomic --------------------------------------------------------------------------------------------------


def test_write_makes_and_replaces(tmp_path):
    """A new file and an old one hold exactly the given bytes; nothing else is left in the folder."""
    path = tmp_path / "决策.md"
    for data in (OLD, NEW, b""):
        store.write_atomic(path, data)
        assert path.read_bytes() == data
    assert names(tmp_path) == ["决策.md"]


def test_write_order_of_operations(file, monkeypatch):
    """The bytes are synced before the rename, the folder after it."""
    disk = FaultyDisk(0)
    monkeypatch.setattr(store, "disk", disk)
    store.write_atomic(file, NEW)
    assert disk.log == ["open", "chmod", "write", "fsync", "replace", "fsync"]


def test_write_without_sync(file, monkeypatch):
    """sync=False still replaces the file whole, without a sync."""
    disk = FaultyDisk(0)
    monkeypatch.setattr(store, "disk", disk)
    store.write_atomic(file, NEW, sync=False)
    assert file.read_bytes() == NEW
    assert disk.log == ["open", "chmod", "write", "replace"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o664])
def test_write_keeps_mode_bits(file, mode):
    """The permissions of an existing file stay, whatever the umask."""
    file.chmod(mode)
    before = os.umask(0o077)
    try:
        store.write_atomic(file, NEW)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == mode


def test_new_file_obeys_umask(tmp_path):
    """A new file has the permissions that any program would give it."""
    before = os.umask(0o027)
    try:
        store.write_atomic(tmp_path / "new.md", NEW)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.md").stat().st_mode) == 0o640


def test_write_replaces_a_link(file, tmp_path):
    """A link is replaced, and what it points to stays."""
    link = tmp_path / "link.md"
    link.symlink_to(file)
    store.write_atomic(link, NEW)
    assert (link.is_symlink(), link.read_bytes(), file.read_bytes()) == (False, NEW, OLD)


def test_short_writes_are_continued(file, monkeypatch):
    """A disk that takes one byte at a time gets them all."""

    class Slow(store.Disk):
        def write(self, descriptor, data):
            return super().write(descriptor, data[:1])

    monkeypatch.setattr(store, "disk", Slow())
    store.write_atomic(file, NEW)
    assert file.read_bytes() == NEW


@pytest.mark.parametrize("nth", range(1, 7))
def test_write_fails_at_each_operation(file, tmp_path, monkeypatch, nth):
    """An error at any operation: the file is old or new but whole, no temp is left, and the message says what to do."""
    monkeypatch.setattr(store, "disk", FaultyDisk(nth, disk_full, killed=False))
    with pytest.raises(RunnerError) as caught:
        store.write_atomic(file, NEW)
    assert file.read_bytes() == (OLD if nth < 6 else NEW)
    assert names(tmp_path) == ["leaf.md"]
    assert str(caught.value) == (
        f"{file}: cannot write: No space left on device\n"
        "hint: the disk is full: free some space, then run the command again"
    )
    assert caught.value.code == "disk"


@pytest.mark.parametrize("nth", range(1, 7))
def test_killed_at_each_operation(file, tmp_path, monkeypatch, nth):
    """Death at any operation: the file is whole, and `sweep` finds what was left."""
    monkeypatch.setattr(store, "disk", FaultyDisk(nth))
    with pytest.raises(Killed):
        store.write_atomic(file, NEW)
    monkeypatch.setattr(store, "disk", store.Disk())
    assert file.read_bytes() == (OLD if nth < 6 else NEW)
    assert not list(tmp_path.glob("*.md*tmp"))
    store.sweep(tmp_path)
    assert names(tmp_path) == ["leaf.md"]


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EACCES, "check the owner and the permissions of the file and of its folder"),
        (errno.EROFS, "the file system is read-only: mount it writable, or work on a copy"),
        (errno.EIO, None),
    ],
)
def test_errors_have_hints(file, monkeypatch, number, hint):
    """Each reason has its own next step; an unknown one has none."""
    monkeypatch.setattr(store, "disk", FaultyDisk(1, lambda: OSError(number, "x"), killed=False))
    with pytest.raises(RunnerError) as caught:
        store.write_atomic(file, NEW)
    assert (caught.value.message, caught.value.path, caught.value.hint) == (
        f"cannot write: {os.strerror(number)}",
        str(file),
        hint,
    )


def test_folder_that_cannot_be_synced(file, monkeypatch):
    """A file system without folder sync is no error."""
    monkeypatch.setattr(store, "disk", FaultyDisk(6, lambda: OSError(errno.EINVAL, "x"), killed=False))
    store.write_atomic(file, NEW)
    assert file.read_bytes() == NEW


def test_sweep_spares_everything_else(file, tmp_path):
    """Only our own leftovers go."""
    for name in (".hidden", "x.tmp", ".0a.debate-tmp", "y.debate-tmp"):
        (tmp_path / name).write_bytes(b"")
    store.sweep(tmp_path)
    assert names(tmp_path) == [".hidden", "leaf.md", "x.tmp", "y.debate-tmp"]


# ---- append, cut ---------------------------------------------------------------------------------------------------


def test_append(tmp_path):
    """Appending makes the file, then adds to it."""
    path = tmp_path / "applied.jsonl"
    store.append(path, b"one\n")
    store.append(path, b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


def test_append_syncs_the_folder_of_a_new_file_only(tmp_path, monkeypatch):
    """A new name needs the folder synced, an old one does not."""
    disk = FaultyDisk(0)
    monkeypatch.setattr(store, "disk", disk)
    store.append(tmp_path / "a", b"1")
    store.append(tmp_path / "a", b"2")
    assert disk.log == ["open", "write", "fsync", "fsync", "open", "write", "fsync"]


@pytest.mark.parametrize("nth", range(1, 5))
def test_append_fails_at_each_operation(tmp_path, monkeypatch, nth):
    """An error is explained, and what was there before stays."""
    path = tmp_path / "a"
    monkeypatch.setattr(store, "disk", FaultyDisk(nth, disk_full, killed=False))
    with pytest.raises(RunnerError, match="No space left on device"):
        store.append(path, b"12")
    assert (path.read_bytes() if path.exists() else b"") == {1: b"", 2: b"1"}.get(nth, b"12")


def test_appender_refuses_after_a_torn_write(tmp_path, monkeypatch):
    """Nothing is written after half a line."""
    with store.Appender(tmp_path / "a") as appender:
        monkeypatch.setattr(store, "disk", FaultyDisk(1, disk_full, killed=False))
        with pytest.raises(RunnerError):
            appender.write(b"one\n")
        with pytest.raises(RunnerError) as caught:
            appender.write(b"two\n")
    assert caught.value.message == "an earlier write to this file failed"
    assert (tmp_path / "a").read_bytes() == b"on"


def test_appender_close_twice(tmp_path):
    """Closing is idempotent."""
    appender = store.Appender(tmp_path / "a")
    appender.close()
    appender.close()


def test_cut(file):
    """The first bytes stay."""
    store.cut(file, 3)
    assert file.read_bytes() == b"old"


# ---- folders, remove, sha256 ---------------------------------------------------------------------------------------


def test_claim_once(tmp_path):
    """The first claim makes the folder; the second is refused and changes nothing."""
    folder = tmp_path / "round-01"
    store.claim(folder)
    (folder / "x").write_bytes(b"")
    with pytest.raises(Refused) as caught:
        store.claim(folder)
    assert (str(caught.value), caught.value.code) == (f"{folder}: already exists", "claimed")
    assert names(folder) == ["x"]


def test_claim_of_a_file(file):
    """A file in the way is refused too."""
    with pytest.raises(Refused):
        store.claim(file)


def test_claim_without_parent(tmp_path):
    """A missing parent is explained, not made."""
    with pytest.raises(RunnerError) as caught:
        store.claim(tmp_path / "debate" / "round-01")
    assert caught.value.message == "cannot make the folder: No such file or directory"
    assert names(tmp_path) == []


def test_claim_fails_at_each_operation(tmp_path, monkeypatch):
    """An error is explained."""
    for nth in (1, 2):
        monkeypatch.setattr(store, "disk", FaultyDisk(nth, disk_full, killed=False))
        with pytest.raises(RunnerError, match="cannot make the folder: No space left on device"):
            store.claim(tmp_path / f"round-0{nth}")
    assert names(tmp_path) == ["round-02"]


def test_make_folder(tmp_path, monkeypatch):
    """Missing parents are made, each durably; what exists is fine."""
    disk = FaultyDisk(0)
    monkeypatch.setattr(store, "disk", disk)
    store.make_folder(tmp_path / "a" / "b")
    store.make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert disk.log == ["mkdir", "fsync", "mkdir", "fsync"]


def test_make_folder_over_a_file(file):
    """A file in the way is an error."""
    with pytest.raises(RunnerError) as caught:
        store.make_folder(file)
    assert str(caught.value) == f"{file}: is not a folder"


def test_remove(file, monkeypatch):
    """The file goes, durably; a missing one is fine."""
    disk = FaultyDisk(0)
    monkeypatch.setattr(store, "disk", disk)
    store.remove(file)
    store.remove(file)
    assert not file.exists()
    assert disk.log == ["unlink", "fsync", "unlink"]


def test_remove_fails(file, monkeypatch):
    """A file that cannot go is explained."""
    monkeypatch.setattr(store, "disk", FaultyDisk(1, lambda: PermissionError(errno.EACCES, "x"), killed=False))
    with pytest.raises(RunnerError, match="cannot delete: Permission denied"):
        store.remove(file)
    assert file.read_bytes() == OLD


def test_sha256_file(file, tmp_path):
    """The digest of the bytes; a missing file is explained."""
    assert store.sha256_file(file) == hashlib.sha256(OLD).hexdigest()
    with pytest.raises(RunnerError, match="cannot read: No such file or directory"):
        store.sha256_file(tmp_path / "none")


# ---- locks ---------------------------------------------------------------------------------------------------------


def test_lock_is_exclusive_and_leaves_nothing(tmp_path):
    """A second lock is refused at once with the folder's name; afterwards it is free; no file is made."""
    with store.Lock(tmp_path):
        with pytest.raises(Refused) as caught, store.Lock(tmp_path):
            pass
        assert names(tmp_path) == []
    assert str(caught.value) == (
        f"{tmp_path}: another debate command is working in this folder\n"
        "hint: wait until it has ended, then run this again"
    )
    assert caught.value.code == "locked"
    with store.Lock(tmp_path):
        pass


def test_lock_is_freed_by_an_error(tmp_path):
    """Whatever ends the block frees the lock."""
    with pytest.raises(KeyboardInterrupt), store.Lock(tmp_path):
        raise KeyboardInterrupt
    with store.Lock(tmp_path):
        pass


def test_lock_holds_against_another_process(tmp_path):
    """Another process is refused while the lock is held, and killing a holder frees it."""
    code = f"from runner.store import Lock; from pathlib import Path\nwith Lock(Path({str(tmp_path)!r})): pass"
    with store.Lock(tmp_path):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2].endswith("another debate command is working in this folder")


def test_lock_of_a_missing_folder(tmp_path):
    """A folder that is not there is explained."""
    with pytest.raises(RunnerError) as caught, store.Lock(tmp_path / "none"):
        pass
    assert caught.value.message == "cannot lock: No such file or directory"


def test_file_system_without_locks(tmp_path, monkeypatch):
    """A file system that cannot lock is explained, and no descriptor leaks."""

    def no_lock(descriptor, how):
        raise OSError(errno.ENOLCK, "x")

    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0  # noqa: PTH112, PTH208
    monkeypatch.setattr(fcntl, "flock", no_lock)
    with pytest.raises(RunnerError) as caught, store.Lock(tmp_path):
        pass
    assert caught.value.hint == "this file system cannot lock; keep the brain on a local disk"
    after = len(os.listdir("/proc/self/fd")) if before else 0  # noqa: PTH208
    assert after == before
