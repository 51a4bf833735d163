"""What the scheduler asks of an engine, and what a tokenizer must do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from runner.values import Message, Reply, Request


@dataclass(frozen=True, slots=True)
class Progress:
    """One request's state after a step. expected: the most tokens it can still reach (its max_tokens)."""

    flow: str
    key: str
    tokens_out: int
    expected: int


class Engine(Protocol):
    """One model (or several, see pool) behind submit and step. Not thread-safe; one owner.

    scores: can it measure `choices`?
    identity: name and version of the engine, for the record.
    Two more may be stated, and are true where they are not. grammar: are quotes word for word by construction (else the
    host looks for them)? repeatable: do the same submissions to a fresh engine give the same replies?
    """

    scores: bool
    identity: str

    def check(self, request: Request) -> None:
        """Raise UsageError (with numbers) when the request can never fit the context. Decodes nothing."""

    def submit(self, flow: str, request: Request) -> None:
        """Queue a request. (flow, request.key) is its name; a name in flight is not submitted twice."""

    def step(self) -> Sequence[tuple[str, Reply]]:
        """Do one bounded piece of work and return (flow, reply) for each request that ended in it.

        Requests that share a prefix and wait at the same time are admitted together, the prefix computed once.
        """

    def busy(self) -> bool:
        """Is any submitted request not yet answered?"""

    def progress(self) -> Sequence[Progress]:
        """Running requests, for observers; cheap."""

    def forget(self, flow: str, keys: Sequence[str]) -> None:
        """The asking sub-flow has ended: the sequences kept for these keys may go."""

    def release(self, flow: str) -> None:
        """The flow has ended: its shared prefixes and kept sequences may go."""

    def close(self) -> None:
        """Free everything. Idempotent."""


class Tokenizer(Protocol):
    @property
    def context_tokens(self) -> int:
        """The model's context: the most a prompt and its reply may take together."""

    def count(self, messages: Sequence[Message]) -> int:
        """Tokens of the whole prompt, chat template included."""

    def count_text(self, text: str) -> int:
        """Tokens of a piece of foreign text alone."""
