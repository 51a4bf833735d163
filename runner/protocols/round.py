"""A review round: reviewers side by side, then a verdict for every claim, then, if asked for, a synthesis.

Pure: the flow is built from `Review` alone, so running it again gives the same requests. What it returns says all
that the files of a round need; it publishes each file as soon as its content is known.

Passes. `resume` gives every request that ran out of tries two more (`tries` counts them all). A reviewer who answers
only in pass 2 brings claims that come after all earlier ones, with a claims list of their own, so no earlier prompt,
id, verdict or patch changes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from runner import claims as claims_of
from runner import guard, prompts, render, schemas
from runner.errors import Incomplete
from runner.prompts import Foreign
from runner.protocols.flow import ask_as, failure, family
from runner.values import (
    LABELS,
    Amended,
    Ask,
    Claim,
    Document,
    Flow,
    Format,
    Join,
    Label,
    Message,
    Patch,
    Publish,
    Reply,
    Request,
    Sampling,
    Segment,
    Synthesis,
    Theme,
    Tryout,
    Verdict,
)

MEANING: Mapping[Label, str] = {
    "CONCEDE": "the reviewer is right, and the document must change",
    "CONCEDE-IN-PART": "the reviewer is right in part, and a smaller change is enough",
    "DEFER": "it cannot be decided now",
    "REJECT": "the reviewer is wrong, and the document stays as it is",
}
ORDERS: tuple[tuple[Label, ...], ...] = (LABELS, LABELS[::-1])


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
    before it starts (carry-forward, human). scores: the defender's model can measure choices.
    floor, margin: probabilities, see `verdict_of`. deadline_s: per request. templates: of prompts, by name.
    file_templates: of files, by file name. engine_note: a line for defender.md.
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
    context: tuple[tuple[str, str], ...] = ()
    carried: tuple[Claim, ...] = ()
    max_claims: int = 4
    min_reviewers: int = 1
    defender_role: str = "default"
    synthesizer_role: str = "default"
    synthesizer: bool = False
    scores: bool = True
    sampling: Sampling = field(default_factory=Sampling)
    margin: float = 0.10
    floor: float = 0.05
    deadline_s: float | None = None
    engine_note: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What a round came to. exhausted: keys of requests that are out of tries."""

    tryouts: tuple[Tryout, ...]
    claims: tuple[Claim, ...]
    verdicts: tuple[Verdict, ...]
    patches: tuple[Patch, ...]
    synthesis: Synthesis | None
    diagnostics: tuple[str, ...]
    replies: tuple[Reply, ...]
    exhausted: tuple[str, ...]


_CLAIM_TOKENS = 190  # a quote of 200 characters and a problem of 240, as the defender is shown them
_JUDGE_TOKENS = 800  # a claim's own question, its reason, the verdict's question and an amended proposal

Priors = Sequence[Sequence[float]]  # per label order, log-probabilities of LABELS
UNIFORM: Priors = ((math.log(0.25),) * 4,) * 2


@dataclass(frozen=True, slots=True)
class _Reviewed:
    tryout: Tryout
    turn: int
    reply: Reply

    @property
    def in_pass(self) -> int:
        return _pass_of(self.reply)


@dataclass(frozen=True, slots=True)
class _Judged:
    verdict: Verdict
    replies: tuple[Reply, ...]
    out_of_tries: tuple[str, ...]

    @property
    def in_pass(self) -> int:
        return max((_pass_of(r) for r in self.replies), default=1)


def _pass_of(reply: Reply) -> int:
    """Two tries make a pass."""
    n = reply.key.rpartition("~")[2]
    return (int(n) + 1) // 2 if n.isdigit() and "~" in reply.key else 1


# ---- the flow ------------------------------------------------------------------------------------------------------


def review(r: Review, passes: int = 1) -> Generator[Ask | Publish | Join, Any, Result]:
    """The whole round. Raises Incomplete (reason `interrupted`) below min_reviewers or without a single verdict."""
    prompt, tries = _Prompt(r), 2 * passes
    flows = [_reviewer(r, prompt, i, tries) for i in range(len(r.reviewers))]
    # The defender's priors need nothing of the reviewers, so they are measured beside them.
    *reviewed, (prior, no_prior) = yield Join((*flows, _prior(r, prompt, tries) if r.scores else _no_prior()))
    _enough_reviewers(r, reviewed)
    claims = _claims(r, reviewed)
    judged = yield from _defend(r, prompt, _groups(r, reviewed, claims), _Priors.of(prior, no_prior), tries)
    verdicts = tuple(j.verdict for j in judged)
    if claims and all(v.cause == "engine" for v in verdicts):
        raise Incomplete(
            "the defender gave no verdict on any claim",
            reason="interrupted",
            hint="`debate resume` asks again",
            exhausted=tuple(k for j in judged for k in j.out_of_tries),
        )
    news = [x.in_pass for x in reviewed if x.tryout.status == "done"]
    in_pass = max((*news, *(j.in_pass for j in judged if j.verdict.cause != "engine")), default=1)
    synthesis, extra, failed = yield from _synthesize(r, prompt, claims, judged, in_pass, tries)
    lost = tuple(family(x.reply.key) for x in reviewed if x.tryout.status == "failed")
    result = Result(
        tryouts=tuple(x.tryout for x in reviewed),
        claims=claims,
        verdicts=verdicts,
        patches=_patches(r, claims, judged),
        synthesis=synthesis,
        diagnostics=_diagnostics(verdicts),
        replies=(*(x.reply for x in reviewed), *prior, *(y for j in judged for y in j.replies), *extra),
        exhausted=(*lost, *no_prior, *(k for j in judged for k in j.out_of_tries), *failed),
    )
    for document in outcome(r, result):
        yield Publish(document)
    return result


def _no_prior() -> Flow:
    return (), ()
    yield  # a flow that asks nothing


def _enough_reviewers(r: Review, reviewed: Sequence[_Reviewed]) -> None:
    done = sum(x.tryout.status == "done" for x in reviewed)
    if done < r.min_reviewers:
        failed = ", ".join(f"{x.tryout.persona} ({x.tryout.cause})" for x in reviewed if x.tryout.status == "failed")
        raise Incomplete(
            f"{done} of {len(reviewed)} reviewers answered, {r.min_reviewers} are needed; failed: {failed}",
            reason="interrupted",
            hint="`debate resume` asks them again; `debate resume --min-reviewers N` goes on with fewer",
            exhausted=tuple(family(x.reply.key) for x in reviewed if x.tryout.status == "failed"),
        )


# ---- reviewers -----------------------------------------------------------------------------------------------------


class _Prompt:
    """What all prompts of the round begin with, byte for byte the same."""

    def __init__(self, r: Review) -> None:
        foreign = [r.body, r.title, r.feedback, *(t for pair in r.context for t in pair)]
        self.system = Message("system", prompts.render(r.templates, "system", {}))
        self.shared = prompts.render(
            r.templates,
            "shared",
            {
                "kind": r.scope,
                "title": Foreign(r.title),
                "nonce": guard.nonce(foreign),
                "body": Foreign(r.body),
                "companions": [{"name": Foreign(n), "text": Foreign(t)} for n, t in r.context],
                "feedback": Foreign(r.feedback),
            },
        )
        self.n_shared = len(self.system.segments) + len(self.shared)
        self.passages = tuple(r.body[a:b] for a, b in schemas.passages(r.body))


def _reviewer(r: Review, prompt: _Prompt, turn: int, tries: int) -> Flow:
    who = r.reviewers[turn]
    request = reviewer_request(r, prompt, turn)
    first_line = r.front.count("\n") + 1
    body = r.body.encode()

    def parse(text: str) -> Tryout:
        reply = schemas.ReviewerReply.model_validate_json(text)
        made = [_claim(c, who.name) for c in reply.claims]
        return Tryout(
            persona=who.name,
            status="done",
            observations=tuple(_tidy(o) for o in reply.observations),
            claims=tuple(claims_of.anchor(c, body, first_line) for c in made),
            open_questions=tuple(_tidy(q) for q in reply.open_questions),
        )

    tryout, reply = yield from ask_as(request, parse, tries)
    if tryout is None:
        tryout = Tryout(who.name, "failed", cause=failure(reply))
    yield Publish(render.tryout(tryout, r.about))
    return _Reviewed(tryout, turn, reply)


def reviewer_request(r: Review, prompt: _Prompt | None, turn: int) -> Request:
    """The first request of reviewer number `turn`."""
    prompt = prompt or _Prompt(r)
    who = r.reviewers[turn]
    fmt, worst = schemas.format_of(
        schemas.ReviewerReply, schemas.Bounds(runs=schemas.runs_of(prompt.passages, r.max_claims, turn))
    )
    task = prompts.render(r.templates, "reviewer", {})
    if who.charter is not None:
        before, after = guard.envelope("")
        task = (Segment(before, True), Segment(who.charter, False), Segment(after, True), *task)
    user = Message("user", (*prompt.shared, *task))
    return _request(r, f"reviewer/{who.name}", who.role, (prompt.system, user), worst, fmt, (prompt.n_shared,))


def worst_tokens(r: Review, count: Callable[[Sequence[Message]], int]) -> dict[str, int]:
    """For each reviewer, and for the defender at its worst: the tokens of prompt and reply together.

    count: tokens of a prompt. The defender's worst is estimated: every claim as long as its bounds allow.
    """
    prompt = _Prompt(r)
    found = {}
    for turn in range(len(r.reviewers)):
        request = reviewer_request(r, prompt, turn)
        found[request.key] = count(request.messages) + request.max_tokens
    base = count((prompt.system, Message("user", prompt.shared)))
    claims = len(r.reviewers) * r.max_claims + len(r.carried)
    found["defender"] = base + claims * _CLAIM_TOKENS + _JUDGE_TOKENS
    return found


def _request(
    r: Review, key: str, role: str, messages: tuple[Message, ...], max_tokens: int, fmt: Format | None,
    shared: tuple[int, ...], **more: Any,
) -> Request:  # fmt: skip
    seed = int.from_bytes(hashlib.sha256(f"{r.sampling.seed}/{key}".encode()).digest()[:4], "big")
    return Request(
        key=key, model=role, messages=messages, max_tokens=max_tokens, format=fmt, shared=shared,
        sampling=replace(r.sampling, seed=seed), deadline_s=r.deadline_s, **more,
    )  # fmt: skip


def _claim(c: schemas.ClaimReply, persona: str) -> Claim:
    return Claim(
        id="", raised_by=persona, quote=c.quote.strip(), kind=c.kind, problem=_tidy(c.problem), severity=c.severity,
        action=c.action, replacement=c.replacement.strip() if c.action == "replace" else "",
    )  # fmt: skip


def _tidy(text: str) -> str:
    """Drop a torn last character, and a last sentence that was closed in its middle when another stands before it."""
    text = text.rstrip("\ufffd").strip()
    if text and text[-1] not in ".?!。？！":
        cut = max(text.rfind(mark) for mark in (". ", "? ", "! ", "。", "？", "！"))
        if cut > 0:
            return text[: cut + 1]
    return text


def _claims(r: Review, reviewed: Sequence[_Reviewed]) -> tuple[Claim, ...]:
    """All claims with ids: those carried into the round, then pass by pass in the order of the personas."""
    ordered = sorted(reviewed, key=lambda x: (x.in_pass, x.turn))
    raised = [c for x in ordered for c in x.tryout.claims]
    return claims_of.cluster(claims_of.number([*r.carried, *raised]))


def _groups(r: Review, reviewed: Sequence[_Reviewed], claims: Sequence[Claim]) -> list[tuple[int, tuple[Claim, ...]]]:
    """The claims by the pass they came in; what was carried into the round was there from the start."""
    late = {x.tryout.persona: x.in_pass for x in reviewed}
    by_pass: dict[int, list[Claim]] = {}
    for i, c in enumerate(claims):
        by_pass.setdefault(1 if i < len(r.carried) else late[c.raised_by], []).append(c)
    return [(p, tuple(by_pass[p])) for p in sorted(by_pass)]


# ---- defender ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Priors:
    """The measured priors, and the pass they came in: a verdict of an earlier pass stays as it was without them."""

    values: Priors
    in_pass: int

    @classmethod
    def of(cls, replies: Sequence[Reply], failed: Sequence[str]) -> _Priors:
        if failed or not replies:
            return cls(UNIFORM, 1)
        return cls(tuple(p.scores for p in replies), max(map(_pass_of, replies)))

    def at(self, in_pass: int) -> Priors:
        return self.values if self.in_pass <= in_pass else UNIFORM


def _prior(r: Review, prompt: _Prompt, tries: int) -> Flow:
    """What the model takes for each label, in each order, when the claim says nothing: its bias, to be divided out."""
    messages = _reason_messages(r, prompt, (), Claim("", "", "N/A", "other", "N/A", "minor", "none"))
    messages = (*messages, Message("assistant", (Segment(json.dumps({"reason": "N/A"}), True),)))
    requests = [_verdict_request(r, f"defender/prior-{i + 1}", messages, i, (prompt.n_shared,)) for i in range(2)]
    return (yield from _measured(requests, tries))


def _measured(requests: Sequence[Request], tries: int) -> Flow:
    """The replies of choices requests, each asked again until it is measured: (replies, keys out of tries)."""
    results = yield Join(tuple(ask_as(q, lambda _: True, tries) for q in requests))
    failed = tuple(family(reply.key) for ok, reply in results if not ok)
    return tuple(reply for _, reply in results), failed


def _verdict_request(
    r: Review, key: str, messages: tuple[Message, ...], order: int, shared: tuple[int, ...], **more: Any
) -> Request:
    """The question for a verdict, continuing the reason; the labels stand after it, outside every shared prefix."""
    labels: list[prompts.Value] = [{"name": label, "meaning": MEANING[label]} for label in ORDERS[order]]
    question = Message("user", prompts.render(r.templates, "verdict", {"labels": labels}))
    choices = tuple(json.dumps(label) for label in LABELS)
    return _request(r, key, r.defender_role, (*messages, question), 16, None, shared, choices=choices, **more)


def _defend(
    r: Review, prompt: _Prompt, groups: Sequence[tuple[int, tuple[Claim, ...]]], priors: _Priors, tries: int
) -> Generator[Ask | Publish | Join, Any, tuple[_Judged, ...]]:
    """Verdicts in the order of the claims. A late group has a claims list of its own."""
    done: list[_Judged] = []
    for in_pass, group in groups:
        lead = "defender" if in_pass == 1 else f"defender/p{in_pass}"
        shown = _claims_shown(r, group)
        done += yield Join(tuple(_judge(r, prompt, shown, c, f"{lead}/{c.id}", priors, tries) for c in group))
    return tuple(done)


def _claims_shown(r: Review, group: Sequence[Claim]) -> tuple[Segment, ...]:
    """The claims as the defender sees them, without names, in an order that tells nothing."""
    shown = claims_of.shuffled(group)
    texts = [t for c in shown for t in (c.quote, c.problem)]
    rows: list[prompts.Value] = [
        {"id": i, "quote": Foreign(c.quote), "problem": Foreign(c.problem)} for i, c in enumerate(shown, 1)
    ]
    return prompts.render(r.templates, "claims", {"nonce": guard.nonce([r.body, *texts]), "claims": rows})


def _reason_messages(r: Review, prompt: _Prompt, shown: tuple[Segment, ...], c: Claim) -> tuple[Message, ...]:
    values: dict[str, prompts.Value] = {
        "quote": Foreign(c.quote), "problem": Foreign(c.problem), "action": c.action,
        "replacement": Foreign(c.replacement),
    }  # fmt: skip
    task = prompts.render(r.templates, "reason", values)
    return prompt.system, Message("user", (*prompt.shared, *shown, *task))


def _judge(
    r: Review, prompt: _Prompt, shown: tuple[Segment, ...], c: Claim, key: str, priors: _Priors, tries: int
) -> Flow:
    """One claim: a reason, then its verdict measured in both label orders, then what is accepted of it."""
    model = schemas.ReasonReply if r.scores else schemas.JudgedReply
    fmt, worst = schemas.format_of(model)
    shared = (prompt.n_shared, prompt.n_shared + len(shown))
    ask = _request(r, key, r.defender_role, _reason_messages(r, prompt, shown, c), worst, fmt, shared, keep=True)
    answer, reply = yield from ask_as(ask, model.model_validate_json, tries)
    if answer is None:
        return _Judged(no_verdict(c, failure(reply)), (reply,), (key,))
    reason = _tidy(answer.reason)
    after = (*ask.messages, Message("assistant", (Segment(reply.text, False),)))
    if isinstance(answer, schemas.JudgedReply):
        verdict = Verdict(c.id, answer.verdict, "reply", reason)
        replies: tuple[Reply, ...] = (reply,)
    else:
        requests = [
            _verdict_request(r, f"{key}/order-{i + 1}", after, i, shared, continues=reply.key) for i in range(2)
        ]
        scored, failed = yield from _measured(requests, tries)
        replies = (reply, *scored)
        if failed:
            return _Judged(no_verdict(c, failure(scored[-1])), replies, failed)
        known = priors.at(max(map(_pass_of, replies)))
        verdict = verdict_of(c.id, reason, [s.scores for s in scored], known, r.margin, r.floor)
    if verdict.verdict != "CONCEDE-IN-PART":
        return _Judged(verdict, replies, ())
    return (yield from _amend(r, c, key, after, shared, verdict, replies, tries))


def _amend(
    r: Review, c: Claim, key: str, after: tuple[Message, ...], shared: tuple[int, ...], verdict: Verdict,
    replies: tuple[Reply, ...], tries: int,
) -> Flow:  # fmt: skip
    """Of a claim conceded in part: the change that is accepted."""
    fmt, worst = schemas.format_of(schemas.AmendedReply)
    question = Message("user", prompts.render(r.templates, "amended", {"quote": Foreign(c.quote)}))
    ask = _request(
        r, f"{key}/amended", r.defender_role, (*after, question), worst, fmt, shared, continues=replies[0].key
    )
    answer, reply = yield from ask_as(ask, schemas.AmendedReply.model_validate_json, tries)
    if answer is None:
        return _Judged(verdict, (*replies, reply), (ask.key,))
    text = answer.replacement.strip() if answer.action == "replace" else ""
    return _Judged(replace(verdict, amended=Amended(answer.action, text)), (*replies, reply), ())


def no_verdict(c: Claim, why: str) -> Verdict:
    """A claim that got no usable verdict is deferred, never conceded."""
    return Verdict(c.id, "DEFER", "engine", f"The defender gave no usable verdict ({why}).")


def verdict_of(
    claim: str, reason: str, orders: Sequence[Sequence[float]], priors: Priors, margin: float, floor: float
) -> Verdict:
    """The verdict of record from log-probabilities of the four labels (in the order of LABELS), per label order.

    Each order's probabilities are divided by the prior in that order (at least `floor`: dividing by a tiny prior would
    make the rare label win), normalised, then averaged. Two labels closer than `margin`: DEFER, cause `close`.
    """
    corrected = [_corrected(scores, prior, floor) for scores, prior in zip(orders, priors, strict=True)]
    p = [sum(column) / len(corrected) for column in zip(*corrected, strict=True)]
    ranked = sorted(range(len(LABELS)), key=lambda i: (-p[i], i))
    close = p[ranked[0]] - p[ranked[1]] < margin
    firsts = {max(range(len(LABELS)), key=row.__getitem__) for row in corrected}
    return Verdict(
        claim=claim,
        verdict="DEFER" if close else LABELS[ranked[0]],
        cause="close" if close else "measured",
        reason=reason,
        confidence=p[ranked[0]],
        agree=len(firsts) == 1,
        method="choices",
        probabilities=dict(zip(LABELS, p, strict=True)),
        raw=tuple(
            {"order": list(order), "scores": list(scores), "prior": list(prior)}
            for order, scores, prior in zip(ORDERS, orders, priors, strict=True)
        ),
    )


def _corrected(scores: Sequence[float], prior: Sequence[float], floor: float) -> list[float]:
    weights = [math.exp(s) / max(math.exp(q), floor) for s, q in zip(scores, prior, strict=True)]
    return [w / sum(weights) for w in weights]


def _diagnostics(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """What a reader should know about the verdicts as a whole."""
    found = []
    labels = {v.verdict for v in verdicts}
    if len(verdicts) > 1 and labels == {"CONCEDE"}:
        found.append("The defender conceded every claim: look at the reviewers' claims with care.")
    if len(verdicts) > 1 and labels == {"REJECT"}:
        found.append("The defender rejected every claim: look at the rejected claims with care.")
    split = sum(v.agree is False for v in verdicts)
    if split:
        found.append(f"In {split} of {len(verdicts)} verdicts the two label orders disagreed.")
    return tuple(found)


# ---- synthesizer ---------------------------------------------------------------------------------------------------


def _synthesize(
    r: Review, prompt: _Prompt, claims: Sequence[Claim], judged: Sequence[_Judged], in_pass: int, tries: int
) -> Generator[Ask | Publish | Join, Any, tuple[Synthesis | None, tuple[Reply, ...], tuple[str, ...]]]:
    """(synthesis, replies, keys out of tries). It sees headings and claims; a set that grew is a new question."""
    if not r.synthesizer or not claims:
        return None, (), ()
    verdicts = {j.verdict.claim: j.verdict.verdict for j in judged}
    rejected = tuple(c.id for c in claims if verdicts[c.id] == "REJECT")
    bounds = schemas.Bounds(claims=tuple(c.id for c in claims), revisit=rejected)
    fmt, worst = schemas.format_of(schemas.SynthesisReply, bounds)
    rows: list[prompts.Value] = [{"id": c.id, "verdict": verdicts[c.id], "problem": Foreign(c.problem)} for c in claims]
    values: dict[str, prompts.Value] = {
        "title": Foreign(r.title),
        "headings": Foreign(", ".join(claims_of.headings(r.body.encode()))),
        "feedback": Foreign(r.feedback),
        "nonce": guard.nonce([r.title, r.feedback, *(c.problem for c in claims)]),
        "claims": rows,
    }
    user = Message("user", prompts.render(r.templates, "synthesizer", values))
    key = "synthesizer" if in_pass == 1 else f"synthesizer/p{in_pass}"
    ask = _request(r, key, r.synthesizer_role, (prompt.system, user), worst, fmt, ())
    answer, reply = yield from ask_as(ask, schemas.SynthesisReply.model_validate_json, tries)
    if answer is None:
        return None, (reply,), (key,)
    themes = tuple(Theme(_tidy(t.title), _tidy(t.text), tuple(dict.fromkeys(t.claims))) for t in answer.themes)
    tensions = tuple(_tidy(t) for t in answer.tensions)
    return Synthesis(themes, tensions, tuple(dict.fromkeys(answer.revisit))), (reply,), ()


# ---- patches -------------------------------------------------------------------------------------------------------


def _patches(r: Review, claims: Sequence[Claim], judged: Sequence[_Judged]) -> tuple[Patch, ...]:
    """Patches pass by pass, so that a verdict that comes late changes no number given before."""
    made: tuple[Patch, ...] = ()
    verdicts = [j.verdict for j in judged]
    late = {j.verdict.claim: j.in_pass for j in judged}
    for in_pass in sorted(set(late.values())):
        group = [c for c in claims if late[c.id] == in_pass]
        made += claims_of.patches(group, verdicts, r.body.encode(), r.front.encode(), r.path, made)
    return made


# ---- files ---------------------------------------------------------------------------------------------------------


def outcome(r: Review, result: Result) -> tuple[Document, ...]:
    """The files that follow the verdicts, in the specification's order."""
    claims, verdicts = result.claims, result.verdicts
    revisit = result.synthesis.revisit if result.synthesis else ()
    patches, issues = (r.file_templates[f"{name}.md"] for name in ("proposed-patches", "open-issues"))
    return (
        render.defender(claims, verdicts, r.about, result.diagnostics, r.engine_note),
        *([render.synthesizer(result.synthesis, claims, r.about)] if result.synthesis else []),
        render.proposed_patches(claims, verdicts, result.patches, r.about, patches),
        render.open_issues(claims, verdicts, revisit, r.about, issues),
    )
