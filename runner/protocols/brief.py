"""A brief: critics one after the other, over rounds, until they have nothing left; then one who merges. Pure.

In a round no critic is shown what another says in that round; from the second on each sees all that was said before.
A critic without a usable answer ends the debate after its round: what comes next would be built on a gap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args

from rapidfuzz import fuzz, utils

from runner import claims as claims_of
from runner import guard, prompts, schemas
from runner.errors import Incomplete
from runner.prompts import Foreign
from runner.protocols.brief_replies import (
    ConcernKind,
    ConcernReply,
    CriticReply,
    MergedReply,
    critic_format,
    legible,
    runs_of,
)
from runner.protocols.flow import ask_as, failure, family
from runner.protocols.review import Traits, pass_of, tidy
from runner.values import SEVERITIES, Anchor, Ask, Claim, Format, Message, Reply, Request, Segment, Severity

CRITICS = ("security-critic", "simplicity-critic")
SYNTHESIZER = "synthesizer"
_CONCERN_TOKENS = 110  # a critic's name, a file's and a problem of 200 characters, as the others are shown them


@dataclass(frozen=True, slots=True)
class Source:
    """A file as it is shown: `text` from its beginning, all of it unless `cut`."""

    name: str
    text: str
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Critic:
    name: str
    charter: str
    role: str = "default"


@dataclass(frozen=True, slots=True)
class Brief:
    """Everything the prompts of a brief are made of; stored before the first request, and the same on resume.

    earlier: of an earlier brief, what is shown. rounds: the most there may be. templates: of prompts, by name.
    traits: of the default model; roles: of roles with a model of their own. deadline_s: per request.
    """

    files: tuple[Source, ...]
    findings: str
    earlier: str
    critics: tuple[Critic, ...]
    templates: Mapping[str, str]
    rounds: int = 2
    max_concerns: int = 4
    synthesizer_role: str = "default"
    traits: Traits = field(default_factory=Traits)
    roles: Mapping[str, Traits] = field(default_factory=dict)
    deadline_s: float | None = None

    def of(self, role: str) -> Traits:
        return self.roles.get(role) or self.traits


@dataclass(frozen=True, slots=True)
class Concern:
    """lines: first and last, 1-based, in the file; None when the quote is not in it, or there more than once."""

    critic: str
    round: int
    file: str
    quote: str
    kind: ConcernKind
    problem: str
    severity: Severity
    lines: tuple[int, int] | None = None
    anchor: Anchor = "unanchored"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"lines": None if self.lines is None else list(self.lines)}


@dataclass(frozen=True, slots=True)
class Said:
    """One critic in one round. cause: why there is no usable answer, empty when there is one."""

    critic: str
    round: int
    concerns: tuple[Concern, ...] = ()
    nothing_left: bool = False
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Merged:
    consensus: str
    action_items: tuple[str, ...]
    dissent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What a brief came to. merged: None when the synthesizer gave no usable answer (`cause`), or had nothing to merge.

    agreed: both critics said in the last round that nothing is left. exhausted: keys that are out of tries.
    """

    said: tuple[Said, ...]
    merged: Merged | None
    agreed: bool
    cause: str
    replies: tuple[Reply, ...]
    exhausted: tuple[str, ...]

    @property
    def rounds(self) -> int:
        return max((s.round for s in self.said), default=0)

    @property
    def concerns(self) -> tuple[Concern, ...]:
        return tuple(c for s in self.said for c in s.concerns)

    def of(self, critic: str) -> tuple[Said, ...]:
        return tuple(s for s in self.said if s.critic == critic)


Steps = Generator[Ask, tuple[Reply, ...], Result]


def debate(b: Brief, passes: int = 1) -> Steps:
    """The whole debate. Raises Incomplete (interrupted) when no critic gave a usable answer."""
    tries, said, replies, prompt = 2 * passes, list[Said](), list[Reply](), _Prompt(b)
    for number in range(1, b.rounds + 1):
        before = tuple(said)
        for turn, critic in enumerate(b.critics):
            one, reply = yield from _ask_critic(b, prompt, turn, critic, number, before, tries)
            said.append(one)
            replies.append(reply)
        last = said[-len(b.critics) :]
        if any(s.cause for s in last) or all(s.nothing_left for s in last):
            break
    lost = tuple(family(r.key) for s, r in zip(said, replies, strict=True) if s.cause)
    _enough(said, lost)
    agreed = all(s.nothing_left and not s.cause for s in said[-len(b.critics) :])
    in_pass = max(pass_of(r) for s, r in zip(said, replies, strict=True) if not s.cause)
    merged, cause, more = yield from _merge(b, prompt, said, in_pass, tries)
    lost += tuple(family(r.key) for r in more if cause)
    return Result(tuple(said), merged, agreed, cause, (*replies, *more), lost)


def _enough(said: Sequence[Said], lost: tuple[str, ...]) -> None:
    if all(s.cause for s in said):
        failed = ", ".join(f"{s.critic} ({s.cause})" for s in said)
        raise Incomplete(
            f"no critic gave a usable answer: {failed}", reason="interrupted", exhausted=lost,
            hint="`debate resume` asks again",
        )  # fmt: skip


# ---- prompts -------------------------------------------------------------------------------------------------------


class _Prompt:
    """What all prompts begin with, byte for byte the same. n_shared: its segments."""

    def __init__(self, b: Brief) -> None:
        kinds: dict[str, prompts.Value] = {
            "kinds": ", ".join(get_args(ConcernKind)), "severities": ", ".join(SEVERITIES)
        }  # fmt: skip
        self.system = Message("system", prompts.render(b.templates, "system", kinds))
        values: dict[str, prompts.Value] = {
            "nonce": guard.nonce([b.findings, b.earlier, *(t for f in b.files for t in (f.name, f.text))]),
            "files": [{"name": Foreign(f.name), "text": Foreign(f.text), "cut": f.cut} for f in b.files],
            "findings": Foreign(b.findings) if b.findings else "",
            "earlier": Foreign(b.earlier) if b.earlier else "",
        }
        self.shared = prompts.render(b.templates, "shared", values)
        self.n_shared = len(self.system.segments) + len(self.shared)

    def messages(self, *more: Segment) -> tuple[Message, ...]:
        return self.system, Message("user", (*self.shared, *more))


def _request(
    b: Brief, key: str, role: str, messages: tuple[Message, ...], max_tokens: int, fmt: Format, shared: tuple[int, ...]
) -> Request:
    """With a seed of its own, the same on every run."""
    sampling = b.of(role).sampling
    seed = int.from_bytes(hashlib.sha256(f"{sampling.seed}/{key}".encode()).digest()[:4], "big")
    return Request(
        key=key, model=role, messages=messages, max_tokens=max_tokens, format=fmt, shared=shared,
        sampling=replace(sampling, seed=seed), deadline_s=b.deadline_s,
    )  # fmt: skip


def _rows(concerns: Sequence[Concern]) -> list[prompts.Value]:
    return [
        {"critic": c.critic, "file": Foreign(c.file), "severity": c.severity, "problem": Foreign(c.problem)}
        for c in concerns
    ]


def _said_before(b: Brief, before: Sequence[Said]) -> tuple[Segment, ...]:
    if not before:
        return ()
    concerns = [c for s in before for c in s.concerns]
    values: dict[str, prompts.Value] = {
        "nonce": guard.nonce([t for c in concerns for t in (c.file, c.problem)]),
        "concerns": _rows(concerns),
        "silent": [s.critic for s in before if not s.concerns],
    }
    return prompts.render(b.templates, "others", values)


def critic_request(
    b: Brief, prompt: _Prompt, turn: int, critic: Critic, number: int, before: Sequence[Said]
) -> Request:
    """What critic number `turn` is asked in round `number`, after all that was said in the rounds before."""
    runs = runs_of([(f.name, f.text) for f in b.files], b.max_concerns, turn + len(before))
    fmt, worst = critic_format(runs, b.of(critic.role).free_text)
    others = _said_before(b, before)
    start, end = guard.envelope("")
    task = prompts.render(b.templates, "critic", {"again": "yes" if before else ""})
    messages = prompt.messages(
        *others, Segment(start, True), Segment(critic.charter.strip(), False), Segment(end, True), *task
    )
    lead = prompt.n_shared + len(others) + 1
    return _request(b, f"{critic.name}/r{number}", critic.role, messages, worst, fmt, (prompt.n_shared, lead))


# ---- a critic ------------------------------------------------------------------------------------------------------


def _ask_critic(
    b: Brief, prompt: _Prompt, turn: int, critic: Critic, number: int, before: Sequence[Said], tries: int
) -> Generator[Ask, tuple[Reply, ...], tuple[Said, Reply]]:
    def parse(text: str) -> Said:
        reply = CriticReply.model_validate_json(text)
        if not reply.concerns and not reply.nothing_left:
            raise ValueError("neither a concern nor an end")
        if not b.of(critic.role).free_text and not all(legible(c.problem) for c in reply.concerns):
            raise ValueError("not in words")
        concerns = tuple(_concern(b, critic.name, number, c) for c in reply.concerns)
        return Said(critic.name, number, _distinct(concerns, before), reply.nothing_left)

    said, reply = yield from ask_as(critic_request(b, prompt, turn, critic, number, before), parse, tries)
    return said or Said(critic.name, number, cause=failure(reply)), reply


def _concern(b: Brief, critic: str, number: int, c: ConcernReply) -> Concern:
    """With its place. The quote decides about the file where the file that was named does not hold it."""
    found = Concern(critic, number, c.file, c.quote.strip(), c.kind, tidy(c.problem), c.severity)
    holds = [f for f in b.files if found.quote and found.quote in f.text]
    file = next((f for f in holds if f.name == c.file), holds[0] if len(holds) == 1 else None)
    if file is None:
        return found
    about = Claim("", critic, found.quote, "other", found.problem, found.severity, "none")
    placed = claims_of.anchor(about, file.text.encode(), 1)
    return replace(found, file=file.name, lines=placed.lines, anchor=placed.anchor)


def _distinct(concerns: Sequence[Concern], before: Sequence[Said]) -> tuple[Concern, ...]:
    """Without those that say what this critic has said of the same file."""
    kept: list[Concern] = []
    for c in concerns:
        said = [x for s in before for x in s.concerns if s.critic == c.critic]
        if not any(x.file == c.file and _alike(x.problem, c.problem) for x in (*said, *kept)):
            kept.append(c)
    return tuple(kept)


def _alike(a: str, b: str) -> bool:
    return fuzz.token_set_ratio(a, b, processor=utils.default_process) >= claims_of.ALIKE


# ---- the synthesizer -----------------------------------------------------------------------------------------------


def merge_request(b: Brief, prompt: _Prompt, concerns: Sequence[Concern], key: str) -> Request:
    fmt, worst = schemas.format_of(MergedReply, schemas.Bounds(free=b.of(b.synthesizer_role).free_text))
    values: dict[str, prompts.Value] = {
        "nonce": guard.nonce([t for c in concerns for t in (c.file, c.problem)]),
        "concerns": _rows(concerns),
    }
    task = prompts.render(b.templates, "synthesizer", values)
    return _request(b, key, b.synthesizer_role, prompt.messages(*task), worst, fmt, (prompt.n_shared,))


def _merge(
    b: Brief, prompt: _Prompt, said: Sequence[Said], in_pass: int, tries: int
) -> Generator[Ask, tuple[Reply, ...], tuple[Merged | None, str, tuple[Reply, ...]]]:
    """(merged, why not, replies). A set of concerns that grew is a new question."""
    concerns = [c for s in said for c in s.concerns]
    if not concerns:
        return None, "", ()
    key = SYNTHESIZER if in_pass == 1 else f"{SYNTHESIZER}/p{in_pass}"

    def parse(text: str) -> MergedReply:
        reply = MergedReply.model_validate_json(text)
        said = (reply.consensus, *reply.action_items, *reply.dissent)
        if not b.of(b.synthesizer_role).free_text and not all(map(legible, said)):
            raise ValueError("not in words")
        return reply

    reply, last = yield from ask_as(merge_request(b, prompt, concerns, key), parse, tries)
    if reply is None:
        return None, failure(last), (last,)
    items, dissent = (_once(map(tidy, texts)) for texts in (reply.action_items, reply.dissent))
    return Merged(tidy(reply.consensus), items, dissent), "", (last,)


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    """Without those that say what one before them says."""
    kept: list[str] = []
    for text in texts:
        if not any(_alike(text, k) for k in kept):
            kept.append(text)
    return tuple(kept)


# ---- room ----------------------------------------------------------------------------------------------------------


def worst_tokens(b: Brief, count: Callable[[Sequence[Message]], int]) -> dict[str, int]:
    """For each critic and the synthesizer at their worst: the tokens of prompt and reply together. Estimated: every
    concern of the rounds before as long as it may be."""
    prompt = _Prompt(b)
    shown = len(b.critics) * b.max_concerns * _CONCERN_TOKENS
    asked = [critic_request(b, prompt, i, c, 1, ()) for i, c in enumerate(b.critics)]
    need = {r.key: count(r.messages) + r.max_tokens + (b.rounds - 1) * (shown + 80) for r in asked}
    merge = merge_request(b, prompt, (), SYNTHESIZER)
    return need | {SYNTHESIZER: count(merge.messages) + merge.max_tokens + b.rounds * shown}
