"""The top-level keys of a front matter's YAML: values as written, and where each value stands.

Every scalar is read as the string that is written (`10:00`, `0010`, dates); only a plain null is None. What YAML
readers disagree about (aliases, tags, tabs, duplicate keys, odd line breaks) is refused with its line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn, TypeAlias

import yaml
from frontmatter.default_handlers import YAMLHandler

from runner.errors import Refused

Value: TypeAlias = "str | list[Value] | dict[str, Value] | None"

MAX_DEPTH = 20
_NULL = "tag:yaml.org,2002:null"
_MERGE = "tag:yaml.org,2002:merge"
# A date such as 2026-13-45 or an integer of 5,000 digits makes PyYAML raise something other than YAMLError.
_LOAD_ERRORS = (yaml.YAMLError, ValueError, OverflowError, TypeError, AttributeError, LookupError, RecursionError)
# PyYAML breaks lines at these, the other readers and editors do not.
_ODD_BREAK = re.compile("\r(?!\n)|[\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Pair:
    """line: 1-based, in the file. start, end: the value's place, in characters of the text. one_line: `key: value`
    stands alone on its line."""

    key: str
    value: Value
    line: int
    key_start: int
    start: int
    end: int
    one_line: bool


@dataclass(frozen=True, slots=True)
class Keys:
    """flow: the whole mapping is written as `{…}`. indent: blanks before each key."""

    pairs: tuple[Pair, ...]
    flow: bool
    indent: int


@dataclass(frozen=True, slots=True)
class _Place:
    path: str
    first_line: int

    def refuse(self, line: int, message: str, hint: str | None = None) -> NoReturn:
        raise Refused(message, path=self.path, line=self.first_line + line, hint=hint)


@lru_cache(maxsize=256)  # a round reads its artifact's front matter ten times, and it is the same almost every time
def parse(text: str, path: str, first_line: int) -> Keys:
    """The keys of `text`, which begins at line `first_line` of the file `path`. Raises Refused with file and line."""
    place = _Place(path, first_line)
    _check_characters(text, place)
    try:
        _check_events(text, place)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        place.refuse(_error_line(error, text), f"front matter cannot be read as YAML: {_problem(error)}")
    if node is None:
        return Keys((), flow=False, indent=0)
    if not isinstance(node, yaml.MappingNode):
        place.refuse(node.start_mark.line, "front matter is not a list of `key: value` lines")
    fields = _mapping(node, place)
    _check_loads(text, node, place)
    indent = node.start_mark.column
    pairs = tuple(_pair(key, value, fields, indent, place) for key, value in node.value)
    return Keys(pairs, flow=bool(node.flow_style), indent=indent)


def _check_characters(text: str, place: _Place) -> None:
    odd = _ODD_BREAK.search(text)
    if odd:
        line = text.count("\n", 0, odd.start())
        place.refuse(line, f"line break U+{ord(odd.group()):04X} in the front matter", "use LF or CRLF line ends")
    for number, line_text in enumerate(text.split("\n")):
        if "\t" in line_text and not line_text.lstrip(" ").startswith("#"):
            place.refuse(number, "tab in the front matter", "use blanks")


def _check_events(text: str, place: _Place) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent):
            place.refuse(line, f"alias `*{event.anchor}` in the front matter", "write the value out")
        if isinstance(event, yaml.NodeEvent) and event.anchor:
            place.refuse(line, f"anchor `&{event.anchor}` in the front matter", "write the value out")
        if tag := getattr(event, "tag", None):
            place.refuse(line, f"tag `{tag}` in the front matter", "remove the tag")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            place.refuse(line, f"front matter is nested more than {MAX_DEPTH} levels deep")


def _mapping(node: yaml.MappingNode, place: _Place) -> dict[str, Value]:
    seen: dict[str, int] = {}
    fields: dict[str, Value] = {}
    for key, value in node.value:
        line = key.start_mark.line
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            place.refuse(line, "a key of the front matter is not a plain word")
        if key.value in seen:
            both = f"lines {place.first_line + seen[key.value]} and {place.first_line + line}"
            place.refuse(line, f"duplicate key `{key.value}` ({both})", "keep one of them")
        seen[key.value] = line
        fields[key.value] = _value(value, place)
    return fields


def _value(node: yaml.Node, place: _Place) -> Value:
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, place)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, place) for item in node.value]
    return None if node.tag == _NULL else str(node.value)


def _check_loads(text: str, node: yaml.MappingNode, place: _Place) -> None:
    """Every common reader loads this front matter by its types, so it must load."""
    try:
        YAMLHandler().load(text)
    except _LOAD_ERRORS as error:
        key, reason = _culprit(node) or (node.value[0][0], error)
        place.refuse(key.start_mark.line, f"the value of `{key.value}` cannot be read: {_problem(reason)}")


def _culprit(node: yaml.MappingNode) -> tuple[yaml.ScalarNode, Exception] | None:
    for key, value in node.value:
        try:
            yaml.SafeLoader("").construct_object(value, deep=True)
        except _LOAD_ERRORS as error:
            return key, error
    return None


def _pair(key: yaml.ScalarNode, value: yaml.Node, fields: dict[str, Value], indent: int, place: _Place) -> Pair:
    lines = {key.start_mark.line, value.start_mark.line, value.end_mark.line}
    return Pair(
        key=key.value,
        value=fields[key.value],
        line=place.first_line + key.start_mark.line,
        key_start=key.start_mark.index,
        start=value.start_mark.index,
        end=value.end_mark.index,
        one_line=len(lines) == 1 and key.start_mark.column == indent,
    )


def _error_line(error: yaml.YAMLError, text: str) -> int:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        return int(mark.line)
    return text.count("\n", 0, getattr(error, "position", 0))


def _problem(error: Exception) -> str:
    return str(getattr(error, "problem", None) or getattr(error, "reason", None) or error).replace("\n", " ")
