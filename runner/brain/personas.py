"""Which reviewers sit in a round, and what each looks for (§ 10.2 of the brain's conventions, or ad hoc)."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.brain.root import CONVENTIONS, canonical, decode, kind, read_bytes, shown
from runner.errors import Refused

DEFAULT_REVIEWERS = 3
CHARTERS = "assets/persona-charters"
AD_HOC_SYNTAX = '--persona="name:what this reviewer looks for"'

# A tryout is tryouts/<name>.md. The validator takes the first group for files with duties of their own, and refuses
# the second in any but its reserved spelling; the third are other authors of claims.
RESERVED = frozenset({
    "open-issues", "proposed-patches", "feedback-in", "feedback-out", "transcript", "index", "defender",
    "synthesizer", "baseline", "personas",
    "node", "conventions", "readme", "audit-log", "contributing", "security", "quickstart", "install", "runtime",
    "human", "carry-forward",
})  # fmt: skip
ENVELOPE_MARKERS = ("--- BEGIN PERSONA CHARTER (advisory) ---", "--- END PERSONA CHARTER ---")

_FORBIDDEN = re.compile(r'[A-Z\s/\\:*?"<>|\x00-\x1f\x7f-\x9f]')
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_SECTION = re.compile(r"(§\s*)?10\.2(?![\d.]*\d)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_FENCED_ITEM = re.compile(r"\s*-\s+(\S.*)")
_BULLET = re.compile(r"\s*[-*+]\s+(\S.*)")
_PLACEHOLDERS = ("...", "…")

_Line = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Persona:
    """charter: its text without the final line end, None when there is none. charter_path: as personas.yaml shows it.

    charter_sha256: of the file's bytes, or of the inline text; empty without a charter.
    """

    name: str
    source: Literal["conventions-10.2", "ad-hoc"]
    charter_path: str | None
    charter: str | None
    charter_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """personas: those who review, in order. skipped: names that --reviewers cut."""

    personas: tuple[Persona, ...]
    skipped: tuple[str, ...]
    warnings: tuple[str, ...]


def roster(root: Path) -> tuple[str, ...]:
    """The personas of § 10.2, in the file's order; none when there is no such section.

    Raises Refused with file and line for a name that is no slug, is reserved, or stands there twice.
    """
    path = root / CONVENTIONS
    names: list[str] = []
    for line, name in _listed(decode(read_bytes(path), shown(path))):
        _check_name(name, names, shown(path), line)
        names.append(name)
    return tuple(names)


def parse_ad_hoc(text: str) -> tuple[str, str]:
    """`name:charter`, split at the first colon. Raises Refused, showing the syntax, when either is missing."""
    name, _, charter = text.partition(":")
    if not name.strip() or not charter.strip():
        raise Refused(f"ad-hoc persona without a charter: {text.strip() or '(empty)'}", hint=f"write {AD_HOC_SYNTAX}")
    return unicodedata.normalize("NFC", name.strip()), charter.strip()


def resolve(
    root: Path, requested: Sequence[str], ad_hoc: Sequence[str], reviewers: int | None, bundled: Path
) -> Resolved:
    """The round's reviewers: `requested` (names of § 10.2), then `ad_hoc` (`name:charter`), cut to `reviewers`.

    reviewers None: min(3, all). bundled: our folder of charters, for roster names that have none. Raises Refused for
    an unknown, reserved or repeated name, for no persona at all, and for more reviewers than personas. An empty
    `requested` means none: who offers the whole roster takes it from `roster`.
    """
    listed = roster(root)
    inline = [parse_ad_hoc(text) for text in ad_hoc]
    names = [_known(name, listed) for name in requested]
    for name in [*names, *(name for name, _ in inline)]:
        _check_name(name, [], None, None)
    _check_repeats([*names, *(name for name, _ in inline)])
    total = len(names) + len(inline)
    count = _count(reviewers, total, listed)
    taken = [_from_roster(root, name, bundled) for name in names[:count]]
    taken += [_inline(name, charter) for name, charter in inline[: count - len(taken)]]
    skipped = [*names, *(name for name, _ in inline)][count:]
    warnings = [_no_charter(root, p.name) for p in taken if p.charter is None]
    return Resolved(tuple(taken), tuple(skipped), tuple(warnings))


def is_slug(name: str) -> bool:
    """§ 11.1: NFC, 2 to 40 code points, kebab shape, no capitals A-Z, blanks or characters a file name cannot have."""
    return (
        2 <= len(name) <= 40
        and unicodedata.is_normalized("NFC", name)
        and not _FORBIDDEN.search(name)
        and all(part and not part.startswith(".") for part in name.split("-"))
        and not any(unicodedata.category(char) in ("Cf", "Cs") for char in name)
    )


def _listed(text: str) -> list[_Line]:
    lines = list(enumerate(re.split(r"\r\n|\n", text), 1))
    section = _section(lines)
    fenced = _first_fence(section)
    pattern, items = (_BULLET, section) if fenced is None else (_FENCED_ITEM, fenced)
    found = [(line, match.group(1)) for line, content in items if (match := pattern.fullmatch(content))]
    named = [(line, re.split(r"[\s:#]", text, maxsplit=1)[0].strip("`*_")) for line, text in found]
    return [(line, name) for line, name in named if name not in _PLACEHOLDERS]


def _section(lines: Sequence[_Line]) -> list[_Line]:
    """The lines below the heading of § 10.2, up to the next of its level or above."""
    inside: list[_Line] = []
    level, fence = 0, ""
    for number, content in lines:
        fence, in_fence = _follow_fence(content, fence)
        heading = None if in_fence else _HEADING.match(content)
        if heading and level and len(heading.group(1)) <= level:
            break
        if level:
            inside.append((number, content))
        elif heading and _SECTION.match(heading.group(2)):
            level = len(heading.group(1))
    return inside


def _follow_fence(content: str, fence: str) -> tuple[str, bool]:
    """The open fence after this line ("" for none), and whether the line belongs to a fenced block."""
    mark = _FENCE.match(content)
    if not fence:
        return (mark.group(1), True) if mark else ("", False)
    closes = mark is not None and mark.group(1).startswith(fence) and not content.strip().strip(fence[0])
    return ("" if closes else fence), True


def _first_fence(section: Sequence[_Line]) -> list[_Line] | None:
    inside: list[_Line] | None = None
    fence = ""
    for number, content in section:
        fence, in_fence = _follow_fence(content, fence)
        if in_fence and inside is None:
            inside = []
        elif in_fence and fence and inside is not None:
            inside.append((number, content))
        elif inside is not None:
            break
    return inside


def _check_name(name: str, before: Sequence[str], path: str | None, line: int | None) -> None:
    if not is_slug(name):
        hint = "2 to 40 characters, small letters, digits and single hyphens"
        raise Refused(f"persona name `{name}` is not a slug", path=path, line=line, hint=hint)
    if name.casefold() in RESERVED:
        raise Refused(f"persona name `{name}` is reserved", path=path, line=line, hint="choose another name")
    if name.casefold() in {other.casefold() for other in before}:
        raise Refused(f"persona `{name}` is listed twice", path=path, line=line)


def _check_repeats(names: Sequence[str]) -> None:
    for at, name in enumerate(names):
        if name.casefold() in {other.casefold() for other in names[:at]}:
            raise Refused(f"persona `{name}` is named twice", hint="a persona reviews once in a round")


def _known(name: str, listed: Sequence[str]) -> str:
    name = unicodedata.normalize("NFC", name.strip())
    if name in listed:
        return name
    valid = f"valid personas: {', '.join(listed)}" if listed else f"§ 10.2 lists none; write {AD_HOC_SYNTAX}"
    raise Refused(f"persona `{name}` is unknown to § 10.2", hint=valid)


def _count(reviewers: int | None, total: int, listed: Sequence[str]) -> int:
    if total == 0 and listed:
        raise Refused("no persona was chosen", hint=f"choose from § 10.2: {', '.join(listed)}")
    if total == 0:
        hint = f"list personas in § 10.2 of {CONVENTIONS}, or write {AD_HOC_SYNTAX}"
        raise Refused("no personas available", hint=hint)
    count = min(DEFAULT_REVIEWERS, total) if reviewers is None else reviewers
    if count < 1:
        raise Refused(f"--reviewers={count} leaves no reviewer", hint="give 1 or more")
    if count > total:
        supplied = "1 persona was" if total == 1 else f"{total} personas were"
        raise Refused(f"--reviewers={count}, but {supplied} supplied", hint="supply more personas or lower --reviewers")
    return count


def _from_roster(root: Path, name: str, bundled: Path) -> Persona:
    places = (
        (root / CHARTERS, root.parent, f"{CHARTERS}/{name}.md"),
        (root.parent / CHARTERS, root.parent, f"../{CHARTERS}/{name}.md"),
        (bundled, bundled, f"builtin/{name}.md"),
    )
    for folder, limit, written in places:
        path = folder / f"{name}.md"
        if kind(path) == "file":
            _check_inside(path, limit)
            raw = read_bytes(path)
            charter = decode(raw, shown(path)).rstrip("\r\n")
            if charter.strip():
                _check_markers(charter, shown(path))
                return Persona(name, "conventions-10.2", written, charter, hashlib.sha256(raw).hexdigest())
    return Persona(name, "conventions-10.2", None, None)


def _inline(name: str, charter: str) -> Persona:
    _check_markers(charter, f"--persona={name}")
    return Persona(name, "ad-hoc", None, charter, hashlib.sha256(charter.encode()).hexdigest())


def _check_inside(path: Path, limit: Path) -> None:
    if canonical(limit) not in canonical(path).parents:
        raise Refused("a link leads this charter out of the project", path=shown(path), hint="copy the file instead")


def _check_markers(charter: str, path: str) -> None:
    """A line equal to a marker of the envelope would end the advisory part early."""
    for number, line in enumerate(charter.split("\n"), 1):
        if any(part.strip() in ENVELOPE_MARKERS for part in line.splitlines()):
            raise Refused("a line of the charter is an envelope marker", path=path, line=number, hint="remove the line")


def _no_charter(root: Path, name: str) -> str:
    return f"persona '{name}' has no charter ({shown(root / CHARTERS)}/{name}.md): reviewing with the generic prompt"
