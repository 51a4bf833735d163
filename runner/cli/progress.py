"""Progress that a person can watch: live bars on a terminal, plain lines elsewhere. Always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from runner.engines.base import Progress


_READING = "reading"


def stage_of(key: str) -> str:
    """reviewers, defender or synthesizer."""
    return {"reviewer": "reviewers"}.get(key.split("/")[0], key.split("/")[0])


class Watch:
    """Give `observe` to the scheduler. `times` holds wall seconds per stage afterwards.

    live: bars on a terminal; lines: a line per request that ends; neither: only the times are taken.
    """

    def __init__(self, *, live: bool, lines: bool) -> None:
        self.times: dict[str, float] = {}
        self.live, self.lines = live, lines and not live
        self._last = time.monotonic()
        self._start = self._last
        self._running: dict[tuple[str, str], Progress] = {}
        self._done_tokens = 0
        self._seen: dict[str, set[str]] = {}
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Watch:
        if self.live:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars

            columns = (
                TextColumn("{task.description:<28}", markup=False),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[note]:<34}", markup=False),
                TimeElapsedColumn(),
            )
            self._bars = Bars(*columns, console=Console(stderr=True), transient=True)
            self._bars.start()
            self._draw(self._bars, time.monotonic())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def observe(self, running: Sequence[Progress]) -> None:
        now = time.monotonic()
        present = {(p.flow, p.key): p for p in running}
        stage = stage_of(running[0].key) if running else None
        if stage is not None:
            self.times[stage] = self.times.get(stage, 0.0) + now - self._last
        self._last = now
        for name, before in self._running.items():
            if name not in present:
                self._done_tokens += before.tokens_out
                self._ended(before)
        self._running = present
        if self._bars is not None:
            self._draw(self._bars, now)

    def rate(self, now: float) -> float:
        """Tokens per second since the start."""
        tokens = self._done_tokens + sum(p.tokens_out for p in self._running.values())
        return tokens / max(now - self._start, 1e-9)

    def _ended(self, p: Progress) -> None:
        rate = self.rate(time.monotonic())
        if self.lines and p.tokens_out and p.key.count("/") == 1:
            print(f"{p.key}: {p.tokens_out} tokens; {rate:.0f} tokens/s in all", file=sys.stderr)  # noqa: T201
        if self._bars is not None and p.key in self._tasks:
            self._bars.update(self._tasks[p.key], completed=p.expected, note=f"{p.tokens_out} tokens, done")

    def _draw(self, bars: Bars, now: float) -> None:
        """A bar per reviewer; one for all that the defender is asked, one for the synthesizer.

        Until the first request runs, what all share is being computed: the document is read.
        """
        if not self._tasks:
            self._tasks[_READING] = bars.add_task(_READING, total=None, note="")
        if self._running and _READING in self._tasks:
            bars.update(self._tasks[_READING], total=1, completed=1, note="done")
        for p in self._running.values():
            name = p.key if p.key.startswith("reviewer/") else stage_of(p.key)
            if name not in self._tasks:
                self._tasks[name] = bars.add_task(name, total=p.expected, note="")
            if name == p.key:
                left = p.expected - p.tokens_out
                note = f"{p.tokens_out} tokens, at most {left} left, {self.rate(now):.0f}/s"
                bars.update(self._tasks[name], completed=p.tokens_out, note=note)
            else:
                self._seen.setdefault(name, set()).add(p.key)
        for name, keys in self._seen.items():
            open_ = sum(p.key in keys for p in self._running.values())
            note = f"{len(keys) - open_} of {len(keys)} answers, {self.rate(now):.0f}/s"
            bars.update(self._tasks[name], total=len(keys), completed=len(keys) - open_, note=note)
