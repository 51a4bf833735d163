"""How much of a linked text a reader gets: by consumer and role, then by the ceiling. Text in, text out; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal, get_args

Consumer = Literal["reviewer", "author", "brief", "full"]
Count = Callable[[str], int]

CONSUMERS: tuple[Consumer, ...] = get_args(Consumer)
CEILINGS: dict[Consumer, int | None] = {"reviewer": 8000, "author": 32000, "brief": 2000, "full": None}  # tokens

# The least important first: in this order roles are trimmed when the whole is over the ceiling.
TRIM_ORDER = ("scratch", "external-reference", "conversation", "related-work", "prior-decision", "spec")

ALL = "all"
_OUTLINE = "first section and headings"
_PARAGRAPH = "title and first paragraph"
_TITLE = "title"
_RULES: dict[str, tuple[str, str, str]] = {  # role -> what reviewer, author and brief get
    "spec": (ALL, ALL, _OUTLINE),
    "prior-decision": (ALL, ALL, _OUTLINE),
    "related-work": (_PARAGRAPH, "first 1000 tokens", _TITLE),
    "conversation": ("title and excerpt", "excerpt of 2000 tokens", _TITLE),
    "scratch": (_TITLE, "title and beginning", _TITLE),
    "external-reference": (_PARAGRAPH, _PARAGRAPH, _TITLE),
}
_PIECE = 500  # tokens of a paragraph, an excerpt or a beginning where the specification gives no number

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*$\n?", re.DOTALL | re.MULTILINE)
_TITLE_KEY = re.compile(r"""^title:[ \t]*["']?(.+?)["']?[ \t]*$""", re.MULTILINE)
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_CUT = "[…]"


def rule(consumer: Consumer, role: str) -> str:
    """What the consumer gets of a text in this role (empty: no role), in words."""
    if consumer == "full":
        return ALL
    return _RULES[role or "related-work"][CONSUMERS.index(consumer)]


def shorten(text: str, by: str, name: str, count: Count) -> str:
    """The part of a linked text that the rule `by` leaves. name: stands in for a title that the text lacks."""
    return text if by == ALL else _SHORTEN[by](text, name, count)


def cut(text: str, tokens: int, count: Count) -> str:
    """The longest beginning of `text` within `tokens`, ended after a line, else at a blank, where one is near."""
    reach = _reach(lambda n: text[:n], len(text), tokens, count)
    return text if reach == len(text) else _tidy(text[:reach])


def level(sizes: Sequence[int], room: int) -> int:
    """The longest first: the most that each may keep so that all together fit into `room`."""
    low, high = 0, max(sizes, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(size, middle) for size in sizes) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _reach(part: Callable[[int], str], length: int, tokens: int, count: Count) -> int:
    """How many characters fit: found by doubling, then halving, so that a long text is never counted whole."""
    if tokens <= 0:
        return 0
    low, high = 0, tokens * 4
    while high < length and count(part(high)) <= tokens:
        low, high = high, high * 2
    if high >= length and count(part(length)) <= tokens:
        return length
    high = min(high, length)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(part(middle)) <= tokens else (low, middle)
    return low


def _tidy(text: str) -> str:
    for end in ("\n", " "):
        at = text.rfind(end)
        if at > len(text) // 2:
            return text[:at].rstrip()
    return text.rstrip()


def _excerpt(text: str, tokens: int, count: Count) -> str:
    """The beginning and the end, where a conversation says what it is about and what came of it."""
    if _reach(lambda n: text[:n], len(text), tokens, count) == len(text):
        return text
    half = max(1, tokens // 2 - 2)
    end = _reach(lambda n: text[len(text) - n :], len(text), half, count)
    tail = text[len(text) - end :]
    return f"{cut(text, half, count)}\n\n{_CUT}\n\n{tail[tail.find(chr(10), 0, len(tail) // 2) + 1 :].lstrip()}"


# ---- markdown ------------------------------------------------------------------------------------------------------


def _body(text: str) -> str:
    return _FRONT_MATTER.sub("", text, count=1)


def _headings(lines: Sequence[str]) -> list[tuple[int, int]]:
    """(place, level) of every heading outside fenced code."""
    found, fence = [], ""
    for at, line in enumerate(lines):
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark.group(1).startswith(fence) and not line.strip().strip(fence[0]) else fence
        elif mark:
            fence = mark.group(1)
        elif heading := _HEADING.match(line):
            found.append((at, len(heading.group(1))))
    return found


def _title(text: str, name: str, count: Count) -> str:
    """The first H1, else the title of the front matter, else the file's name; as an H1."""
    lines = _body(text).split("\n")
    first = next((lines[at].strip() for at, depth in _headings(lines) if depth == 1), None)
    block = _FRONT_MATTER.match(text)
    declared = _TITLE_KEY.search(block.group(1)) if block else None
    return cut(first or f"# {declared.group(1) if declared else name}", _PIECE // 5, count)


def _paragraph(text: str, name: str, count: Count) -> str:
    title = _title(text, name, count)
    lines = _body(text).split("\n")
    skipped = {at for at, _ in _headings(lines)}
    taken: list[str] = []
    for at, line in enumerate(lines):
        ends = not line.strip() or at in skipped
        if taken and ends:
            break
        if not ends:
            taken.append(line)
    paragraph = cut("\n".join(taken), _PIECE, count)
    return f"{title}\n\n{paragraph}" if paragraph else title


def _outline(text: str, name: str, count: Count) -> str:
    """The text to the first heading that follows some, then the remaining headings."""
    lines = _body(text).strip("\n").split("\n")
    headings = _headings(lines)
    places = {at for at, _ in headings}
    prose = next((at for at, line in enumerate(lines) if line.strip() and at not in places), len(lines))
    end = next((at for at, _ in headings if at > prose), len(lines))
    rest = [lines[at].strip() for at, _ in headings if at >= end]
    first = "\n".join(lines[:end]).strip("\n")
    return "\n\n".join([first, "\n".join(rest)]) if rest else first


def _title_and(piece: Callable[[str, int, Count], str]) -> Callable[[str, str, Count], str]:
    def both(text: str, name: str, count: Count) -> str:
        title, body = _title(text, name, count), _body(text).strip("\n")
        body = body.removeprefix(title).lstrip("\n")
        return f"{title}\n\n{piece(body, _PIECE, count)}".rstrip()

    return both


_SHORTEN: dict[str, Callable[[str, str, Count], str]] = {
    _OUTLINE: _outline,
    _PARAGRAPH: _paragraph,
    _TITLE: _title,
    "first 1000 tokens": lambda text, _name, count: cut(text, 1000, count),
    "title and excerpt": _title_and(_excerpt),
    "excerpt of 2000 tokens": lambda text, _name, count: _excerpt(text, 2000, count),
    "title and beginning": _title_and(cut),
}
