"""Scaffold mode: a round without an engine. The prompts are written for people or another tool to answer; what they
wrote is taken on resume, checked, and kept with the round's inputs, so that it counts as it was when it was taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from runner.brain.root import kind, read_bytes, shown
from runner.errors import Incomplete, Refused
from runner.protocols import reviewers
from runner.protocols.review import Prompt, Review
from runner.protocols.reviewers import reviewer_request, tryout_of
from runner.render import flat, quoted
from runner.rounds import handmade
from runner.rounds.folder import Files, Round
from runner.values import Claim, Message, Request, Tryout


def open_prompts(place: Round, review: Review, files: Files) -> None:
    """tryouts/<persona>.prompt.md for every reviewer whose tryout is missing."""
    given = {t.persona for t in review.given}
    for turn, who in enumerate(review.reviewers):
        if who.name not in given:
            requests = [reviewer_request(review, Prompt(review, w), turn) for w in review.shown]
            files.write(place.flow, f"tryouts/{who.name}.prompt.md", _prompt_file(requests))


def _prompt_file(requests: Iterable[Request]) -> bytes:
    parts = [line for q in requests for m in q.messages for line in (f"[{m.role}]", "", _text(m), "")]
    return ("\n".join(parts).rstrip("\n") + "\n").encode()


def _text(message: Message) -> str:
    return message.text.rstrip("\n")


def take(place: Round, review: Review, judged: bool) -> Review:
    """The review with the tryouts that lie in the folder (and, when `judged`, the verdicts). Refused with file and
    line for what cannot be read; nothing else changes then."""
    found = tuple(t for who in review.reviewers if (t := _tryout(place, who.name)) is not None)
    review = replace(review, given=found)
    return _with_verdicts(place, review) if judged else review


def _tryout(place: Round, persona: str) -> Tryout | None:
    """<persona>.json with the reply's schema is taken instead of <persona>.md."""
    as_json = place.folder / "tryouts" / f"{persona}.json"
    if kind(as_json) == "file":
        return tryout_of(read_bytes(as_json).decode("utf-8", "replace"), persona, shown(as_json))
    as_text = place.folder / "tryouts" / f"{persona}.md"
    if kind(as_text) == "file":
        return handmade.tryout(_read(as_text), persona, shown(as_text))
    return None


def _read(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise Refused("not valid UTF-8", path=shown(path), hint="save the file as UTF-8") from None


def _with_verdicts(place: Round, review: Review) -> Review:
    """verdicts.json, else entries in a defender.md; none: nothing yet."""
    as_json, as_text = place.folder / "verdicts.json", place.folder / "defender.md"
    if kind(as_json) == "file":
        found = handmade.verdicts_json(_read(as_json), [c.id for c in claims(review)], shown(as_json))
        return replace(review, verdicts=found, own_defender=False)
    if kind(as_text) == "file":
        found = handmade.verdicts(_read(as_text), [c.id for c in claims(review)], shown(as_text))
        return replace(review, verdicts=found, own_defender=True)
    return replace(review, verdicts=(), own_defender=False)


def claims(review: Review) -> tuple[Claim, ...]:
    """The claims of the given tryouts, with ids."""
    given = [reviewers.from_hand(review, turn) for turn in range(len(review.reviewers))]
    return reviewers.gather(review, [g for g in given if g is not None])[0]


def check(place: Round, review: Review, files: Files) -> None:
    """Without an engine: raise Incomplete (scaffolded) while something is still to be written by hand."""
    missing = [w.name for w in review.reviewers if w.name not in {t.persona for t in review.given}]
    if len(review.reviewers) - len(missing) < max(1, review.min_reviewers):
        raise Incomplete(
            f"no engine: the prompts are written; tryouts missing: {', '.join(missing)}",
            reason="scaffolded", path=shown(place.folder),
            hint="answer each tryouts/<persona>.prompt.md in tryouts/<persona>.md (## Observations, ## Claims with "
            "### <severity>: <problem> and the quote as a > block, ## Open questions), then run `debate resume`",
        )  # fmt: skip
    raised = claims(review)
    if raised and not review.verdicts:
        files.write(place.flow, "defender.prompt.md", _defender_prompt(review, raised))
        raise Incomplete(
            f"no engine: {len(raised)} claims wait for verdicts", reason="scaffolded", path=shown(place.folder),
            hint="write ### C-01: CONCEDE (or CONCEDE-IN-PART, DEFER, REJECT) with a reason for each claim of "
            "defender.prompt.md into defender.md, or verdicts.json, then run `debate resume`",
        )  # fmt: skip


def _defender_prompt(review: Review, raised: tuple[Claim, ...]) -> bytes:
    prompt = Prompt(review, review.shown[0])
    lines = [_text(prompt.system), "", _text(prompt.user()), "", "Judge every claim:", ""]
    for c in raised:
        lines += [f"### {c.id}", "", quoted(c.quote), "", flat(c.problem), ""]
        lines += [f"Proposal: {c.action} {flat(c.replacement)}".rstrip(), ""] if c.action != "none" else []
    return "\n".join(lines).encode()
