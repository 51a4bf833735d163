"""What the critics and the synthesizer of a brief reply, and the format in which a concern's file fits its quote.

Concern i quotes from run i alone, and a run lies in one file where there are runs enough; so the grammar of concern i
names that file. `schemas` writes one grammar for all items of a list: a mark holds the place of the file's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from runner import schemas
from runner.schemas import Ids, Prose, StrictReply, Verbatim
from runner.values import Format, Severity

ConcernKind = Literal[
    "injection", "data-exposure", "auth", "trust-boundary", "maintainability", "minimal-change", "other"
]
MAX_CONCERNS = 4
_FILE = "\ue000file"


class ConcernReply(StrictReply):
    file: Annotated[str, Ids("claims"), Field(max_length=4096)]
    quote: Annotated[str, Verbatim(), Field(max_length=schemas.QUOTE_MAX)]
    kind: ConcernKind
    problem: Annotated[str, Prose(200), Field(min_length=1, max_length=200)]
    severity: Severity


class CriticReply(StrictReply):
    concerns: Annotated[list[ConcernReply], Field(max_length=MAX_CONCERNS)]
    nothing_left: Literal[True, False]


class MergedReply(StrictReply):
    consensus: Annotated[str, Prose(300), Field(min_length=1, max_length=300)]
    action_items: Annotated[
        list[Annotated[str, Prose(160), Field(min_length=1, max_length=160)]], Field(min_length=1, max_length=5)
    ]
    dissent: Annotated[list[Annotated[str, Prose(200), Field(min_length=1, max_length=200)]], Field(max_length=2)]


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring passages that one concern may quote from, and the files they are in: one, when files are few."""

    files: tuple[str, ...]
    passages: tuple[str, ...]


def critic_format(runs: Sequence[Run], free: bool) -> tuple[Format, int]:
    """The format of a critic's reply and the most tokens it can take; as many concerns as runs."""
    concerns: Any = Annotated[list[ConcernReply], Field(max_length=len(runs))]
    model = create_model("CriticReply", __base__=StrictReply, concerns=concerns, nothing_left=Literal[True, False])
    bounds = schemas.Bounds(runs=tuple(r.passages for r in runs), claims=(_FILE,), free=free)
    fmt, worst = schemas.format_of(model, bounds)
    names = list(dict.fromkeys(name for r in runs for name in r.files))
    worst += sum(max(len(_json(name).encode()) for name in r.files) for r in runs)
    schema = fmt.json_schema.replace(f'"enum": [{_json(_FILE)}]', f'"enum": {json.dumps(names, ensure_ascii=False)}')
    return replace(fmt, lark=_named(fmt.lark, runs), json_schema=schema), worst


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _named(lark: str, runs: Sequence[Run]) -> str:
    """Each concern's rule with the names of its run's files in the place of the mark."""
    lines = lark.split("\n")
    for i, run in enumerate(runs):
        rule = f"{ConcernReply.__name__.lower()}_{i}: "
        at = next(n for n, line in enumerate(lines) if line.startswith(rule))
        names = " | ".join(_json(_json(name)) for name in run.files)
        lines[at] = lines[at].replace(_json(_json(_FILE)), names)
    return "\n".join(lines)


def legible(text: str) -> bool:
    """Does it read like sentences? Between lines of code a small model falls into capitals, or into endless words."""
    words = re.findall(r"[^\W\d_]+", text)
    loud = sum(len(w) > 3 and w.isupper() for w in words)
    return loud * 4 <= len(words) and all(len(w) <= 32 for w in words if w.isascii())


# ---- what can be quoted --------------------------------------------------------------------------------------------


def passages(text: str) -> tuple[str, ...]:
    """The lines of a file that say something and stand in it once, without the blanks around them."""
    lines = [line.strip() for line in text.split("\n")]
    said = [line for line in lines if len(line) >= schemas.QUOTE_MIN and sum(map(str.isalpha, line)) >= 4]
    once = tuple(line for line in dict.fromkeys(said) if text.count(line) == 1)
    return once or tuple(p for p in (text[a:b] for a, b in schemas.passages(text)) if text.count(p) == 1)


def runs_of(files: Sequence[tuple[str, str]], most: int, turn: int) -> tuple[Run, ...]:
    """At most `most` runs over all (name, text), none in two files where there are as many runs as files.

    A critic's turn says where it starts.
    """
    quotable = [(name, found) for name, text in files if (found := passages(text))]
    if not quotable or most < 1:
        return ()
    runs = _grouped(quotable, most) if len(quotable) > most else _split(quotable, most)
    turn %= len(runs)
    return tuple(runs[turn:] + runs[:turn])


def _split(files: Sequence[tuple[str, tuple[str, ...]]], most: int) -> list[Run]:
    """One run per file; whatever is left goes, one by one, where the runs are longest."""
    shares = [1] * len(files)
    sizes = [sum(map(len, found)) for _, found in files]
    for _ in range(most - len(files)):
        room = [i for i, (_, found) in enumerate(files) if shares[i] < len(found)]
        if room:
            shares[max(room, key=lambda i: sizes[i] / shares[i])] += 1
    return [
        Run((name,), run)
        for (name, found), n in zip(files, shares, strict=True)
        for run in schemas.runs_of(found, n, 0)
    ]


def _grouped(files: Sequence[tuple[str, tuple[str, ...]]], most: int) -> list[Run]:
    groups = [files[len(files) * i // most : len(files) * (i + 1) // most] for i in range(most)]
    return [Run(tuple(n for n, _ in g), tuple(dict.fromkeys(p for _, found in g for p in found))) for g in groups]
