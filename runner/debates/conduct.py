"""Running the flow of an ask or a brief on its engine, and checking that a resumed run has the models it began with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from runner import scheduler
from runner.journal import Journal
from runner.settings import Settings, engine_of
from runner.values import Document, Flow

if TYPE_CHECKING:
    from runner.engines.base import Progress

Clock = Callable[[], str]
Observe = Callable[[Sequence["Progress"]], None]
Facts = Mapping[str, Mapping[str, str]]  # role -> what the record says of its model


def run(
    flow: str, steps: Flow, s: Settings, journal: Journal, publish: Callable[[str, Document], None],
    observe: Observe | None = None,
) -> Any:  # fmt: skip
    """Load the engine and run one flow to its end; what it returned. Raises what ended it."""
    with engine_of(s) as engine:
        outcomes = scheduler.run(
            [(flow, steps)], engine, journal, publish, observe, manifest_sha256=s.manifest_sha256,
        )  # fmt: skip
    outcome = outcomes[flow]
    if outcome.error is not None:
        raise outcome.error
    return outcome.result
