"""How many threads llama.cpp runs on: as many as there are cores for it, at every moment.

Its threads meet many times per token. Waiting in a spin makes that quick on an idle machine: 91 tokens per second
against 38 (two cores, one sequence). Beside another busy process it is ruin: whoever is not running keeps the others
spinning, 9 tokens per second, where a single thread gives 56. So we spin, and give up a thread as soon as its core is
someone else's; when a core is idle again, we take it back. Replies do not depend on the number
of threads (with flash attention they may, where one sequence runs alone).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_PERIOD_S = 0.5  # of time inside the model between two looks
_LONGEST_S = 16.0  # between giving a core up and trying it again


def idle_s() -> float | None:
    """Seconds that all cores of the machine have been idle, added up, since it started; None when it does not say."""
    try:
        fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return None
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class _Look:
    """The clocks at one moment: wall, the process's own, the machine's idle time."""

    wall: float
    cpu: float
    idle: float


class Threads:
    """most: threads to run on when nobody else is there. apply: told of every change. idle: see idle_s."""

    def __init__(self, most: int, apply: Callable[[int], None], idle: Callable[[], float | None] = idle_s) -> None:
        self.now = self.most = most
        self._apply, self._idle = apply, idle
        self._inside = _Look(0.0, 0.0, 0.0)  # time spent inside the model since the last look
        self._patience = 1.0  # seconds until a core that was given up is tried again
        self._given_up = 0.0
        self._last_idle = idle()
        self._last_wall = time.monotonic()

    def inside(self, wall: float, cpu: float) -> None:
        """The model ran for `wall` seconds, in which this process used `cpu` seconds of all its threads."""
        self._inside.wall += wall
        self._inside.cpu += cpu
        if self._inside.wall >= _PERIOD_S and self.most > 1:
            self._look()
            self._inside = _Look(0.0, 0.0, 0.0)

    def _look(self) -> None:
        now, idle = time.monotonic(), self._idle()
        if idle is None or self._last_idle is None:
            return
        free = (idle - self._last_idle) / max(now - self._last_wall, 1e-9)
        got = self._inside.cpu / self._inside.wall
        self._last_idle, self._last_wall = idle, now
        wanted = decide(self.now, self.most, got, free)
        if wanted > self.now and now - self._given_up < self._patience:
            return
        if wanted < self.now:  # tried and lost at once: wait longer before the next try
            soon = now - self._given_up < 2 * self._patience
            self._patience = min(_LONGEST_S, self._patience * 2) if soon else 1.0
            self._given_up = now
        if wanted != self.now:
            self.now = wanted
            self._apply(wanted)


def decide(now: int, most: int, got: float, free: float) -> int:
    """How many threads to run on next. got: cores that our `now` threads really had; free: cores that were idle."""
    if got < now - 0.25 and free < 0.5:  # someone else had part of a core that we waited for
        return max(1, int(got + free))
    if free >= 0.75:
        return min(most, now + int(free + 0.25))
    return now
