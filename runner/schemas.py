"""What a reply looks like: one pydantic model each, from which come the grammar, the JSON schema and the check.

`format_of(Model, …)` builds the Lark grammar (llguidance, for llama.cpp and vLLM) and the JSON schema in the portable
subset (for a plain server); `Model.model_validate_json` is the host's own check, which always runs. Free strings are
rules between their quotes, `"\\"" text "\\""` with `text[max_tokens=N]`: at the limit the string is closed and the
reply goes on, so the worst case is known (`worst_tokens`) and a reply is never cut in the middle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

from runner.values import Action, Format, Kind, Label, Severity

QUOTE_MIN, QUOTE_MAX = 12, 200  # characters


@dataclass(frozen=True)
class Prose:
    """Marks a free string of at most `chars` characters that reads like one or two sentences."""

    chars: int


@dataclass(frozen=True)
class Rewrite:
    """Marks text that takes a quote's place: anything a line of markdown may hold."""

    chars: int


@dataclass(frozen=True)
class Verbatim:
    """Marks a piece of the document, word for word."""


@dataclass(frozen=True)
class Ids:
    """Marks a string that must be one of the ids that Bounds holds under this name."""

    of: str


class StrictReply(BaseModel):
    """What every reply's model is made from: no other keys, no changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ClaimReply(StrictReply):
    quote: Annotated[str, Verbatim(), Field(max_length=QUOTE_MAX)]
    kind: Kind
    problem: Annotated[str, Prose(240), Field(min_length=1, max_length=240)]
    severity: Severity
    action: Action
    replacement: Annotated[str, Rewrite(240), Field(max_length=240)]


class ReviewerReply(StrictReply):
    observations: Annotated[list[Annotated[str, Prose(160), Field(max_length=160)]], Field(max_length=2)]
    claims: Annotated[list[ClaimReply], Field(max_length=4)]
    open_questions: Annotated[list[Annotated[str, Prose(120), Field(max_length=120)]], Field(max_length=2)]


class ReasonReply(StrictReply):
    reason: Annotated[str, Prose(400), Field(min_length=1, max_length=400)]


class JudgedReply(ReasonReply):
    """Of a model whose choices cannot be measured: it says its verdict itself, after the reason."""

    verdict: Label


class AmendedReply(StrictReply):
    action: Action
    replacement: Annotated[str, Rewrite(240), Field(max_length=240)]


class ThemeReply(StrictReply):
    title: Annotated[str, Prose(80), Field(max_length=80)]
    text: Annotated[str, Prose(400), Field(max_length=400)]
    claims: Annotated[list[Annotated[str, Ids("claims")]], Field(min_length=1, max_length=6)]


class SynthesisReply(StrictReply):
    themes: Annotated[list[ThemeReply], Field(min_length=1, max_length=3)]
    tensions: Annotated[list[Annotated[str, Prose(240), Field(max_length=240)]], Field(max_length=2)]
    revisit: Annotated[list[Annotated[str, Ids("revisit")]], Field(max_length=3)]


# ---- grammar -------------------------------------------------------------------------------------------------------

# A small model left alone with a free JSON string writes `{{1}}}` or counts, and stays there. So prose is one or two
# sentences: words with single blanks between them, a capital first (or a letter of a script that has none), a full
# stop last, at most two short numbers in a sentence and none among its first words. A text that reaches its limit
# stays without its full stop, so that the host sees that it was cut.
# Plain ranges, for a class of Unicode letters makes the automaton too large.
_UPPER, _LOWER = (
    r"[A-Z\x{c0}-\x{de}\x{100}-\x{17f}\x{218}-\x{21b}\x{1e00}-\x{1eff}]",
    r"[a-z\x{df}-\x{17f}\x{1a0}-\x{1b0}\x{218}-\x{21b}\x{300}-\x{36f}\x{1e00}-\x{1eff}]",
)
_CAMEL = rf"({_UPPER}{{1,3}}{_LOWER}*)?"
_PART = rf"({_LOWER}+{_CAMEL}|{_UPPER}{{1,4}}{_LOWER}*{_CAMEL}[0-9]?)"
_WORD = rf"{_PART}([-\/'’]({_PART}|[0-9]))?['’]?"
_COUNT = r"[(€$]?[0-9]{1,4}([.,:][0-9]{1,3})?[%%a-z]{0,4}[)]?"
_CODE = r"`[A-Za-z0-9_.\/-]+( [A-Za-z0-9_.\/-]+)*`"
# A text that begins in another script may hold Latin words; the reverse is a model that has lost its way.
_OTHER = (
    r"[\x{181}-\x{24f}\x{370}-\x{1dff}\x{2d00}-\x{2dff}\x{3040}-\x{d7ff}]"
    r"""[^"\\\x00-\x1f\x7f{}<>|\[\]`*#_~=.?!。？！]*"""
)


def _sentences(marked: str, counts: int, ends: tuple[str, str]) -> str:
    """One or two sentences. marked: what else may be a word; counts: numbers in each; ends: of the last, by script."""
    more, count = rf"([,;:]| [–—])? [(“‘]?({_WORD}{marked})[)”’]?", rf"([,;:]| [–—])? {_COUNT}"
    first = rf"({_UPPER}{_LOWER}*{_CAMEL}(['’-]{_PART})?{marked})"
    one = rf"{first}(({more})*|({more}){{2,}}({count}({more})+){{0,{counts}}}({count})?)"
    return rf"({one}([.?!] {one})?{ends[0]}|{_OTHER}([。？！]{_OTHER}|[.?!] {_OTHER})?{ends[1]})"


# `%(n)d` is the most characters; it is filled in where the length is known.
_WHOLE, _CUT = _sentences("", 1, ("[.?!]", "[.?!。？！]")), _sentences("", 1, ("", ""))
_PROSE = rf"/{_WHOLE}/ & /(?s:.{{16,%(n)d}})/ | /{_CUT}/ & /(?s:.{{%(n)d}})/"
# A rewrite may hold code as well; or it is a row of a table. It is never cut.
_EDIT, _TABLE = _sentences(f"|{_CODE}", 2, ("[.?!:]", "[.?!:。？！：]")), r"\|[^\"\\\x00-\x1f\x7f{}]*\|"
_REWRITE = rf"/({_EDIT}|{_TABLE})/ & /(?s:.{{12,%(n)d}})/"

# A larger model needs no such rails: any text on one line, and in a rewrite line breaks too.
_FREE_PROSE = r"""/([^"\\\x00-\x20\x7f]|\\["\\])([^"\\\x00-\x1f\x7f]|\\["\\])*/ & /(?s:.{12,%(n)d})/"""
_FREE_REWRITE = r"""/([^"\\\x00-\x20\x7f]|\\["\\])([^"\\\x00-\x1f\x7f]|\\["\\nt])*/ & /(?s:.{1,%(n)d})/"""


@dataclass(frozen=True)
class Bounds:
    """What a format needs to know of one request.

    free: any text in free strings (a manifest's `prose: free`); else sentences only, which a small model needs.

    runs: the passages that claim i may quote from; there are at most as many claims as runs.
    claims, revisit: ids a synthesizer may name, and those of REJECTed claims.
    """

    runs: tuple[tuple[str, ...], ...] = ()
    claims: tuple[str, ...] = ()
    revisit: tuple[str, ...] = ()
    free: bool = False

    def ids(self, mark: Ids) -> tuple[str, ...]:
        return self.claims if mark.of == "claims" else self.revisit


class _Lark:
    """Collects rules and terminals while a model is walked; `worst` counts the most tokens it can produce."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.rules: list[str] = []
        self.names: set[str] = set()

    def add(self, name: str, text: str) -> str:
        if name not in self.names:
            self.names.add(name)
            self.rules.append(text)
        return name

    def literal(self, text: str) -> tuple[str, int]:
        return json.dumps(text, ensure_ascii=False), len(text.encode())

    def string(self, kind: str, pattern: str, chars: int) -> tuple[str, int]:
        tokens = chars // 2
        terminal = self.add(f"{kind.upper()}_{chars}", f"{kind.upper()}_{chars}: {pattern % {'n': chars - 2}}")
        rule = self.add(f"{kind}_{chars}", f"{kind}_{chars}[max_tokens={tokens}]: {terminal}")
        return f'"\\"" {rule} "\\""', tokens + 2

    def quote(self, run: int) -> tuple[str, int]:
        passages = self.bounds.runs[run]
        name = f"QUOTE_{run}"
        subs = []
        for i, passage in enumerate(passages):
            sub = f"SUB_{run}_{i}"
            chunks = [_escaped(c) for c in chunks_of(passage)]
            subs.append(sub)
            self.add(sub, f'{sub}: %regex {{"substring_chunks": {json.dumps(chunks, ensure_ascii=False)}}}')
        # The terminal counts characters of the JSON text, where an escape counts as more than one.
        self.add(name, f"{name}: ({' | '.join(subs)}) & /(?s:.{{{QUOTE_MIN},{QUOTE_MAX}}})/")
        worst = max(_most_bytes(_escaped(p), QUOTE_MAX) for p in passages)
        return f'"\\"" {name} "\\""', worst + 2


def _strip(annotation: Any) -> tuple[Any, list[Any]]:
    if get_origin(annotation) is Annotated:
        base, *marks = get_args(annotation)
        return base, list(marks)
    return annotation, []


def _length(marks: Sequence[Any], name: str, default: int) -> int:
    for mark in marks:
        for meta in [mark, *getattr(mark, "metadata", [])]:
            if getattr(meta, name, None) is not None:
                return int(getattr(meta, name))
    return default


def _limits(bounds: Bounds, item: Any, marks: Sequence[Any]) -> tuple[int, int]:
    """The most and the fewest items of an array."""
    most = _length(marks, "max_length", 8)
    base, item_marks = _strip(item)
    if base is ClaimReply:  # claim i quotes from run i alone: no passage is quoted twice
        most = min(most, len(bounds.runs))
    for mark in item_marks:
        if isinstance(mark, Ids):
            most = min(most, len(bounds.ids(mark)))
    return most, _length(marks, "min_length", 0)


def _expr(g: _Lark, annotation: Any, marks: Sequence[Any], run: int) -> tuple[str, int]:
    """A Lark expression for one value and the most tokens it can take."""
    base, more = _strip(annotation)
    marks = [*marks, *more]
    for mark in marks:
        if isinstance(mark, Prose):
            return g.string("prose", _FREE_PROSE if g.bounds.free else _PROSE, mark.chars)
        if isinstance(mark, Rewrite):
            return g.string("rewrite", _FREE_REWRITE if g.bounds.free else _REWRITE, mark.chars)
        if isinstance(mark, Verbatim):
            return g.quote(run)
        if isinstance(mark, Ids):
            return _enum(g.bounds.ids(mark))
    if get_origin(base) is list:
        return _array(g, get_args(base)[0], marks)
    if isinstance(base, type) and issubclass(base, BaseModel):
        return _object(g, base, run)
    return _enum(get_args(base))


def _enum(values: Sequence[str]) -> tuple[str, int]:
    words = [json.dumps(v, ensure_ascii=False) for v in values]
    return "(" + " | ".join(json.dumps(w, ensure_ascii=False) for w in words) + ")", max(len(w.encode()) for w in words)


def _array(g: _Lark, item: Any, marks: Sequence[Any]) -> tuple[str, int]:
    most, least = _limits(g.bounds, item, marks)
    items = [_expr(g, item, [], i) for i in range(most)]
    if not items:
        return '"[]"', 2
    tail = ""
    for text, _ in reversed(items[max(least, 1) :]):
        tail = f' ("," {text}{tail})?'
    head = ' "," '.join(text for text, _ in items[: max(least, 1)])
    body = f"{head}{tail}"
    return f'"[" {body if least else f"({body})?"} "]"', 2 + sum(n + 1 for _, n in items)


def _object(g: _Lark, model: type[BaseModel], run: int) -> tuple[str, int]:
    name = f"{model.__name__.lower()}_{run}"
    parts, total = [], 1
    for i, (key, info) in enumerate(model.model_fields.items()):
        if key == "replacement":  # written together with the action, below
            continue
        lead, n = g.literal(("{" if i == 0 else ",") + json.dumps(key) + ":")
        text, worst = _edit(g, model) if key == "action" else _expr(g, info.annotation, info.metadata, run)
        parts += [lead, text]
        total += n + worst
    g.add(name, f"{name}: {' '.join(parts)} " + '"}"')
    return name, total


def _edit(g: _Lark, model: type[BaseModel]) -> tuple[str, int]:
    """action and replacement together: only `replace` has a text, so the other two leave it empty."""
    info = model.model_fields["replacement"]
    text, worst = _expr(g, info.annotation, info.metadata, 0)
    with_text, n = g.literal('"replace","replacement":')
    without = " | ".join(g.literal(f'"{a}","replacement":""')[0] for a in ("delete", "none"))
    return f"({with_text} {text} | {without})", n + worst


def _schema(g: Bounds, annotation: Any, marks: Sequence[Any]) -> dict[str, Any]:
    """The same in the portable subset: all keys required, no pattern, every string and array bounded."""
    base, more = _strip(annotation)
    marks = [*marks, *more]
    for mark in marks:
        if isinstance(mark, (Prose, Rewrite)):
            return {"type": "string", "maxLength": mark.chars}
        if isinstance(mark, Verbatim):
            return {"type": "string", "maxLength": QUOTE_MAX}
        if isinstance(mark, Ids):
            return {"enum": list(g.ids(mark))} if g.ids(mark) else {"type": "string", "maxLength": 0}
    if get_origin(base) is list:
        item = get_args(base)[0]
        most, least = _limits(g, item, marks)
        return {"type": "array", "minItems": least, "maxItems": most, "items": _schema(g, item, [])}
    if isinstance(base, type) and issubclass(base, BaseModel):
        fields = {k: _schema(g, f.annotation, f.metadata) for k, f in base.model_fields.items()}
        return {
            "type": "object", "properties": fields, "required": list(fields), "additionalProperties": False,
        }  # fmt: skip
    return {"enum": list(get_args(base))}


def format_of(model: type[BaseModel], bounds: Bounds | None = None) -> tuple[Format, int]:
    """The format of a reply and the most tokens it can take (forced ones included)."""
    bounds = bounds or Bounds()
    g = _Lark(bounds)
    start, worst = _object(g, model, 0)
    lark = "\n".join(["%llguidance {}", f"start: {start}", *g.rules]) + "\n"
    schema = json.dumps(_schema(bounds, model, []), ensure_ascii=False)
    quotes = tuple(p for run in bounds.runs for p in run)
    return Format(lark, schema, quotes), worst


# ---- passages ------------------------------------------------------------------------------------------------------

_SENTENCE = re.compile(
    r"(?<=[.!?。？！])(?<!\b[A-Za-z]\.)(?<!e\.g\.)(?<!i\.e\.)\s+|(?<=[。？！])(?=[^\s。？！」』”’）)])"
)


def chunks_of(passage: str) -> list[str]:
    """What a quote is made of: whole sentences, a long sentence in words, the blanks between them on their own.

    No chunk is longer than QUOTE_MAX characters of JSON, so that there is always something to quote.
    """
    out: list[str] = []
    at = 0
    for match in [*_SENTENCE.finditer(passage), None]:
        end = len(passage) if match is None else match.start()
        out += _words(passage[at:end])
        if match is not None:
            out += _words(match.group())
            at = match.end()
    return [c for c in out if c]


def _words(text: str) -> list[str]:
    """The text as it is, or, when it is too long to be quoted whole, in words, and endless words in small pieces."""
    if len(_escaped(text)) <= QUOTE_MAX:
        return [text]
    words = re.findall(r"\s+|\S+", text)
    return [p for w in words for p in (_PIECE.findall(w) if len(_escaped(w)) > QUOTE_MAX // 2 else [w])]


@lru_cache(maxsize=8192)  # every reviewer quotes from the same words
def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _most_bytes(text: str, chars: int) -> int:
    """The most bytes that so many neighbouring characters take in UTF-8."""
    if text.isascii():
        return min(len(text), chars)
    ends = [0, *accumulate(len(c.encode()) for c in text)]
    return max(ends[min(i + chars, len(text))] - ends[i] for i in range(max(1, len(text) - chars + 1)))


_PIECE = re.compile(r"(?s)[\x00-\x7f]{1,16}|.")  # a script without blanks by the character
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,3}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_HEADING = re.compile(r"[ \t]{0,3}#{1,6}(?:[ \t]|$)")
_RULE = re.compile(r"[ \t]*(?:[-*_=][ \t]*){3,}$|[ \t]*\|?[ \t:|-]*-[ \t:|-]*$")
_FENCE = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})")
_ROW = re.compile(r"[ \t]*\|")


def passages(body: str) -> tuple[tuple[int, int], ...]:
    """What can be quoted: paragraphs, list items, table rows and lines of code, as character spans of the body.

    Headings, rules and fences are left out: a claim is about what a document says. When nothing else is there, the
    whole body is one passage. A passage is at least QUOTE_MIN characters long: a shorter one takes in its successor.
    """
    spans = _merge(_blocks(body), body)
    if not spans and len(body.strip()) >= QUOTE_MIN:
        start = len(body) - len(body.lstrip())
        return ((start, start + len(body.strip())),)
    return tuple(spans)


def _blocks(body: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    open_block, fence, at = False, "", 0
    for line in re.findall(r"[^\n]*\n|[^\n]+", body):
        text = line.rstrip("\r\n")
        start, at = at, at + len(line)
        mark = _FENCE.match(text)
        if mark and (not fence or (mark[1].startswith(fence) and text.strip() == mark[1])):
            fence, open_block = ("" if fence else mark[1]), False
            continue
        if not text.strip() or (not fence and (_HEADING.match(text) or _RULE.match(text))):
            open_block = False
            continue
        item = _ITEM.match(text)
        lead = item.end() if item and not fence else len(text) - len(text.lstrip())
        end = start + len(text.rstrip())
        if open_block and not item and not fence and not _ROW.match(text):
            spans[-1] = (spans[-1][0], end)
        elif start + lead < end:
            spans.append((start + lead, end))
            open_block = not fence and not _ROW.match(text)
    return spans


def _merge(spans: list[tuple[int, int]], body: str) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for start, end in spans:
        if out and out[-1][1] - out[-1][0] < QUOTE_MIN:
            out[-1] = (out[-1][0], end)
        else:
            out.append((start, end))
    if out and out[-1][1] - out[-1][0] < QUOTE_MIN:
        last = out.pop()
        if out:
            out[-1] = (out[-1][0], last[1])
        elif len(body.strip()) >= QUOTE_MIN:
            out.append((len(body) - len(body.lstrip()), len(body.rstrip())))
    return out


def runs_of(texts: Sequence[str], most: int, turn: int) -> tuple[tuple[str, ...], ...]:
    """At most `most` runs of neighbouring passages, alike in length; reviewer `turn` starts at its own run.

    Claim i quotes from run i alone, so no reviewer quotes a passage twice, and reviewers start at different places.
    """
    n = min(most, len(texts))
    if n == 0:
        return ()
    total = sum(map(len, texts))
    runs: list[list[str]] = [[]]
    done = 0
    for i, text in enumerate(texts):
        left, need = len(texts) - i, n - len(runs)
        if runs[-1] and need and (left <= need or done >= total * len(runs) / n):
            runs.append([])
        runs[-1].append(text)
        done += len(text)
    turn %= len(runs)
    return tuple(tuple(r) for r in runs[turn:] + runs[:turn])
