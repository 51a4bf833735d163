"""Running the flow of an ask or a brief on its engine, and checking that a resumed run has the models it began with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner import scheduler
from runner.errors import Integrity, Refused
from runner.journal import Journal
from runner.settings import Settings, engine_kind, engine_of
from runner.values import Document, Flow, Reply

if TYPE_CHECKING:
    from runner.engines.base import Progress

Clock = Callable[[], str]
Observe = Callable[[Sequence["Progress"]], None]
Facts = Mapping[str, Mapping[str, str]]  # role -> what the record says of its model


def model_facts(s: Settings) -> dict[str, dict[str, str]]:
    """By role, for inputs and record."""
    return {
        role: {
            "name": m.manifest.name,
            "sha256": m.manifest.files[0].sha256 or "",
            "manifest_sha256": m.manifest_sha256,
            "quantisation": m.manifest.quantisation or "",
        }
        for role, m in s.models.items()
    }


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


def check_resumable(s: Settings, engine: str, models: Facts, where: Path) -> None:
    """Refused for another kind of engine, Integrity for a model whose sha256 is not the one at the start."""
    if s.profile.engine != engine_kind(engine):
        raise Refused("this was started with another engine", path=str(where), hint=f"it ran on {engine}")
    now = model_facts(s)
    for role in sorted({*models, *now}):
        known, found = models.get(role, {}), now.get(role, {})
        if known.get("sha256") != found.get("sha256"):
            raise Integrity(
                f"this was started with the model {known.get('name')} (sha256 {known.get('sha256')}) for {role}; "
                f"this is {found.get('name')} (sha256 {found.get('sha256')})",
                path=str(where), hint="resume with the same model file, or give it up with `debate abort`",
            )  # fmt: skip


def call_facts(r: Reply) -> dict[str, Any]:
    """One call, for the record."""
    return {
        "key": r.key, "tokens_in": r.tokens_in, "tokens_cached": r.tokens_cached, "tokens_out": r.tokens_out,
        "forced": r.forced, "finish": r.finish, "ms": r.ms,
    }  # fmt: skip
