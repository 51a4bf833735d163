"""The llama.cpp engine with the bundled model: the common contract, and what it alone promises.

One thread: the tests are then as quick on a busy machine as on an idle one.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import contract
import llama_cpp.llama_cpp as C
import llguidance
import pytest
from pydantic import BaseModel, Field

from runner import schemas
from runner.engines import llama_grammars
from runner.engines.llama_cpp import LlamaCpp, Weights
from runner.errors import Integrity, RunnerError, UsageError
from runner.manifests import find_model
from runner.values import Format, Message, Reply, Request, Sampling, Segment

pytestmark = pytest.mark.model
MODEL = find_model("smollm2-135m-instruct").path
SEQS = 48
KV_BYTES = 2 * 2 * 30 * 3 * 64  # of one cell of this model: key and value, f16, layers, heads, width

RULES = "You review written decisions."
DOCUMENT = "Tokens are rotated every night at 02:00. Nobody owns the rollback.\n"
LONGER = """The cache is never invalidated, so readers may see a price that is a day old.

We retry three times, then give up. Nobody owns the rollback when the second step fails.

- Tokens are rotated every night at 02:00.
- The audit log is kept for thirty days and then deleted without a copy.
"""
LABELS = tuple(json.dumps(label) for label in contract.LABELS)


class Alone(LlamaCpp):
    """An engine with weights of its own."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.weights = Weights(path)
        super().__init__(self.weights, **options)

    def close(self) -> None:
        super().close()
        self.weights.close()


def make(context_tokens: int = 2048, n_seq_max: int = SEQS) -> LlamaCpp:
    return Alone(MODEL, context_tokens=context_tokens, n_seq_max=n_seq_max, threads=1)


@pytest.fixture(scope="module")
def shared_engine() -> Iterator[LlamaCpp]:
    made = make(4096)
    yield made
    made.close()


@pytest.fixture
def engine(shared_engine: LlamaCpp) -> Iterator[LlamaCpp]:
    """The engine of all tests; each gives back every cell and sequence it took."""
    yield shared_engine
    for flow in ("a.md", "b.md"):
        shared_engine.release(flow)
    assert not shared_engine.busy()
    assert idle(shared_engine) == (0, SEQS)


def idle(engine: LlamaCpp) -> tuple[int, int]:
    """(cells taken, sequences free), as the engine counts them, which must be what llama.cpp holds."""
    empty = [s for s in range(SEQS) if C.llama_memory_seq_pos_max(engine._cells._memory, s) < 0]
    assert sorted(engine._cells.free_seqs) == empty
    return engine._cells.used(), len(engine._cells.free_seqs)


def request(key: str, *texts: str, shared: Sequence[int] = (2,), document: str = DOCUMENT, **more: Any) -> Request:
    """RULES and the document, then each text as a segment of its own."""
    segments = (Segment(RULES, True), Segment(document, False), *(Segment(t, True) for t in texts))
    values = {"max_tokens": 6, "shared": tuple(shared), "sampling": Sampling(seed=len(key))} | more
    return Request(key, "default", (Message("user", segments),), **values)


def prefix_tokens(engine: LlamaCpp, request: Request, n_segments: int) -> int:
    pieces, ends = engine.vocab.pieces(request.messages)
    return len(engine._tokens(pieces[: ends[n_segments]]))


def fed(reply: Reply) -> int:
    """Tokens of its own that a request feeds: the rest of its prompt, and its reply but for a last one cut off."""
    return reply.tokens_in - reply.tokens_cached + reply.tokens_out - (reply.finish == "length")


@pytest.mark.parametrize("case", contract.CASES, ids=contract.name)
def test_contract(case):
    """The common contract holds."""
    case(lambda: make(1024, 16))


# ---- shared prefixes -----------------------------------------------------------------------------------------------


def test_shared_prefix_is_computed_once(engine):
    """Five requests over one document: its tokens are decoded once, and each reply says what it was given."""
    asked = [request(f"r/{i}", f"Question number {i}?") for i in range(5)]
    before = engine.decoded
    replies = contract.run(engine, *asked)
    prefix = prefix_tokens(engine, asked[0], 2)
    assert [replies[q.key].tokens_cached for q in asked] == [prefix] * 5
    assert engine.decoded - before == prefix + sum(map(fed, replies.values()))


def test_nested_prefixes(engine):
    """What follows the document is shared too; another second part shares the document alone."""
    claims = [request(f"c/{i}", "Claims: A, B, C.", f"Judge {i}.", shared=(2, 3)) for i in range(2)]
    others = [request(f"d/{i}", "Claims: X, Y.", f"Judge {i}.", shared=(2, 3)) for i in range(2)]
    before = engine.decoded
    replies = contract.run(engine, *claims, *others)
    short, long = (prefix_tokens(engine, claims[0], n) for n in (2, 3))
    other = prefix_tokens(engine, others[0], 3)
    assert [replies[q.key].tokens_cached for q in (*claims, *others)] == [long, long, other, other]
    once = short + (long - short) + (other - short)
    assert engine.decoded - before == once + sum(map(fed, replies.values()))


def test_prefix_is_held_until_release(engine):
    """A later wave of the flow finds it; after release it is computed again."""
    contract.run(engine, request("r/1", "One?"))
    costs = []
    for key in ("r/2", "r/3"):
        before = engine.decoded
        reply = contract.run(engine, request(key, "Two?"))[key]
        costs.append(engine.decoded - before - fed(reply))
        engine.release("a.md")
    assert costs == [0, prefix_tokens(engine, request("r", "Two?"), 2)]


def test_prefix_of_two_flows(engine):
    """Two flows over the same text share it; the end of one leaves it to the other."""
    contract.run(engine, request("r", "One?"), flow="a.md")
    contract.run(engine, request("r", "One?"), flow="b.md")
    held = engine._cells.used()
    engine.release("a.md")
    assert engine._cells.used() == held == prefix_tokens(engine, request("r", "One?"), 2)


def test_whole_prompt_as_prefix(engine):
    """The last token is never shared: its logits are needed."""
    reply = contract.run(engine, request("r", "Why?", shared=(3,)))["r"]
    assert 0 < reply.tokens_cached < reply.tokens_in


def test_eviction_when_cells_are_short():
    """A pool for three documents, four of them, two flows: all are answered, and never are more cells promised than
    there are."""
    engine, most = make(256, 8), 0
    try:
        documents = [f"Decision {i}. {DOCUMENT}" for i in range(4)]
        for i in range(10):
            fmt = Format('%llguidance {}\nstart: /[A-Z]/ " it is."\n', "{}")
            asked = request(f"r/{i}", f"Question {i}?", document=documents[i % 4], keep=i % 2 == 0, format=fmt)
            engine.check(asked)
            engine.submit("ab"[i % 2], asked)
        replies = []
        for _ in range(1000):
            replies += engine.step()
            most = max(most, engine._cells.used())
            if not engine.busy():
                break
        assert sorted(r.key for _, r in replies) == sorted(f"r/{i}" for i in range(10))
        assert 192 < most <= 256
        engine.release("a")
        engine.release("b")
        assert (engine._cells.used(), len(engine._cells.free_seqs)) == (0, 8)
    finally:
        engine.close()


def test_sequences_run_out():
    """Fewer sequences than requests: they take turns."""
    engine = make(2048, 3)
    try:
        replies = contract.run(engine, *(request(f"r/{i}", f"Q {i}?", max_tokens=2) for i in range(5)))
        assert sorted(replies) == [f"r/{i}" for i in range(5)]
    finally:
        engine.close()


# ---- continuing a kept sequence ------------------------------------------------------------------------------------


def continued(first: Request, reply: Reply, key: str, question: str, **more: Any) -> Request:
    messages = (
        *first.messages,
        Message("assistant", (Segment(reply.text, False),)),
        Message("user", (Segment(question, True),)),
    )
    return Request(key, "default", messages, 16, shared=first.shared, continues=first.key, **more)


def reason_of(engine: LlamaCpp, keep: bool) -> tuple[Request, Reply]:
    fmt = Format('%llguidance {}\nstart: "{\\"reason\\":\\"" /[A-Z][a-z ]{20,40}[.]/ "\\"}"\n', "{}")
    first = request("reason", "Is the reviewer right?", format=fmt, max_tokens=40, keep=keep)
    return first, contract.run(engine, first)["reason"]


def test_scoring_continues_the_reason(engine):
    """The measurement stands on prompt and reply, feeds the question alone, and says what it says without keeping."""
    scores = []
    for keep in (True, False):
        first, reason = reason_of(engine, keep)
        assert reason.finish == "stop"
        verdict = contract.run(engine, continued(first, reason, "v", "Your verdict?", choices=LABELS))["v"]
        whole = reason.tokens_in + reason.tokens_out
        assert verdict.tokens_cached == (whole if keep else prefix_tokens(engine, first, 2))
        scores.append([math.exp(s) for s in verdict.scores])
        engine.release("a.md")
    assert scores[0] == pytest.approx(scores[1], abs=0.1)  # batching changes the numbers a little
    assert sum(scores[0]) == pytest.approx(1.0, abs=1e-6)


def test_forget_gives_cells_back(engine):
    """What was kept goes when it is forgotten; the document stays."""
    first, _ = reason_of(engine, keep=True)
    prefix = prefix_tokens(engine, first, 2)
    assert engine._cells.used() > prefix
    engine.forget("a.md", ["reason"])
    assert engine._cells.used() == prefix


def test_kept_only_when_it_stopped(engine):
    """A reply that was cut is never continued."""
    contract.run(engine, request("r", "Tell me everything.", keep=True, max_tokens=2))
    assert engine._cells.used() == prefix_tokens(engine, request("r", "x"), 2)


def test_same_key_kept_twice(engine):
    """A second sequence under the same name takes nothing from the pool."""
    reason_of(engine, keep=True)
    held = engine._cells.used()
    reason_of(engine, keep=True)
    assert engine._cells.used() == held


def test_another_reply_is_not_continued(engine):
    """When the messages hold another reply than the one that was kept, the prompt is computed as it is written."""
    first, reason = reason_of(engine, keep=True)
    other = continued(first, replace(reason, text='{"reason":"No."}'), "v", "Your verdict?", choices=LABELS)
    assert contract.run(engine, other)["v"].tokens_cached == prefix_tokens(engine, first, 2)


# ---- limits --------------------------------------------------------------------------------------------------------


def test_check_says_the_numbers(engine):
    """Prompt, reply and context are named, before anything is decoded."""
    before, asked = engine.decoded, request("r", "Why?", max_tokens=5000)
    prompt = len(engine._tokens(engine.vocab.pieces(asked.messages)[0]))
    with pytest.raises(UsageError) as caught:
        engine.check(asked)
    assert str(caught.value) == (
        f"request r: the prompt has {prompt} tokens and the reply may take 5000, but the context holds 4096\n"
        f"hint: shorten the document by about {prompt + 5000 - 4096} tokens, "
        "or use a model or profile with a longer context"
    )
    assert caught.value.code == "context"
    engine.check(request("r", "Why?", max_tokens=4096 - prompt))
    assert engine.decoded == before


def test_never_fits_is_an_error_not_a_hang():
    """A request that was not checked and can never be admitted ends the run with words."""
    engine = make(256, 4)
    try:
        engine.submit("a.md", request("r", "Why?", max_tokens=300))
        with pytest.raises(RunnerError) as caught:
            contract.drain(engine)
        assert str(caught.value) == "nothing can be admitted\nhint: raise context_tokens in the profile"
    finally:
        engine.close()


def test_deadline(engine, monkeypatch):
    """A late request ends as timeout at the next step; the others go on as if it had not been there."""
    monkeypatch.setattr(engine, "_n_batch", 16)  # so that one step does not do it all
    late = request("late", "Why?", max_tokens=200, deadline_s=1e-6)
    scored = request("scored", "Verdict?", choices=LABELS, deadline_s=1e-6, shared=())
    replies = contract.run(engine, late, scored, request("calm", "Why?", deadline_s=1e6))
    assert [replies[k].finish for k in ("late", "scored")] == ["timeout", "timeout"]
    assert (replies["scored"].scores, replies["scored"].text) == ((), "")
    assert replies["calm"].finish == "length"
    assert replies["calm"].tokens_out == 6


@pytest.mark.parametrize("n", [0, -1, 513, 100_000])
def test_batch_guard(engine, monkeypatch, n):
    """A batch that llama.cpp would abort the process for never reaches it."""
    monkeypatch.setattr(C, "llama_decode", lambda *_: pytest.fail("decoded"))
    with pytest.raises(RunnerError, match=f"^a batch of {n} tokens$"):
        engine._call(n)


def test_long_prompts_go_in_chunks(engine, monkeypatch):
    """A prompt longer than a batch is fed in several, none above the limit."""
    monkeypatch.setattr(engine, "_n_batch", 16)
    sizes, call = [], engine._call
    engine._call = lambda n: (sizes.append(n), call(n))
    try:
        reply = contract.run(engine, request("r", "Why?", max_tokens=1))["r"]
    finally:
        del engine._call
    assert reply.tokens_in > 2 * 16
    assert max(sizes) == 16
    assert sum(sizes) == reply.tokens_in


def test_failed_decode(monkeypatch):
    """What llama_decode refuses ends the run; resume is the repair."""
    engine = make(512, 4)
    try:
        engine.submit("a.md", request("r", "Why?"))
        monkeypatch.setattr(C, "llama_decode", lambda *_: 1)
        with pytest.raises(RunnerError) as caught:
            engine.step()
        text = "llama_decode failed with 1\nhint: `debate resume` continues from the journal"
        assert str(caught.value) == text
    finally:
        engine.close()


def test_max_tokens_counts_what_the_grammar_forces(engine):
    """A forced run is cut at the limit too; cells are promised for no more."""
    fmt = Format('%llguidance {}\nstart: "one two three four five six seven" /[0-9]/\n', "{}")
    cut, whole = (request(f"r/{n}", "Count.", format=fmt, max_tokens=n) for n in (3, 20))
    replies = contract.run(engine, cut, whole)
    assert (replies["r/3"].finish, replies["r/3"].tokens_out, replies["r/3"].text) == ("length", 3, "one two three")
    assert replies["r/20"].finish == "stop"
    assert replies["r/20"].text[:-1] == "one two three four five six seven"
    assert replies["r/20"].forced >= 6


def test_everything_is_forced(engine):
    """A grammar with a single sentence is written without sampling."""
    fmt = Format('%llguidance {}\nstart: "{}"\n', "{}")
    reply = contract.run(engine, request("r", "Say nothing.", format=fmt))["r"]
    assert (reply.text, reply.finish, reply.tokens_out, reply.forced) == ("{}", "stop", 1, 1)


def test_length(engine):
    """Without a format the reply ends at max_tokens …"""
    reply = contract.run(engine, request("r", "Tell me a very long story.", max_tokens=5))["r"]
    assert (reply.finish, reply.tokens_out, reply.forced) == ("length", 5, 0)


def test_end_of_generation(engine):
    """… or when the model ends its turn; what ends it is not part of the text."""
    text = "Repeat the word Yes and nothing else."
    asked = request("r", text, document="", max_tokens=120, sampling=Sampling(temperature=0))
    reply = contract.run(engine, asked)["r"]
    assert reply.finish == "stop"
    assert 0 < reply.tokens_out < 120
    assert "<|" not in reply.text


# ---- grammars and text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("submit", [False, True])
def test_grammar_that_does_not_compile(submit):
    """It is an error of the request, and the message holds nothing of the document."""
    engine = make(512, 4)
    lark = '%llguidance {}\nstart: QUOTE nowhere\nQUOTE: "the secret plan"\n'
    bad = request("r", "Why?", format=Format(lark, "{}"))
    try:
        with pytest.raises(RunnerError) as caught:
            engine.check(bad)
            if submit:
                contract.run(engine, bad)
        assert str(caught.value) == "the grammar does not compile: at 2(8): unknown name"
        assert caught.value.code == "grammar"
        assert set(contract.run(engine, request("good", "Why?"))) == {"good"}
    finally:
        engine.close()


def test_grammar_that_nothing_can_satisfy(engine):
    """A dead end is a failed reply, not a crash."""
    lark = '%llguidance {}\nstart: QUOTE\nSUB: %regex {"substring_chunks": ["abc"]}\nQUOTE: SUB & /.{12,200}/\n'
    reply = contract.run(engine, request("r", "Quote.", format=Format(lark, "{}")))["r"]
    assert (reply.finish, reply.text) == ("error", "")


def reviewers(body: str, n: int, claims: int, **sampling: float) -> list[tuple[Request, schemas.Bounds]]:
    """The shape of a review's first wave: one document, n reviewers, each quoting run by run."""
    texts = [body[a:b] for a, b in schemas.passages(body)]
    made = []
    for i in range(n):
        bounds = schemas.Bounds(runs=schemas.runs_of(texts, claims, i))
        fmt, worst = schemas.format_of(schemas.ReviewerReply, bounds)
        asked = request(
            f"reviewer/{i}", "Find weak sentences. Reply in JSON.", document=body, format=fmt, max_tokens=worst,
            sampling=Sampling(seed=i, dry_multiplier=0.8, **sampling),
        )  # fmt: skip
        made.append((asked, bounds))
    return made


def test_wave_of_reviewers():
    """Five reviewers, four claims each: every reply is valid, every quote verbatim and from its own run."""
    engine, asked = make(12288, 16), reviewers(LONGER, 5, 4)
    try:
        replies = contract.run(engine, *(q for q, _ in asked))
    finally:
        engine.close()
    n_claims = 0
    for request_, bounds in asked:
        reply = replies[request_.key]
        assert reply.finish == "stop"
        assert reply.forced <= reply.tokens_out <= request_.max_tokens
        parsed = schemas.ReviewerReply.model_validate_json(reply.text)
        for claim, run in zip(parsed.claims, bounds.runs, strict=False):
            assert claim.quote in LONGER
            assert any(claim.quote in passage for passage in run)
            n_claims += 1
    assert n_claims > 0


def test_a_grammar_at_its_limit_does_not_end_the_next_request(engine, monkeypatch):
    """Copies of a matcher share one automaton: after an error the next try gets a new one, and ends well."""
    small = llguidance.LLParserLimits(verbose_errors=False, max_lexer_states=200)
    monkeypatch.setattr(llama_grammars, "limits", lambda: small)
    (first, _), *_ = reviewers(LONGER, 1, 3)
    asked = [replace(first, key=f"same-{i}", max_tokens=40, sampling=Sampling(seed=i)) for i in range(3)]
    assert {r.finish for r in contract.run(engine, *asked[:2]).values()} == {"error"}
    monkeypatch.undo()
    assert contract.run(engine, asked[2])["same-2"].finish in ("stop", "length")


BODIES = {
    "CJK": "数据库迁移必须在午夜之前完成。否则服务会中断，没有人知道如何回滚。",
    "emoji": "🚀 Launch on Friday 👍🏽 without a rollback plan 👨‍👩‍👧 and tell nobody.",
    "quotes": 'He said "ship it" and wrote C:\\temp\\new into the "plan".',
    "CRLF": "The first line goes on\r\nin the second line of it.",
}


class Quoted(BaseModel):
    quote: Annotated[str, schemas.Verbatim()]


def test_quotes_of_every_kind(engine):
    """Letters of any script, escapes and line ends come out of the grammar as they stand in the document."""
    asked = {}
    for name, body in BODIES.items():
        fmt, worst = schemas.format_of(Quoted, schemas.Bounds(runs=((body,),)))
        asked[name] = request(name, "Quote a sentence.", document=body, format=fmt, max_tokens=worst)
    replies = contract.run(engine, *asked.values())
    for name, reply in replies.items():
        assert reply.finish == "stop"
        quote = json.loads(reply.text)["quote"]
        assert len(quote) >= 8
        assert quote in BODIES[name]


class Short(BaseModel):
    reason: Annotated[str, schemas.Prose(60), Field(max_length=60)]
    action: schemas.Action
    replacement: Annotated[str, schemas.Rewrite(60), Field(max_length=60)]


def test_worst_case_is_never_exceeded(engine):
    """At a temperature at which the model talks nonsense, ten seeds: every reply ends by itself within its bound."""
    fmt, worst = schemas.format_of(Short)
    asked = [
        request(f"r/{i}", "Write the change.", format=fmt, max_tokens=worst, sampling=Sampling(1.5, 0, 1.0, 0, seed=i))
        for i in range(10)
    ]
    for reply in contract.run(engine, *asked).values():
        assert reply.finish == "stop"
        assert reply.tokens_out <= worst
        Short.model_validate_json(reply.text)


def test_seed_is_the_requests(engine):
    """Two requests that differ in their seed alone differ in their reply; a third with the first's seed does not."""
    asked = [
        request(f"r/{i}", "Why?", max_tokens=10, sampling=Sampling(temperature=1.2, seed=seed))
        for i, seed in enumerate((1, 2, 1))
    ]
    texts = [contract.run(engine, q)[q.key].text for q in asked]
    assert texts[0] == texts[2] != texts[1]


def test_labels_that_begin_alike(engine):
    """Also when one label is the beginning of another the probabilities are those of a choice."""
    reply = contract.run(engine, request("v", "Verdict?", choices=contract.LABELS))["v"]
    assert sum(map(math.exp, reply.scores)) == pytest.approx(1.0, abs=1e-6)
    assert reply.text == contract.LABELS[max(range(4), key=reply.scores.__getitem__)]


def test_several_chains(engine):
    """Labels that part in several places: tokens are taken back between the chains, and the order does not matter."""
    labels = ("alpha one", "alpha two", "beta one", "beta two", "beta two more")
    one, other = request("v/1", "Which?", choices=labels), request("v/2", "Which?", choices=labels[::-1])
    replies = contract.run(engine, one, other)
    scores = [replies["v/1"].scores, replies["v/2"].scores[::-1]]
    assert [math.exp(s) for s in scores[0]] == pytest.approx([math.exp(s) for s in scores[1]], abs=0.1)
    assert sum(map(math.exp, scores[0])) == pytest.approx(1.0, abs=1e-6)


# ---- opening and closing -------------------------------------------------------------------------------------------


def test_not_a_model(tmp_path):
    """A file that is no GGUF: an Integrity error that names it."""
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF, it says")
    with pytest.raises(Integrity, match=r"llama\.cpp cannot load this file"):
        Weights(path)


def test_heads_that_do_not_fit_the_key_type(monkeypatch):
    """Keys are then stored as f16; without memory for that either, the error says so."""
    tried: list[int] = []
    first = C.llama_init_from_model

    def refuses(model: Any, params: Any) -> Any:
        tried.append(params.type_k)
        return first(model, params) if params.type_k == C.GGML_TYPE_F16 and len(tried) < 4 else None

    monkeypatch.setattr(C, "llama_init_from_model", refuses)
    weights = Weights(MODEL)
    LlamaCpp(weights, context_tokens=512, threads=1, cache_type_k="q8_0").close()
    assert tried == [C.GGML_TYPE_Q8_0, C.GGML_TYPE_F16]
    tried += [0]
    with pytest.raises(RunnerError, match="no memory for a context of 512 tokens"):
        LlamaCpp(weights, context_tokens=512, threads=1, cache_type_k="q8_0")
    weights.close()


def test_recurrent_models_are_refused(monkeypatch):
    """They cannot share a prefix, so they are refused when opened."""
    monkeypatch.setattr(C, "llama_model_is_recurrent", lambda model: True)
    with pytest.raises(UsageError) as caught:
        make()
    text = f"{MODEL}: recurrent and hybrid models cannot share a prefix\nhint: use another"
    assert str(caught.value) == text


@pytest.mark.parametrize("in_flight", [False, True])
def test_after_close(monkeypatch, in_flight):
    """A closed engine has nothing to do, and being told that flows ended does not touch freed memory."""
    engine = make(512, 4)
    contract.run(engine, request("r", "Why?", keep=True))
    if in_flight:
        engine.submit("a.md", request("s", "Why?"))
        engine.step()
    engine.close()
    monkeypatch.setattr(C, "llama_memory_seq_rm", lambda *_: pytest.fail("this memory is freed"))
    engine.release("a.md")
    engine.forget("a.md", ["r"])
    assert (engine.busy(), list(engine.step()), list(engine.progress())) == (False, [], [])


def test_identity():
    """Name and version of the engine."""
    from importlib.metadata import version

    engine = make(256, 2)
    engine.close()
    assert engine.identity == f"llama.cpp via llama-cpp-python {version('llama-cpp-python')}"


_CHILD = """
import resource, sys
sys.path.insert(0, sys.argv[1])
import test_llama_cpp as t
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
engine = t.make()
fmt, worst = t.schemas.format_of(t.schemas.ReasonReply)
for i in range(6):
    engine.submit("a.md", t.request(f"r/{i}", "Why?", format=fmt, max_tokens=worst))
for _ in range(6):
    engine.step()
assert engine.busy()
engine.close()
engine.close()
del engine
import gc; gc.collect()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_process_ends_well_and_stays_small():
    """Closed with work in flight, matchers go before the model (or the process would crash); and what was taken is
    the model, its cells and less than 300 MB."""

    child = [sys.executable, "-c", _CHILD, str(Path(__file__).parent)]
    done = subprocess.run(child, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) * 1024 < MODEL.stat().st_size + 2048 * KV_BYTES + 300_000_000


def test_an_empty_pool_begins_at_its_first_cell(shared_engine, monkeypatch):
    """When nobody holds anything any more the cache is cleared, once; while someone does, it is not."""
    cleared, clear = [], C.llama_memory_clear
    monkeypatch.setattr(C, "llama_memory_clear", lambda *a: (cleared.append(a[1]), clear(*a)))
    first = contract.run(shared_engine, request("r", "Why?"), flow="a.md")
    assert cleared == []  # the flow may ask again
    shared_engine.release("a.md")
    shared_engine.release("a.md")
    assert cleared == [False]
    again = contract.run(shared_engine, request("r", "Why?"), flow="b.md")
    shared_engine.release("b.md")
    assert cleared == [False, False]
    assert again["r"].text == first["r"].text
