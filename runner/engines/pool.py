"""Several models as one engine: side by side when memory allows, else one after the other.

A role's requests go to its model. When only one model fits, the loaded one is drained before another takes its place,
and the one whose request has waited longest is next. Which of the two happens changes no prompt and no seed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from runner.engines.base import Engine, Progress, Tokenizer
from runner.errors import RunnerError, UsageError
from runner.values import Reply, Request

_OVER = 1.25  # a loaded model takes more than its files: the KV pool, compute buffers


@dataclass(frozen=True, slots=True)
class Member:
    """A model that can be opened. size: bytes of its files."""

    open: Callable[[], Engine]
    tokenizer: Callable[[], Tokenizer]
    size: int


class Pool:
    """See runner.engines.base.Engine. members: by name; home: role -> member; memory: bytes for all together."""

    scores = True

    def __init__(self, members: Mapping[str, Member], home: Mapping[str, str], memory: int) -> None:
        self._members = members
        self._home = home
        self._together = sum(m.size for m in members.values()) * _OVER <= memory
        self._open: dict[str, Engine] = {}
        self._tokenizers: dict[str, Tokenizer] = {}
        self._waiting: deque[tuple[str, str, Request]] = deque()  # member, flow, request
        self.identity = f"pool of {len(members)} models"

    def _of(self, role: str) -> str:
        return self._home.get(role) or self._home["default"]

    def check(self, request: Request) -> None:
        """By the model itself when it is loaded, else by its vocabulary: nothing is loaded to check."""
        name = self._of(request.model)
        if name in self._open:
            self._open[name].check(request)
            return
        tokenizer = self._tokenizers.get(name) or self._members[name].tokenizer()
        self._tokenizers[name] = tokenizer
        prompt, room = tokenizer.count(request.messages), tokenizer.context_tokens
        if prompt + request.max_tokens > room:
            raise UsageError(
                f"request {request.key}: the prompt has {prompt} tokens and the reply may take {request.max_tokens}, "
                f"but the context holds {room}",
                code="context",
                hint=f"shorten the document by about {prompt + request.max_tokens - room} tokens, "
                "or use a model with a longer context",
            )

    def submit(self, flow: str, request: Request) -> None:
        self._waiting.append((self._of(request.model), flow, request))

    def step(self) -> Sequence[tuple[str, Reply]]:
        done = self._place()
        for name in sorted(self._open):
            if self._open[name].busy():
                done += self._open[name].step()
        return done

    def _place(self) -> list[tuple[str, Reply]]:
        """Give waiting requests to loaded models, loading what may be loaded. Those a model refuses are answered."""
        if not self._together and self._waiting and not any(e.busy() for e in self._open.values()):
            wanted = self._waiting[0][0]
            for name in [n for n in self._open if n != wanted]:
                self._open.pop(name).close()
            self._load(wanted)
        refused, left = [], deque[tuple[str, str, Request]]()
        for name, flow, request in self._waiting:
            if self._together:
                self._load(name)
            if name not in self._open:
                left.append((name, flow, request))
                continue
            try:
                self._open[name].check(request)
            except RunnerError:  # the vocabulary alone could not see it
                refused.append((flow, Reply(request.key, "", "error")))
            else:
                self._open[name].submit(flow, request)
        self._waiting = left
        return refused

    def _load(self, name: str) -> None:
        if name not in self._open:
            self._drop_tokenizer(name)
            self._open[name] = self._members[name].open()
            self.identity = f"pool of {len(self._members)} models: {self._open[name].identity}"

    def _drop_tokenizer(self, name: str) -> None:
        close = getattr(self._tokenizers.pop(name, None), "close", None)
        if close is not None:
            close()

    def busy(self) -> bool:
        return bool(self._waiting) or any(e.busy() for e in self._open.values())

    def progress(self) -> Sequence[Progress]:
        return [p for name in sorted(self._open) for p in self._open[name].progress()]

    def forget(self, flow: str, keys: Sequence[str]) -> None:
        for engine in self._open.values():
            engine.forget(flow, keys)

    def release(self, flow: str) -> None:
        for engine in self._open.values():
            engine.release(flow)

    def close(self) -> None:
        self._waiting.clear()
        for name in list(self._tokenizers):
            self._drop_tokenizer(name)
        for engine in self._open.values():
            engine.close()
        self._open = {}
