"""What a person (or another tool) writes instead of a model: tryouts, claims, verdicts. Read strictly, file:line said.

A tryout: `## Observations` (bullets); `## Claims`, each `### <severity>: <problem>`, then the quote as a `>` block,
then optionally a fenced block `replace`, or an empty one `delete`; `## Open questions` (bullets). Claims alone
(`--claim @file`) are the `###` entries. Verdicts: `### C-01: CONCEDE` entries with a reason below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from runner.errors import Refused
from runner.values import KINDS, LABELS, SEVERITIES, Action, Amended, Claim, Kind, Label, Tryout, Verdict

QUOTE_MAX = TEXT_MAX = 2000  # characters
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([\w-]*)\s*$")
_CLAIM = re.compile(r"### +(\w+) *: *(.+?) *$")
_VERDICT = re.compile(r"### +(C-\d{2,}) *: *(\S+) *$")
_BULLET = re.compile(r"[-*+] +(.*\S)")


@dataclass(slots=True)
class _Entry:
    """A `###` heading with what stands below it."""

    line: int
    heading: str
    quote: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    fences: list[tuple[int, str, str]] = field(default_factory=list)  # line, word, content


def tryout(text: str, persona: str, path: str) -> Tryout:
    """A tryout written by hand. Refused with file and line for what cannot be read."""
    parts = _parts(text, path)
    known = {"observations", "claims", "open questions", "claims without a place in the document"}
    for line, name, _, _ in parts:
        if name not in known:
            raise Refused(
                f"unknown section {name!r}", path=path, line=line, hint="Observations, Claims, Open questions"
            )
    entries = [e for _, name, _, es in parts for e in es if name.startswith("claims")]
    bullets = {name: tuple(_bullets(lines)) for _, name, lines, _ in parts}
    return Tryout(
        persona=persona,
        status="done",
        observations=bullets.get("observations", ()),
        claims=tuple(_claim(e, persona, path) for e in entries),
        open_questions=bullets.get("open questions", ()),
    )


def claims(text: str, path: str, raised_by: str = "human") -> tuple[Claim, ...]:
    """The `###` entries of a file that holds nothing else."""
    parts = _parts("## claims\n" + text, path, offset=-1)
    if len(parts) > 1:
        raise Refused("only `###` entries may stand here", path=path, line=parts[1][0])
    entries = parts[0][3]
    if not entries:
        raise Refused("no claim in this file", path=path, hint="### major: what is wrong, then the quote as a > block")
    return tuple(_claim(e, raised_by, path) for e in entries)


def _parts(text: str, path: str, offset: int = 0) -> list[tuple[int, str, list[str], list[_Entry]]]:
    """The `## ` sections: (line, name, plain lines, entries). What stands before the first one is ignored."""
    parts: list[tuple[int, str, list[str], list[_Entry]]] = []
    for number, line, fence in _lines(text, path, offset):
        if fence is not None:
            if parts and parts[-1][3]:
                parts[-1][3][-1].fences.append((number, *fence))
        elif line.startswith("## "):
            parts.append((number, line[3:].strip().casefold(), [], []))
        elif not parts:
            continue
        elif line.startswith("### "):
            parts[-1][3].append(_Entry(number, line))
        elif parts[-1][3]:
            entry = parts[-1][3][-1]
            if line.startswith(">"):
                entry.quote.append(line[1:].removeprefix(" "))
            elif line.strip():
                entry.text.append(line.strip())
        else:
            parts[-1][2].append(line)
    return parts


def _lines(text: str, path: str, offset: int) -> Iterator[tuple[int, str, tuple[str, str] | None]]:
    """(line number, line, None), or for a whole fenced block (its first line, "", (word, content))."""
    mark, word, start, content = "", "", 0, list[str]()
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1 + offset):
        found = _FENCE.match(line)
        if not mark and found:
            mark, word, start, content = found[1], found[2], number, []
        elif mark and found and found[1].startswith(mark) and not found[2]:
            yield start, "", (word, "\n".join(content))
            mark = ""
        elif mark:
            content.append(line)
        else:
            yield number, line.rstrip(), None
    if mark:
        raise Refused("this fenced block is not closed", path=path, line=start)


def _bullets(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        found = _BULLET.match(line.strip())
        if found:
            yield found[1]


def _claim(e: _Entry, raised_by: str, path: str) -> Claim:
    head = _CLAIM.match(e.heading)
    severities = {s: s for s in SEVERITIES}
    if head is None or head[1] not in severities:
        raise Refused("not a claim", path=path, line=e.line, hint="### blocker|major|minor|nit: what is wrong")
    if len(e.fences) > 1:
        raise Refused("more than one proposal for a claim", path=path, line=e.fences[1][0])
    action, replacement = _proposal(e, path)
    quote = "\n".join(e.quote).strip("\n")
    for what, text, most in (
        ("quote", quote, QUOTE_MAX),
        ("problem", head[2], TEXT_MAX),
        ("proposal", replacement, TEXT_MAX),
    ):
        if len(text) > most:
            raise Refused(f"the {what} has {len(text)} characters, at most {most} are taken", path=path, line=e.line)
    kind: Kind = next((k for k in KINDS if e.text and e.text[0].startswith(k)), "other")
    return Claim("", raised_by, quote, kind, head[2], severities[head[1]], action, replacement)


def _proposal(e: _Entry, path: str) -> tuple[Action, str]:
    if not e.fences:
        return "none", ""
    line, word, content = e.fences[0]
    if word == "replace" and content:
        return "replace", content
    if word == "delete" and not content.strip():
        return "delete", ""
    raise Refused("a proposal is a block `replace` with text, or an empty block `delete`", path=path, line=line)


# ---- verdicts ------------------------------------------------------------------------------------------------------


def verdicts(text: str, known: Sequence[str], path: str) -> tuple[Verdict, ...]:
    """Hand-written defender.md: `### C-01: CONCEDE` entries, the reason below, an amended proposal as a block."""
    found: dict[str, Verdict] = {}
    for _, _, _, entries in _parts("## verdicts\n" + text.replace("\n## ", "\n\n"), path, offset=-1):
        for e in entries:
            head = _VERDICT.match(e.heading)
            if head is None:
                raise Refused("not a verdict", path=path, line=e.line, hint="### C-01: CONCEDE")
            amended = Amended(*_proposal(e, path)) if e.fences else None
            _add(found, head[1], head[2], " ".join(e.text), amended, known, path, e.line)
    return _all(found, known, path)


def verdicts_json(text: str, known: Sequence[str], path: str) -> tuple[Verdict, ...]:
    """verdicts.json: [{"claim": "C-01", "verdict": "CONCEDE", "reason": "…", "amended": {action, replacement}?}]."""
    found: dict[str, Verdict] = {}
    try:
        rows = json.loads(text)
        for row in rows:
            given = row.get("amended")
            amended = None if given is None else Amended(given["action"], str(given.get("replacement", "")))
            _add(found, str(row["claim"]), str(row["verdict"]), str(row.get("reason", "")), amended, known, path, None)
    except (ValueError, TypeError, KeyError, AttributeError):
        hint = '[{"claim": "C-01", "verdict": "CONCEDE", "reason": "…"}]'
        raise Refused("verdicts.json cannot be read", path=path, hint=hint) from None
    return _all(found, known, path)


def _add(
    found: dict[str, Verdict], claim: str, label: str, reason: str, amended: Amended | None, known: Sequence[str],
    path: str, line: int | None,
) -> None:  # fmt: skip
    labels: dict[str, Label] = {name: name for name in LABELS}
    if label not in labels:
        raise Refused(f"{label!r} is no verdict", path=path, line=line, hint=", ".join(LABELS))
    if claim not in known:
        raise Refused(f"there is no claim {claim}", path=path, line=line, hint=f"claims: {', '.join(known)}")
    if claim in found:
        raise Refused(f"two verdicts on {claim}", path=path, line=line)
    found[claim] = Verdict(claim, labels[label], "human", reason, amended=amended)


def _all(found: dict[str, Verdict], known: Sequence[str], path: str) -> tuple[Verdict, ...]:
    missing = [c for c in known if c not in found]
    if missing:
        raise Refused(f"no verdict on {', '.join(missing)}", path=path, hint="write one for every claim")
    return tuple(found[c] for c in known)
