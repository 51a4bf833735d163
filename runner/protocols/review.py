"""What a review is made of, what it comes to, and what all its prompts begin with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runner import guard, prompts, render, schemas
from runner.prompts import Foreign
from runner.values import (
    Claim,
    Format,
    Message,
    Patch,
    Reply,
    Request,
    Sampling,
    Segment,
    Synthesis,
    Tryout,
    Verdict,
)

Span = tuple[int, int]  # characters of the body


@dataclass(frozen=True, slots=True)
class Traits:
    """What a role's model is like. free_text: it may write any text, see schemas.Bounds. scores: its engine can measure
    choices."""

    sampling: Sampling = field(default_factory=Sampling)
    free_text: bool = False
    scores: bool = True


@dataclass(frozen=True, slots=True)
class Reviewer:
    """charter: None asks the generic question. role: the profile's role whose model answers."""

    name: str
    charter: str | None
    role: str = "default"


@dataclass(frozen=True, slots=True)
class Review:
    """Everything the prompts of a round are made of; stored before the first request, and the same on resume.

    body: the text after the front matter. front: the bytes before it as they stand after the flip, as text.
    context: (name, text) of companions, impl-spec and resolved soft links. carried: claims that are in the round
    before it starts (carry-forward, human). scores, free_text, sampling: the default model's Traits; roles: those of
    roles with a model of their own.
    floor, margin: probabilities, see `defender.verdict_of`. deadline_s: per request. templates: of prompts, by name.
    tasks: a brain's own task texts (reviewer, defender, synthesizer) in the place of our templates'.
    file_templates: of files, by file name. engine_note: a line for defender.md.
    given, verdicts: tryouts and verdicts that people wrote; own_defender: the latter in a defender.md, which stays.
    windows: what of the body one prompt shows; none: all of it. differences, quotable: of a delta review, what changed
    and what may be quoted.
    """

    scope: str
    title: str
    path: str
    body: str
    front: str
    about: render.About
    feedback: str
    reviewers: tuple[Reviewer, ...]
    templates: Mapping[str, str]
    file_templates: Mapping[str, str]
    tasks: Mapping[str, str] = field(default_factory=dict)
    context: tuple[tuple[str, str], ...] = ()
    carried: tuple[Claim, ...] = ()
    windows: tuple[Span, ...] = ()
    given: tuple[Tryout, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    own_defender: bool = False
    differences: str = ""
    quotable: tuple[Span, ...] | None = None
    max_claims: int = 4
    free_text: bool = False
    min_reviewers: int = 1
    defender_role: str = "default"
    synthesizer_role: str = "default"
    synthesizer: bool = False
    scores: bool = True
    sampling: Sampling = field(default_factory=Sampling)
    roles: Mapping[str, Traits] = field(default_factory=dict)
    margin: float = 0.10
    floor: float = 0.05
    deadline_s: float | None = None
    engine_note: str = ""

    @property
    def shown(self) -> tuple[Span, ...]:
        """The windows, at least one."""
        return self.windows or ((0, len(self.body)),)

    def traits(self, role: str) -> Traits:
        return self.roles.get(role) or Traits(self.sampling, self.free_text, self.scores)

    @property
    def measures(self) -> bool:
        """Can the defender's model measure its verdicts?"""
        return self.traits(self.defender_role).scores

    def names(self, persona: str = "") -> dict[str, str]:
        """What a brain's own prompt template may name."""
        return {
            "PERSONA_NAME": persona, "PERSONA_SLUG": persona, "SUBJECT_PATH": self.path, "SUBJECT_TITLE": self.title,
            "ROUND_NO": f"{self.about.number:02d}", "PREV_ROUND_NO": f"{max(0, self.about.number - 1):02d}",
            "CREATED_AT": self.about.created_at, "USER_PROMPT": self.feedback, "FEEDBACK_BODY": self.feedback,
        }  # fmt: skip

    def own_task(self, name: str) -> tuple[Segment, ...]:
        """The brain's own task text for the defender or the synthesizer, said before our question."""
        text = self.tasks.get(name)
        return () if text is None else prompts.fill(text.rstrip("\n") + "\n\n", self.names(), {})

    @property
    def first_body_line(self) -> int:
        return self.front.count("\n") + 1


@dataclass(frozen=True, slots=True)
class Result:
    """What a round came to. exhausted: keys of requests that are out of tries.

    unseen: (persona, window) of what a reviewer was not shown because its request failed.
    """

    tryouts: tuple[Tryout, ...]
    claims: tuple[Claim, ...]
    verdicts: tuple[Verdict, ...]
    patches: tuple[Patch, ...]
    synthesis: Synthesis | None
    diagnostics: tuple[str, ...]
    replies: tuple[Reply, ...]
    exhausted: tuple[str, ...]
    unseen: tuple[tuple[str, Span], ...] = ()


class Prompt:
    """What all prompts about one window begin with, byte for byte the same.

    n_shared: segments of the system message and of the shared part. passages: what can be quoted here.
    """

    def __init__(self, r: Review, window: Span) -> None:
        self.window = window
        start, end = window
        body = r.body[start:end]
        self.system = Message("system", prompts.render(r.templates, "system", {}))
        foreign = [r.body, r.title, r.feedback, r.differences, *(t for pair in r.context for t in pair)]
        values: dict[str, prompts.Value] = {
            "kind": r.scope,
            "title": Foreign(r.title),
            "nonce": guard.nonce(foreign),
            "body": Foreign(body),
            "part": "" if len(r.shown) == 1 else f"{r.shown.index(window) + 1} of {len(r.shown)}",
            "companions": [{"name": Foreign(n), "text": Foreign(t)} for n, t in r.context],
            "differences": Foreign(r.differences) if r.differences else "",
            "feedback": Foreign(r.feedback),
        }
        self.shared = prompts.render(r.templates, "shared", values)
        self.n_shared = len(self.system.segments) + len(self.shared)
        if r.quotable is None:
            self.passages = tuple(body[a:b] for a, b in schemas.passages(body))
        else:
            clipped = [(max(a, start), min(b, end)) for a, b in r.quotable]
            texts = [r.body[a:b] for a, b in clipped if b - a >= schemas.QUOTE_MIN]
            self.passages = tuple(texts)

    def user(self, *more: Segment) -> Message:
        return Message("user", (*self.shared, *more))


def request(
    r: Review, key: str, role: str, messages: tuple[Message, ...], max_tokens: int, fmt: Format | None,
    shared: tuple[int, ...], **more: Any,
) -> Request:  # fmt: skip
    """A request with a seed of its own, the same on every run."""
    sampling = r.traits(role).sampling
    seed = int.from_bytes(hashlib.sha256(f"{sampling.seed}/{key}".encode()).digest()[:4], "big")
    return Request(
        key=key, model=role, messages=messages, max_tokens=max_tokens, format=fmt, shared=shared,
        sampling=replace(sampling, seed=seed), deadline_s=r.deadline_s, **more,
    )  # fmt: skip


def pass_of(reply: Reply) -> int:
    """Two tries make a pass."""
    n = reply.key.rpartition("~")[2]
    return (int(n) + 1) // 2 if n.isdigit() and "~" in reply.key else 1


def tidy(text: str) -> str:
    """Drop a torn last character, and a last sentence that was closed in its middle when another stands before it."""
    text = text.rstrip("\ufffd").strip()
    if text and text[-1] not in ".?!。？！":
        cut = max(text.rfind(mark) for mark in (". ", "? ", "! ", "。", "？", "！"))
        if cut > 0:
            return text[: cut + 1]
    return text
