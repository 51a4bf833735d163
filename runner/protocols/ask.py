"""An ask: seats that argue side by side, rounds of rebuttal until nothing new comes, then the synthesis.

Pure: the flow is built from `Debate` alone, so running it again gives the same requests. A seat that gives no usable
reply is a gap and is named, never a silence. Passes: `resume` gives every request that ran out of tries two more; a
request made of replies carries the pass in its key (`synthesis/p2`) when those came in a later pass.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel

from runner import guard, prompts
from runner.prompts import Foreign
from runner.protocols import ask_files, ask_replies
from runner.protocols.ask_said import Argument, Gap, Heard, Novelty, Said, Synthesis, news, said_of, synthesis_of
from runner.protocols.ask_seats import Form, Seat
from runner.protocols.flow import ask_as, failure, family
from runner.protocols.review import Traits, pass_of
from runner.values import Ask, Flow, Format, Join, Message, Publish, Reply, Request, Sampling, Segment

SYNTHESIS, SYNTHESIZER = "synthesis", "synthesizer"  # a file and a key; a role
# Of a model that needs leads: what it draws at a higher temperature is no English; and who debates says a phrase of the
# question often, which a repetition guard over the prompt turns into broken words.
_CALM, _PENALTY = 0.4, 1.1


@dataclass(frozen=True, slots=True)
class Debate:
    """What all prompts and files of an ask are made of; stored before the first request.

    why: how the format was chosen. context: the block that every seat gets, or empty. leaning: is the asker's leaning
    in it? rounds: at most. notes: for the summary (what was assumed, what was read, warnings). models: seat -> the
    model that fills it. sampling, free_text: the default model's Traits; roles: of seats with a model of their own.
    """

    question: str
    form: Form
    why: str
    seats: tuple[Seat, ...]
    context: str
    leaning: bool
    rounds: int
    templates: Mapping[str, str]
    notes: tuple[str, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)
    free_text: bool = False
    sampling: Sampling = field(default_factory=Sampling)
    roles: Mapping[str, Traits] = field(default_factory=dict)
    deadline_s: float | None = None

    def traits(self, role: str) -> Traits:
        return self.roles.get(role) or Traits(self.sampling, self.free_text)


@dataclass(frozen=True, slots=True)
class Result:
    """heard: every answer in the order of rounds and seats. ended: why there was no further round.

    exhausted: keys of requests that are out of tries. synthesis: None when there is none.
    """

    heard: tuple[Heard, ...]
    gaps: tuple[Gap, ...]
    novelty: tuple[Novelty, ...]
    ended: str
    synthesis: Synthesis | None
    replies: tuple[Reply, ...]
    exhausted: tuple[str, ...]


def ask(d: Debate, passes: int = 1) -> Generator[Ask | Publish | Join, Any, Result]:
    """The whole debate. Without a single answer, or without a synthesis, `Result.synthesis` is None."""
    tries = 2 * passes
    heard = list((yield Join(tuple(_turn(d, first_request(d, seat), 1, tries) for seat in d.seats))))
    novelty = [news(1, heard, ())]
    ended = f"--rounds asked for {d.rounds}" if any(h.said for h in heard) else "nobody answered"
    for number in range(2, d.rounds + 1):
        speaking = [s for s in d.seats if _last(heard, s.name) is not None]
        if len(speaking) < 2:
            ended = "there is nobody left to answer to" if speaking else "nobody answered"
            break
        requests = [_later_request(d, seat, number, heard) for seat in speaking]
        now = yield Join(tuple(_turn(d, request, number, tries) for request in requests))
        novelty.append(news(number, now, [a for h in heard if h.said for a in h.said.arguments]))
        heard += now
        if novelty[-1].new == 0:
            ended = f"round {number} brought no argument that was not on the table already"
            break
    gaps = tuple(h.gap for h in heard if h.gap)
    synthesis, lost, reply = yield from _synthesize(d, heard, tries)
    exhausted = (*(family(h.reply.key) for h in heard if h.gap), *lost)
    replies = (*(h.reply for h in heard), *([reply] if reply else []))
    result = Result(tuple(heard), gaps, tuple(novelty), ended, synthesis, replies, exhausted)
    if synthesis is not None:
        yield Publish(ask_files.synthesis(d, result))
    return result


def _last(heard: Sequence[Heard], seat: str) -> Said | None:
    """What the seat said last."""
    return next((h.said for h in reversed(heard) if h.seat.name == seat and h.said), None)


# ---- one turn ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """A request with how its reply is read."""

    seat: Seat
    request: Request
    model: type[BaseModel]
    leads: tuple[str, ...]


def _turn(d: Debate, asked: Asked, number: int, tries: int) -> Flow:
    """A seat's answer in a round: its prompt is written first, then what it said, or the gap."""
    name = asked.seat.name
    lead = "" if number == 1 else f"round-{number}/"
    yield Publish(ask_files.prompt(f"{lead}{name}.prompt", asked.request.messages))

    def parse(text: str) -> Said:
        return said_of(asked.model.model_validate_json(text), asked.leads)

    said, reply = yield from ask_as(asked.request, parse, tries)
    gap = None if said else Gap(name, number, failure(reply))
    heard = Heard(asked.seat, number, said, reply, gap)
    yield Publish(ask_files.output(f"{lead}{name}", d, heard))
    return heard


def first_request(d: Debate, seat: Seat) -> Asked:
    """The first request of a seat: the rules, the context and the question, shared; then the seat's own text."""
    free = d.traits(seat.role).free_text
    leads = _free_leads(d, seat) if free else seat.leads
    model, fmt, worst = ask_replies.seat_format(seat.name == "critic", leads, free)
    system, shared = _shared(d)
    own = seat_text(d, seat)
    count = len(system.segments) + len(shared)
    messages = (system, Message("user", (*shared, *own)))
    return Asked(seat, _request(d, f"round-1/{seat.name}", seat.role, messages, worst, fmt, (count,)), model, leads)


def _free_leads(d: Debate, seat: Seat) -> tuple[str, ...]:
    """A larger model needs no first words but those of its position, where that was computed from the question."""
    computed = d.form == "dialectic" and seat.name != "third-position"
    return (seat.leads[0] if computed else "", *("" for _ in seat.leads[1:]))


def seat_text(d: Debate, seat: Seat) -> tuple[Segment, ...]:
    """What only this seat is told."""
    return prompts.render(d.templates, seat.name, {"given": Foreign(seat.given)})


def _later_request(d: Debate, seat: Seat, number: int, heard: Sequence[Heard]) -> Asked:
    """A request of a later round: after the shared part what all said last, shared as well, then the seat's own."""
    free = d.traits(seat.role).free_text
    others = [s for s in d.seats if s.name != seat.name and _last(heard, s.name)]
    leads = _rebuttal_leads(seat, others[(number - 2) % len(others)])
    model, fmt, worst = ask_replies.rebuttal_format(leads, free)
    system, shared = _shared(d)
    said = [(s.name, _last(heard, s.name)) for s in d.seats]
    last = _replies(d, "replies", {name: x.shown for name, x in said if x})
    values: dict[str, prompts.Value] = {"name": seat.name, "given": Foreign(seat.given)}
    own = prompts.render(d.templates, "rebuttal", values)
    count = len(system.segments) + len(shared)
    messages = (system, Message("user", (*shared, *last, *own)))
    key = f"round-{number}{_pass(heard)}/{seat.name}"
    request = _request(d, key, seat.role, messages, worst, fmt, (count, count + len(last)))
    return Asked(seat, request, model, () if free else leads)


def _rebuttal_leads(seat: Seat, other: Seat) -> tuple[str, ...]:
    after = seat.leads[0]
    return f"The {other.name} overlooks that", "Too little weight was given to", f"After this round, {_small(after)}"


def _small(text: str) -> str:
    first = text.split()[0]
    return text if first in ("I",) or not first[1:].islower() else text[0].lower() + text[1:]


def _pass(heard: Sequence[Heard]) -> str:
    """Of a request made of replies: its place in the key when one of them came in a later pass."""
    latest = max((pass_of(h.reply) for h in heard if h.said), default=1)
    return "" if latest == 1 else f"/p{latest}"


# ---- prompts -------------------------------------------------------------------------------------------------------


def _shared(d: Debate) -> tuple[Message, tuple[Segment, ...]]:
    """What all prompts begin with, byte for byte the same."""
    values: dict[str, prompts.Value] = {
        "nonce": guard.nonce([d.question, d.context]),
        "question": Foreign(d.question),
        "context": Foreign(d.context) if d.context else "",
        "leaning": "yes" if d.leaning else "",
    }
    return Message("system", prompts.render(d.templates, "system", {})), prompts.render(d.templates, "shared", values)


def _replies(d: Debate, template: str, said: Mapping[str, Sequence[str]]) -> tuple[Segment, ...]:
    """What seats said, in an envelope of its own."""
    rows: list[prompts.Value] = [{"seat": name, "lines": [Foreign(x) for x in lines]} for name, lines in said.items()]
    nonce = guard.nonce([d.question, d.context, *(x for lines in said.values() for x in lines)])
    return prompts.render(d.templates, template, {"nonce": nonce, "replies": rows})


def _request(
    d: Debate, key: str, role: str, messages: tuple[Message, ...], worst: int, fmt: Format, shared: tuple[int, ...]
) -> Request:
    """A request with a seed of its own, the same on every run."""
    traits = d.traits(role)
    seed = int.from_bytes(hashlib.sha256(f"{traits.sampling.seed}/{key}".encode()).digest()[:4], "big")
    sampling = replace(traits.sampling, seed=seed)
    if not traits.free_text:
        heat, penalty = min(sampling.temperature, _CALM), max(sampling.repeat_penalty, _PENALTY)
        sampling = replace(sampling, temperature=heat, repeat_penalty=penalty, dry_multiplier=0.0)
    return Request(
        key=key, model=role, messages=messages, max_tokens=worst, format=fmt, shared=shared, sampling=sampling,
        deadline_s=d.deadline_s,
    )  # fmt: skip


# ---- synthesis -----------------------------------------------------------------------------------------------------


def _synthesize(
    d: Debate, heard: Sequence[Heard], tries: int
) -> Generator[Ask | Publish | Join, Any, tuple[Synthesis | None, tuple[str, ...], Reply | None]]:
    """(synthesis, keys out of tries, last reply); nothing is asked when nobody answered."""
    by_seat: dict[str, tuple[Argument, ...]] = {}
    for h in heard:
        if h.said:
            by_seat[h.seat.name] = (*by_seat.get(h.seat.name, ()), *h.said.arguments)
    if not by_seat:
        return None, (), None
    free = d.traits(SYNTHESIZER).free_text
    model, fmt, worst = ask_replies.synthesis_format({s: len(a) for s, a in by_seat.items()}, free)
    system, shared = _shared(d)
    listed = _replies(d, "synthesis", {
        s: [x.position if (x := _last(heard, s)) else "", *(f"{n}. {a.text}" for n, a in enumerate(arguments, 1))]
        for s, arguments in by_seat.items()
    })  # fmt: skip
    count = len(system.segments) + len(shared)
    messages = (system, Message("user", (*shared, *listed)))
    request = _request(d, f"{SYNTHESIS}{_pass(heard)}", SYNTHESIZER, messages, worst, fmt, (count,))
    yield Publish(ask_files.prompt("synthesis.prompt", messages))

    def parse(text: str) -> Synthesis:
        return synthesis_of(model.model_validate_json(text), by_seat)

    found, reply = yield from ask_as(request, parse, tries)
    return found, () if found else (request.key,), reply
