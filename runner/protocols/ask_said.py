"""What was said in an ask, as plain values; which arguments are new; what a reply is too poor for. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from rapidfuzz import fuzz, utils

from runner.protocols.ask_replies import MAX_WORDS, CriticReply, RebuttalReply, SeatReply, pairs
from runner.protocols.ask_seats import Seat
from runner.protocols.review import tidy
from runner.values import Reply

_ONE_SIDE = 95.0  # similarity of two sides that are one
SAME = 80.0  # similarity (0 to 100) from which two arguments are one
CAUSES = {
    "timeout": "timeout", "degenerate": "its reply went round in circles", "length": "its reply was cut off",
    "error": "the engine gave no answer", "invalid": "unusable reply",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Argument:
    """text: as said. bare: without the words that it was told to begin with; similarity is measured on these."""

    text: str
    bare: str


@dataclass(frozen=True, slots=True)
class Said:
    """A reply: heading -> texts, in the order of the reply, and which of them are arguments."""

    sections: tuple[tuple[str, tuple[str, ...]], ...]
    arguments: tuple[Argument, ...]
    position: str

    @property
    def shown(self) -> tuple[str, ...]:
        """Every text, for the prompts of others."""
        return tuple(text for _, texts in self.sections for text in texts)


@dataclass(frozen=True, slots=True)
class Gap:
    """A seat that gave no usable answer in a round. cause: the engine's word, or `invalid`."""

    seat: str
    round: int
    cause: str

    @property
    def why(self) -> str:
        where = "" if self.round == 1 else f" in round {self.round}"
        return CAUSES.get(self.cause, self.cause) + where


@dataclass(frozen=True, slots=True)
class Heard:
    seat: Seat
    round: int
    said: Said | None
    reply: Reply
    gap: Gap | None = None


@dataclass(frozen=True, slots=True)
class Novelty:
    """Of a round: how many arguments it brought and how many were new; each with its similarity (0 to 100) to the
    nearest earlier one."""

    round: int
    arguments: int
    new: int
    nearest: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Tension:
    name: str
    seats: tuple[str, str]
    side_a: str
    side_b: str


@dataclass(frozen=True, slots=True)
class Synthesis:
    """strongest: (seat, its own argument word for word, why it counts)."""

    strongest: tuple[tuple[str, str, str], ...]
    agreement: tuple[str, ...]
    tensions: tuple[Tension, ...]
    pick: str
    confidence: str
    why: str
    counter: str


# ---- replies -------------------------------------------------------------------------------------------------------

_HEADINGS = {
    "position": "Position", "key_arguments": "Key arguments", "key_criticisms": "Key criticisms",
    "strongest_point": "Strongest point", "weaknesses": "Acknowledged weaknesses", "fatal_flaw": "Fatal flaw",
    "would_change_my_mind": "What would change my mind", "rebuttal": "Rebuttal",
    "underweighted_argument": "Underweighted argument", "revised_position": "Revised position",
}  # fmt: skip
_ARGUMENTS = ("key_arguments", "key_criticisms", "rebuttal", "underweighted_argument")


def said_of(reply: BaseModel, leads: Sequence[str]) -> Said:
    """The reply's texts. ValueError when it says nothing: its arguments are all one, or there are too many words."""
    left = list(leads)
    sections: list[tuple[str, tuple[str, ...]]] = []
    arguments: list[Argument] = []
    for key in type(reply).model_fields:
        value: Any = getattr(reply, key)
        raw = value if isinstance(value, list) else [value]
        texts = tuple(whole(text) for text in raw)
        heads = [left.pop(0) if left else "" for _ in raw]
        if key in _ARGUMENTS:
            arguments += [Argument(t, t.removeprefix(head).strip()) for t, head in zip(texts, heads, strict=True)]
        sections.append((_HEADINGS[key], texts))
    _check(reply, sections, arguments)
    position = next(texts[0] for name, texts in sections if name in ("Position", "Revised position"))
    return Said(tuple(sections), tuple(arguments), position)


def _check(reply: BaseModel, sections: Sequence[tuple[str, tuple[str, ...]]], arguments: Sequence[Argument]) -> None:
    words = sum(len(text.split()) for _, texts in sections for text in texts)
    if words > MAX_WORDS:
        raise ValueError(f"{words} words")
    if any(not a.bare for a in arguments):
        raise ValueError("an empty argument")
    if isinstance(reply, (SeatReply, CriticReply)) and all(alike(a, arguments[0]) >= SAME for a in arguments[1:]):
        raise ValueError("one argument said three times")
    if isinstance(reply, RebuttalReply) and alike(arguments[0], arguments[1]) >= SAME:
        raise ValueError("one argument said twice")


def whole(text: str) -> str:
    """Without a torn end; what stays unfinished says so."""
    text = tidy(text)
    if not text or text[-1] in ".?!。？！:":
        return text
    words, _, _ = text.rpartition(" ")  # the last one may be torn
    return f"{(words or text).rstrip(',;: ')} …"


# ---- what is new ---------------------------------------------------------------------------------------------------


def alike(a: Argument, b: Argument) -> float:
    """0 to 100."""
    return float(fuzz.token_set_ratio(a.bare, b.bare, processor=utils.default_process))


def news(number: int, heard: Sequence[Heard], before: Sequence[Argument]) -> Novelty:
    """An argument is new when its similarity to every earlier one, of all seats and rounds, is under SAME."""
    table = list(before)
    nearest: list[float] = []
    for argument in (a for h in heard if h.said for a in h.said.arguments):
        nearest.append(max((alike(argument, old) for old in table), default=0.0))
        table.append(argument)
    return Novelty(number, len(nearest), sum(score < SAME for score in nearest), tuple(round(x, 1) for x in nearest))


# ---- synthesis -----------------------------------------------------------------------------------------------------


def synthesis_of(reply: BaseModel, by_seat: Mapping[str, Sequence[Argument]]) -> Synthesis:
    """The reply with what it points at. ValueError when the two sides of a tension say the same."""
    data = reply.model_dump()
    strongest = tuple(
        (seat, arguments[int(said["argument"]) - 1].text, whole(said["why"]))
        for (seat, arguments), said in zip(by_seat.items(), data["strongest_arguments"].values(), strict=True)
    )
    between = pairs(list(by_seat))
    tensions = tuple(_tension(t, seats) for t, seats in zip(data["tensions"].values(), between, strict=True))
    if any(alike(Argument(t.side_a, t.side_a), Argument(t.side_b, t.side_b)) >= _ONE_SIDE for t in tensions):
        raise ValueError("a tension with one side")
    pick = data["pick"]
    return Synthesis(
        strongest, tuple(whole(a) for a in data["agreement"] if a.strip()), tensions, pick["seat"], pick["confidence"],
        whole(pick["why"]), whole(data["counter"]),
    )  # fmt: skip


def _tension(data: Mapping[str, str], seats: tuple[str, str]) -> Tension:
    name, side_a, side_b = data.values()
    return Tension(whole(name).rstrip("."), seats, whole(side_a), whole(side_b))
