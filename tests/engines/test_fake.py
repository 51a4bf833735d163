"""The fake engine: the common contract, and what it alone promises."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import contract
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner import schemas
from runner.engines.fake import FakeEngine, Options, answer, options_of, write_json
from runner.errors import RunnerError, UsageError
from runner.values import Format, Request


@pytest.mark.parametrize("case", contract.CASES, ids=contract.name)
def test_contract(case):
    """The common contract holds."""
    case(FakeEngine)


@pytest.mark.parametrize("case", contract.CASES, ids=contract.name)
def test_contract_without_scores_one_by_one(case):
    """It holds for an engine that cannot score, and gives one reply a step, too."""
    case(lambda: FakeEngine(Options(scores=False, per_step=1, seed=7)))


def test_reply_depends_on_the_digest_alone():
    """Another key, flow, order and company: the same text. Another prompt or seed: another text."""
    one = contract.request("k", format=contract.FORMAT)
    engine = FakeEngine(Options(seed=3))
    many = contract.run(engine, contract.request("z"), contract.request("j", format=contract.FORMAT))
    assert many["j"].text == answer(one).text
    assert contract.request("longer key").sampling != one.sampling
    assert answer(contract.request("longer key", format=contract.FORMAT)).text != answer(one).text


def test_seed_changes_the_order_only():
    """Two seeds: the same replies in another order."""
    orders = []
    for seed in range(2):
        engine = FakeEngine(Options(seed=seed))
        for i in range(8):
            engine.submit("a.md", contract.request(f"r/{i}"))
        orders.append([reply for _, reply in contract.drain(engine)])
    assert orders[0] != orders[1]
    assert sorted(orders[0], key=lambda r: r.key) == sorted(orders[1], key=lambda r: r.key)


def test_submitted_is_counted():
    """The submissions are listed in order; one in flight cannot be submitted again."""
    engine = FakeEngine()
    engine.submit("a.md", contract.request("r/0"))
    engine.submit("b.md", contract.request("r/0"))
    with pytest.raises(RunnerError, match=r"^the request r/0 of b\.md was submitted twice$"):
        engine.submit("b.md", contract.request("r/0"))
    assert engine.submitted == [("a.md", "r/0"), ("b.md", "r/0")]


@pytest.mark.parametrize(
    ("fault", "text"),
    [("timeout", "half"), ("length", "half"), ("degenerate", "and so on " * 8), ("error", "")],
)
def test_fault_by_key(fault, text):
    """A key that matches the pattern ends with the fault; its retry and others do not."""
    engine = FakeEngine(Options(faults={"*/red-team": fault}))
    requests = [contract.request(key) for key in ("reviewer/red-team", "reviewer/red-team~2", "reviewer/ops")]
    replies = contract.run(engine, *requests)
    assert [replies[r.key].finish for r in requests] == [fault, "stop", "stop"]
    whole = answer(requests[0]).text
    assert replies["reviewer/red-team"].text == (whole[: len(whole) // 2] if text == "half" else text)


@pytest.mark.parametrize("nth", [2, "2"])
def test_fault_by_count(nth):
    """A number is the nth request answered, whatever its key."""
    engine = FakeEngine(Options(per_step=1, faults={nth: "timeout"}))
    for i in range(3):
        engine.submit("a.md", contract.request(f"r/{i}"))
    assert [reply.finish for _, reply in contract.drain(engine)] == ["stop", "timeout", "stop"]


def test_crash_is_raised_from_step():
    """The fault `crash` ends the step, and says where."""
    engine = FakeEngine(Options(faults={"r/*": "crash"}))
    engine.submit("a.md", contract.request("r/0"))
    with pytest.raises(RunnerError, match=r"^the fake engine crashed at r/0, as its profile says$"):
        engine.step()


def test_sigkill_is_real():
    """The fault `sigkill` kills the process that runs the engine."""
    code = (
        "from runner.engines.fake import *\n"
        "engine = FakeEngine(Options(faults={1: 'sigkill'}))\n"
        "engine.submit('a.md', Request('r', 'm', (), 5))\n"
        "engine.step()\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL


def test_check_counts_words():
    """Prompt and reply together must fit; the message has the numbers."""
    engine = FakeEngine(Options(context_tokens=120))
    fits = contract.request("r", "one two three", max_tokens=96)
    words = engine.tokenizer.count(fits.messages)
    engine.check(contract.request("r", "one two three", max_tokens=120 - words))
    with pytest.raises(UsageError) as caught:
        engine.check(contract.request("r", "one two three", max_tokens=121 - words))
    message = f"the request r does not fit: {words} tokens of prompt and {121 - words} of reply, 120 of context"
    assert str(caught.value) == message


def test_reply_never_passes_max_tokens():
    """A reply that does not fit is cut and says so."""
    reply = answer(contract.request("r", max_tokens=2))
    assert (reply.finish, reply.tokens_out, len(reply.text.split())) == ("length", 2, 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sede": 1}, "the fake engine has no option sede"),
        ({"per_step": 0}, "per_step must be a whole number from 1, not 0"),
        ({"context_tokens": "8k"}, "context_tokens must be a whole number from 1, not '8k'"),
        ({"faults": {"a": "boom"}}, "the fake engine knows no fault 'boom' (for a)"),
    ],
)
def test_options_are_checked(values, message):
    """A wrong option is named before anything runs."""
    with pytest.raises(UsageError) as caught:
        options_of(values)
    assert caught.value.message == message


def test_options_of_a_profile():
    """A right profile gives options."""
    assert options_of({"seed": 4, "faults": {1: "error"}}) == Options(seed=4, faults={1: "error"})


MODELS = (schemas.ReviewerReply, schemas.ReasonReply, schemas.AmendedReply, schemas.SynthesisReply)

# ---- JSON by a schema ----------------------------------------------------------------------------------------------

_TEXT = {"type": "string", "maxLength": 160}
REVIEWER = {
    "type": "object",
    "properties": {
        "observations": {"type": "array", "minItems": 0, "maxItems": 2, "items": _TEXT},
        "claims": {
            "type": "array",
            "maxItems": 4,
            "items": {
                "type": "object",
                "properties": {
                    "quote": {"type": "string", "maxLength": 200},
                    "severity": {"type": "string", "enum": ["major", "minor"]},
                    "action": {"enum": ["replace", "delete", "none"]},
                    "replacement": _TEXT,
                },
            },
        },
        "weight": {"type": "integer", "minimum": 3, "maximum": 5},
        "sure": {"type": "boolean"},
        "version": {"const": 1},
        "ids": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"enum": ["C-01", "C-02", "C-03"]}},
    },
}
DOCUMENT = (
    "# Caching\n\nThe cache is never invalidated. We retry 3.5 times on average!\n- Nobody owns the rollback",
    "决策。缓存永远不会失效,因此读者会看到旧数据。",
)


@pytest.mark.parametrize("digest", [f"{i:x}" for i in range(40)])
def test_reviewer_reply(digest):
    """Every key in order, every bound kept, no quote twice, each quote a piece of a passage from a word's start."""
    reply = json.loads(write_json(json.dumps(REVIEWER), DOCUMENT, digest))
    assert list(reply) == list(REVIEWER["properties"])
    assert 1 <= len(reply["observations"]) <= 2
    assert reply["weight"] in (3, 4, 5)
    assert reply["version"] == 1
    assert len(set(reply["ids"])) == len(reply["ids"])
    quotes = [claim["quote"] for claim in reply["claims"]]
    assert len(set(quotes)) == len(quotes)
    assert set(quotes) <= {
        "The cache is never invalidated.",
        "We retry 3.5 times on average!",
        "Nobody owns the rollback",
        "缓存永远不会失效,因此读者会看到旧数据。",
    }
    for claim in reply["claims"]:
        assert (claim["action"] == "replace") == bool(claim["replacement"])


def test_replies_differ():
    """Different digests give different texts."""
    texts = {write_json(json.dumps(REVIEWER), DOCUMENT, str(i)) for i in range(40)}
    assert len(texts) == 40


def test_unknown_schema_is_refused():
    """What cannot be written is refused when the request is checked."""
    with pytest.raises(UsageError) as caught:
        FakeEngine().check(contract.request("r", format=Format("", '{"type": "number"}')))
    assert caught.value.message == 'the fake engine cannot write what this schema describes: {"type": "number"}'


@settings(max_examples=60, deadline=None)
@given(passage=st.text(min_size=1, max_size=400), most=st.integers(1, 200), digest=st.text(max_size=8))
def test_quote_is_always_a_piece_of_the_passage(passage, most, digest):
    """Whatever the document holds, a quote is a contiguous piece of it within the bound."""
    schema = {"type": "object", "properties": {"quote": {"type": "string", "maxLength": most}}}
    quote = json.loads(write_json(json.dumps(schema), (passage,), digest))["quote"]
    assert quote in passage
    assert len(quote) <= most


@settings(max_examples=60, deadline=None)
@given(least=st.integers(0, 60), more=st.integers(0, 60), digest=st.text(max_size=8))
def test_prose_keeps_its_bounds(least, more, digest):
    """A free string is as long as its bounds say."""
    schema = {"type": "object", "properties": {"t": {"type": "string", "minLength": least, "maxLength": least + more}}}
    text = json.loads(write_json(json.dumps(schema), (), digest))["t"]
    assert least <= len(text) <= least + more


def test_choices_differ_by_request():
    """Scores come from the digest; the text is the label that won."""
    asked = [contract.request("v" * n, choices=contract.LABELS) for n in (1, 2)]
    first, second = (answer(r) for r in asked)
    assert first.scores != second.scores
    assert first.text == contract.LABELS[first.scores.index(max(first.scores))]


def test_request_without_messages():
    """A request needs no prompt to be answered."""
    assert answer(Request("r", "m", (), 50)).tokens_in == 0


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_format_of_ours(model):
    """What a reply model's schema makes it write, the model's own check accepts."""
    runs = ((DOCUMENT[0],), (DOCUMENT[1],))
    form, _ = schemas.format_of(model, schemas.Bounds(runs, ("C-01", "C-02"), ()))
    for n in range(20):
        model.model_validate_json(write_json(form.json_schema, form.quotes, str(n)))
