"""The defender: a reason for every claim, then its verdict measured in two label orders, then what is accepted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner import claims as claims_of
from runner import guard, prompts, schemas
from runner.prompts import Foreign
from runner.protocols.flow import ask_as, failure, family
from runner.protocols.review import Prompt, Review, pass_of, request, tidy
from runner.protocols.reviewers import Group
from runner.values import (
    LABELS,
    Amended,
    Claim,
    Flow,
    Join,
    Label,
    Message,
    Reply,
    Request,
    Segment,
    Verdict,
)

MEANING: Mapping[Label, str] = {
    "CONCEDE": "the reviewer is right, and the document must change",
    "CONCEDE-IN-PART": "the reviewer is right in part, and a smaller change is enough",
    "DEFER": "it cannot be decided now",
    "REJECT": "the reviewer is wrong, and the document stays as it is",
}
ORDERS: tuple[tuple[Label, ...], ...] = (LABELS, LABELS[::-1])


Priors = Sequence[Sequence[float]]  # per label order, log-probabilities of LABELS
UNIFORM: Priors = ((math.log(0.25),) * 4,) * 2


@dataclass(frozen=True, slots=True)
class Judged:
    verdict: Verdict
    replies: tuple[Reply, ...]
    out_of_tries: tuple[str, ...]

    @property
    def in_pass(self) -> int:
        return max((pass_of(r) for r in self.replies), default=1)


@dataclass(frozen=True, slots=True)
class MeasuredPriors:
    """The measured priors, and the pass they came in: a verdict of an earlier pass stays as it was without them."""

    values: Priors
    in_pass: int

    @classmethod
    def of(cls, replies: Sequence[Reply], failed: Sequence[str]) -> MeasuredPriors:
        if failed or not replies:
            return cls(UNIFORM, 1)
        return cls(tuple(p.scores for p in replies), max(map(pass_of, replies)))

    def at(self, in_pass: int) -> Priors:
        return self.values if self.in_pass <= in_pass else UNIFORM


def prior(r: Review, prompt: Prompt, tries: int) -> Flow:
    """What the model takes for each label, in each order, when the claim says nothing: its bias, to be divided out."""
    empty = Claim("", "", "...", "other", "...", "minor", "none")
    messages = _reason_messages(r, prompt, _claims_shown(r, [empty]), 1, empty)
    messages = (*messages, Message("assistant", (Segment(json.dumps({"reason": "..."}, separators=(",", ":")), True),)))
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
    """The question for a verdict, continuing the reason; the labels in their order stand after it, outside every shared
    prefix. What they mean stands with the claims, said once."""
    question = Message("user", prompts.render(r.templates, "verdict", {"labels": _labels(order)}))
    choices = tuple(json.dumps(label) for label in LABELS)
    return request(r, key, r.defender_role, (*messages, question), 16, None, shared, choices=choices, **more)


def _labels(order: int) -> list[prompts.Value]:
    return [{"name": label, "meaning": MEANING[label]} for label in ORDERS[order]]


def defend(r: Review, shown: Sequence[Prompt], groups: Sequence[Group], priors: MeasuredPriors, tries: int) -> Flow:
    """Verdicts on all claims, in the order of the groups. Every group has a claims list of its own."""
    done: list[Judged] = []
    for in_pass in sorted({g.in_pass for g in groups}):
        lead = "defender" if in_pass == 1 else f"defender/p{in_pass}"
        flows: list[Flow] = []
        for group in (g for g in groups if g.in_pass == in_pass):
            listed = _claims_shown(r, group.claims)
            prompt = shown[group.window]
            number = {c.id: i for i, c in enumerate(claims_of.shuffled(group.claims), 1)}
            flows += [_judge(r, prompt, listed, number[c.id], c, f"{lead}/{c.id}", priors, tries) for c in group.claims]
        done += yield Join(tuple(flows))
    return tuple(done)


def _claims_shown(r: Review, group: Sequence[Claim]) -> tuple[Segment, ...]:
    """The claims as the defender sees them, without names, in an order that tells nothing."""
    shown = claims_of.shuffled(group)
    texts = [t for c in shown for t in (c.quote, c.problem, c.replacement)]
    rows: list[prompts.Value] = [
        {"id": i, "quote": Foreign(c.quote), "problem": Foreign(c.problem), "action": c.action,
         "replacement": Foreign(c.replacement)}
        for i, c in enumerate(shown, 1)
    ]  # fmt: skip
    values: dict[str, prompts.Value] = {
        "nonce": guard.nonce([r.body, *texts]), "claims": rows, "labels": _labels(0),
    }  # fmt: skip
    return prompts.render(r.templates, "claims", values)


def _reason_messages(
    r: Review, prompt: Prompt, listed: tuple[Segment, ...], number: int, c: Claim
) -> tuple[Message, ...]:
    """number: of the claim in the list. What the list says of it is not said again but for the problem."""
    values: dict[str, prompts.Value] = {"id": number, "quote": Foreign(c.quote), "problem": Foreign(c.problem)}
    task = prompts.render(r.templates, "reason", values)
    return prompt.system, prompt.user(*listed, *r.own_task("defender"), *task)


def _judge(
    r: Review, prompt: Prompt, listed: tuple[Segment, ...], number: int, c: Claim, key: str, priors: MeasuredPriors,
    tries: int,
) -> Flow:  # fmt: skip
    """One claim: a reason, then its verdict measured in both label orders, then what is accepted of it."""
    model = schemas.ReasonReply if r.measures else schemas.JudgedReply
    fmt, worst = schemas.format_of(model, schemas.Bounds(free=r.traits(r.defender_role).free_text))
    shared = (prompt.n_shared, prompt.n_shared + len(listed))
    ask = request(
        r, key, r.defender_role, _reason_messages(r, prompt, listed, number, c), worst, fmt, shared, keep=True
    )
    answer, reply = yield from ask_as(ask, model.model_validate_json, tries)
    if answer is None:
        return Judged(no_verdict(c, failure(reply)), (reply,), (key,))
    reason = tidy(answer.reason)
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
            return Judged(no_verdict(c, failure(scored[-1])), replies, failed)
        known = priors.at(max(map(pass_of, replies)))
        verdict = verdict_of(c.id, reason, [s.scores for s in scored], known, r.margin, r.floor)
    if verdict.verdict != "CONCEDE-IN-PART":
        return Judged(verdict, replies, ())
    return (yield from _amend(r, c, key, after, shared, verdict, replies, tries))


def _amend(
    r: Review, c: Claim, key: str, after: tuple[Message, ...], shared: tuple[int, ...], verdict: Verdict,
    replies: tuple[Reply, ...], tries: int,
) -> Flow:  # fmt: skip
    """Of a claim conceded in part: the change that is accepted."""
    fmt, worst = schemas.format_of(schemas.AmendedReply, schemas.Bounds(free=r.traits(r.defender_role).free_text))
    question = Message("user", prompts.render(r.templates, "amended", {"quote": Foreign(c.quote)}))
    ask = request(
        r, f"{key}/amended", r.defender_role, (*after, question), worst, fmt, shared, continues=replies[0].key
    )
    answer, reply = yield from ask_as(ask, schemas.AmendedReply.model_validate_json, tries)
    if answer is None:
        return Judged(verdict, (*replies, reply), (ask.key,))
    text = answer.replacement.strip() if answer.action == "replace" else ""
    return Judged(replace(verdict, amended=Amended(answer.action, text)), (*replies, reply), ())


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


def diagnostics(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
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
