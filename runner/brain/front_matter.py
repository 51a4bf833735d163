"""Front matter of a brain's markdown file: bytes in, bytes out.

1. An edit changes the lines of the changed keys and not one byte more, and is read again to prove it.
2. The opener may follow blank lines and HTML comments; the closer is the first line that is `---` at column 0. The
   pack's validator takes any line whose stripped text is `---`; where the two differ, the file is refused.
3. Whatever a person can write, the answer is a value or a Refused with file and line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from runner.brain.root import decode
from runner.brain.yaml_keys import Keys, Pair, Value, parse
from runner.errors import Refused

MAX_BYTES = 64 * 1024
BOM = b"\xef\xbb\xbf"

_BEFORE_OPENER = re.compile(r"(?:\s*<!--.*?-->)*\s*", re.DOTALL)
_DELIMITER = re.compile(r"---[ \t]*")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_/-]*")
_NOT_PLAIN = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}  # a bool or null to some reader
_RAW_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")  # legal in JSON, not in one line of YAML

# A new key is written after the first of these that stands on a line of its own, else before the closer.
_NEIGHBOURS = {
    "source_debate": ("source_thread", "status"),
    "last_debate_round": ("maturity", "status"),
}


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """fields: in the file's order; scalars are strings as written, a plain null is None. lines: 1-based, per key.

    body_start: the byte after the closer's line end. bom: the file begins with a byte-order mark. newline: the more
    frequent line end of the whole file.
    """

    fields: Mapping[str, Value]
    lines: Mapping[str, int]
    body_start: int
    bom: bool
    newline: str

    def text(self, key: str) -> str | None:
        """The value of a scalar key; None when it is absent, null, a list or a mapping."""
        value = self.fields.get(key)
        return value if isinstance(value, str) else None


class _Parts(NamedTuple):
    """The file as text (no BOM), and where its parts begin, in characters: YAML, closer, body."""

    text: str
    yaml: int
    closer: int
    body: int
    first_line: int


class _Change(NamedTuple):
    start: int
    end: int
    text: str


def read(raw: bytes, path: str) -> FrontMatter:
    """The front matter of a file. Raises Refused with file and line for every front matter we will not trust."""
    return _read(raw, path)[0]


def edit(raw: bytes, changes: Sequence[tuple[str, str | None]], path: str) -> bytes:
    """The file with these top-level keys set, or removed where the value is None; all other lines byte-equal.

    A key that already has the value, or is already absent, keeps its bytes. Raises Refused with file and line where
    that cannot be done on the lines of the changed keys alone.
    """
    front, parts, keys = _read(raw, path)
    todo = [(key, value) for key, value in changes if not _holds(front, key, value)]
    if todo and keys.flow:
        raise Refused("front matter is one `{…}` mapping", path=path, line=parts.first_line, hint="one key per line")
    pairs = {pair.key: pair for pair in keys.pairs}
    planned = [_change(key, value, parts, keys, pairs, front.newline, path) for key, value in todo]
    offset = len(BOM) if front.bom else 0
    after = raw[:offset] + _apply(parts.text, planned).encode()
    _prove(raw, after, front, todo, path)
    return after


def scalar(value: str) -> str:
    """A string as YAML that every reader takes for that string: plain when that is safe, else double-quoted."""
    if _PLAIN.fullmatch(value) and value.lower() not in _NOT_PLAIN:
        return value
    return quoted(value)


def quoted(value: str) -> str:
    """A string double-quoted on one line, as JSON and YAML both read it."""
    return _RAW_IN_JSON.sub(lambda c: f"\\u{ord(c.group()):04x}", json.dumps(value, ensure_ascii=False))


def _read(raw: bytes, path: str) -> tuple[FrontMatter, _Parts, Keys]:
    bom = raw.startswith(BOM)
    parts = _parts(decode(raw, path), path)
    keys = parse(parts.text[parts.yaml : parts.closer], path, parts.first_line)
    crlf = raw.count(b"\r\n")
    front = FrontMatter(
        fields={pair.key: pair.value for pair in keys.pairs},
        lines={pair.key: pair.line for pair in keys.pairs},
        body_start=len(parts.text[: parts.body].encode()) + (len(BOM) if bom else 0),
        bom=bom,
        newline="\r\n" if crlf > raw.count(b"\n") - crlf else "\n",
    )
    return front, parts, keys


def _parts(text: str, path: str) -> _Parts:
    opener = _opener(text, path)
    opener_line = text.count("\n", 0, opener) + 1
    start = _line_end(text, opener)
    at, line = start, opener_line + 1
    while at < len(text):
        end = _line_end(text, at)
        content = text[at:end].rstrip("\n").removesuffix("\r")
        if content.strip() == "---":
            _check_closer(content, path, line)
            _check_size(text[opener:end], path, line)
            return _Parts(text, start, at, end, opener_line + 1)
        at, line = end, line + 1
    raise Refused("the front matter has no closing `---` line", path=path, line=opener_line)


def _opener(text: str, path: str) -> int:
    found = _BEFORE_OPENER.match(text)
    at = found.end() if found else 0
    line = text[at : _line_end(text, at)].rstrip("\r\n")
    if not _DELIMITER.fullmatch(line) or (at > 0 and text[at - 1] != "\n"):
        line_number = text.count("\n", 0, at) + 1
        hint = "begin the file with a line `---`, then one `key: value` per line, then `---`"
        raise Refused("no front matter", path=path, line=line_number, hint=hint)
    return at


def _check_closer(content: str, path: str, line: int) -> None:
    if not _DELIMITER.fullmatch(content):
        hint = "some readers end the front matter here; write this line differently"
        raise Refused("a `---` that is not at column 0 stands in the front matter", path=path, line=line, hint=hint)


def _check_size(block: str, path: str, line: int) -> None:
    size = len(block.encode())
    if size > MAX_BYTES:
        raise Refused(f"front matter has {size} bytes, more than {MAX_BYTES}", path=path, line=line)


def _line_end(text: str, at: int) -> int:
    """Where the next line begins."""
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _holds(front: FrontMatter, key: str, value: str | None) -> bool:
    return key not in front.fields if value is None else front.text(key) == value


def _change(
    key: str,
    value: str | None,
    parts: _Parts,
    keys: Keys,
    pairs: Mapping[str, Pair],
    newline: str,
    path: str,
) -> _Change:
    pair = pairs.get(key)
    if pair is None:
        line = " " * keys.indent + f"{scalar(key)}: {scalar(value or '')}{newline}"
        at = _insertion(key, parts, pairs)
        return _Change(at, at, line)
    if not pair.one_line:
        hint = f"write `{key}: <value>` on one line"
        raise Refused(f"the value of `{key}` spans several lines", path=path, line=pair.line, hint=hint)
    if value is None:
        line_start = parts.text.rfind("\n", 0, parts.yaml + pair.key_start) + 1
        return _Change(line_start, _line_end(parts.text, line_start), "")
    blank = " " if pair.start == pair.end else ""  # `key:` alone: the value's place is right after the colon
    return _Change(parts.yaml + pair.start, parts.yaml + pair.end, blank + scalar(value))


def _insertion(key: str, parts: _Parts, pairs: Mapping[str, Pair]) -> int:
    for name in _NEIGHBOURS.get(key, ("status",)):
        if name in pairs and pairs[name].one_line:
            return _line_end(parts.text, parts.yaml + pairs[name].end)
    return parts.closer


def _apply(text: str, planned: Sequence[_Change]) -> str:
    done, at = [], 0
    for change in sorted(planned, key=lambda c: (c.start, c.end)):
        done += [text[at : change.start], change.text]
        at = change.end
    return "".join([*done, text[at:]])


def _prove(before: bytes, after: bytes, front: FrontMatter, todo: Sequence[tuple[str, str | None]], path: str) -> None:
    wanted = dict(front.fields)
    for key, value in todo:
        wanted.pop(key, None)
        if value is not None:
            wanted[key] = value
    found = read(after, path)
    if found.fields != wanted or after[found.body_start :] != before[front.body_start :]:
        line = front.lines.get(todo[0][0], 1) if todo else 1
        raise Refused("the front matter cannot be edited line by line", path=path, line=line)
