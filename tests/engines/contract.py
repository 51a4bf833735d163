"""What every engine must do, as plain functions of a factory: each gets `make() -> Engine`, a fresh engine.

An engine's own test module runs them all:

    @pytest.mark.parametrize("case", contract.CASES, ids=contract.name)
    def test_contract(case): case(make)

Nothing here knows which engine it is, how good its replies are, or how many a step gives.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from runner.engines.base import Engine, Progress
from runner.errors import UsageError
from runner.values import Format, Message, Reply, Request, Sampling, Segment

Make = Callable[[], Engine]

LABELS = ("CONCEDE", "CONCEDE-IN-PART", "DEFER", "REJECT")
FINISHES = ("stop", "length", "degenerate", "timeout", "error")
PASSAGE = "The cache is never invalidated. We retry three times, then give up. Nobody owns the rollback."
_SCHEMA = {
    "type": "object",
    "properties": {
        "quote": {"type": "string", "maxLength": 200},
        "kind": {"enum": ["risk", "omission"]},
        "sure": {"type": "boolean"},
    },
    "required": ["quote", "kind", "sure"],
    "additionalProperties": False,
}
_LARK = """%llguidance {}
start: "{\\"quote\\":\\"" QUOTE "\\",\\"kind\\":" kind ",\\"sure\\":" sure "}"
kind: "\\"risk\\"" | "\\"omission\\""
sure: "true" | "false"
SUB: %regex {"substring_chunks": ["The cache is never invalidated.", " ", "We retry three times, then give up.", " ", \
"Nobody owns the rollback."]}
QUOTE: SUB & /(?s:.{12,200})/
"""
FORMAT = Format(_LARK, json.dumps(_SCHEMA), (PASSAGE,))
RULES = Segment("You review decisions. Answer briefly.\n", trusted=True)
DOCUMENT = Segment(PASSAGE + "\n", trusted=False)


def request(key: str, task: str = "Name one weakness.", **changes: object) -> Request:
    """A small request over the common document; its first two segments are shareable."""
    segments = (RULES, DOCUMENT, Segment(task, trusted=True))
    values = {"max_tokens": 96, "shared": (2,), "sampling": Sampling(seed=len(key))} | changes
    return Request(key, "default", (Message("user", segments),), **values)


def drain(engine: Engine) -> list[tuple[str, Reply]]:
    """Step until nothing is left."""
    replies: list[tuple[str, Reply]] = []
    for _ in range(100_000):
        if not engine.busy():
            return replies
        replies += engine.step()
    raise AssertionError("the engine is still busy after 100,000 steps")


def run(engine: Engine, *requests: Request, flow: str = "a.md") -> dict[str, Reply]:
    for one in requests:
        engine.submit(flow, one)
    return {reply.key: reply for _, reply in drain(engine)}


def check_idle(make: Make) -> None:
    """A fresh engine has nothing to do, and a step of it gives nothing."""
    engine = make()
    try:
        assert engine.identity
        assert (engine.busy(), list(engine.step()), list(engine.progress())) == (False, [], [])
    finally:
        engine.close()


def check_every_reply_once(make: Make) -> None:
    """Each request of each flow is answered exactly once, under its own name; counts are plausible."""
    engine = make()
    try:
        names = [(flow, f"r/{i}") for flow in ("a.md", "b.md") for i in range(3)]
        for flow, key in names:
            engine.check(request(key))
            engine.submit(flow, request(key))
        assert engine.busy()
        replies = drain(engine)
        assert sorted((flow, reply.key) for flow, reply in replies) == names
        for _, reply in replies:
            assert reply.finish in FINISHES
            assert reply.scores == ()
            assert reply.tokens_in > 0
            assert 0 <= reply.tokens_cached <= reply.tokens_in
            assert 0 <= reply.forced <= reply.tokens_out <= 96
        assert list(engine.step()) == []
    finally:
        engine.close()


def check_submit_while_running(make: Make) -> None:
    """A request that comes while others run is answered too."""
    engine = make()
    try:
        for key in ("r/0", "r/1"):
            engine.submit("a.md", request(key))
        replies = list(engine.step())
        engine.submit("a.md", request("r/2"))
        replies += drain(engine)
        assert sorted(reply.key for _, reply in replies) == ["r/0", "r/1", "r/2"]
    finally:
        engine.close()


def check_progress(make: Make) -> None:
    """Progress names requests in flight only, with their bound."""
    engine = make()
    try:
        engine.submit("a.md", request("r/0"))
        engine.submit("a.md", request("r/1"))
        while engine.busy():
            done = {reply.key for _, reply in engine.step()}
            for p in engine.progress():
                assert isinstance(p, Progress)
                assert (p.flow, p.expected) == ("a.md", 96)
                assert p.key in {"r/0", "r/1"} - done
                assert 0 <= p.tokens_out <= p.expected
    finally:
        engine.close()


def check_format(make: Make) -> None:
    """A reply with a format is JSON by its schema, and its quote stands in the passage.

    An engine that follows the schema only, not the grammar, says so (`grammar = False`); its quotes are the host's to
    check.
    """
    engine = make()
    try:
        replies = run(engine, *(request(f"r/{i}", format=FORMAT) for i in range(3)))
    finally:
        engine.close()
    for reply in replies.values():
        assert reply.finish == "stop"
        value = json.loads(reply.text)
        assert list(value) == ["quote", "kind", "sure"]
        assert value["kind"] in ("risk", "omission")
        assert isinstance(value["sure"], bool)
        assert len(value["quote"]) <= 200
        if getattr(engine, "grammar", True):
            assert len(value["quote"]) >= 12
            assert value["quote"] in PASSAGE


def check_choices(make: Make) -> None:
    """One log-probability per label, in the request's order, summing to 1; or a refusal when it does not score."""
    engine = make()
    asked = request("v", "Verdict:", choices=LABELS, max_tokens=8)
    try:
        if not engine.scores:
            with pytest.raises(UsageError):
                engine.check(asked)
            return
        engine.check(asked)
        reply = run(engine, asked)["v"]
    finally:
        engine.close()
    assert reply.finish == "stop"
    assert len(reply.scores) == len(LABELS)
    assert math.isclose(sum(math.exp(score) for score in reply.scores), 1.0, abs_tol=1e-3)


def check_deterministic(make: Make) -> None:
    """The same submissions to a fresh engine give the same texts and scores, unless it says `repeatable = False`."""
    asked = [request("r/0"), request("r/1", format=FORMAT)]
    seen = []
    for _ in range(2):
        engine = make()
        try:
            scored = [request("v", "Verdict:", choices=LABELS, max_tokens=8)] if engine.scores else []
            seen.append({key: (r.text, r.finish, r.scores) for key, r in run(engine, *asked, *scored).items()})
        finally:
            engine.close()
    if getattr(engine, "repeatable", True):
        assert seen[0] == seen[1]


def check_deadline(make: Make) -> None:
    """A request that takes longer than its deadline ends as `timeout`, and leaves the others alone."""
    engine = make()
    try:
        replies = run(engine, request("late", deadline_s=1e-6), request("r/0"))
    finally:
        engine.close()
    assert replies["late"].finish == "timeout" or replies["late"].ms == 0  # one that takes no time keeps any deadline
    assert replies["r/0"].finish in ("stop", "length")


def check_too_long(make: Make) -> None:
    """A request that can never fit is refused with numbers before it is submitted, and leaves no trace."""
    engine = make()
    try:
        with pytest.raises(UsageError, match=r"\d"):
            engine.check(request("long", "word " * 200_000))
        assert not engine.busy()
        assert set(run(engine, request("r/0"))) == {"r/0"}
    finally:
        engine.close()


def check_continues(make: Make) -> None:
    """A request can continue one that was kept; also one that was never kept, because keeping is a hint."""
    engine = make()
    try:
        first = run(engine, request("reason", keep=True))["reason"]
        longer = (
            *request("reason").messages,
            Message("assistant", (Segment(first.text, trusted=False),)),
            Message("user", (Segment("Sum it up.", trusted=True),)),
        )
        after = Request("sum", "default", longer, 48, continues="reason")
        assert set(run(engine, after)) == {"sum"}
        engine.forget("a.md", ["reason"])
        assert set(run(engine, Request("sum~2", "default", longer, 48, continues="reason"))) == {"sum~2"}
    finally:
        engine.close()


def check_forget_and_release(make: Make) -> None:
    """Both are harmless twice, for what is unknown, and do not stop the engine from being used."""
    engine = make()
    try:
        run(engine, request("r/0", keep=True))
        for _ in range(2):
            engine.forget("a.md", ["r/0", "never asked"])
            engine.release("a.md")
            engine.release("never heard of")
        assert set(run(engine, request("r/0"))) == {"r/0"}
    finally:
        engine.close()


def check_release_spares_others(make: Make) -> None:
    """A flow that ends takes nothing from one that still waits."""
    engine = make()
    try:
        run(engine, request("r/0"), flow="a.md")
        engine.submit("b.md", request("r/1"))
        engine.release("a.md")
        assert [(flow, reply.key) for flow, reply in drain(engine)] == [("b.md", "r/1")]
    finally:
        engine.close()


def check_close(make: Make) -> None:
    """Closing twice is as good as once, also with work in flight."""
    engine = make()
    engine.submit("a.md", request("r/0"))
    engine.close()
    engine.close()


CASES: tuple[Callable[[Make], None], ...] = (
    check_idle,
    check_every_reply_once,
    check_submit_while_running,
    check_progress,
    check_format,
    check_choices,
    check_deterministic,
    check_deadline,
    check_too_long,
    check_continues,
    check_forget_and_release,
    check_release_spares_others,
    check_close,
)


def name(case: Callable[[Make], None]) -> str:
    return case.__name__.removeprefix("check_")
