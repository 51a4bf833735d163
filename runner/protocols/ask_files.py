"""The files of an ask, as documents: each seat's prompt and answer or gap, and the synthesis. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runner.protocols.ask_said import Heard, Novelty, Synthesis
from runner.render import flat, quoted, visible
from runner.values import Document, Message

if TYPE_CHECKING:
    from runner.protocols.ask import Debate, Result


def prompt(path: str, messages: Sequence[Message]) -> Document:
    """A `.prompt` file: what was sent, message by message."""
    return Document(path, "\n\n".join(f"[{m.role}]\n{m.text}" for m in messages))


def output(stem: str, d: Debate, heard: Heard) -> Document:
    """`.output`: what a seat said, under the position that it was given; or `.gap`, one line: why it said nothing."""
    if heard.said is None:
        return Document(f"{stem}.gap", heard.gap.why if heard.gap else "")
    model = d.models.get(heard.seat.name, "")
    blocks = [
        f"# {heard.seat.name}, round {heard.round}",
        f"Given: {flat(heard.seat.given)}" + (f" Model: {flat(model)}." if model else ""),
    ]
    for heading, texts in heard.said.sections:
        body = flat(texts[0]) if len(texts) == 1 else "\n".join(f"{n}. {flat(t)}" for n, t in enumerate(texts, 1))
        blocks += [f"## {heading}", body]
    return Document(f"{stem}.output", "\n\n".join(blocks))


def synthesis(d: Debate, result: Result) -> Document:
    """synthesis.md: the sections of the specification, in its order."""
    s = result.synthesis
    assert s is not None
    blocks = ["# Synthesis", quoted(d.question), "## Debate Summary", "\n".join(_summary(d, result))]
    blocks += ["## Strongest Arguments", "\n".join(_strongest(s))]
    blocks += ["## Points of Agreement", "\n".join(f"- {flat(a)}" for a in s.agreement) or "None."]
    blocks += ["## Key Tensions", *_tensions(s), "## If Forced to Pick", _pick(d, s), "## Strongest Counter"]
    blocks += [flat(s.counter)]
    named = gaps(d, result)
    blocks += ["## Gaps", "\n".join(f"- {flat(line)}" for line in named)] if named else []
    return Document("synthesis.md", "\n\n".join(blocks))


def _summary(d: Debate, result: Result) -> list[str]:
    filled = [f"{flat(s.name)}: {flat(s.given)}" + _model(d, s.name) for s in d.seats]
    rounds = [f"- {line}" for line in novelty_lines(result.novelty)]
    return [
        f"- Format: {d.form} ({d.why}), {len(d.seats)} seats",
        *(f"- {line}" for line in filled),
        *rounds,
        f"- Ended: {result.ended}",
        *(f"- {flat(note)}" for note in d.notes),
    ]


def _model(d: Debate, seat: str) -> str:
    return f" ({flat(d.models[seat])})" if d.models.get(seat) else ""


def novelty_lines(novelty: Sequence[Novelty]) -> list[str]:
    """How each round was measured."""
    return [
        f"Round {n.round}: {n.arguments} arguments, {n.new} new (an argument is new under a similarity of 80 to every "
        f"earlier one; nearest: {', '.join(f'{x:.0f}' for x in n.nearest) or 'none'})"
        for n in novelty
    ]


def _strongest(s: Synthesis) -> list[str]:
    return [f"- **{seat}**: {flat(argument)} {flat(why)}" for seat, argument, why in s.strongest]


def _tensions(s: Synthesis) -> list[str]:
    return [
        f"### {flat(t.name)}\n\n- **{flat(t.seats[0])}**: {flat(t.side_a)}\n- **{flat(t.seats[1])}**: {flat(t.side_b)}"
        for t in s.tensions
    ]


def _pick(d: Debate, s: Synthesis) -> str:
    given = next((seat.given for seat in d.seats if seat.name == s.pick), "")
    return f"**{flat(s.pick)}** ({flat(given)}), confidence {s.confidence}. {flat(s.why)}"


def gaps(d: Debate, result: Result) -> list[str]:
    """The specification's sentence for every seat that failed."""
    total = len(d.seats)
    whole = total - len({g.seat for g in result.gaps})
    return [
        f"Agent {g.seat} failed ({visible(g.why)}). Synthesis reflects {whole} of {total} — "
        f"the {g.seat} position may be underrepresented."
        for g in result.gaps
    ]
