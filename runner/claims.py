"""From a claim's quote to its place, to groups of claims, to patches. Pure: values and bytes in, values and bytes out.

Places are counted in bytes of the body (the file after its front matter). One line model: a line ends with a line
feed, with or without a carriage return before it; a lone carriage return ends nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import combinations
from typing import NamedTuple

from rapidfuzz import fuzz, utils

from runner.errors import Refused
from runner.values import Amended, Anchor, Claim, Label, Patch, Verdict

ALIKE = 80.0  # token_set_ratio, 0 to 100, from which two problem texts say the same
CONTEXT_LINES = 3
CONCEDED: tuple[Label, ...] = ("CONCEDE", "CONCEDE-IN-PART")

UNANCHORED = "the quote is not in the document"
AMBIGUOUS = "the quote occurs more than once in the document"
NO_EDIT = "no edit was proposed"
NO_AMENDED = "no amended proposal was given"
UNWRITABLE = "the proposal holds characters that cannot be written as UTF-8"
NOOP = "the replacement equals the quote"
TITLE = "change the H1 and `title` together"

# ---- places --------------------------------------------------------------------------------------------------------


def anchor(claim: Claim, body: bytes, first_body_line: int, near: tuple[int, int] | None = None) -> Claim:
    """The claim with its place: start, end (bytes), lines (1-based, of the file) and `anchor`.

    One occurrence, counted with overlaps: exact. Several: the one inside `near` (bytes of the window that was shown)
    or the one whose section the problem names, when that is exactly one; else ambiguous. None: unanchored.
    first_body_line: the line of the file on which the body begins. A quote whose line ends differ from the document's
    is sought with the document's, and then holds them.
    """
    quote = claim.quote
    places = list(_places(body, _bytes(quote)))
    if not places and "\n" in quote:
        quote = quote.replace("\r\n", "\n").replace("\n", "\r\n" if b"\r\n" in body else "\n")
        places = list(_places(body, _bytes(quote)))
    start = _decide(replace(claim, quote=quote), body, places, near)
    if start is None:
        missed: Anchor = "ambiguous" if places else "unanchored"
        return replace(claim, start=None, end=None, lines=None, anchor=missed)
    end = start + len(_bytes(quote))
    first = first_body_line + body.count(b"\n", 0, start)
    lines = (first, first + body.count(b"\n", start, end - 1))
    return replace(claim, quote=quote, start=start, end=end, lines=lines, anchor="exact")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # a lone surrogate is in no document


def _places(body: bytes, needle: bytes) -> Iterator[int]:
    at = body.find(needle) if needle else -1
    while at >= 0:
        yield at
        at = body.find(needle, at + 1)


def _decide(claim: Claim, body: bytes, places: list[int], near: tuple[int, int] | None) -> int | None:
    size = len(_bytes(claim.quote))
    if near is not None and len(places) > 1:
        places = [p for p in places if near[0] <= p and p + size <= near[1]] or places
    if len(places) > 1:
        headings = list(_headings(body))
        problem = f" {_words(claim.problem)} "
        places = [p for p in places if (name := _section(headings, p)) and f" {name} " in problem]
    return places[0] if len(places) == 1 else None


def _words(text: str) -> str:
    return " ".join(utils.default_process(text).split())


def _section(headings: Sequence[_Heading], at: int) -> str:
    """Name of the section that holds a place; empty when it is too short to be told from an ordinary word."""
    names = [h.text for h in headings if h.start <= at]
    name = _words(names[-1].decode("utf-8", "replace")) if names else ""
    return name if len(name) >= 4 else ""


class _Heading(NamedTuple):
    start: int
    end: int
    level: int
    text: bytes


_FENCE = re.compile(rb" {0,3}(`{3,}(?=[^`]*\Z)|~{3,})")
_ATX = re.compile(rb" {0,3}(#{1,6})(?=[ \t\r\n]|\Z)")
_UNDERLINE = re.compile(rb" {0,3}=+[ \t]*\r?\n?\Z")


def _lines(data: bytes) -> list[bytes]:
    return re.findall(rb"[^\n]*\n|[^\n]+", data)


def _headings(body: bytes) -> Iterator[_Heading]:
    """ATX headings, and underlined ones of the first level, outside fenced code; in order."""
    fence, start, before = b"", 0, b""
    for line in _lines(body):
        end = start + len(line)
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[:1]):
                fence = b""
        elif mark:
            fence = mark[1]
        elif atx := _ATX.match(line):
            yield _Heading(start, end, len(atx[1]), line.strip().strip(b"#").strip())
        elif before and _UNDERLINE.match(line):
            yield _Heading(start - len(before), end, 1, before.strip())
        plain = not fence and not mark and line.strip() and not _ATX.match(line)
        start, before = end, line if plain else b""


def headings(body: bytes) -> tuple[str, ...]:
    """The texts of the headings, in order."""
    return tuple(h.text.decode("utf-8", "replace") for h in _headings(body))


# ---- groups, numbers, order ----------------------------------------------------------------------------------------


def number(claims: Sequence[Claim], after: int = 0) -> tuple[Claim, ...]:
    """The claims with ids C-01, C-02, … in the order given, counting on from `after`."""
    return tuple(replace(c, id=f"C-{n:02d}") for n, c in enumerate(claims, after + 1))


def cluster(claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """Every claim, in order, with `cluster`: the id of the first claim that says the same about the same place.

    The same place: the quotes overlap in the body, or, without a place, are equal. The same thing: the problem texts
    have a token_set_ratio of at least ALIKE. Only firsts are compared with, so that a claim that comes later changes
    nothing for those before it.
    """
    firsts: list[Claim] = []
    done = []
    for claim in claims:
        first = next((f for f in firsts if _same(f, claim)), None)
        if first is None:
            firsts.append(claim)
        done.append(replace(claim, cluster=(first or claim).id))
    return tuple(done)


def _same(a: Claim, b: Claim) -> bool:
    if a.start is None or a.end is None or b.start is None or b.end is None:
        here = a.start is b.start and a.quote == b.quote != ""
    else:
        here = a.start < b.end and b.start < a.end
    return here and fuzz.token_set_ratio(a.problem, b.problem, processor=utils.default_process) >= ALIKE


def shuffled(claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """The claims as the defender sees them: without names, in an order that depends on their content alone."""
    return tuple(replace(c, raised_by="") for c in sorted(claims, key=lambda c: (_content_sha256(c), c.id)))


def _content_sha256(claim: Claim) -> str:
    content = [claim.quote, claim.kind, claim.problem, claim.severity, claim.action, claim.replacement]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


# ---- patches -------------------------------------------------------------------------------------------------------


def patches(
    claims: Sequence[Claim],
    verdicts: Sequence[Verdict],
    body: bytes,
    front: bytes,
    path: str,
    earlier: Sequence[Patch] = (),
) -> tuple[Patch, ...]:
    """One patch per CONCEDE and CONCEDE-IN-PART, in the order of the claims: `P-nn`, or `H-nn` with the reason.

    claims: anchored in this body. front: everything before the body, as it stands after the round's flip; the diffs
    are against front + body. path: shown in the diffs, relative to where they will be applied. earlier: patches made
    before for the same round; their claims keep their ids and new ids count on from the highest.
    Patches that touch the same bytes are flagged `overlaps P-nn`, or `same as P-nn` when they are the same edit.
    """
    by_claim = {v.claim: v for v in verdicts if v.verdict in CONCEDED}
    ready = list(_numbered([_edit(c, by_claim[c.id], body) for c in claims if c.id in by_claim], earlier))
    old = front + body
    return tuple(
        p if p.by_hand else replace(p, flags=_flags(p, ready), diff=diff(old, front + apply(body, [p]), path))
        for p in ready
    )


def _edit(claim: Claim, verdict: Verdict, body: bytes) -> Patch:
    """A patch whose id is still only its letter."""
    whole = verdict.verdict == "CONCEDE"
    proposal = Amended(claim.action, claim.replacement) if whole else verdict.amended
    text = proposal.replacement if proposal is not None and proposal.action == "replace" else ""
    by_hand = Patch("H", claim.id, claim.start, claim.end, text)
    if claim.start is None or claim.end is None or body[claim.start : claim.end] != _bytes(claim.quote):
        reason = AMBIGUOUS if claim.anchor == "ambiguous" else UNANCHORED
        return replace(by_hand, start=None, end=None, by_hand=reason)
    if proposal is None or proposal.action == "none":
        return replace(by_hand, by_hand=NO_EDIT if proposal is not None else NO_AMENDED)
    if re.search("[\ud800-\udfff]", text):
        return replace(by_hand, by_hand=UNWRITABLE)
    new = _with_line_ends_of(body, claim.start, text)
    start, end = (claim.start, claim.end) if new else _whole_lines(body, claim.start, claim.end)
    if text == claim.quote or body[start:end] == new.encode():
        return replace(by_hand, by_hand=NOOP, flags=("noop",))
    if _changes_title(body, start, end, new.encode()):
        return replace(by_hand, by_hand=TITLE)
    return replace(by_hand, id="P", start=start, end=end, replacement=new)


def _with_line_ends_of(body: bytes, at: int, text: str) -> str:
    """The text with the line end that the document has after this place (or, after its last one, before it)."""
    end = body.find(b"\n", at) if b"\n" in body[at:] else body.rfind(b"\n")
    lines = text.replace("\r\n", "\n")
    return lines.replace("\n", "\r\n") if end > 0 and body[end - 1 : end] == b"\r" else lines


def _whole_lines(body: bytes, start: int, end: int) -> tuple[int, int]:
    """What a deletion takes: the quote, or its lines when it is all that is on them, a list item's marker with it.

    Between two blank lines the one above goes too, so that one paragraph break is left; within a line, the blanks
    after the quote, so that none begin the line and no two stand in a row.
    """
    first = body.rfind(b"\n", 0, start) + 1
    last = _line_end(body, end - 1)
    if body[end:last].strip(b" \t\r\n"):
        at_blank = start == first or body[start - 1 : start] in (b" ", b"\t")
        return start, end + (len(body[end:last]) - len(body[end:last].lstrip(b" ")) if at_blank else 0)
    item = _MARKER.fullmatch(body[first:start]) and not re.match(rb"[ \t]+\S", body[last:])  # it ends with the quote
    if body[first:start].strip(b" \t") and not item:
        return start, end
    above = body.rfind(b"\n", 0, max(first - 1, 0)) + 1
    if first and not body[above:first].strip() and not body[last : _line_end(body, last)].strip():
        return above, last
    return first, last


_MARKER = re.compile(rb"[ \t]*([-*+]|[0-9]{1,9}[.)])[ \t]+(\[[ xX]\][ \t]+)?")  # of a list item


def _line_end(body: bytes, at: int) -> int:
    """The first byte of the next line."""
    end = body.find(b"\n", at)
    return len(body) if end < 0 else end + 1


def _changes_title(body: bytes, start: int, end: int, new: bytes) -> bool:
    """Does the edit touch the first H1, or would another text be the first H1 after it?"""
    before = _first_h1(body)
    after = _first_h1(body[:start] + new + body[end:])
    if before is None or after is None:
        return before is not after
    return before.text != after.text or (start < before.end and before.start < end)


def _first_h1(body: bytes) -> _Heading | None:
    return next((h for h in _headings(body) if h.level == 1), None)


def _numbered(made: Sequence[Patch], earlier: Sequence[Patch]) -> Iterator[Patch]:
    kept = {(p.claim, p.id[:1]): p.id for p in earlier}
    last = {letter: max((int(p.id[2:]) for p in earlier if p.id[:1] == letter), default=0) for letter in "PH"}
    for patch in made:
        known = kept.get((patch.claim, patch.id))
        if known is None:
            last[patch.id] += 1
        yield replace(patch, id=known or f"{patch.id}-{last[patch.id]:02d}")


def _flags(patch: Patch, others: Sequence[Patch]) -> tuple[str, ...]:
    rest = [p for p in others if p.id != patch.id and not p.by_hand and overlap(p, patch)]
    return tuple(f"{'same as' if _range(p) == _range(patch) else 'overlaps'} {p.id}" for p in rest)


def _range(patch: Patch) -> tuple[int, int, str]:
    assert patch.start is not None and patch.end is not None  # a P-nn has a place
    return patch.start, patch.end, patch.replacement


def overlap(a: Patch, b: Patch) -> bool:
    """Do two P-nn touch the same bytes?"""
    return _range(a)[0] < _range(b)[1] and _range(b)[0] < _range(a)[1]


def apply(body: bytes, patches: Sequence[Patch]) -> bytes:
    """The body with all of these patches, or Refused: one is by hand, or two of them change the same bytes.

    The same edit under two ids is made once. The caller has checked that this is the body they were made from.
    """
    for patch in patches:
        if patch.by_hand or patch.start is None or patch.end is None or patch.end > len(body):
            why = patch.by_hand or "it has no place in this document"
            raise Refused(f"{patch.id} cannot be applied: {why}", hint="make this change by hand")
    edits = {_range(p): p for p in reversed(patches)}
    clash = [(a, b) for a, b in combinations(sorted(edits.values(), key=_range), 2) if overlap(a, b)]
    if clash:
        pairs = ", ".join(" and ".join(sorted((a.id, b.id))) for a, b in clash)
        raise Refused(f"these patches change the same text: {pairs}", hint="apply one of each pair")
    for start, end, new in sorted(edits, reverse=True):
        body = body[:start] + new.encode() + body[end:]
    return body


# ---- diffs ---------------------------------------------------------------------------------------------------------


def diff(before: bytes, after: bytes, path: str) -> bytes:
    """A unified diff of two versions of a file, exact to the byte, as `git apply` and `patch -p1` read it: one hunk."""
    old, new = _lines(before), _lines(after)
    skip = _alike(old, new)
    tail = min(_alike(old[::-1], new[::-1]), len(old) - skip, len(new) - skip)
    a, b = old[skip : len(old) - tail], new[skip : len(new) - tail]
    above, below = old[max(0, skip - CONTEXT_LINES) : skip], old[len(old) - tail :][:CONTEXT_LINES]
    out = [_marked(b" ", above)]
    for tag, a1, a2, b1, b2 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        out += [_marked(b" ", a[a1:a2])] if tag == "equal" else [_marked(b"-", a[a1:a2]), _marked(b"+", b[b1:b2])]
    out.append(_marked(b" ", below))
    first, more = skip - len(above), len(above) + len(below)
    spans = (_span(first, len(a) + more), _span(first, len(b) + more))
    head = b"--- %b\n+++ %b\n" % (_shown(f"a/{path}"), _shown(f"b/{path}"))
    return head + b"@@ -%b +%b @@\n" % spans + b"".join(out)


def _alike(a: Sequence[bytes], b: Sequence[bytes]) -> int:
    """How many first items are equal."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _span(start: int, count: int) -> bytes:
    first = start + bool(count)  # an empty span names the line before it
    return b"%d" % first if count == 1 else b"%d,%d" % (first, count)


def _marked(mark: bytes, lines: Sequence[bytes]) -> bytes:
    missing = b"\n\\ No newline at end of file\n"
    return b"".join(mark + line + (b"" if line.endswith(b"\n") else missing) for line in lines)


def _shown(path: str) -> bytes:
    """As git writes it: quoted, with octal escapes, unless it is plain ASCII without blanks."""
    raw = path.encode("utf-8", "surrogateescape")
    if re.fullmatch(rb"[!#-\[\]-~]+", raw):
        return raw
    return b'"' + re.sub(rb"[^ !#-\[\]-~]", lambda m: b"\\%03o" % m[0][0], raw) + b'"'
