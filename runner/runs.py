"""The composition root: profile and artifacts become an engine, a journal and flows for the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from runner import __version__, config, offline, scheduler
from runner.brain import artifact as artifacts
from runner.brain import root as roots
from runner.errors import Refused
from runner.journal import Journal
from runner.protocols.review import Traits
from runner.rounds import abort as aborting
from runner.rounds import close as closing
from runner.rounds import conduct, inputs
from runner.rounds.folder import Files, Round
from runner.rounds.plan import Options, Plan, Setup, plan
from runner.settings import (
    Settings,
    check_same,
    engine_kind,
    engine_name,
    engine_of,
    model_facts,
    open_tokenizer,
    settings,
)

if TYPE_CHECKING:
    from runner.engines.base import Progress, Tokenizer

__all__ = ["Settings", "engine_name", "engine_of", "open_tokenizer", "settings"]

Clock = Callable[[], str]
Observe = Callable[[Sequence["Progress"]], None]


def now() -> str:
    """The present moment, UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _setup(s: Settings, project: Path, opened_at: str, tokenizer: Tokenizer | None) -> Setup:
    limits = [s.profile.context_tokens, *(m.manifest.context_tokens or 1 << 30 for m in s.models.values())]
    limits += [] if tokenizer is None else [tokenizer.context_tokens]
    return Setup(
        version=__version__,
        opened_at=opened_at,
        prompts={k.removesuffix(".md.j2"): v for k, v in config.texts("prompts/review", "*.md.j2", project).items()},
        files=config.texts("prompts/files", "*.md", project),
        charters=config.bundled("prompts") / "personas",
        max_claims=s.profile.claims,
        free_text=s.free_text(),
        sampling=s.sampling,
        margin=s.profile.margin,
        floor=s.profile.floor,
        deadline_s=s.profile.deadline_s,
        roles=_traits(s),
        models=model_facts(s),
        engine=engine_name(s),
        scores=s.scores,
        fake=s.fake,
        profile=s.named[0],
        model=s.named[1],
        tokenizer=tokenizer,
        context_tokens=min(limits),
        warnings=tuple(_leaving(s)),
    )


def _leaving(s: Settings) -> list[str]:
    """What everybody who reads the round must know: the document left this machine."""
    note = offline.note(s.profile.allow_hosts)
    return [note] if note else []


def _traits(s: Settings) -> dict[str, Traits]:
    """Of every role with a model of its own."""
    return {role: Traits(s.samplings[role], s.free_text(role), s.scores) for role in s.models if role != "default"}


# ---- open and resume -----------------------------------------------------------------------------------------------


class Planner:
    """Plans rounds of one project: templates and tokenizer are loaded once."""

    def __init__(self, s: Settings, project: Path) -> None:
        self._tokenizer = open_tokenizer(s)
        try:
            self._setup = _setup(s, project, "", self._tokenizer)
        except BaseException:
            self.close()
            raise

    def plan(self, artifact: artifacts.Artifact, options: Options, opened_at: str) -> Plan:
        """Check everything; nothing is written and no engine is loaded."""
        return plan(artifact, options, replace(self._setup, opened_at=opened_at))

    def close(self) -> None:
        close = getattr(self._tokenizer, "close", None)
        if close is not None:
            close()


def open_plan(artifact: artifacts.Artifact, options: Options, s: Settings, clock: Clock = now) -> Plan:
    """Check everything; nothing is written and no engine is loaded."""
    planner = Planner(s, artifact.root.parent)
    try:
        return planner.plan(artifact, options, clock())
    finally:
        planner.close()


def open_round(planned: Plan, s: Settings, observe: Observe | None = None, clock: Clock = now) -> conduct.Opened:
    """Load the engine and conduct the round that was planned."""
    journal = Journal(clock)
    files = Files(journal)
    place = Round(planned.history, planned.number, planned.inputs.path)
    flow = conduct.open_round(planned, journal, files)
    return _conduct(place, flow, s, journal, files, observe)


def resume_settings(
    place: Round, profile: str | None, model: str | None, project: Path, wait_s: float | None = None
) -> Settings:
    """The settings to resume with. The stored inputs rule; a model with another sha256 is refused."""
    stored = inputs.load(place.run)
    if stored is None:
        raise Refused(
            "the round was stopped before its inputs were stored; it can only be aborted",
            path=roots.shown(place.folder), hint="debate abort, then open again",
        )  # fmt: skip
    kind = engine_kind(stored.engine)
    # The engine may have been named beside the profile.
    engine = kind if profile is None and model is None else None
    s = settings(profile or stored.profile, model or stored.model, project, engine=engine, wait_s=wait_s)
    if kind == "none":
        return s  # opened without an engine: any may go on
    going_on(stored, s)
    return s


def going_on(stored: inputs.Inputs, s: Settings) -> inputs.Inputs:
    """The inputs of a round that goes on under these settings: as stored, and only on the engine and models of then; a
    round opened without an engine may go on with any."""
    if engine_kind(stored.engine) != "none":
        check_same(s, stored.engine, stored.models, "round")
    return stored if stored.engine != "none" or s.none else _with_engine(stored, s)


def resume_round(
    artifact: artifacts.Artifact, place: Round, s: Settings, observe: Observe | None = None, clock: Clock = now,
    *, min_reviewers: int | None = None,
) -> conduct.Opened:  # fmt: skip
    """Finish an interrupted round, or ask an open one's failed requests again. Same inputs, same prompts."""
    stored = inputs.load(place.run)
    assert stored is not None
    conduct.check_body(stored, artifact)
    stored = going_on(stored, s)
    journal = Journal(clock)
    files = Files(journal)
    flow = conduct.resume_round(place, stored, artifact, journal, files, min_reviewers=min_reviewers)
    return _conduct(place, flow, s, journal, files, observe)


def _with_engine(stored: inputs.Inputs, s: Settings) -> inputs.Inputs:
    """A round opened without an engine goes on with this one."""
    name = engine_name(s)
    review = replace(
        stored.review, scores=s.scores, sampling=s.sampling, engine_note=f"Engine: {name}.", free_text=s.free_text(),
        roles=_traits(s),
    )  # fmt: skip
    models = model_facts(s)
    return replace(stored, engine=name, fake=s.fake, models=models, review=review, profile=s.named[0], model=s.named[1])


def _conduct(
    place: Round, flow: conduct.Steps, s: Settings, journal: Journal, files: Files, observe: Observe | None
) -> conduct.Opened:
    with engine_of(s) as engine:
        outcomes = scheduler.run(
            [(place.flow, flow)], engine, journal, files.publish, observe, s.profile.max_running,
            manifest_sha256=s.manifest_sha256,
        )  # fmt: skip
    outcome = outcomes[place.flow]
    if outcome.error is not None:
        raise outcome.error
    opened: conduct.Opened = outcome.result
    return opened


# ---- abort, close --------------------------------------------------------------------------------------------------


def abort_round(artifact: artifacts.Artifact) -> tuple[Round, tuple[str, ...], str]:
    """Take back an interrupted round, or an interrupted close: (round, files moved aside, what was taken back)."""
    finished = aborting.finish(artifact)
    if finished is not None:
        return finished, (), "round"
    place, state = closing.current(artifact)
    if state == "closing":
        closing.undo(place, artifact)
        return place, (), "close"
    return place, aborting.abort(place, artifact, state), "round"


def close_round(
    artifact: artifacts.Artifact, patches_status: str | None, revisit: tuple[str, ...] = (), clock: Clock = now
) -> closing.Closed:
    place = closing.check(artifact, patches_status)
    return closing.close(place, artifact, patches_status, clock(), revisit)
