"""Progress of a bulk run, on stderr: how many are done, what is running, tokens per second, what is left."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from runner.cli.common import one_line, warn

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from runner.bulk.harden import Row
    from runner.engines.base import Progress

_SEEN = 3  # artifacts that must have ended before an estimate is given: the first ones say little


class Overall:
    """Give `observe` to the scheduler and `ended` to the bulk run.

    how: tty (bars), lines (one per artifact), json (one JSON object per line), none; auto: bars on a terminal, else
    lines. The estimate is the mean time of artifacts reviewed so far times those left, and says what it rests on.
    """

    def __init__(self, how: str, total: int) -> None:
        if how == "auto":
            how = "tty" if sys.stderr.isatty() else "lines"
        self.how, self.total = how, total
        self.done = self.reviewed = 0
        self.tokens = 0
        self.start = time.monotonic()
        self._first: float | None = None  # when the engine began
        self._running: dict[tuple[str, str], Progress] = {}
        self._bars: Bars | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Overall:
        if self.how == "tty":
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars

            self._bars = Bars(
                TextColumn("{task.description}", markup=False), BarColumn(bar_width=30), MofNCompleteColumn(),
                TextColumn("{task.fields[note]}", markup=False), TimeElapsedColumn(), console=Console(stderr=True),
                transient=True,
            )  # fmt: skip
            self._bars.start()
            self._task = self._bars.add_task("artifacts", total=self.total, note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def observe(self, running: Sequence[Progress]) -> None:
        now = time.monotonic()
        self._first = self._first or now
        present = {(p.flow, p.key): p for p in running}
        self.tokens += sum(p.tokens_out for name, p in self._running.items() if name not in present)
        self._running = present
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, note=self._note(now))

    def ended(self, row: Row) -> None:
        self.done += 1
        self.reviewed += row.status in ("done", "partial") and not row.resumed
        now = time.monotonic()
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=self.done, note=self._note(now))
        elif self.how == "lines" and row.status != "skipped":
            why = f": {row.why}" if row.why else ""
            warn(f"[{self.done}/{self.total}] {row.status} {row.path}{why}; {self._note(now)}")
        elif self.how == "json":
            line = {
                "done": self.done, "total": self.total, "path": row.path, "status": row.status,
                "tokens_per_s": round(self.rate(now), 1), "left_s": self.left_s(now),
            }  # fmt: skip
            print(json.dumps(line, ensure_ascii=False), file=sys.stderr, flush=True)  # noqa: T201

    def rate(self, now: float) -> float:
        """Reply tokens per second since the engine began."""
        tokens = self.tokens + sum(p.tokens_out for p in self._running.values())
        return tokens / max(now - (self._first or now), 1e-9) if self._first else 0.0

    def left_s(self, now: float) -> int | None:
        """Seconds still to go; None while too few have ended to tell."""
        if self.reviewed < _SEEN or self._first is None:
            return None
        return round((now - self._first) / self.reviewed * (self.total - self.done))

    def _note(self, now: float) -> str:
        flows = sorted({p.flow.rpartition("@")[0] for p in self._running.values()})
        at_work = f"{len(flows)} at work" if len(flows) != 1 else one_line(flows[0])
        left = self.left_s(now)
        estimate = "" if left is None else f", about {_time(left)} left (from {self.reviewed} reviewed)"
        return f"{at_work}, {self.rate(now):.0f} tokens/s{estimate}"


def _time(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    return f"{hours} h {rest // 60} min" if hours else f"{rest // 60} min {rest % 60} s"
