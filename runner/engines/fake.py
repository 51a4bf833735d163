"""A real engine without a model: what it replies is a pure function of the request's digest and its quotes.

For tests and for trying a configuration out. A token is a word. Replies come back in an order of their own (`seed`,
`per_step`), so nobody comes to rely on one; faults can be ordered by key or by count.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any

from runner.engines.base import Progress
from runner.errors import RunnerError, UsageError
from runner.values import Finish, Message, Reply, Request

FAULTS = ("timeout", "length", "degenerate", "error", "crash", "sigkill")
QUOTE_MIN, QUOTE_MAX = 12, 200  # characters

_SUBJECTS = (
    "the plan", "this section", "the rollback", "the second step", "the owner", "the migration", "the budget",
    "the cache", "this sentence", "the deadline", "the interface", "the retry rule",
)  # fmt: skip
_VERBS = (
    "leaves open", "does not name", "contradicts", "repeats", "assumes", "depends on", "should state", "hides",
    "settles", "weakens", "explains", "needs",
)  # fmt: skip
_OBJECTS = (
    "who decides", "the failure case", "an upper bound", "what was measured", "the order of steps", "its own premise",
    "a source", "the cost of delay", "the earlier decision", "how to undo it", "a test", "the reader's question",
)  # fmt: skip
_SENTENCE = re.compile(r"\w(?:[^.!?。！？\n]|[.!?](?=\S))*[.!?。！？]?")


@dataclass(frozen=True, slots=True)
class Options:
    """What a profile may set.

    seed: of the order in which replies come back. per_step: most replies a step gives. scores: can it measure
    choices? context_tokens: words. faults: a pattern of keys, or n for the nth request answered (from 1), to a word of
    FAULTS; `crash` raises from step, `sigkill` kills this very process.
    """

    seed: int = 0
    per_step: int = 4
    scores: bool = True
    context_tokens: int = 8192
    faults: Mapping[str | int, str] = field(default_factory=dict)


def options_of(values: Mapping[str, Any]) -> Options:
    """Check what a profile says. Raises UsageError that names the option."""
    names = [f.name for f in fields(Options)]
    for name in values:
        if name not in names:
            raise UsageError(f"the fake engine has no option {name}", hint=f"it knows {', '.join(names)}")
    options = Options(**values)
    for name in ("per_step", "context_tokens"):
        if not isinstance(getattr(options, name), int) or getattr(options, name) < 1:
            raise UsageError(f"{name} must be a whole number from 1, not {getattr(options, name)!r}")
    for where, word in options.faults.items():
        if word not in FAULTS:
            raise UsageError(
                f"the fake engine knows no fault {word!r} (for {where})", hint=f"one of {', '.join(FAULTS)}"
            )
    return options


@dataclass(frozen=True, slots=True)
class FakeTokenizer:
    """Counts words."""

    context_tokens: int = 8192

    def count(self, messages: Sequence[Message]) -> int:
        return sum(self.count_text(message.text) for message in messages)

    def count_text(self, text: str) -> int:
        return len(text.split())


class FakeEngine:
    """See runner.engines.base. submitted: (flow, key) of every submission so far, for tests."""

    identity = "fake 1"

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.scores = self.options.scores
        self.tokenizer = FakeTokenizer(self.options.context_tokens)
        self.submitted: list[tuple[str, str]] = []
        self._waiting: dict[tuple[str, str], Request] = {}
        self._dice = random.Random(self.options.seed)
        self._answered = 0

    def check(self, request: Request) -> None:
        words, room = self.tokenizer.count(request.messages), self.options.context_tokens
        if words + request.max_tokens > room:
            raise UsageError(
                f"the request {request.key} does not fit: {words} tokens of prompt and {request.max_tokens} of reply, "
                f"{room} of context"
            )
        if request.choices and not self.scores:
            raise UsageError(f"the request {request.key} asks for scores, which this engine does not give")
        if request.format is not None:
            write_json(request.format.json_schema, (), "")

    def submit(self, flow: str, request: Request) -> None:
        if (flow, request.key) in self._waiting:
            raise RunnerError(f"the request {request.key} of {flow} was submitted twice")
        self.submitted.append((flow, request.key))
        self._waiting[flow, request.key] = request

    def step(self) -> list[tuple[str, Reply]]:
        names = list(self._waiting)
        self._dice.shuffle(names)
        chosen = names[: self._dice.randint(1, self.options.per_step)]
        return [(flow, self._answer(self._waiting.pop((flow, key)))) for flow, key in chosen]

    def busy(self) -> bool:
        return bool(self._waiting)

    def progress(self) -> list[Progress]:
        return [Progress(flow, key, 0, request.max_tokens) for (flow, key), request in self._waiting.items()]

    def forget(self, flow: str, keys: Sequence[str]) -> None:
        """Nothing is kept here."""

    def release(self, flow: str) -> None:
        """Nothing is kept here."""

    def close(self) -> None:
        self._waiting.clear()

    def _answer(self, request: Request) -> Reply:
        self._answered += 1
        reply = answer(request)
        fault = self._fault(request.key)
        if fault is None:
            return reply
        if fault == "sigkill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "crash":
            raise RunnerError(f"the fake engine crashed at {request.key}, as its profile says")
        return _spoilt(reply, fault)

    def _fault(self, key: str) -> str | None:
        for where, word in self.options.faults.items():
            nth = isinstance(where, int) or where.isdigit()
            if int(where) == self._answered if nth else fnmatchcase(key, str(where)):
                return word
        return None


# ---- the reply -----------------------------------------------------------------------------------------------------


def answer(request: Request) -> Reply:
    """The reply to a request, without faults: the same for the same digest and quotes."""
    digest = request.digest("")
    tokens_in = FakeTokenizer().count(request.messages)
    if request.choices:
        scores = _scores(digest, len(request.choices))
        best = request.choices[scores.index(max(scores))]
        return Reply(request.key, best, "stop", tokens_in=tokens_in, scores=scores)
    if request.format is not None:
        text = write_json(request.format.json_schema, request.format.quotes, digest)
    else:
        text = _prose(random.Random(digest), 240)
    words = text.split(" ")
    if len(words) > request.max_tokens:
        cut = " ".join(words[: request.max_tokens])
        return Reply(request.key, cut, "length", tokens_in=tokens_in, tokens_out=request.max_tokens)
    return Reply(request.key, text, "stop", tokens_in=tokens_in, tokens_out=len(words))


def _spoilt(reply: Reply, fault: str) -> Reply:
    """The reply as a fault leaves it: its first half, or the same words over and over, or nothing."""
    finish: Finish = "error"
    half = reply.text[: len(reply.text) // 2]
    match fault:
        case "timeout":
            finish = "timeout"
        case "length":
            finish = "length"
        case "degenerate":
            finish, half = "degenerate", "and so on " * 8
        case _:
            half = ""
    return replace(reply, text=half, finish=finish, tokens_out=len(half.split()), scores=())


def _scores(digest: str, count: int) -> tuple[float, ...]:
    """Log-probabilities, normalised."""
    dice = random.Random(digest)
    weights = [dice.uniform(0.05, 1.0) ** 2 for _ in range(count)]
    return tuple(math.log(weight / sum(weights)) for weight in weights)


def _prose(dice: random.Random, max_chars: int) -> str:
    """One or two sentences of at most max_chars characters; when not one fits, a piece of one."""
    text = ""
    for _ in range(dice.randint(1, 2)):
        words = f"{dice.choice(_SUBJECTS)} {dice.choice(_VERBS)} {dice.choice(_OBJECTS)}."
        longer = f"{text} {words[0].upper()}{words[1:]}".strip()
        text = longer if len(longer) <= max_chars or not text else text
    return text if len(text) <= max_chars else text[: max(0, max_chars - 1)].rstrip() + "."[:max_chars]


# ---- JSON by a schema ----------------------------------------------------------------------------------------------


def write_json(schema: str, quotes: Sequence[str], digest: str) -> str:
    """Compact JSON that the schema (portable subset) admits, keys in its order. UsageError for any other schema."""
    writer = _Writer(random.Random(digest), _sentences(quotes))
    value = writer.value(json.loads(schema), "")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _sentences(passages: Sequence[str]) -> list[str]:
    """Pieces to quote, one passage after the other, each from the start of a word; whole passages when none fits."""
    found = [_shortened(match.group(), QUOTE_MAX) for p in passages for match in _SENTENCE.finditer(p)]
    return [piece for piece in found if len(piece) >= QUOTE_MIN] or [p[:QUOTE_MAX] for p in passages if p]


def _shortened(text: str, max_chars: int) -> str:
    """At most max_chars characters, ended at a blank where that leaves enough."""
    if len(text) <= max_chars:
        return text.rstrip()
    at = text.rfind(" ", QUOTE_MIN, max_chars + 1)
    return text[: at if at > 0 else max_chars].rstrip()


class _Writer:
    """Walks a schema. sentences: what is left to quote; when they run out, they come round again."""

    def __init__(self, dice: random.Random, sentences: list[str]) -> None:
        self.dice = dice
        self.all = sentences
        self.left: list[str] = []

    def value(self, schema: Mapping[str, Any], name: str) -> Any:
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.dice.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                return self._object(schema)
            case "array":
                return self._array(schema, name)
            case "string":
                return self._string(schema, name)
            case "integer":
                low = schema.get("minimum", 0)
                return self.dice.randint(low, schema.get("maximum", low + 9))
            case "boolean":
                return self.dice.random() < 0.5
        raise UsageError(f"the fake engine cannot write what this schema describes: {json.dumps(schema)[:80]}")

    def _array(self, schema: Mapping[str, Any], name: str) -> list[Any]:
        least, most, items = schema.get("minItems", 0), schema.get("maxItems", 3), schema["items"]
        count = self.dice.randint(min(max(least, 1), most), most)
        words = items.get("enum", ())
        if count <= len(words):  # a list of ids names each once
            return self.dice.sample(words, count)
        return [self.value(items, name) for _ in range(count)]

    def _object(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, part in schema["properties"].items():
            # Only a replacement has a text to put in the place of the quote.
            idle = name == "replacement" and made.get("action", "replace") != "replace"
            made[name] = "" if idle else self.value(part, name)
        return made

    def _string(self, schema: Mapping[str, Any], name: str) -> str:
        most, least = schema.get("maxLength", 240), schema.get("minLength", 0)
        text = self._quote(most) if name == "quote" and self.all else _prose(self.dice, min(most, 240))
        return text if len(text) >= least else (text + " " + "and so on " * least)[:least]

    def _quote(self, most: int) -> str:
        if not self.left:
            self.left = self.dice.sample(self.all, len(self.all))
        return _shortened(self.left.pop(), most)
