"""The reviewers: side by side, blind to each other, each with its charter, one request per window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from runner import claims as claims_of
from runner import guard, prompts, render, schemas
from runner.errors import Incomplete, Refused
from runner.protocols.flow import ask_as, failure, family
from runner.protocols.review import Prompt, Review, pass_of, request, tidy
from runner.values import Claim, Flow, Join, Message, Publish, Reply, Request, Segment, Tryout

_CLAIM_TOKENS = 290  # a quote of 200 characters, a problem and a replacement of 240, as the defender is shown them
_JUDGE_TOKENS = 800  # a claim's own question, its reason, the verdict's question and an amended proposal


@dataclass(frozen=True, slots=True)
class Part:
    """What a reviewer said of one window; None: nothing usable."""

    turn: int
    window: int
    said: Tryout | None
    reply: Reply

    @property
    def in_pass(self) -> int:
        return pass_of(self.reply)


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A reviewer's tryout over all windows, and its parts."""

    tryout: Tryout
    parts: tuple[Part, ...]

    @property
    def lost(self) -> tuple[Part, ...]:
        return tuple(p for p in self.parts if p.said is None)


def reviewer(r: Review, shown: Sequence[Prompt], turn: int, tries: int) -> Flow:
    """The sub-flow of one reviewer: its tryout is written as soon as all its windows are read.

    One that a person wrote is taken as it is, and stays as it is.
    """
    by_hand = from_hand(r, turn)
    if by_hand is not None:
        return by_hand
    flows = tuple(_part(r, prompt, turn, tries) for prompt in shown)
    parts = ((yield from flows[0]),) if len(flows) == 1 else (yield Join(flows))
    tryout = _whole(r, turn, parts)
    yield Publish(render.tryout(tryout, r.about))
    return Reviewed(tryout, parts)


def _part(r: Review, prompt: Prompt, turn: int, tries: int) -> Flow:
    who, body = r.reviewers[turn], r.body.encode()
    near = (len(r.body[: prompt.window[0]].encode()), len(r.body[: prompt.window[1]].encode()))

    def parse(text: str) -> Tryout:
        said = _tryout(schemas.ReviewerReply.model_validate_json(text), who.name)
        return replace(said, claims=tuple(claims_of.anchor(c, body, r.first_body_line, near) for c in said.claims))

    said, reply = yield from ask_as(reviewer_request(r, prompt, turn), parse, tries)
    return Part(turn, r.shown.index(prompt.window), said, reply)


def from_hand(r: Review, turn: int) -> Reviewed | None:
    """The tryout that a person wrote for this reviewer, its claims anchored."""
    name, body = r.reviewers[turn].name, r.body.encode()
    found = next((t for t in r.given if t.persona == name), None)
    if found is None:
        return None
    said = replace(found, claims=tuple(claims_of.anchor(c, body, r.first_body_line) for c in found.claims))
    return Reviewed(said, (Part(turn, 0, said, Reply(f"reviewer/{name}", "", "stop")),))


def tryout_of(text: str, persona: str, path: str) -> Tryout:
    """A tryout from a reply's JSON, of another tool. Refused when it does not fit the schema."""
    try:
        return _tryout(schemas.ReviewerReply.model_validate_json(text), persona)
    except ValueError:
        hint = "observations, claims {quote, kind, problem, severity, action, replacement}, open_questions"
        raise Refused("this is not a reviewer's reply", path=path, hint=hint) from None


def _tryout(reply: schemas.ReviewerReply, persona: str) -> Tryout:
    return Tryout(
        persona=persona,
        status="done",
        observations=tuple(tidy(o) for o in reply.observations),
        claims=tuple(_claim(c, persona) for c in reply.claims),
        open_questions=tuple(tidy(q) for q in reply.open_questions),
    )


def _whole(r: Review, turn: int, parts: Sequence[Part]) -> Tryout:
    said = [p.said for p in parts if p.said is not None]
    lost = [p for p in parts if p.said is None]
    name, many = r.reviewers[turn].name, len(parts) > 1
    cause = "; ".join(f"window {p.window + 1}: {failure(p.reply)}" if many else failure(p.reply) for p in lost)
    if not said:
        return Tryout(name, "failed", cause=cause)
    return Tryout(
        persona=name,
        status="done",
        observations=tuple(o for t in said for o in t.observations),
        claims=tuple(c for t in said for c in t.claims),
        open_questions=tuple(q for t in said for q in t.open_questions),
        cause=cause,
    )


def reviewer_request(r: Review, prompt: Prompt | None, turn: int) -> Request:
    """The first request of reviewer number `turn` about a window (the first one, when there is no prompt)."""
    prompt = prompt or Prompt(r, r.shown[0])
    who = r.reviewers[turn]
    fmt, worst = schemas.format_of(
        schemas.ReviewerReply,
        schemas.Bounds(runs=schemas.runs_of(prompt.passages, r.max_claims, turn), free=r.traits(who.role).free_text),
    )
    key = f"reviewer/{who.name}" + ("" if len(r.shown) == 1 else f"/w{r.shown.index(prompt.window) + 1}")
    lead, rest = _task(r, turn)
    shared = (prompt.n_shared, prompt.n_shared + len(lead)) if lead else (prompt.n_shared,)
    return request(r, key, who.role, (prompt.system, prompt.user(*lead, *rest)), worst, fmt, shared)


def _task(r: Review, turn: int) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """What follows the shared part: the same for all reviewers, then this one's. The envelope's text is the
    specification's, so what stands before the charter can be shared."""
    who = r.reviewers[turn]
    own = r.tasks.get("reviewer")
    if own is not None:
        return (), prompts.fill(own, r.names(who.name), {"PERSONA_CHARTER": _wrapped(who.charter)})
    question = prompts.render(r.templates, "reviewer", {"delta": "yes" if r.differences else ""})
    if who.charter is None:
        return (), question
    before, after = guard.envelope("")
    return (Segment(before, True),), (Segment(who.charter, False), Segment(after, True), *question)


def _wrapped(charter: str | None) -> tuple[Segment, ...]:
    if charter is None:
        return ()
    before, after = guard.envelope("")
    return Segment(before, True), Segment(charter, False), Segment(after, True)


def _claim(c: schemas.ClaimReply, persona: str) -> Claim:
    return Claim(
        id="", raised_by=persona, quote=c.quote.strip(), kind=c.kind, problem=tidy(c.problem), severity=c.severity,
        action=c.action, replacement=c.replacement.strip() if c.action == "replace" else "",
    )  # fmt: skip


# ---- what came of it -----------------------------------------------------------------------------------------------


def enough(r: Review, reviewed: Sequence[Reviewed]) -> None:
    """Raise Incomplete (interrupted) when fewer reviewers answered than are needed."""
    done = sum(x.tryout.status == "done" for x in reviewed)
    if done < r.min_reviewers:
        failed = ", ".join(f"{x.tryout.persona} ({x.tryout.cause})" for x in reviewed if x.tryout.status == "failed")
        raise Incomplete(
            f"{done} of {len(reviewed)} reviewers answered, {r.min_reviewers} are needed; failed: {failed}",
            reason="interrupted",
            hint="`debate resume` asks them again; `debate resume --min-reviewers N` goes on with fewer",
            exhausted=tuple(family(p.reply.key) for x in reviewed for p in x.lost),
        )


@dataclass(frozen=True, slots=True)
class Group:
    """Claims that the defender sees as one list: of one pass, about one window."""

    in_pass: int
    window: int
    claims: tuple[Claim, ...]


def gather(r: Review, reviewed: Sequence[Reviewed]) -> tuple[tuple[Claim, ...], tuple[Group, ...]]:
    """All claims with ids (those carried into the round, then pass by pass in the order of the personas and windows),
    and the groups they are judged in."""
    parts = sorted((p for x in reviewed for p in x.parts if p.said), key=lambda p: (p.in_pass, p.turn, p.window))
    placed = [(1, _window_of(r, c), c) for c in r.carried]
    placed += [(p.in_pass, p.window, c) for p in parts if p.said for c in p.said.claims]
    claims = claims_of.cluster(claims_of.number([c for _, _, c in placed]))
    groups: dict[tuple[int, int], list[Claim]] = {}
    for (in_pass, window, _), claim in zip(placed, claims, strict=True):
        groups.setdefault((in_pass, window), []).append(claim)
    return claims, tuple(Group(*key, tuple(groups[key])) for key in sorted(groups))


def _window_of(r: Review, c: Claim) -> int:
    """The first window that holds the claim's quote; the first of all without a place."""
    for i, (a, b) in enumerate(r.shown):
        low, high = len(r.body[:a].encode()), len(r.body[:b].encode())
        if c.start is not None and c.end is not None and low <= c.start and c.end <= high:
            return i
    return 0


def worst_tokens(r: Review, count: Callable[[Sequence[Message]], int]) -> dict[str, int]:
    """For each reviewer, and for the defender at its worst: the tokens of prompt and reply together, over all windows.

    count: tokens of a prompt. The defender's worst is estimated: every claim as long as its bounds allow.
    """
    found: dict[str, int] = {}

    def add(key: str, tokens: int) -> None:
        found[key] = max(found.get(key, 0), tokens)

    claims = len(r.reviewers) * r.max_claims + len(r.carried)
    for window in r.shown:
        prompt = Prompt(r, window)
        for turn in range(len(r.reviewers)):
            asked = reviewer_request(r, prompt, turn)
            add(asked.key, count(asked.messages) + asked.max_tokens)
        add("defender", count((prompt.system, prompt.user())) + claims * _CLAIM_TOKENS + _JUDGE_TOKENS)
    return found
