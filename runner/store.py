"""Files that survive a crash: replace one whole, append to one, claim a folder, hold a lock.

Accepted: a process killed inside `write_atomic` can leave a `.*.debate-tmp` beside the target; nobody reads it and
`sweep` removes it. A link at the target is replaced, not followed: give the resolved path.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from runner.errors import Refused, RunnerError

_TEMP_SUFFIX = ".debate-tmp"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_HINTS = {
    errno.ENOSPC: "the disk is full: free some space, then run the command again",
    errno.EDQUOT: "the disk quota is used up: free some space, then run the command again",
    errno.EACCES: "check the owner and the permissions of the file and of its folder",
    errno.EPERM: "check the owner and the permissions of the file and of its folder",
    errno.EROFS: "the file system is read-only: mount it writable, or work on a copy",
    errno.ENOENT: "check that the folder still exists",
    errno.ENOLCK: "this file system cannot lock; keep the brain on a local disk",
    errno.EOPNOTSUPP: "this file system cannot lock; keep the brain on a local disk",
}


class Disk:
    """Every operation that changes the disk, one method each. Tests put a failing one in `store.disk`."""

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o666)

    def chmod(self, descriptor: int, mode: int) -> None:
        os.fchmod(descriptor, mode)

    def write(self, descriptor: int, data: bytes) -> int:
        return os.write(descriptor, data)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)  # noqa: PTH105 - one spelling for all of them

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)  # noqa: PTH102

    def unlink(self, path: Path) -> None:
        os.unlink(path)  # noqa: PTH108


disk = Disk()


@contextmanager
def _explained(path: Path, doing: str) -> Iterator[None]:
    """Turn an OSError into a RunnerError that says what could not be done to which file."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        hint = _HINTS.get(error.errno or 0)
        raise RunnerError(f"cannot {doing}: {reason}", path=str(path), hint=hint, code="disk") from error


def write_atomic(path: Path, data: bytes, *, sync: bool = True, sync_folder: bool = True) -> None:
    """Make `path` hold exactly `data`: readers see the old bytes or the new ones, also after a power cut.

    The permissions of an existing file stay. sync=False gives up the promise about power cuts only; sync_folder=False
    until `settle` was called for the folder, so that many files cost it once.
    The folder must exist (`make_folder`). Raises RunnerError (code `disk`); the file is then whole all the same:
    the old one, or, when only the last sync failed, the new one.
    """
    temp = path.parent / f"{_temp_prefix(path)}{secrets.token_hex(8)}{_TEMP_SUFFIX}"
    with _explained(path, "write"):
        try:
            _fill(temp, data, _mode(path), sync)
            disk.replace(temp, path)
        except BaseException:
            with suppress(OSError):
                disk.unlink(temp)
            raise
        if sync and sync_folder:
            _fsync_folder(path.parent)


def settle(folder: Path) -> None:
    """Make durable that files came into this folder."""
    with _explained(folder, "sync"):
        _fsync_folder(folder)


def _temp_prefix(path: Path) -> str:
    """Tells the leftovers of one target from another's; short, whatever the target is called."""
    return f".{hashlib.sha256(path.name.encode('utf-8', 'surrogateescape')).hexdigest()[:12]}-"


def _mode(path: Path) -> int | None:
    try:
        found = path.lstat().st_mode
    except FileNotFoundError:
        return None
    return stat.S_IMODE(found) if stat.S_ISREG(found) else None


def _fill(temp: Path, data: bytes, mode: int | None, sync: bool) -> None:
    descriptor = disk.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        if mode is not None:
            disk.chmod(descriptor, mode)
        _write_all(descriptor, data)
        if sync:
            disk.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[disk.write(descriptor, bytes(rest)) :]


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, _FOLDER)
    try:
        disk.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a folder; they order renames themselves.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove what killed writes left in `folder` (not below it). Call it under the lock."""
    _sweep(folder, ".*")


def sweep_of(path: Path) -> None:
    """Remove what killed writes of this one file left beside it; others may be writing into the same folder."""
    _sweep(path.parent, f"{_temp_prefix(path)}*")


def _sweep(folder: Path, names: str) -> None:
    with _explained(folder, "clean up"):
        for temp in sorted(folder.glob(names + _TEMP_SUFFIX)):
            disk.unlink(temp)


def append(path: Path, data: bytes) -> None:
    """Add `data` at the end, durably; the file is made when missing. Raises RunnerError (code `disk`)."""
    with Appender(path) as appender:
        appender.write(data)
        appender.sync()


class Appender:
    """An append-only file: `write` as often as you like, then `sync`.

    After a failed write the file may end in part of a line, so every later write is refused: whoever reads
    the file next cuts that tail off (`cut`).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._torn = False
        with _explained(path, "open"):
            self._new = not path.exists()
            self._descriptor = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, data: bytes) -> None:
        if self._torn:
            raise RunnerError("an earlier write to this file failed", path=str(self.path), code="disk")
        self._torn = True
        with _explained(self.path, "append"):
            _write_all(self._descriptor, data)
        self._torn = False

    def sync(self) -> None:
        with _explained(self.path, "sync"):
            disk.fsync(self._descriptor)
            if self._new:
                _fsync_folder(self.path.parent)
                self._new = False

    def close(self) -> None:
        """Idempotent; does not sync."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Appender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def cut(path: Path, size: int) -> None:
    """Keep the first `size` bytes, durably."""
    with _explained(path, "shorten"):
        descriptor = disk.open(path, os.O_WRONLY)
        try:
            disk.truncate(descriptor, size)
            disk.fsync(descriptor)
        finally:
            os.close(descriptor)


def claim(path: Path) -> None:
    """Make the folder, durably; of two who try, one gets Refused (code `claimed`). The parent must exist."""
    with _explained(path, "make the folder"):
        try:
            disk.mkdir(path)
        except FileExistsError:
            raise Refused("already exists", path=str(path), code="claimed") from None
        _fsync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make the folder and its parents where missing, durably."""
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    for folder in reversed(missing):
        with _explained(folder, "make the folder"), suppress(FileExistsError):
            disk.mkdir(folder)
            _fsync_folder(folder.parent)
    if not path.is_dir():
        raise RunnerError("is not a folder", path=str(path), code="disk")


def remove(path: Path) -> None:
    """Delete the file, durably; one that is not there is fine."""
    with _explained(path, "delete"):
        try:
            disk.unlink(path)
        except FileNotFoundError:
            return
        _fsync_folder(path.parent)


def sha256_file(path: Path) -> str:
    """Hexadecimal; read in pieces, so a model file fits too."""
    with _explained(path, "read"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _same_folder(descriptor: int, folder: Path) -> bool:
    """Is what we hold still what lies there? Whoever held the lock before may have removed the folder."""
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False


class Lock:
    """Exclusive while the `with` block runs, on the folder's own descriptor: no lock file is left by a kill.

    Raises Refused (code `locked`) at once when another process, or another Lock here, holds it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptor = -1

    def __enter__(self) -> Lock:
        with _explained(self.folder, "lock"):
            descriptor = os.open(self.folder, _FOLDER)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _same_folder(descriptor, self.folder):
                    raise BlockingIOError
            except BlockingIOError:
                os.close(descriptor)
                hint = "wait until it has ended, then run this again"
                message = "another debate command is working in this folder"
                raise Refused(message, path=str(self.folder), hint=hint, code="locked") from None
            except BaseException:
                os.close(descriptor)
                raise
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)
        self._descriptor = -1
