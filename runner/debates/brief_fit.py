"""Making a brief fit the model's context: files share what is left, each shown from its beginning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.errors import Refused
from runner.protocols.brief import Brief, Source, worst_tokens
from runner.values import Message

if TYPE_CHECKING:
    from runner.engines.base import Tokenizer

BYTES_PER_TOKEN = 16  # more than any text has: what is longer than this need not be read
_PER_FILE = 48  # tokens of the lines around a file
_LEAST = 160  # tokens of files below which a debate about them makes no sense
_SLACK = 48


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """Room for each of several things: the small ones whole, the others alike."""
    out = [0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    for done, i in enumerate(order):
        out[i] = min(sizes[i], room // (len(sizes) - done))
        room -= out[i]
    return out


def beginning(text: str, fits: Callable[[str], bool]) -> str:
    """As many whole lines from the beginning as fit; of an endless first line, as many characters."""
    if fits(text):
        return text
    ends = [i + 1 for i, c in enumerate(text) if c == "\n"]
    return _longest(text, ends, fits) or _longest(text, range(1, len(text)), fits)


def _longest(text: str, ends: Sequence[int], fits: Callable[[str], bool]) -> str:
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(text[: ends[middle - 1]]):
            low = middle
        else:
            high = middle - 1
    return text[: ends[low - 1]] if low else ""


class Counter:
    """Tokens of texts and prompts; a third of the bytes where they cannot be counted."""

    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self._tokenizer = tokenizer

    def text(self, text: str) -> int:
        return -(-len(text.encode()) // 3) if self._tokenizer is None else self._tokenizer.count_text(text)

    def messages(self, messages: Sequence[Message]) -> int:
        if self._tokenizer is None:
            return sum(self.text(m.text) + 8 for m in messages)
        return self._tokenizer.count(messages)


def fit(b: Brief, tokenizer: Tokenizer | None, limit: int) -> Brief:
    """The brief with as much of its files and of the earlier brief as fits; a file without a line is left out.

    limit: tokens of prompt and reply together. Raises Refused, with the numbers, when there is no room for the files.
    """
    count = Counter(tokenizer)
    for most in range(b.max_concerns, 0, -1):
        room = limit - _overhead(replace(b, max_concerns=most), count)
        while room >= _LEAST:
            found = _within(replace(b, max_concerns=most), count, room)
            need = max(worst_tokens(found, count.messages).values())
            if need <= limit and found.files:
                return found
            room -= max(need - limit, 0) + _SLACK
    need = _overhead(replace(b, max_concerns=1), count) + _LEAST
    raise Refused(
        f"the files do not fit: with prompts, findings and replies a brief needs {need} tokens before the first line "
        f"of a file, and the context holds {limit}",
        code="context", hint="shorter findings or charters, or a model or profile with a longer context",
    )  # fmt: skip


def _overhead(b: Brief, count: Counter) -> int:
    """What a brief takes beside its files and the earlier brief. Lines that can be quoted stand in for the files."""
    lines = "".join(f"{n} {'word ' * 39}.\n" for n in range(b.max_concerns))
    bare = replace(b, files=(Source("file", lines),), earlier="")
    need = max(worst_tokens(bare, count.messages).values()) - count.text(lines)
    return need + _SLACK + sum(_PER_FILE + 2 * count.text(f.name) for f in b.files)


def _within(b: Brief, count: Counter, room: int) -> Brief:
    earlier = beginning(b.earlier, lambda t: count.text(t) <= room // 6)
    room -= count.text(earlier)
    given = shares([count.text(f.text) for f in b.files], room)
    files = tuple(_cut(f, count, most) for f, most in zip(b.files, given, strict=True))
    return replace(b, earlier=earlier, files=tuple(f for f in files if f.text.strip()))


def _cut(f: Source, count: Counter, most: int) -> Source:
    text = beginning(f.text, lambda t: count.text(t) <= most)
    return replace(f, text=text, cut=f.cut or text != f.text)
