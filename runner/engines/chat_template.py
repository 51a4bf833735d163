"""A model's chat template, rendered with a hole for each segment: no foreign text ever passes through Jinja."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runner.errors import UsageError
from runner.values import Message, Segment

_HOLE = re.compile("\ue000(\\d+)\ue001")
# For a model without a template: ChatML, the most common one.
CHATML = (
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{'<|im_start|>assistant\n'}}{% endif %}"
)


class ChatTemplate:
    """source: the model's own Jinja template; bos, eos: the texts of those tokens. UsageError: it is no template."""

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        self._values = {"add_generation_prompt": True, "enable_thinking": False, "bos_token": bos, "eos_token": eos}
        try:
            self._render = _environment().from_string(source).render
        except TemplateError as e:
            raise _unusable(e) from None

    def pieces(self, messages: Sequence[Message]) -> tuple[list[Segment], list[int]]:
        """The prompt as pieces, and for each count of segments n the number of pieces that hold the first n."""
        segments = [s for m in messages for s in m.segments]
        holes = iter(range(len(segments)))
        fake = [
            {"role": m.role, "content": "".join(f"\ue000{next(holes)}\ue001" for _ in m.segments)} for m in messages
        ]
        parts = _HOLE.split(self._text(fake))
        pieces: list[Segment] = []
        ends = [0] * (len(segments) + 1)
        for i, part in enumerate(parts):
            if i % 2:
                pieces.append(segments[int(part)])
                ends[int(part) + 1] = len(pieces)
            elif part:
                pieces.append(Segment(part, True))
        return pieces, ends

    def _text(self, messages: list[dict[str, str]]) -> str:
        try:
            return str(self._render(messages=messages, **self._values))
        except TemplateError as e:
            if messages[0]["role"] != "system" or len(messages) < 2:
                raise _unusable(e) from None
        # Some templates know no system role: its text then opens the first question.
        head = {"role": "user", "content": messages[0]["content"] + "\n\n" + messages[1]["content"]}
        return self._text([head, *messages[2:]])


def _unusable(e: TemplateError) -> UsageError:
    return UsageError(f"the model's chat template cannot be used: {e}", code="model", hint="use another model")


def _environment() -> ImmutableSandboxedEnvironment:
    def refuse(message: str) -> None:
        raise TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    env.globals["raise_exception"] = refuse
    return env
