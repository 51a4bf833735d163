"""Replies: passages, runs, grammars and JSON schemas, with the bundled model's tokenizer but no model."""

from __future__ import annotations

import itertools
import json
import random
import warnings
from collections.abc import Iterator
from typing import Annotated, Any

import llguidance
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance.llamacpp import lltokenizer_from_vocab
from pydantic import Field, ValidationError

from runner import schemas
from runner.engines.llama_vocab import LlamaTokenizer, Vocab
from runner.manifests import find_model
from runner.schemas import QUOTE_MAX, QUOTE_MIN, Bounds, chunks_of, format_of, passages, runs_of

# ---- passages ------------------------------------------------------------------------------------------------------


def texts(body: str) -> list[str]:
    return [body[a:b] for a, b in passages(body)]


PASSAGES = {
    "paragraphs": (
        "First paragraph\nin two lines.\n\nSecond one here.\n",
        ["First paragraph\nin two lines.", "Second one here."],
    ),
    "bullets": (
        "- one item here\n* another item\n+ the third item\n",
        ["one item here", "another item", "the third item"],
    ),
    "numbered": ("1. first step here\n22) second step here\n", ["first step here", "second step here"]),
    "nested items": ("- an outer item\n  - an inner item\n", ["an outer item", "an inner item"]),
    "item in two lines": (
        "- an item that\n  goes on here\n- the next item\n",
        ["an item that\n  goes on here", "the next item"],
    ),
    "check boxes": ("- [ ] still to be done\n- [x] already done now\n", ["still to be done", "already done now"]),
    "table": (
        "| name of it | use |\n|---|:---:|\n| cache here | fast |\n",
        ["| name of it | use |", "| cache here | fast |"],
    ),
    "code": ("```python\nvalue = compute(1)\nother = compute(2)\n```\n", ["value = compute(1)", "other = compute(2)"]),
    "tilde fence": (
        "~~~\nline of the code\n```\nmore of the code\n~~~\nAfter the code.\n",
        ["line of the code", "```\nmore of the code", "After the code."],
    ),
    "longer fence": (
        "````\n```\nstill code here\n````\nAfter the code.\n",
        ["```\nstill code here", "After the code."],
    ),
    "fence left open": ("```\n# no heading in code\n", ["# no heading in code"]),
    "headings": (
        "# Title of it\n\nBody of the text.\n\n## Section\nMore of the text.\n",
        ["Body of the text.", "More of the text."],
    ),
    "not a heading": ("#hashtag is a word here\n", ["#hashtag is a word here"]),
    "rules": ("Above the rule.\n\n---\n\n***\n\n_ _ _\n\nBelow the rule.\n", ["Above the rule.", "Below the rule."]),
    "CRLF": (
        "First line of it\r\nsecond line.\r\n\r\n- an item here\r\n",
        ["First line of it\r\nsecond line.", "an item here"],
    ),
    "short takes in its successor": ("Short.\n\nA longer paragraph.\n", ["Short.\n\nA longer paragraph."]),
    "short over a heading": ("- a\n\n## B\n\n- c and more of it\n", ["a\n\n## B\n\n- c and more of it"]),
    "short at the end": ("A longer paragraph.\n\nShort.\n", ["A longer paragraph.\n\nShort."]),
    "all short": ("a\n\nb\n\nc\n\nd\n\ne\n\nf", ["a\n\nb\n\nc\n\nd\n\ne\n\nf"]),
    "exactly long enough": ("123456789 12\n", ["123456789 12"]),
    "only headings": ("# One heading\n\n## Two headings\n", ["# One heading\n\n## Two headings"]),
    "empty": ("", []),
    "blank": (" \n\t\n\n", []),
    "under 12 characters": ("# Too short", []),
    "12 characters": ("# Not so tiny", ["# Not so tiny"]),
    "unicode": (
        "数据库迁移必须在午夜之前完成。\n\n🚀 Launch on Friday 👍🏽\n",
        ["数据库迁移必须在午夜之前完成。", "🚀 Launch on Friday 👍🏽"],
    ),
    "form feed is no line end": ("One line\x0cand the same line\n", ["One line\x0cand the same line"]),
    "no line end": ("A paragraph at the end", ["A paragraph at the end"]),
}


@pytest.mark.parametrize(("body", "expected"), PASSAGES.values(), ids=PASSAGES.keys())
def test_passages(body, expected):
    """Paragraphs, items, rows and lines of code; headings, rules and fences are left out; short ones are joined."""
    assert texts(body) == expected


markdown = st.lists(
    st.sampled_from(
        ["# Head", "text of some length", "short", "", "- item", "| a | b |", "|---|---|", "```", "~~~", "---",
         "決定。", "\t", "1. x", "  indented", "* [ ] todo", "====", "🙂" * 5]
    ),
    max_size=14,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(markdown, st.sampled_from(["\n", "\r\n"]))
def test_passages_of_anything(lines, line_end):
    """In order, apart, trimmed, each long enough; a body that is long enough has at least one."""
    body = line_end.join(lines)
    spans = passages(body)
    assert all(b - a >= QUOTE_MIN and body[a:b].strip() == body[a:b] for a, b in spans)
    assert all(x[1] <= y[0] for x, y in itertools.pairwise(spans))
    assert bool(spans) == (len(body.strip()) >= QUOTE_MIN)


# ---- chunks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("passage", "chunks"),
    [
        ("One. Two!  Three?\nFour", ["One.", " ", "Two!", "  ", "Three?", "\n", "Four"]),
        ("See e.g. this, i.e. that, by J. Doe.", ["See e.g. this, i.e. that, by J. Doe."]),
        ("第一句。第二句！第三句", ["第一句。", "第二句！", "第三句"]),
        ("他说「好。」然后走了。", ["他说「好。」然后走了。"]),
        ("真的？！好。", ["真的？！", "好。"]),
        ("word " * 50 + "end.", [x for _ in range(50) for x in ("word", " ")] + ["end."]),
        ("a" * 201, ["a" * 16] * 12 + ["a" * 9]),
        ("数" * 201, ["数"] * 201),
        ("x." + " " * 210 + "y.", ["x.", *[" " * 16] * 13, "  ", "y."]),
        ('"' * 101, ['"' * 16] * 6 + ['"' * 5]),  # 202 characters of JSON
    ],
)
def test_chunks(passage, chunks):
    """Sentences; of a sentence too long to be quoted the words; of a word too long for that small pieces."""
    assert chunks_of(passage) == chunks


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60).map(lambda t: t * 8))
def test_chunks_are_the_passage(passage):
    """Nothing is lost or added, nothing is empty, and each can be quoted."""
    chunks = chunks_of(passage)
    assert "".join(chunks) == passage
    assert all(0 < len(json.dumps(c, ensure_ascii=False)) - 2 <= QUOTE_MAX for c in chunks)


# ---- runs ----------------------------------------------------------------------------------------------------------


def test_runs_are_alike_in_length():
    """Six passages of one length in three runs: two each."""
    assert runs_of(["a" * 20, "b" * 20, "c" * 20, "d" * 20, "e" * 20, "f" * 20], 3, 0) == (
        ("a" * 20, "b" * 20), ("c" * 20, "d" * 20), ("e" * 20, "f" * 20),
    )  # fmt: skip


def test_reviewers_start_at_different_places():
    """Reviewer n begins with run n, around."""
    a, b, c = runs_of(["aa", "bb", "cc"], 3, 0)
    assert runs_of(["aa", "bb", "cc"], 3, 1) == (b, c, a)
    assert runs_of(["aa", "bb", "cc"], 3, 5) == (c, a, b)


@pytest.mark.parametrize(("passages_", "most"), [([], 4), (["a"], 0), ([], 0)])
def test_no_runs(passages_, most):
    """No passages or no claims: nothing to quote from."""
    assert runs_of(passages_, most, 3) == ()


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text("ab", min_size=1, max_size=300), min_size=1, max_size=12), st.integers(1, 4), st.integers(0, 9))
def test_runs(items, most, turn):
    """Neighbours stay together, all are covered once, no run is empty, and there are as many as can be."""
    numbered = [f"{i}{t}" for i, t in enumerate(items)]
    runs = runs_of(numbered, most, turn)
    assert len(runs) == min(most, len(items))
    assert all(runs)
    shift = -turn % len(runs)
    assert [t for run in runs[shift:] + runs[:shift] for t in run] == numbered


# ---- grammars ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vocab() -> Iterator[Vocab]:
    tokenizer = LlamaTokenizer(str(find_model("smollm2-135m-instruct").path))
    yield tokenizer.vocab
    tokenizer.close()


@pytest.fixture(scope="module")
def tokens(vocab: Vocab) -> Iterator[llguidance.LLTokenizer]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        made = lltokenizer_from_vocab(vocab.ptr, vocab.size, vocab.eog)
    yield made


class Claims(schemas.StrictReply):
    """Only claims, and at least one, so that a walk does not end before the first quote."""

    claims: Annotated[list[schemas.ClaimReply], Field(min_length=1, max_length=4)]


MODELS = {
    "reviewer": schemas.ReviewerReply,
    "reason": schemas.ReasonReply,
    "judged": schemas.JudgedReply,
    "amended": schemas.AmendedReply,
    "synthesis": schemas.SynthesisReply,
    "claims": Claims,
}
BODIES = {
    "plain": "The cache is never invalidated. We retry three times.\n\n- Nobody owns the rollback.\n- It is fine.\n",
    "quotes": 'He said "stop" and then "go", in C:\\path\\new. ' * 8,
    "only quotes": '"' * 40,
    "only backslashes": "\\" * 40,
    "control": "a\x01b\x02c\x0bd\x1f some text\x7f here\ttab and so on. " * 9,
    "tabs": "\tcolumn one\tcolumn two\tcolumn three",
    "CRLF": "One line here.\r\nAnother line\r\ngoes on here.\r\n\r\n* item one two\r\n",
    "CJK without an end": "数据库迁移必须在午夜之前完成否则服务会中断" * 20,
    "CJK": "数据库迁移必须在午夜之前完成。否则服务会中断。" * 20,
    "blanks": "Hi." + " " * 300 + "Bye.",
    "one endless word": "QUJD" * 2000,
    "emoji": "🙂👍🏽 family 👨‍👩‍👧 rocks! " * 15,
    "grammar text": 'start: "x" | /[a-z]+/ %llguidance {} ${x} #end\n',
    "shortest": "123456789 12",
}  # fmt: skip


def bounds_of(body: str, turn: int = 0) -> Bounds:
    runs = runs_of(texts(body), 4, turn)
    return Bounds(runs=runs, claims=("C-01", "C-02", "C-03"), revisit=("C-02",))


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_grammar_compiles(tokens, model, body):
    """For every reply and every kind of body."""
    fmt, _ = format_of(model, bounds_of(body))
    assert llguidance.LLMatcher.validate_grammar(fmt.lark, tokens) == ""


@pytest.mark.parametrize(
    "unit", ["Paragraph {} says so and so. It is followed by another.\n\n", "word{} ", "数据库迁移必须在{}午夜"]
)
def test_large_body(tokens, unit):  # fmt: skip
    """120 kB compile (in well under a second on an idle machine; a busy one is no fault)."""
    body = "".join(unit.format(i) for i in range(5000)).encode()[:120_000].decode(errors="ignore")
    fmt, _ = format_of(schemas.ReviewerReply, bounds_of(body))
    assert llguidance.LLMatcher.validate_grammar(fmt.lark, tokens) == ""


def walk(vocab: Vocab, tokens: llguidance.LLTokenizer, lark: str, seed: int) -> tuple[str, int]:
    """A reply of random allowed tokens, to its end, and its length in tokens."""
    matcher, dice, out = llguidance.LLMatcher(tokens, lark, log_level=0), random.Random(seed), list[int]()
    assert not matcher.is_error(), matcher.get_error()
    while not matcher.is_stopped():
        ahead = matcher.compute_ff_tokens()
        if not ahead:
            mask = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
            allowed = np.flatnonzero(np.unpackbits(mask, bitorder="little"))
            assert allowed.size, f"dead end after {vocab_text(vocab, out)!r}"
            ahead = [int(dice.choice(allowed))]
        assert matcher.consume_tokens(ahead)
        out += ahead
        assert len(out) < 10_000
    assert not matcher.is_error(), matcher.get_error()
    return vocab_text(vocab, out), len(out)


def vocab_text(vocab: Vocab, out: list[int]) -> str:
    return b"".join(vocab.bytes_of(t) for t in out).decode("utf-8", "replace")


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_random_claims(vocab, tokens, body):
    """Whatever is drawn, it ends as valid JSON within the worst case; claim i quotes the body, from run i."""
    for seed in range(2):
        bounds = bounds_of(body, seed)
        fmt, worst = format_of(Claims, bounds)
        text, n = walk(vocab, tokens, fmt.lark, seed)
        assert n <= worst
        reply = Claims.model_validate_json(text)
        for claim, run in zip(reply.claims, bounds.runs, strict=False):
            assert claim.quote in body
            assert any(claim.quote in passage for passage in run)
            assert QUOTE_MIN <= len(json.dumps(claim.quote, ensure_ascii=False)) - 2 <= QUOTE_MAX
            assert (claim.action == "replace") == (claim.replacement != "")


@pytest.mark.parametrize("name", ["reviewer", "reason", "judged", "amended", "synthesis"])
def test_random_replies(vocab, tokens, name):
    """The same for every other reply."""
    bounds = bounds_of(BODIES["plain"])
    fmt, worst = format_of(MODELS[name], bounds)
    for seed in range(3):
        text, n = walk(vocab, tokens, fmt.lark, seed)
        assert n <= worst
        MODELS[name].model_validate_json(text)
        assert text == compact(text)


def compact(text: str) -> str:
    return json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))


def test_synthesis_names_known_ids(vocab, tokens):
    """Themes name claims, `revisit` names rejected ones, and nothing else can be written."""
    fmt, _ = format_of(schemas.SynthesisReply, Bounds(claims=("C-01", "C-02"), revisit=("C-02",)))
    for seed in range(3):
        reply = schemas.SynthesisReply.model_validate_json(walk(vocab, tokens, fmt.lark, seed)[0])
        assert {i for t in reply.themes for i in t.claims} <= {"C-01", "C-02"}
        assert set(reply.revisit) <= {"C-02"}


@pytest.mark.parametrize(
    ("model", "bounds", "text"),
    [
        (schemas.ReviewerReply, Bounds(), '{"observations":[],"claims":[],"open_questions":[]}'),
        (schemas.SynthesisReply, Bounds(claims=("C-01",)),
         '{"themes":[{"title":"Something is here.","text":"Something is here.","claims":["C-01"]}],'
         '"tensions":[],"revisit":[]}'),
    ],
)  # fmt: skip
def test_nothing_to_name(vocab, tokens, model, bounds, text):
    """Without passages there are no claims, without rejected claims nothing to look at again."""
    fmt, _ = format_of(model, bounds)
    ids = [t for i, c in enumerate(text) for t in vocab._tokenise(c, False)]
    matcher = llguidance.LLMatcher(tokens, fmt.lark, log_level=0)
    assert matcher.try_consume_tokens(ids) == len(ids)
    assert matcher.is_accepting()
    model.model_validate_json(text)
    if model is schemas.ReviewerReply:
        more = '{"observations":[],"claims":[{'
        ids = [t for c in more for t in vocab._tokenise(c, False)]
        assert llguidance.LLMatcher(tokens, fmt.lark, log_level=0).try_consume_tokens(ids) == len(ids) - 1


@pytest.mark.parametrize(
    "passage",
    ["plain words in a sentence", "数" * 300, "a" * 250 + "数" * 250, '"' * 150, "\x01" * 60, "👨‍👩‍👧" * 40],
)
def test_worst_case_of_a_quote(passage):
    """Never less than the bytes of the longest quote that the grammar admits, wherever in the passage it stands."""

    class Quoted(schemas.StrictReply):
        quote: Annotated[str, schemas.Verbatim()]

    Quoted.model_rebuild(_types_namespace={"Annotated": Annotated, "schemas": schemas})
    _, worst = format_of(Quoted, Bounds(runs=((passage,),)))
    text = json.dumps(passage, ensure_ascii=False)[1:-1]
    longest = max(len(text[i : i + QUOTE_MAX].encode()) for i in range(len(text)))
    assert worst == len('{"quote":""}') + longest


# ---- JSON schema ---------------------------------------------------------------------------------------------------


def lint(schema: dict[str, Any], at: str = "$") -> list[str]:
    """What is not in the portable subset: objects closed and complete, strings and arrays bounded, enums not empty."""
    found = []
    match schema:
        case {"enum": values}:
            found += (
                [at] if set(schema) != {"enum"} or not values or not all(isinstance(v, str) for v in values) else []
            )
        case {"type": "string"}:
            found += [] if set(schema) == {"type", "maxLength"} and schema["maxLength"] >= 0 else [at]
        case {"type": "array"}:
            good = set(schema) == {"type", "items", "minItems", "maxItems"}
            found += [] if good and 0 <= schema["minItems"] <= schema["maxItems"] else [at]
            found += lint(schema["items"], at + "[]")
        case {"type": "object"}:
            good = set(schema) == {"type", "properties", "required", "additionalProperties"}
            good = good and schema["required"] == list(schema["properties"])
            found += [] if good and schema["additionalProperties"] is False else [at]
            for name, part in schema["properties"].items():
                found += lint(part, f"{at}.{name}")
        case _:
            found.append(at)
    return found


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("bounds", [bounds_of(BODIES["plain"]), Bounds(runs=(("123456789 12",),), claims=("C-01",))])
def test_schema_is_portable(model, bounds):
    """Nothing but the portable subset, also with empty lists of ids; keys in the order of the grammar."""
    schema = json.loads(format_of(model, bounds)[0].json_schema)
    assert lint(schema) == []
    assert list(schema["properties"]) == list(model.model_fields)


@pytest.mark.parametrize(
    "bad",
    [{"enum": []}, {"type": "string"}, {"type": "string", "maxLength": 3, "pattern": "a"}, {"type": "number"}, {},
     {"type": "array", "items": {"enum": ["a"]}},
     {"type": "object", "properties": {"a": {"enum": ["b"]}}, "required": [], "additionalProperties": False}],
)  # fmt: skip
def test_linter(bad):
    """The linter finds what it is there for."""
    assert lint(bad) != []


def test_no_ids_is_no_empty_enum():
    """A list that must stay empty holds strings of no length: some servers refuse an empty enum."""
    schema = json.loads(format_of(schemas.SynthesisReply, Bounds(claims=("C-01",)))[0].json_schema)
    revisit = {"type": "array", "minItems": 0, "maxItems": 0, "items": {"type": "string", "maxLength": 0}}
    assert schema["properties"]["revisit"] == revisit


def test_claims_never_more_than_runs():
    """The schema, like the grammar, allows as many claims as there are places to quote from."""
    schema = json.loads(format_of(schemas.ReviewerReply, Bounds(runs=(("one passage only",),)))[0].json_schema)
    assert schema["properties"]["claims"]["maxItems"] == 1


def test_quotes_are_the_passages():
    """A format names what may be quoted, for engines that search instead."""
    runs = (("first passage", "second passage"), ("third passage",))
    fmt, _ = format_of(schemas.ReviewerReply, Bounds(runs=runs))
    assert fmt.quotes == ("first passage", "second passage", "third passage")


def test_same_bounds_same_format():
    """A format depends on its inputs alone, to the byte."""
    assert format_of(schemas.ReviewerReply, bounds_of(BODIES["CJK"])) == format_of(
        schemas.ReviewerReply, bounds_of(BODIES["CJK"])
    )


# ---- the host's own check ------------------------------------------------------------------------------------------

CLAIM = {"quote": "q", "kind": "risk", "problem": "P.", "severity": "minor", "action": "none", "replacement": ""}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"quote": "q" * 201}, "quote"),
        ({"kind": "typo"}, "kind"),
        ({"problem": ""}, "problem"),
        ({"problem": "p" * 241}, "problem"),
        ({"severity": "high"}, "severity"),
        ({"action": "rewrite"}, "action"),
        ({"replacement": "r" * 241}, "replacement"),
        ({"more": 1}, "more"),
    ],
)
def test_host_checks_again(change, where):
    """Maxima, enums and unknown keys, whatever the engine promised."""
    schemas.ClaimReply.model_validate(CLAIM)
    with pytest.raises(ValidationError) as caught:
        schemas.ClaimReply.model_validate(CLAIM | change)
    assert [e["loc"] for e in caught.value.errors()] == [(where,)]
