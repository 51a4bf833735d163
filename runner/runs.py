"""The composition root: profile and artifacts become an engine, a journal and flows for the scheduler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from runner import __version__, config, scheduler
from runner.brain import artifact as artifacts
from runner.brain import root as roots
from runner.config import Model, Profile
from runner.errors import Integrity, Refused, UsageError
from runner.journal import Journal
from runner.rounds import abort as aborting
from runner.rounds import close as closing
from runner.rounds import conduct, inputs
from runner.rounds.folder import Files, Round
from runner.rounds.plan import Options, Plan, Setup, plan
from runner.values import Sampling

if TYPE_CHECKING:
    from runner.engines.base import Engine, Progress, Tokenizer

Clock = Callable[[], str]
Observe = Callable[[Sequence["Progress"]], None]


def now() -> str:
    """The present moment, UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Settings:
    """A profile with what it names: where it was read, the model (None for the fake engine), the sampling."""

    profile: Profile
    source: str
    model: Model | None
    sampling: Sampling
    named: tuple[str | None, str | None] = (None, None)  # profile and model, as the user named them
    problem: str | None = None  # of a plan only: why the model cannot be used

    @property
    def none(self) -> bool:
        """Scaffold mode: people write what an engine would."""
        return self.profile.engine == "none"

    @property
    def fake(self) -> bool:
        return self.profile.engine == "fake"

    @property
    def manifest_sha256(self) -> str:
        return "fake" if self.model is None else self.model.manifest_sha256


# ---- profile, model, engine ----------------------------------------------------------------------------------------


def settings(
    profile: str | None, model: str | None, project: Path | None, *, seed: int | None = None,
    engine: str | None = None, plan_only: bool = False,
) -> Settings:  # fmt: skip
    """Load the profile and find its model. The fake engine is refused unless it or its profile was named.

    engine: in the place of the profile's. An engine that is not installed is `none`: scaffold mode.
    plan_only: a model file that is missing is a `problem` of the settings, not an error.
    """
    loaded, source = config.profile(profile or "cpu", project)
    if engine is not None:
        loaded = config.with_engine(loaded, engine)
    elif loaded.engine == "fake" and profile is None:
        raise UsageError("the fake engine must be named on the command line", hint="--profile fake")
    elif loaded.engine == "llama.cpp" and not _installed("llama_cpp", "llguidance", "numpy"):
        loaded = config.with_engine(loaded, "none")
    if loaded.engine != "llama.cpp":
        sampling = config.sampling(loaded, None, source)
        return Settings(loaded, source, None, _seeded(sampling, seed), (profile, model))
    names = set(loaded.roles.values())
    if model is None and len(names) != 1:
        raise UsageError("this version runs one model for all roles", path=source, hint="give all roles the same")
    try:
        found = config.find_model(model or next(iter(names)), project)
    except Integrity as error:
        if not plan_only:
            raise
        return Settings(loaded, source, None, _seeded(config.sampling(loaded, None, source), seed), problem=str(error))
    sampling = _seeded(config.sampling(loaded, found.manifest, source), seed)
    return Settings(loaded, source, found, sampling, (profile, model))


def _installed(*modules: str) -> bool:
    return all(find_spec(name) is not None for name in modules)


def _seeded(sampling: Sampling, seed: int | None) -> Sampling:
    return sampling if seed is None else replace(sampling, seed=seed)


def threads(profile: Profile) -> int:
    """The profile's, else the cores this process may use."""
    return profile.threads or len(os.sched_getaffinity(0))


def open_tokenizer(s: Settings) -> Tokenizer | None:
    """Counts tokens without the weights. None where the engine is not installed."""
    if s.none or s.problem:
        return None
    if s.model is None:
        from runner.engines.fake import FakeEngine, options_of

        return FakeEngine(options_of(s.profile.fake)).tokenizer
    try:
        from runner.engines.llama_vocab import LlamaTokenizer
    except ImportError:
        return None
    return LlamaTokenizer(str(s.model.path), s.model.manifest.context_tokens)


def open_engine(s: Settings) -> Engine:
    """Check the weights' sha256, then load them. UsageError, naming the extra, when the engine is not installed."""
    match s.profile.engine:
        case "none":
            from runner.engines.none import NoEngine

            return NoEngine()
        case "fake":
            from runner.engines.fake import FakeEngine, options_of

            return FakeEngine(options_of(s.profile.fake))
        case "llama.cpp":
            try:
                from runner.engines.llama_cpp import LlamaCpp
            except ImportError as e:
                raise UsageError(
                    f"the llama.cpp engine is not installed ({e.name} is missing)",
                    hint="make setup, or pip install 'debate-runner[llama]'",
                ) from None
            assert s.model is not None
            config.verify_model(s.model)
            return LlamaCpp(
                s.model.path,
                context_tokens=s.profile.context_tokens,
                model_context=s.model.manifest.context_tokens,
                threads=threads(s.profile),
                flash_attention=s.profile.flash_attention,
            )


def engine_name(s: Settings) -> str:
    """The engine's identity, without loading it."""
    if s.model is None:
        return s.profile.engine
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"llama.cpp via llama-cpp-python {version('llama-cpp-python')}"
    except PackageNotFoundError:
        return "llama.cpp"


def _setup(s: Settings, project: Path, opened_at: str, tokenizer: Tokenizer | None) -> Setup:
    limit = tokenizer.context_tokens if tokenizer is not None else s.profile.context_tokens
    facts = {} if s.model is None else _facts(s.model)
    return Setup(
        version=__version__,
        opened_at=opened_at,
        prompts={k.removesuffix(".md.j2"): v for k, v in config.texts("prompts/review", "*.md.j2", project).items()},
        files=config.texts("prompts/files", "*.md", project),
        charters=config.bundled("prompts") / "personas",
        max_claims=s.profile.claims,
        free_text=s.model is not None and s.model.manifest.prose == "free",
        sampling=s.sampling,
        margin=s.profile.margin,
        floor=s.profile.floor,
        deadline_s=s.profile.deadline_s,
        roles=s.profile.roles,
        models={"default": facts} if facts else {},
        engine=engine_name(s),
        scores=not s.none and (not s.fake or bool(s.profile.fake.get("scores", True))),
        fake=s.fake,
        profile=s.named[0],
        model=s.named[1],
        tokenizer=tokenizer,
        context_tokens=min(limit, s.profile.context_tokens),
    )


def _facts(model: Model) -> dict[str, str]:
    sha256 = model.manifest.files[0].sha256 or ""
    return {
        "name": model.manifest.name, "sha256": sha256, "manifest_sha256": model.manifest_sha256,
        "quantisation": model.manifest.quantisation or "",
    }  # fmt: skip


# ---- open and resume -----------------------------------------------------------------------------------------------


def open_plan(artifact: artifacts.Artifact, options: Options, s: Settings, clock: Clock = now) -> Plan:
    """Check everything; nothing is written and no engine is loaded."""
    tokenizer = open_tokenizer(s)
    try:
        return plan(artifact, options, _setup(s, artifact.root.parent, clock(), tokenizer))
    finally:
        _close(tokenizer)


def open_round(planned: Plan, s: Settings, observe: Observe | None = None, clock: Clock = now) -> conduct.Opened:
    """Load the engine and conduct the round that was planned."""
    journal = Journal(clock)
    files = Files(journal)
    place = Round(planned.history, planned.number, planned.inputs.path)
    flow = conduct.open_round(planned, journal, files)
    return _conduct(place, flow, s, journal, files, observe)


def resume_settings(place: Round, profile: str | None, model: str | None, project: Path) -> Settings:
    """The settings to resume with. The stored inputs rule; a model with another sha256 is refused."""
    stored = inputs.load(place.run)
    if stored is None:
        raise Refused(
            "the round was stopped before its inputs were stored; it can only be aborted",
            path=roots.shown(place.folder), hint="debate abort, then open again",
        )  # fmt: skip
    none = stored.engine == "none"
    engine = None
    if profile is None and model is None:  # the engine may have been named beside the profile
        engine = stored.engine if none else "fake" if stored.fake else None
    s = settings(profile or stored.profile, model or stored.model, project, engine=engine)
    if none:
        return s  # opened without an engine: any may go on
    if s.profile.engine != ("fake" if stored.fake else "llama.cpp"):
        raise Refused("this round was opened with another engine", hint=f"it ran on {stored.engine}")
    facts = {} if s.model is None else _facts(s.model)
    known = stored.models.get("default", {})
    if facts.get("sha256") != known.get("sha256"):
        raise Integrity(
            f"the round was opened with the model {known.get('name')} (sha256 {known.get('sha256')}); "
            f"this is {facts.get('name')} (sha256 {facts.get('sha256')})",
            hint="resume with the same model file, or give the round up with `debate abort`",
        )
    return s


def resume_round(
    artifact: artifacts.Artifact, place: Round, s: Settings, observe: Observe | None = None, clock: Clock = now,
    *, min_reviewers: int | None = None,
) -> conduct.Opened:  # fmt: skip
    """Finish an interrupted round, or ask an open one's failed requests again. Same inputs, same prompts."""
    stored = inputs.load(place.run)
    assert stored is not None
    conduct.check_body(stored, artifact)
    if stored.engine == "none" and not s.none:
        stored = _with_engine(stored, s)
    journal = Journal(clock)
    files = Files(journal)
    flow = conduct.resume_round(place, stored, artifact, journal, files, min_reviewers=min_reviewers)
    return _conduct(place, flow, s, journal, files, observe)


def _with_engine(stored: inputs.Inputs, s: Settings) -> inputs.Inputs:
    """A round opened without an engine goes on with this one."""
    scores = not s.fake or bool(s.profile.fake.get("scores", True))
    name = engine_name(s)
    free = s.model is not None and s.model.manifest.prose == "free"
    review = replace(stored.review, scores=scores, sampling=s.sampling, engine_note=f"Engine: {name}.", free_text=free)
    models = {} if s.model is None else {"default": _facts(s.model)}
    return replace(stored, engine=name, fake=s.fake, models=models, review=review, profile=s.named[0], model=s.named[1])


def _conduct(
    place: Round, flow: conduct.Steps, s: Settings, journal: Journal, files: Files, observe: Observe | None
) -> conduct.Opened:
    with engine_of(s) as engine:
        outcomes = scheduler.run(
            [(place.flow, flow)], engine, journal, files.publish, observe, s.profile.max_running,
            manifest_sha256=lambda _: s.manifest_sha256,
        )  # fmt: skip
    outcome = outcomes[place.flow]
    if outcome.error is not None:
        raise outcome.error
    opened: conduct.Opened = outcome.result
    return opened


@contextmanager
def engine_of(s: Settings) -> Iterator[Engine]:
    engine = open_engine(s)
    try:
        yield engine
    finally:
        engine.close()


def _close(tokenizer: Tokenizer | None) -> None:
    close = getattr(tokenizer, "close", None)
    if close is not None:
        close()


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
