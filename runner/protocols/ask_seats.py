"""Who debates a question: the formats and their seats, which format a question asks for, and the position that each
seat is given. Pure, and in English: a question in another language gets the general positions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from runner.errors import Refused
from runner.protocols.led import plain

Form = Literal["dialectic", "redteam", "council"]
FORMATS: Mapping[Form, tuple[str, ...]] = {
    "dialectic": ("thesis", "antithesis", "third-position"),
    "redteam": ("advocate", "critic"),
    "council": ("pragmatist", "visionary", "skeptic"),
}
AGENTS: Mapping[Form, tuple[int, ...]] = {"dialectic": (2, 3), "redteam": (2,), "council": (3,)}  # the first: default
_OPTION = 70  # characters; a longer option is named by its place


@dataclass(frozen=True, slots=True)
class Seat:
    """given: the position it argues for, one sentence. leads: the first words of its reply's strings, in their order
    (position, three arguments, strongest point or fatal flaw, weakness or what would change its mind).
    role: the profile's role whose model answers."""

    name: str
    given: str
    leads: tuple[str, ...]
    role: str = "default"


def seats(form: Form, agents: int | None) -> tuple[str, ...]:
    """Names of the seats. Refused when the format has no such number of them."""
    numbers = AGENTS[form]
    if agents is not None and agents not in numbers:
        takes = " or ".join(map(str, numbers))
        raise Refused(
            f"{form} has {takes} seats, not {agents}",
            hint=f"--agents {numbers[0]}, or another --format: dialectic takes 2 or 3, redteam 2, council 3",
        )
    return FORMATS[form][: agents or numbers[0]]


# ---- which format --------------------------------------------------------------------------------------------------

_ATTACK = re.compile(
    r"\b(review|evaluat\w+|critiqu\w+|attack\w*|stress[- ]test|poke holes|red[- ]?team|assess\w*"
    r"|what (could|can) go wrong|what('s| is) wrong|find (the )?(flaws?|holes|weakness\w*)|hold up|survive\w*|sound)\b",
    re.IGNORECASE,
)
_PLAN = re.compile(
    r"\b(this|that|the|our|my|a|an|following)\s+([\w-]+\s+){0,3}(plan|proposal|design|architecture|draft|roadmap|rfc"
    r"|strategy|rollout|migration)\b",
    re.IGNORECASE,
)
_EITHER = re.compile(r"\b(?<!more )(or|vs\.?|versus)\b(?! (less|so|later)\b)", re.IGNORECASE)
_SHOULD = re.compile(
    r"\b(should|shall|must|ought) (we|i|they|you|one|our|the|my)\b|\bwhether to\b"
    r"|^\W*(do|does|is|are|can|could|will|would) ",
    re.IGNORECASE,
)
_OPEN = re.compile(r"^\W*(what|how|why|where|who|when|which)\b", re.IGNORECASE)


def detect(question: str) -> tuple[Form, str]:
    """The format that the question asks for, and why."""
    plan = _PLAN.search(question)
    if plan and _ATTACK.search(question):
        return "redteam", "a plan, proposal or design under attack"
    if _EITHER.search(question):
        return "dialectic", "a choice between two"
    if not _OPEN.match(question) and _SHOULD.search(question):
        return "dialectic", "a yes-or-no decision"
    if plan and not _OPEN.match(question):
        return "redteam", "a plan, proposal or design"
    return "council", "an open question"


# ---- the positions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option:
    """One side of a choice. says: a whole sentence. reason: what follows `One reason`, e.g. `to wait`, `for Kafka`."""

    says: str
    reason: str


_FIRST = Option("The first choice named in the question is right.", "for the first choice")
_SECOND = Option("The second choice named in the question is right.", "for the second choice")
_YES = Option("What the question proposes is right.", "for it")
_NO = Option("What the question proposes is wrong.", "against it")

_MODAL = re.compile(r"(?:^|.*[,:;] |\b)(?:should|shall|must) (we|i|they|you|one|(?:our|the|my) \w+) ", re.IGNORECASE)
_BETTER = re.compile(
    r"^(?:(?:which|what)\b[^,:;]*[,:;] *|.*[:;] +|is it better to |(?:what|which) is better,? |is )", re.IGNORECASE
)
_SPLIT = re.compile(r",? +(?:or|vs\.?|versus) +", re.IGNORECASE)
_TO = ("in", "on", "with", "to", "for", "from", "at", "by", "via", "as", "into", "using")


def options(question: str) -> tuple[Option, ...]:
    """The sides of `X or Y`, `X vs Y` and `should we X`, at most three; yes and no for a single one."""
    text = " ".join(question.split()).rstrip("?!. ")
    modal = _MODAL.match(text)
    who = modal[1].capitalize() if modal else ""
    rest = text[modal.end() :] if modal else _BETTER.sub("", text)
    parts = _parts(rest)
    yes_no = len(parts) == 1 or parts[-1].lower() in ("not", "no")
    if not modal and yes_no:
        return _YES, _NO
    if any(not p or len(p) > _OPTION or not plain(p) for p in parts[:3]):
        return (_YES, _NO) if yes_no else (_FIRST, _SECOND)
    if yes_no:
        return _side(who, parts[0]), Option(f"{who} should not {parts[0]}.", f"not to {parts[0]}")
    return tuple(_side(who, p if modal is None else _graft(parts[0], p)) for p in parts[:3])


def _parts(text: str) -> list[str]:
    """What stands between the words `or` and `vs`, without what is said of all of them at the end."""
    parts = [p.strip(" ,;") for p in _SPLIT.split(text)]
    if len(parts) == 1:
        return parts
    parts = [*parts[0].split(", "), *parts[1:]]
    parts[-1] = re.sub(r" better$", "", parts[-1])
    if " for " not in parts[0]:
        parts[-1] = parts[-1].partition(" for ")[0]
    return parts


def _side(who: str, option: str) -> Option:
    if who:
        return Option(f"{who} should {option}.", f"to {option}")
    return Option(f"The right choice is {option}.", f"for {option}")


def _graft(first: str, other: str) -> str:
    """`store it in Redis` and `in Postgres`: the second with what it shares with the first."""
    words, more = first.split(), other.split()
    if more[0].lower() in _TO and more[0] in words:
        at = len(words) - 1 - words[::-1].index(more[0])
        return " ".join([*words[:at], *more])
    noun = more[0].lower() in ("a", "an", "the", "our") or not more[0].islower()
    if other != first and noun and len(more) < len(words):
        return " ".join([*words[: -len(more)], *more])
    return other


def positions(form: Form, question: str, names: Sequence[str]) -> tuple[Seat, ...]:
    """The seats with what they were given, computed from the question where it can be."""
    return tuple(_seat(form, question, name) for name in names)


def _seat(form: Form, question: str, name: str) -> Seat:
    if form == "dialectic":
        sides = options(question)
        at = FORMATS[form].index(name)
        if at < len(sides):
            return _for(name, sides[at])
    return Seat(name, *_GENERAL[name])


def _for(name: str, side: Option) -> Seat:
    why = f"{side.reason} is that"
    leads = (f"{side.says.rstrip('.')} because", f"One reason {why}", f"Another reason {why}", "It also means that")
    return Seat(name, side.says, (*leads, "Above all,", "One weakness of this is that"))


_WEAK = "One weakness of this is that"
_GENERAL: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "third-position": (
        "Neither side is right as it stands: there is a third way.",
        ("Neither side is right as it stands: a third way is to", "One reason for it is that",
         "Unlike the first choice, it", "Unlike the second choice, it", "Above all,", _WEAK),
    ),
    "advocate": (
        "The plan should go ahead.",
        ("The plan should go ahead because", "One reason for the plan is that", "Another reason for the plan is that",
         "It also means that", "Above all,", "One weakness of the plan is that"),
    ),
    "critic": (
        "The plan should not go ahead as it stands.",
        ("The plan should not go ahead as it stands because", "One problem is that", "Another problem is that",
         "If the plan fails,", "The fatal flaw is that", "I would change my mind if"),
    ),
    "pragmatist": (
        "We should do what works soon, with what we have.",
        ("In practice we should", "One reason is that", "With the people and the time that we have,",
         "The first step is to", "Above all,", _WEAK),
    ),
    "visionary": (
        "We should aim at what will matter in some years.",
        ("In the long run we should", "One reason is that", "In a few years,", "It would make it possible to",
         "Above all,", _WEAK),
    ),
    "skeptic": (
        "We should doubt what everybody takes for granted.",
        ("We should doubt that", "One risk is that", "Nobody has shown that", "If this fails,", "Above all,",
         "My doubt would be wrong if"),
    ),
}  # fmt: skip
