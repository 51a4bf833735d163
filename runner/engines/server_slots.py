"""How llama-server's slots share a prefix, which they do not do by themselves.

A slot finds again only what it computed itself, so five requests over one document would compute it five times. Where
the server may write slots to files (--slot-save-path), the first request of a prefix computes it alone, the slot is
saved, and the others begin by reading that file. Only the names of a few files are used, again and again; at the end
each is overwritten with an empty slot, because it held the document. What a file holds is checked by the server, token
by token, so a wrong one costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from runner.engines.server_http import Failed
from runner.engines.server_prompts import Call, Prompt
from runner.values import Reply

MIN_TOKENS = 128  # a shorter prefix is computed in less time than it is read
_FILES = 8
_MAX_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done before a request is sent. have: tokens that the slot should then hold of the prompt.

    restore: file to read first; warm: prefix to compute; save: file to write it to.
    """

    slot: int
    have: int = 0
    restore: str | None = None
    warm: tuple[int, ...] = ()
    save: str | None = None


class Slots:
    """What the slots of one server hold, and what lies in its files. For the engine's own thread."""

    def __init__(self, name: str, used: Iterable[str] = ()) -> None:
        self._names = [f"debate-runner-{name}-{i}.slot" for i in range(_FILES)]
        self._holds: dict[int, tuple[int, ...]] = {}
        self._saved: dict[tuple[int, ...], str] = {}
        self._building: set[tuple[int, ...]] = set()
        self._used_at: dict[int, int] = {}
        self._clock = 0
        self._next = 0
        self._failures = 0
        self._forgets = False
        self.used = set(used)  # names of files that were written

    def plan(self, prompt: Prompt, idle: Sequence[int], others: int) -> Plan | None:
        """Which idle slot, and how to make it ready. None: wait, another request computes this prefix right now.

        others: requests that wait with the same prefix.
        """
        ids = prompt.ids or ()
        prefix = ids[: max(prompt.ends, default=0)]
        if prefix in self._building:
            return None
        held = {i: 0 if self._forgets else _common(self._holds.get(i, ()), ids) for i in idle}
        # A slot that holds little of this prompt may hold a lot of another: then the one that rested longest.
        slot = max(idle, key=lambda i: (held[i] if 2 * held[i] >= len(ids) else 0, -self._used_at.get(i, 0), -i))
        have = held[slot]
        self._clock += 1
        self._used_at[slot] = self._clock
        build = (
            self._failures < _MAX_FAILURES and others > 0 and len(prefix) >= MIN_TOKENS and prefix not in self._saved
        )
        found = max((p for p in self._saved if ids[: len(p)] == p), key=len, default=())
        restore = self._saved[found] if len(found) > have else None
        self._holds.pop(slot, None)
        have = max(have, len(found))
        if not build:
            return Plan(slot, have, restore)
        self._building.add(prefix)
        return Plan(slot, max(have, len(prefix)), restore, prefix, self._name())

    def _name(self) -> str:
        name = self._names[self._next % _FILES]
        self._next += 1
        self._saved = {p: n for p, n in self._saved.items() if n != name}
        return name

    def built(self, plan: Plan, saved: bool) -> None:
        """The prefix has been computed, or not; what fails again and again is given up."""
        self._building.discard(plan.warm)
        if saved and plan.save is not None:
            self._saved[plan.warm] = plan.save
            self.used.add(plan.save)
            self._failures = 0
        else:
            self._failures += 1

    def done(self, plan: Plan, held: tuple[int, ...], reply: Reply) -> None:
        """The request has ended; the slot holds its prompt and reply. A server that clears idle slots shows in what it
        found again; then only files count."""
        self._holds[plan.slot] = held
        if held and reply.tokens_cached < min(plan.have, reply.tokens_in - 1):
            self._forgets = True


def prepare(call: Call, plan: Plan) -> bool:
    """Make the slot ready; was the prefix saved? Failed when the server cannot compute it."""
    if plan.restore is not None:
        with suppress(Failed):  # then it is computed
            _slot(call, plan.slot, "restore", plan.restore)
    if not plan.warm:
        return False
    body = {
        "prompt": list(plan.warm), "n_predict": 0, "id_slot": plan.slot, "cache_prompt": True,
        "response_fields": ["stop_type"],
    }  # fmt: skip
    call("POST", "/completion", body)
    try:
        _slot(call, plan.slot, "save", plan.save)
    except Failed:
        return False
    return True


def wipe(call: Call, names: set[str]) -> None:
    """Overwrite the files with an empty slot."""
    with suppress(Failed):
        call("POST", "/slots/0?action=erase", {})
        for name in sorted(names):
            _slot(call, 0, "save", name)


def _slot(call: Call, slot: int, action: str, name: str | None) -> Any:
    return call("POST", f"/slots/{slot}?action={action}", {"filename": name})


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Tokens that both begin with."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next(i for i in range(n) if a[i] != b[i])
