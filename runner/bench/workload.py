"""The round that is measured: a document of about 1,700 tokens, real personas, the protocol as it is in every round."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runner import config, render, scheduler
from runner.engines.base import Engine, Progress
from runner.errors import RunnerError, UsageError
from runner.journal import Journal
from runner.protocols.round import Result, Review, Reviewer, review
from runner.settings import Settings
from runner.values import Reply, Request

PHASES = ("reviewers", "judging", "synthesis")


def phase_of(key: str) -> str:
    """The phase that a request's key belongs to; the priors are measured beside the reviewers."""
    if key.startswith(("reviewer/", "defender/prior")):
        return "reviewers"
    return "judging" if key.startswith("defender/") else "synthesis"


def document() -> str:
    return (config.bundled("prompts") / "bench" / "document.md").read_text(encoding="utf-8")


def bench_review(settings: Settings, reviewers: int, body: str) -> Review:
    """A review of the text by so many of the bundled personas, in the order of their names, with a synthesizer."""
    charters = sorted((config.bundled("prompts") / "personas").glob("*.md"))
    if not 1 <= reviewers <= len(charters):
        raise UsageError(f"--reviewers must be 1 to {len(charters)}")
    templates = config.texts("prompts/review", "*.md.j2", None)
    return Review(
        scope="leaf",
        title="Bench",
        path="bench.md",
        body=body,
        front="",
        about=render.About("Bench", 1, "bench-round-01", ""),
        feedback="Is this ready to be built?",
        reviewers=tuple(Reviewer(p.stem, p.read_text(encoding="utf-8").rstrip("\n")) for p in charters[:reviewers]),
        templates={k.removesuffix(".md.j2"): v for k, v in templates.items()},
        file_templates=config.texts("prompts/files", "*.md", None),
        max_claims=settings.profile.claims,
        synthesizer=True,
        scores=settings.scores,
        free_text=settings.free_text(),
        sampling=settings.sampling,
        margin=settings.profile.margin,
        floor=settings.profile.floor,
    )


@dataclass(slots=True)
class Measured:
    """A round: seconds in all, per phase (from the end of the one before to its last reply) and inside the engine's
    own model calls; what was asked, in the order of submission; and what was answered."""

    wall_s: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    model_s: float = 0.0
    decoded: int = 0
    requests: list[Request] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    result: Result | None = None

    def of(self, phase: str) -> list[Reply]:
        return [r for r in self.replies if phase_of(r.key) == phase]


class _Watched:
    """The engine, with what passes through it noted. Nothing is journalled: what is measured is the round."""

    def __init__(self, engine: Engine, measured: Measured) -> None:
        self.engine, self.measured = engine, measured
        self.scores, self.identity = engine.scores, engine.identity
        self.last: dict[str, float] = {}

    def submit(self, flow: str, request: Request) -> None:
        self.measured.requests.append(request)
        self.engine.submit(flow, request)

    def step(self) -> Sequence[tuple[str, Reply]]:
        done = self.engine.step()
        for _, reply in done:
            self.measured.replies.append(reply)
            self.last[phase_of(reply.key)] = time.perf_counter()
        return done

    def check(self, request: Request) -> None:
        self.engine.check(request)

    def busy(self) -> bool:
        return self.engine.busy()

    def progress(self) -> Sequence[Progress]:
        return self.engine.progress()

    def forget(self, flow: str, keys: Sequence[str]) -> None:
        self.engine.forget(flow, keys)

    def release(self, flow: str) -> None:
        self.engine.release(flow)

    def close(self) -> None:
        self.engine.close()


class _Unwritten(Journal):
    """Replies are not kept."""

    def answer(self, flow: str, key: str, digest: str) -> Reply | None:
        return None

    def add(self, *_: object) -> None:
        pass

    def sync(self) -> None:
        pass

    def close(self, flow: str | None = None) -> None:
        pass


def whole_round(engine: Engine, r: Review, manifest_sha256: Callable[[str], str]) -> Measured:
    """Run a round and measure it. RunnerError when it does not come to an end."""
    measured = Measured()
    watched = _Watched(engine, measured)
    before = float(getattr(engine, "decode_s", 0.0)), int(getattr(engine, "decoded", 0))
    start = time.perf_counter()
    outcomes = scheduler.run(
        [("bench", review(r))], watched, _Unwritten(lambda: ""), lambda *_: None, None, 8,
        manifest_sha256=manifest_sha256,
    )  # fmt: skip
    measured.wall_s = time.perf_counter() - start
    outcome = outcomes["bench"]
    if outcome.error is not None:
        raise RunnerError(f"the bench round did not end: {outcome.error.message}") from outcome.error
    measured.result = outcome.result
    measured.model_s = float(getattr(engine, "decode_s", getattr(engine, "step_s", 0.0))) - before[0]
    measured.decoded = int(getattr(engine, "decoded", 0)) - before[1]
    at = start
    for phase in PHASES:
        end = max(at, watched.last.get(phase, at))
        measured.phases[phase] = end - at
        at = end
    return measured
