"""The synthesizer: themes over all claims, what pulls in two directions, REJECTs that deserve a second look."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from runner import claims as claims_of
from runner import guard, prompts, schemas
from runner.prompts import Foreign
from runner.protocols.defender import Judged
from runner.protocols.flow import ask_as
from runner.protocols.review import Prompt, Review, request, tidy
from runner.values import Ask, Claim, Join, Message, Publish, Reply, Synthesis, Theme


def synthesize(
    r: Review, prompt: Prompt, claims: Sequence[Claim], judged: Sequence[Judged], in_pass: int, tries: int
) -> Generator[Ask | Publish | Join, Any, tuple[Synthesis | None, tuple[Reply, ...], tuple[str, ...], tuple[str, ...]]]:
    """(synthesis, replies, keys out of tries, diagnostics). It sees headings and claims; a set that grew is a new
    question."""
    if not r.synthesizer or not claims:
        return None, (), (), ()
    verdicts = {j.verdict.claim: j.verdict.verdict for j in judged}
    rejected = tuple(c.id for c in claims if verdicts[c.id] == "REJECT")
    bounds = schemas.Bounds(
        claims=tuple(c.id for c in claims), revisit=rejected, free=r.traits(r.synthesizer_role).free_text
    )
    fmt, worst = schemas.format_of(schemas.SynthesisReply, bounds)
    rows: list[prompts.Value] = [{"id": c.id, "verdict": verdicts[c.id], "problem": Foreign(c.problem)} for c in claims]
    values: dict[str, prompts.Value] = {
        "title": Foreign(r.title),
        "headings": Foreign(", ".join(claims_of.headings(r.body.encode()))),
        "feedback": Foreign(r.feedback),
        "nonce": guard.nonce([r.title, r.feedback, *(c.problem for c in claims)]),
        "claims": rows,
    }
    user = Message("user", (*r.own_task("synthesizer"), *prompts.render(r.templates, "synthesizer", values)))
    key = "synthesizer" if in_pass == 1 else f"synthesizer/p{in_pass}"
    ask = request(r, key, r.synthesizer_role, (prompt.system, user), worst, fmt, ())
    answer, reply = yield from ask_as(ask, schemas.SynthesisReply.model_validate_json, tries)
    if answer is None:
        return None, (reply,), (key,), ()
    made_up = dict.fromkeys(i for t in answer.themes for i in t.claims if i not in verdicts)
    made_up |= dict.fromkeys(i for i in answer.revisit if i not in rejected)
    notes = (f"The synthesizer named what is no (REJECTed) claim: {', '.join(made_up)}.",) if made_up else ()
    return _synthesis(answer, tuple(verdicts), rejected), (reply,), (), notes


def _synthesis(answer: schemas.SynthesisReply, known: Sequence[str], rejected: Sequence[str]) -> Synthesis:
    """The reply with the ids that there are, each once."""
    themes = tuple(Theme(tidy(t.title), tidy(t.text), _once(t.claims, known)) for t in answer.themes)
    return Synthesis(themes, tuple(tidy(t) for t in answer.tensions), _once(answer.revisit, rejected))


def _once(ids: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(i for i in ids if i in known))
