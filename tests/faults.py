"""A disk that fails at its nth operation, for the tests that fail at every n in turn.

    disk = FaultyDisk(n); monkeypatch.setattr(store, "disk", disk)

`FaultyDisk(0)` never fails and counts: `disk.done` is how many operations there were, `disk.log` which.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from runner.store import Disk

OPERATIONS = ("open", "chmod", "write", "truncate", "fsync", "replace", "mkdir", "unlink")


class Killed(BaseException):
    """The process is dead; nothing may catch this and go on."""


class QuickDisk(Disk):
    """Does not wait for the platter: for tests that write a lot and pull no plug."""

    def fsync(self, descriptor: int) -> None:
        pass


class FaultyDisk(Disk):
    """Fails at operation `nth`, counted from 1. killed: so does every later one, as if the process were gone.

    error: made anew for each failure. The write that fails leaves half of its bytes behind.
    """

    def __init__(self, nth: int, error: Callable[[], BaseException] = Killed, *, killed: bool = True) -> None:
        self.nth = nth
        self.error = error
        self.killed = killed
        self.done = 0
        self.log: list[str] = []

    def _fails(self, name: str) -> bool:
        self.done += 1
        self.log.append(name)
        return self.nth > 0 and (self.done == self.nth or (self.killed and self.done > self.nth))


def _failing(name: str) -> Callable[..., object]:
    def operation(self: FaultyDisk, *args: object) -> object:
        fails = self._fails(name)
        if fails:
            if name == "write" and self.done == self.nth:
                descriptor, data = args
                os.write(descriptor, data[: len(data) // 2])
            raise self.error()
        # A fault is an exception here, not a power cut: what was written is there without waiting for the platter.
        return None if name == "fsync" else getattr(Disk, name)(self, *args)

    return operation


for _name in OPERATIONS:
    setattr(FaultyDisk, _name, _failing(_name))
