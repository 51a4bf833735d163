"""Prompts: Jinja2 templates of ours with holes for text, cut into segments at the holes.

A template is rendered with placeholders, never with text, and then split there: foreign text is put in once, as it is,
and is never read as a template; the border between our words and foreign ones survives to the tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runner.errors import UsageError
from runner.values import Segment

_HOLE = re.compile("\ue000(\\d+)\ue001")
# What a template can raise: Jinja's own errors, and Python's from the expressions in it.
_FAULTS = (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError)


@dataclass(frozen=True, slots=True)
class Foreign:
    """Text that is not ours: of a document, a charter, a user, a model."""

    text: str


Value = str | int | Foreign | list["Value"] | dict[str, "Value"]


# Templates of a project win over ours, and a project may be anyone's.
_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    autoescape=False,
)  # fmt: skip


@lru_cache(maxsize=64)
def _compiled(template: str) -> jinja2.Template:
    """Once per template: all prompts of a round use the same few, and compiling is most of the work."""
    return _ENVIRONMENT.from_string(template)


def render(templates: Mapping[str, str], name: str, values: Mapping[str, Value]) -> tuple[Segment, ...]:
    """Render the template `name`; values may hold Foreign at any depth. UsageError names a faulty template."""
    holes: list[str] = []
    if name not in templates:
        raise UsageError(f"the prompt template {name} is missing", hint="look in prompts/")
    try:
        text = _compiled(templates[name]).render({k: _hole(v, holes) for k, v in values.items()})
    except _FAULTS as e:
        line = getattr(e, "lineno", None)
        raise UsageError(f"the prompt template does not render: {e}", path=name, line=line) from None
    segments = []
    for i, part in enumerate(_HOLE.split(text)):
        if i % 2 and int(part) < len(holes):
            segments.append(Segment(holes[int(part)], False))
        elif i % 2 or re.search("[\ue000\ue001]", part):
            raise UsageError("the prompt template changes a text that is only to be put in", path=name)
        elif part:
            segments.append(Segment(part, True))
    return tuple(segments)


def _hole(value: Value, holes: list[str]) -> object:
    if isinstance(value, Foreign):
        holes.append(value.text)
        return f"\ue000{len(holes) - 1}\ue001"
    if isinstance(value, list):
        return [_hole(v, holes) for v in value]
    if isinstance(value, dict):
        return {k: _hole(v, holes) for k, v in value.items()}
    return value


_NAME = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def fill(template: str, values: Mapping[str, str], holes: Mapping[str, tuple[Segment, ...]]) -> tuple[Segment, ...]:
    """A brain's own prompt text, in one pass: names become values, holes become segments, unknown names nothing.

    All of it is foreign: a brain's template has no control tokens either.
    """
    out: list[Segment] = []
    at = 0
    for match in _NAME.finditer(template):
        out.append(Segment(template[at : match.start()], False))
        if match[1] in holes:
            out += holes[match[1]]
        else:
            out.append(Segment(values.get(match[1], ""), False))
        at = match.end()
    out.append(Segment(template[at:], False))
    return tuple(s for s in out if s.text)
