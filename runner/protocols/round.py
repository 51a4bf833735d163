"""A review round: reviewers side by side, then a verdict for every claim, then, if asked for, a synthesis.

Pure: the flow is built from `Review` alone, so running it again gives the same requests. What it returns says all
that the files of a round need; it publishes each file as soon as its content is known.

Passes. `resume` gives every request that ran out of tries two more (`tries` counts them all). A reviewer who answers
only in pass 2 brings claims that come after all earlier ones, with a claims list of their own, so no earlier prompt,
id, verdict or patch changes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from runner import claims as claims_of
from runner import render
from runner.errors import Incomplete
from runner.protocols import defender, reviewers, synthesizer
from runner.protocols.defender import Judged
from runner.protocols.flow import family
from runner.protocols.review import Prompt, Result, Review, Reviewer
from runner.protocols.reviewers import reviewer_request, worst_tokens
from runner.values import Ask, Claim, Document, Flow, Join, Patch, Publish

__all__ = ["Result", "Review", "Reviewer", "outcome", "review", "reviewer_request", "worst_tokens"]


def review(r: Review, passes: int = 1) -> Generator[Ask | Publish | Join, Any, Result]:
    """The whole round. Raises Incomplete (reason `interrupted`) below min_reviewers or without a single verdict."""
    shown, tries = tuple(Prompt(r, window) for window in r.shown), 2 * passes
    flows = [reviewers.reviewer(r, shown, i, tries) for i in range(len(r.reviewers))]
    # The defender's priors need nothing of the reviewers, so they are measured beside them.
    measured = defender.prior(r, shown[0], tries) if r.measures and not r.verdicts else _no_prior()
    *reviewed, (prior, no_prior) = yield Join((*flows, measured))
    reviewers.enough(r, reviewed)
    claims, groups = reviewers.gather(r, reviewed)
    priors = defender.MeasuredPriors.of(prior, no_prior)
    if r.verdicts:
        judged = tuple(Judged(v, (), ()) for v in r.verdicts)
    else:
        judged = yield from defender.defend(r, shown, groups, priors, tries)
    judged = _in_order(claims, judged)
    verdicts = tuple(j.verdict for j in judged)
    unjudged = tuple(k for j in judged for k in j.out_of_tries)
    if claims and all(v.cause == "engine" for v in verdicts):
        raise Incomplete(
            "the defender gave no verdict on any claim",
            reason="interrupted",
            hint="`debate resume` asks again",
            exhausted=unjudged,
        )
    news = [p.in_pass for x in reviewed for p in x.parts if p.said is not None]
    in_pass = max((*news, *(j.in_pass for j in judged if j.verdict.cause != "engine")), default=1)
    synthesis, extra, failed, notes = yield from synthesizer.synthesize(r, shown[0], claims, judged, in_pass, tries)
    by_hand = {t.persona for t in r.given}
    parts = [p for x in reviewed if x.tryout.persona not in by_hand for p in x.parts]
    lost = [p for p in parts if p.said is None]
    result = Result(
        tryouts=tuple(x.tryout for x in reviewed),
        claims=claims,
        verdicts=verdicts,
        patches=_patches(r, claims, judged),
        synthesis=synthesis,
        diagnostics=(*defender.diagnostics(verdicts), *notes),
        replies=(*(p.reply for p in parts), *prior, *(y for j in judged for y in j.replies), *extra),
        exhausted=(*(family(p.reply.key) for p in lost), *no_prior, *unjudged, *failed),
        unseen=tuple((r.reviewers[p.turn].name, r.shown[p.window]) for p in lost),
    )
    for document in outcome(r, result):
        yield Publish(document)
    return result


def _no_prior() -> Flow:
    return (), ()
    yield  # a flow that asks nothing


def _in_order(claims: Sequence[Claim], judged: Sequence[Judged]) -> tuple[Judged, ...]:
    """Groups were judged by window; verdicts stand in the order of the claims."""
    by_claim = {j.verdict.claim: j for j in judged}
    return tuple(by_claim[c.id] for c in claims)


# ---- patches -------------------------------------------------------------------------------------------------------


def _patches(r: Review, claims: Sequence[Claim], judged: Sequence[Judged]) -> tuple[Patch, ...]:
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
        *([] if r.own_defender else [render.defender(claims, verdicts, r.about, result.diagnostics, r.engine_note)]),
        *([render.synthesizer(result.synthesis, claims, r.about)] if result.synthesis else []),
        render.proposed_patches(claims, verdicts, result.patches, r.about, patches),
        render.open_issues(claims, verdicts, revisit, r.about, issues),
    )
