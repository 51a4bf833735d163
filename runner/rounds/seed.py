"""Issues carried from one round to the next: next-round-seed.md, written at close, consumed at open."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from runner.brain.history import round_name
from runner.brain.root import kind, read_bytes
from runner.claims import anchor
from runner.values import SEVERITIES, Claim, Severity

NAME = "next-round-seed.md"
RAISED_BY = "carry-forward"
_ENTRY = re.compile(r"^## (?:round-(\d\d)/(C-\d{2,}) )?(blocker|major|minor|nit): (.*)$")
_SEVERITY: dict[str, Severity] = {s: s for s in SEVERITIES}
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def read(history: Path) -> str | None:
    """The seed beside the rounds; None when there is none."""
    path = history / NAME
    return None if kind(path) == "missing" else read_bytes(path).decode("utf-8", "replace")


def body_of(text: str) -> str:
    """The text after its front matter."""
    text = text.replace("\r\n", "\n")
    return re.sub(r"\A---\n(?:.*\n)*?---[ \t]*\n+", "", text)


def holds_entries(text: str) -> bool:
    """Is there at least one `## ` entry after the front matter, outside code?"""
    return any(line.startswith("## ") for line in _plain(body_of(text)))


def claims(text: str, history: Path, body: bytes, first_body_line: int) -> tuple[Claim, ...]:
    """The seed's issues as claims: looked up in their round's record, their quotes sought again in today's body."""
    found = []
    for line in _plain(body_of(text)):
        entry = _ENTRY.match(line)
        if entry is None:
            continue
        known = _recorded(history, int(entry[1]), entry[2]) if entry[1] else None
        claim = known or Claim("", RAISED_BY, "", "other", entry[4].strip(), _SEVERITY[entry[3]], "none")
        claim = replace(claim, id="", raised_by=RAISED_BY, cluster="")
        found.append(anchor(claim, body, first_body_line))
    return tuple(found)


def _recorded(history: Path, number: int, claim_id: str) -> Claim | None:
    path = history / round_name(number) / ".run" / "record.json"
    try:
        record = json.loads(path.read_bytes())
        return next(Claim.from_json(c) for c in record["claims"] if c["id"] == claim_id)
    except (OSError, ValueError, TypeError, KeyError, StopIteration):
        return None  # a round of the pack's, or one whose record is gone: the entry's own words are taken


def _plain(text: str) -> Iterator[str]:
    """Lines outside fenced code."""
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif fence and mark and mark[1].startswith(fence) and line.strip() == mark[1]:
            fence = ""
        elif not fence:
            yield line
