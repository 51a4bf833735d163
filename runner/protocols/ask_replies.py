"""What the seats and the synthesis of an ask reply. Every reply of a seat has at most 500 words by construction: a word
takes two characters at least, its blank included, and the bounds of a reply's strings add up to 1,000."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, create_model

from runner import schemas
from runner.protocols.led import lead
from runner.schemas import Prose, StrictReply
from runner.values import Format

MAX_WORDS = 500
WEAKNESSES = "its weaknesses"  # the other side, where one seat alone has answered
Confidence = Literal["high", "moderate", "low"]

_Position = Annotated[str, Prose(160), Field(min_length=1, max_length=160)]
_Point = Annotated[str, Prose(120), Field(min_length=1, max_length=120)]
_Three = Annotated[
    list[Annotated[str, Prose(200), Field(min_length=1, max_length=200)]], Field(min_length=3, max_length=3)
]
_Why = Annotated[str, Prose(160), Field(min_length=1, max_length=160)]
_Side = Annotated[str, Prose(200), Field(min_length=1, max_length=200)]
_Name = Annotated[str, Prose(120), Field(min_length=1, max_length=120)]
_Agreement = Annotated[list[Annotated[str, Prose(160), Field(max_length=160)]], Field(min_length=1, max_length=1)]


class SeatReply(StrictReply):
    position: _Position
    key_arguments: _Three
    strongest_point: _Point
    weaknesses: _Point


class CriticReply(StrictReply):
    position: _Position
    key_criticisms: _Three
    fatal_flaw: _Point
    would_change_my_mind: _Point


class RebuttalReply(StrictReply):
    rebuttal: Annotated[str, Prose(400), Field(min_length=1, max_length=400)]
    underweighted_argument: Annotated[str, Prose(300), Field(min_length=1, max_length=300)]
    revised_position: Annotated[str, Prose(300), Field(min_length=1, max_length=300)]


def seat_format(critic: bool, leads: Sequence[str], free: bool) -> tuple[type[BaseModel], Format, int]:
    """(model, format, most tokens) of a first reply. leads: one for each string, empty for none."""
    model = CriticReply if critic else SeatReply
    fmt, worst = schemas.format_of(model, schemas.Bounds(free=free))
    return model, lead(fmt, {f"{model.__name__.lower()}_0": leads}), worst


def rebuttal_format(leads: Sequence[str], free: bool) -> tuple[type[RebuttalReply], Format, int]:
    """(model, format, most tokens) of a reply in a later round."""
    return RebuttalReply, *_format(RebuttalReply, {"rebuttalreply_0": leads}, free)


def synthesis_format(arguments: Mapping[str, int], free: bool) -> tuple[type[BaseModel], Format, int]:
    """(model, format, most tokens). arguments: seat -> how many of its arguments may be named, at least one seat.

    By construction: one strongest argument for each seat, which is one of its own; and a named tension for each pair
    of neighbours (of a single seat: between it and its weaknesses), with both sides.
    """
    seats = list(arguments)
    leads: dict[str, Sequence[str]] = {}
    picked: dict[str, Any] = {}
    for i, seat in enumerate(seats):
        numbers = _words(map(str, range(1, arguments[seat] + 1)))
        picked[_key(seat)] = _object(f"Picked{i}", {"argument": numbers, "why": _Why})
        leads[f"picked{i}_0"] = ("This counts because",)
    tensions: dict[str, Any] = {}
    for i, (one, other) in enumerate(pairs(seats)):
        sides = {"name": _Name, _key(one): _Side, _key(other): _Side}
        tensions[f"tension_{i + 1}"] = _object(f"Tension{i}", sides)
        against = "Its weakness is that" if other == WEAKNESSES else f"The {other} says that"
        leads[f"tension{i}_0"] = ("This is about whether", f"The {one} says that", against)
    pick = _object("Pick", {"seat": _words(seats), "confidence": Confidence, "why": _Side})
    leads["pick_0"] = ("It is the better choice because",)
    model = _object("AskSynthesis", {
        "strongest_arguments": _object("Strongest", picked), "agreement": _Agreement,
        "tensions": _object("Tensions", tensions), "pick": pick, "counter": _Side,
    })  # fmt: skip
    leads["asksynthesis_0"] = ("All of them want to", "The best argument against it is that")
    return model, *_format(model, leads, free)


def pairs(seats: Sequence[str]) -> list[tuple[str, str]]:
    """Whom the tensions stand between: neighbours."""
    return list(pairwise(seats)) or [(seats[0], WEAKNESSES)]


def _key(seat: str) -> str:
    return seat.replace("-", "_").replace(" ", "_")


def _words(words: Iterable[str]) -> Any:
    return Literal[tuple(words)]


def _object(name: str, fields: Mapping[str, Any]) -> type[BaseModel]:
    made: dict[str, Any] = {key: (kind, ...) for key, kind in fields.items()}
    return create_model(name, __base__=StrictReply, **made)


def _format(model: type[BaseModel], leads: Mapping[str, Sequence[str]], free: bool) -> tuple[Format, int]:
    fmt, worst = schemas.format_of(model, schemas.Bounds(free=free))
    return (fmt if free else lead(fmt, leads)), worst
