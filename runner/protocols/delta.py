"""What changed between two bodies: the differences to show, and the passages that may be quoted. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from runner import schemas

CONTEXT_LINES = 1


@dataclass(frozen=True, slots=True)
class Delta:
    """differences: removed lines marked `-`, new ones `+`, under the heading they stand in. quotable: character spans
    of the new body: each paragraph, list item or table row that holds a change, and both neighbours of a deletion."""

    differences: str
    quotable: tuple[tuple[int, int], ...]


def delta(before: str, after: str) -> Delta | None:
    """None when nothing but line ends or blanks at the ends of lines changed."""
    old, new = _lines(before), _lines(after)
    matcher = difflib.SequenceMatcher(None, [x.rstrip() for x in old], [x.rstrip() for x in new], autojunk=False)
    ops = [op for op in matcher.get_opcodes() if op[0] != "equal"]
    ops = [op for op in ops if "".join(old[op[1] : op[2]]).strip() or "".join(new[op[3] : op[4]]).strip()]
    if not ops:
        return None
    starts = [0]
    for line in new:
        starts.append(starts[-1] + len(line))
    passages = schemas.passages(after)
    picked: set[int] = set()
    for tag, _, _, j1, j2 in ops:
        if tag == "delete" or not "".join(new[j1:j2]).strip():
            picked |= _neighbours(passages, starts[j1], starts[j2])
        else:
            picked |= _within(passages, starts[j1], starts[j2]) or _neighbours(passages, starts[j1], starts[j2])
    return Delta(_shown(old, new, ops), tuple(passages[i] for i in sorted(picked)))


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _within(passages: Sequence[tuple[int, int]], start: int, end: int) -> set[int]:
    return {i for i, (a, b) in enumerate(passages) if a < end and start < b}


def _neighbours(passages: Sequence[tuple[int, int]], start: int, end: int) -> set[int]:
    """The passage before and the one after; the one around, when the place lies inside it."""
    around = {i for i, (a, b) in enumerate(passages) if a < start < b}
    before = [i for i, (_, b) in enumerate(passages) if b <= start]
    after = [i for i, (a, _) in enumerate(passages) if a >= end]
    return around or {*before[-1:], *after[:1]}


def _shown(old: Sequence[str], new: Sequence[str], ops: Sequence[tuple[str, int, int, int, int]]) -> str:
    """The changes as a person would mark them; a heading says where, no line numbers."""
    out: list[str] = []
    for _, i1, i2, j1, j2 in ops:
        heading = next((x.strip() for x in reversed(new[:j1]) if x.startswith("#")), "")
        out += [heading] if heading and heading not in out[-8:] else []
        out += [f"- {x.rstrip()}" for x in old[i1:i2] if x.strip()]
        out += [f"+ {x.rstrip()}" for x in new[j1:j2] if x.strip()]
        out.append("")
    return "\n".join(out).strip()
