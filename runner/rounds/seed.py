"""Issues carried from one round to the next: next-round-seed.md, written at close, consumed at open."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import dropwhile, takewhile
from pathlib import Path

from runner.brain.history import round_name
from runner.brain.root import kind, read_bytes
from runner.claims import anchor
from runner.values import SEVERITIES, Action, Claim, Severity

NAME = "next-round-seed.md"
RAISED_BY = "carry-forward"
QUOTE_MAX, PROBLEM_MAX = 200, 240  # characters, as in a reviewer's claim: the context was measured for these
_ENTRY = re.compile(r"^## (?:round-(\d\d)/(C-\d{2,}) )?(blocker|major|minor|nit): (.*)$")
_SEVERITY: dict[str, Severity] = {s: s for s in SEVERITIES}
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def read(history: Path) -> str | None:
    """The seed beside the rounds; None when there is none."""
    path = history / NAME
    return None if kind(path) == "missing" else read_bytes(path).decode("utf-8", "replace")


def body_of(text: str) -> str:
    """The text after its front matter."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return re.sub(r"\A---\n(?:.*\n)*?---[ \t]*\n+", "", text)


def holds_entries(text: str) -> bool:
    """Is there at least one `## ` entry after the front matter, outside code?"""
    return bool(_entries(text))


def claims(text: str, history: Path, body: bytes, first_body_line: int) -> tuple[Claim, ...]:
    """The seed's issues as claims: looked up in their round's record, their quotes sought again in today's body.

    An entry that no record knows is read as it stands: severity and problem in its heading, then a quote as a `> `
    block, then a fenced block `replace` or `delete`; whatever of that is missing is left empty.
    """
    found = []
    for heading, lines in _entries(text):
        entry = _ENTRY.match(heading)
        known = _recorded(history, int(entry[1]), entry[2]) if entry and entry[1] else None
        claim = replace(known or _written(heading, lines), id="", raised_by=RAISED_BY, cluster="")
        found.append(anchor(claim, body, first_body_line))
    return tuple(found)


def _written(heading: str, lines: Sequence[str]) -> Claim:
    entry = _ENTRY.match(heading)
    severity: Severity = _SEVERITY[entry[3]] if entry else "minor"
    problem = entry[4] if entry else heading.removeprefix("## ")
    quoted = takewhile(_is_quoted, dropwhile(lambda line: not _is_quoted(line), lines))
    quote = "\n".join(line[1:].removeprefix(" ") for line in quoted)
    block = re.search(r"^(`{3,}|~{3,})(replace|delete)[ \t]*\n((?:.*\n)*?)\1[ \t]*$", "\n".join(lines), re.MULTILINE)
    action: Action = "none" if block is None else "replace" if block[2] == "replace" else "delete"
    text = block[3].removesuffix("\n") if block and action == "replace" else ""
    problem = problem.strip()[:PROBLEM_MAX] or "(no text)"
    return Claim("", RAISED_BY, quote[:QUOTE_MAX], "other", problem, severity, action, text[:PROBLEM_MAX])


def _is_quoted(line: str) -> bool:
    return line.startswith(">")


def _recorded(history: Path, number: int, claim_id: str) -> Claim | None:
    path = history / round_name(number) / ".run" / "record.json"
    try:
        record = json.loads(path.read_bytes())
        return next(Claim.from_json(c) for c in record["claims"] if c["id"] == claim_id)
    except (OSError, ValueError, TypeError, KeyError, StopIteration):
        return None  # a round of the pack's, or one whose record is gone: the entry's own words are taken


def _entries(text: str) -> list[tuple[str, list[str]]]:
    """Each `## ` heading outside code, with the lines below it."""
    found: list[tuple[str, list[str]]] = []
    fence = ""
    for line in body_of(text).splitlines():
        mark = _FENCE.match(line)
        if not fence and line.startswith("## "):
            found.append((line, []))
        elif found:
            found[-1][1].append(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and line.strip() == mark[1]:
            fence = ""
    return found
