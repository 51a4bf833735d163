"""A document that does not fit the context, cut at headings into windows that overlap by a passage. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

Window = tuple[int, int]  # characters of the body

_HEADING = re.compile(r"(?m)^[ ]{0,3}#{1,6}[ \t]")
_PARAGRAPH = re.compile(r"\n[ \t]*\n+")
_LINE = re.compile(r"\n")
_WORD = re.compile(r"\s+")


def windows(body: str, fits: Callable[[str], bool], overlap: int = 400) -> tuple[Window, ...]:
    """As few windows as it takes so that each fits, in order, covering every character.

    A window begins at a heading where it can, else at a paragraph, a line, a word, a character; then it begins up to
    `overlap` characters earlier, at a paragraph's or line's beginning, so that nothing is read without what led to it.
    fits: does this text fit? It must hold for every text that is shorter than one that fits.
    """
    if fits(body):
        return ((0, len(body)),)
    out: list[Window] = []
    at = 0
    while at < len(body):
        start = _earlier(body, at, overlap) if out else 0
        end = _end(body, start, at, fits)
        if end <= at:  # the overlap leaves no room
            start, end = at, _end(body, at, at, fits)
        if end <= at:
            raise ValueError("not a single character fits")
        out.append((start, end))
        at = end
    return tuple(out)


def _earlier(body: str, at: int, overlap: int) -> int:
    """A paragraph's, else a line's beginning at most `overlap` characters before `at`."""
    low = max(0, at - overlap)
    for cut in (_PARAGRAPH, _LINE):
        places = [m.end() for m in cut.finditer(body, low, at) if m.end() < at]
        if places:
            return places[0]
    return at


def _end(body: str, start: int, at: int, fits: Callable[[str], bool]) -> int:
    """The furthest good place after `at` up to which the text from `start` fits; `at` when there is none."""
    if fits(body[start:]):
        return len(body)
    low, high = at, len(body)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(body[start:middle]):
            low = middle
        else:
            high = middle - 1
    half = at + (low - at) // 2  # a cut in the first half would make many small windows
    for cut, by in ((_HEADING, "start"), (_PARAGRAPH, "end"), (_LINE, "end"), (_WORD, "end")):
        places = [getattr(m, by)() for m in cut.finditer(body, at + 1, low)]
        good = [p for p in places if half < p <= low] or (places if cut is _WORD else [])
        if good:
            return int(good[-1])
    return low
