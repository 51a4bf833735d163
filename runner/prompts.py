"""Prompts: Jinja2 templates of ours with holes for text, cut into segments at the holes.

A template is rendered with placeholders, never with text, and then split there: foreign text is put in once, as it is,
and is never read as a template; the border between our words and foreign ones survives to the tokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import jinja2

from runner.errors import UsageError
from runner.values import Segment

_HOLE = re.compile("\ue000(\\d+)\ue001")


@dataclass(frozen=True, slots=True)
class Foreign:
    """Text that is not ours: of a document, a charter, a user, a model."""

    text: str


Value = str | int | Foreign | list["Value"] | dict[str, "Value"]


def render(templates: Mapping[str, str], name: str, values: Mapping[str, Value]) -> tuple[Segment, ...]:
    """Render the template `name`; values may hold Foreign at any depth. UsageError names a faulty template."""
    holes: list[str] = []
    env = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        autoescape=False,
    )  # fmt: skip
    try:
        text = env.from_string(templates[name]).render({k: _hole(v, holes) for k, v in values.items()})
    except KeyError:
        raise UsageError(f"the prompt template {name} is missing", hint="look in prompts/") from None
    except jinja2.TemplateError as e:
        raise UsageError(f"the prompt template does not render: {e}", path=name) from None
    parts = _HOLE.split(text)
    segments = []
    for i, part in enumerate(parts):
        if i % 2:
            segments.append(Segment(holes[int(part)], False))
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
