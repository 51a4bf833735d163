"""One run at a time on a device: two models that load side by side would take each other's memory and cores."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from runner import config
from runner.errors import Incomplete, RunnerError

_POLL_S = 0.2


@contextmanager
def held(name: str | None, wait_s: float) -> Iterator[None]:
    """Hold the device (`cpu`, `gpu`; None: nothing to hold) of this user, waiting at most wait_s for another run.

    Raises Incomplete (busy) that names who holds it. The kernel gives the lock back when a process dies.
    """
    if name is None:
        yield
        return
    folder = config.xdg("STATE") / "devices"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RunnerError(
            f"the lock of the device {name} cannot be made: {error.strerror}", path=str(folder),
            hint="set XDG_STATE_HOME to a folder that can be written",
        ) from None  # fmt: skip
    try:
        _lock(descriptor, name, wait_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, name: str, wait_s: float) -> None:
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            left = end - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(_POLL_S, left))
    holder = os.pread(descriptor, 100, 0).decode("utf-8", "replace").strip() or "another process"
    raise Incomplete(
        f"{holder} runs a model on the {name}", reason="busy", hint="--wait-s SECONDS waits until it has ended"
    )
