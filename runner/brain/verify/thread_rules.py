"""Rules for threads: V-07, V-08, V-12, V-17, V-18; and V-19, which threads share with leaves."""

# Paths are text here: thousands of Path objects would cost more than the rules.
# ruff: noqa: PTH112, PTH118
from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from runner.brain.verify import words
from runner.brain.verify.model import Brain, Violation, rounds
from runner.brain.verify.page import Page


def status(_brain: Brain, page: Page) -> Iterator[Violation]:
    """V-07: a known status, and a maturity that goes with it."""
    status, maturity = page.fields.get("status"), page.fields.get("maturity")
    if not isinstance(status, str) or status not in words.THREADS:
        message = f"the status must be one of {', '.join(words.THREADS)}, not {words.shown(status)}"
        yield Violation(page.rel, page.line("status"), "V-07", message)
        return
    allowed = words.THREADS[status]
    if not allowed and maturity is not None:
        message = f"an {status} thread has no maturity, but it is {words.shown(maturity)}"
        yield Violation(page.rel, page.line("maturity"), "V-07", message)
    elif allowed and not words.is_one_of(maturity, allowed):
        message = (
            f"the maturity of a thread that is {status} must be {' or '.join(allowed)}, not {words.shown(maturity)}"
        )
        yield Violation(page.rel, page.line("maturity"), "V-07", message)


def promoted_pairs(_brain: Brain, page: Page) -> Iterator[Violation]:
    """V-08: promoted_to and promoted_at are lists of one length."""
    to, at = page.fields.get("promoted_to") or [], page.fields.get("promoted_at") or []
    if not (isinstance(to, list) and isinstance(at, list)):
        name = "promoted_at" if isinstance(to, list) else "promoted_to"
        yield Violation(page.rel, page.line(name), "V-08", f"{name} must be a list")
    elif len(to) != len(at):
        message = f"promoted_to has {len(to)} entries and promoted_at {len(at)}"
        yield Violation(page.rel, page.line("promoted_at"), "V-08", message)


def promoted_once(_brain: Brain, page: Page) -> Iterator[Violation]:
    """V-17: no path is promoted twice."""
    entries = _list(page, "promoted_to")
    seen: set[Any] = set()
    for entry in entries:
        if not isinstance(entry, Hashable):
            message = f"an entry of promoted_to is {words.shown(entry)}, not a path"
        elif entry in seen:
            message = f"promoted_to names {words.shown(entry)} more than once"
        else:
            seen.add(entry)
            continue
        yield Violation(page.rel, page.line("promoted_to"), "V-17", message)
        return


def promoted_in_order(_brain: Brain, page: Page) -> Iterator[Violation]:
    """V-18: the times in promoted_at never go back; compared as text, as they are written."""
    times = [t.isoformat() if isinstance(t, datetime) else t for t in _list(page, "promoted_at")]
    written = [t for t in times if isinstance(t, str)]
    for earlier, later in pairwise(written):
        if later < earlier:
            message = f"promoted_at goes back from {words.shown(earlier)} to {words.shown(later)}"
            yield Violation(page.rel, page.line("promoted_at"), "V-18", message)
            return


def parked(_brain: Brain, page: Page) -> Iterator[Violation]:
    """V-12: a parked thread has all three park fields, any other thread none."""
    if page.fields.get("status") == "parked":
        missing = [name for name in words.PARKED if not _filled(page.fields.get(name))]
        if missing:
            message = f"a parked thread needs {' and '.join(missing)}"
            yield Violation(page.rel, page.line(missing[0]), "V-12", message)
        return
    present = [name for name in words.PARKED if page.fields.get(name) not in (None, "")]
    if present:
        message = f"only a parked thread has {' and '.join(present)}"
        yield Violation(page.rel, page.line(present[0]), "V-12", message)


def rounds_in_order(brain: Brain, page: Page) -> Iterator[Violation]:
    """V-19: a thread's or leaf's rounds are round-01, round-02, … without a gap."""
    history = history_of(brain, page)
    found = rounds(history) if history else []
    expected = [f"round-{n:02d}" for n in range(1, len(found) + 1)]
    if history and found != expected:
        odd = next(name for name, due in zip(found, expected, strict=True) if name != due)
        message = (
            f"the rounds in {os.path.relpath(history, brain.folder(page))} do not go up by one: {words.shown(odd)}"
        )
        yield Violation(page.rel, 0, "V-19", message)


def history_of(brain: Brain, page: Page) -> str | None:
    """The folder of a thread's or a leaf's rounds: of a leaf's three layouts, the first that is there."""
    folder, stem = brain.folder(page), PurePosixPath(page.rel).stem
    layouts = ("debate",) if page.kind == "thread" else (f"{stem}.debate", f"debate/{stem}", "debate")
    places = (os.path.join(folder, layout) for layout in layouts)
    return next((place for place in places if os.path.isdir(place)), None)


def _list(page: Page, key: str) -> list[Any]:
    value = page.fields.get(key)
    return value if isinstance(value, list) else []


def _filled(value: Any) -> bool:
    return bool(value.strip()) if isinstance(value, str) else value is not None
