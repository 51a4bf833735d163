"""Prompts for servers that take token ids, built piece by piece.

The server renders the chat template over holes, one for each segment; then each piece is tokenised alone. So no text
of a document meets the template, and a shared prefix is the same tokens in every request, which is what a prefix cache
compares.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from runner.engines.server_http import Failed
from runner.errors import UsageError
from runner.values import Message

# A call to the server: method, path, body -> JSON. Failed when there is none.
Call = Callable[[str, str, object], Any]

_HOLE = re.compile("\ue000(\\d+)\ue001")
CONTROL_LIKE = re.compile(r"[<\[｜]\S{1,60}[>\]｜]")
CONTROL = re.compile(
    r"<[|｜][^\s<>|｜]{1,40}[|｜]>|</?s>|<(?:bos|eos|pad|unk)>|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>"
    r"|</?think>|</?tool_call>|\[/?(?:SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CALLS|THINK)\]"
)
_MAX_PIECES = 4096  # token ids of this many pieces are remembered


@dataclass(frozen=True, slots=True)
class About:
    """What a server says of itself. context_tokens: of one request. slots: requests it works on at the same time.
    saves: can it write a slot's state to a file and read it back? None: it does not say."""

    server: str
    build: str
    model: str
    context_tokens: int | None = None
    slots: int | None = None
    saves: bool = False

    def __str__(self) -> str:
        context = "context unknown" if self.context_tokens is None else f"context {self.context_tokens}"
        return f"{self.server} {self.build}".strip() + f", model {self.model}, {context}"


@dataclass(frozen=True, slots=True)
class Prompt:
    """ids: its tokens, None where the server takes strings. ends: for each of the request's `shared`, the tokens its
    prefix has. tokens: how many in all, an estimate where the server does not count."""

    tokens: int
    ids: tuple[int, ...] | None = None
    ends: tuple[int, ...] = ()


# ---- prompts as token ids ------------------------------------------------------------------------------------------


class TokenPrompts:
    """A prompt in token ids. Both servers differ in `_render` and `_tokenise` only."""

    protects = True

    def __init__(self, about: About) -> None:
        self.about = about
        self._shapes: dict[tuple[tuple[str, int], ...], list[str]] = {}
        self._pieces: dict[tuple[str, bool, bool], tuple[int, ...]] = {}

    def prompt(self, call: Call, messages: Sequence[Message], shared: Sequence[int] = ()) -> Prompt:
        segments = [s for m in messages for s in m.segments]
        parts = self._template(call, [(m.role, len(m.segments)) for m in messages])
        ids: list[int] = []
        ends = [0] * (len(segments) + 1)
        for i, part in enumerate(parts):
            if i % 2:
                at = int(part)
                ids += self._ids(call, segments[at].text, segments[at].trusted, not ids)
                ends[at + 1] = len(ids)
            elif part:
                ids += self._ids(call, part, True, not ids)
        return Prompt(len(ids), tuple(ids), tuple(ends[n] for n in shared))

    def count_text(self, call: Call, text: str) -> int:
        return len(self._ids(call, text, False, False))

    def _template(self, call: Call, shape: list[tuple[str, int]]) -> list[str]:
        """The rendered template, split at the holes: text, number of a segment, text, …"""
        key = tuple(shape)
        if key not in self._shapes:
            try:
                parts = self._rendered(call, _holes(shape))
            except Failed as e:
                if e.status is None or shape[0][0] != "system" or len(shape) < 2:
                    raise
                parts = self._rendered(call, _folded(_holes(shape)))
            self._shapes[key] = parts
        return self._shapes[key]

    def _rendered(self, call: Call, messages: list[dict[str, str]]) -> list[str]:
        text = self._render(call, messages)
        parts = _HOLE.split(text)
        wanted = _HOLE.findall("".join(m["content"] for m in messages))
        if parts[1::2] != wanted:
            raise UsageError(f"the chat template of {self.about.model} does not keep the text it is given")
        return parts

    def _ids(self, call: Call, text: str, trusted: bool, first: bool) -> tuple[int, ...]:
        key = (text, trusted, first)
        found = self._pieces.get(key)
        if found is None:
            if len(self._pieces) >= _MAX_PIECES:
                self._pieces.clear()
            found = self._pieces[key] = self._tokenise(call, text, trusted, first)
        return found

    def _render(self, call: Call, messages: list[dict[str, str]]) -> str:
        raise NotImplementedError

    def _tokenise(self, call: Call, text: str, trusted: bool, first: bool) -> tuple[int, ...]:
        """first: of the prompt, where llama-server adds the token that begins a text, if the model has one."""
        raise NotImplementedError


def _holes(shape: Sequence[tuple[str, int]]) -> list[dict[str, str]]:
    numbers = iter(range(sum(n for _, n in shape)))
    return [{"role": role, "content": "".join(f"\ue000{next(numbers)}\ue001" for _ in range(n))} for role, n in shape]


def _folded(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """For templates that know no system role: its text opens the first question."""
    head = {"role": "user", "content": messages[0]["content"] + "\n\n" + messages[1]["content"]}
    return [head, *messages[2:]]


# ---- control tokens --------------------------------------------------------------------------------------------------


def control_token(messages: Sequence[Message]) -> tuple[int, str] | None:
    """(line of its segment, 1-based; token): the first thing of a control token's shape in foreign text."""
    for segment in (s for m in messages for s in m.segments if not s.trusted):
        if found := CONTROL.search(segment.text):
            return segment.text.count("\n", 0, found.start()) + 1, found.group()
    return None


def cut(text: str, words: set[str]) -> list[str]:
    """The text, cut after the first character of each of these words."""
    found = re.finditer("|".join(re.escape(w) for w in sorted(words, key=len, reverse=True)), text)
    at = [0, *(m.start() + 1 for m in found), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(at)]


# ---- what comes back -------------------------------------------------------------------------------------------------


def numbers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(isinstance(t, int) for t in value):
        raise _odd()
    return tuple(value)


def get(answer: Any, *path: str | int) -> Any:
    """What lies there. Failed when nothing does."""
    try:
        for step in path:
            answer = answer[step]
    except (LookupError, TypeError):
        raise _odd() from None
    return answer


def find(answer: Any, *path: str | int) -> Any:
    """What lies there, or None."""
    try:
        return get(answer, *path)
    except Failed:
        return None


def whole(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise _odd()
    return value


def text_of(value: Any) -> str:
    """Text that can be written to a file: half of a surrogate pair, which JSON can hold, becomes a question mark."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _odd()
    return value.encode("utf-8", "replace").decode()


def _odd() -> Failed:
    return Failed("the answer is not what this call should bring", again=True)
