"""Contexts side by side: which flow goes where, who steps in whose thread, and that neighbours change nothing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import contract
import pytest

from runner.engines.fake import FakeEngine, Options
from runner.engines.llama_cpp import LlamaCpp, Weights
from runner.engines.llama_lanes import Lanes
from runner.errors import RunnerError
from runner.manifests import find_model
from runner.values import Reply


class Nothing:
    """Weights that are not there."""

    vocab = None

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class House:
    """Opens fake contexts; `room` of them. told: threads each was told to run on; threads: where its steps ran."""

    def __init__(self, room: int = 9, options: Options | None = None) -> None:
        self.room, self.options = room, options or Options(per_step=1)
        self.weights = Nothing()
        self.made: list[FakeEngine] = []
        self.told: list[list[tuple[int, bool]]] = []
        self.threads: list[set[str]] = []
        self.flows: list[set[str]] = []
        self.closed: list[int] = []
        self.failing: set[int] = set()

    def open(self) -> FakeEngine:
        if len(self.made) == self.room:
            raise RunnerError("no memory for a context of 12288 tokens", code="engine")
        house, n = self, len(self.made)

        class Context(FakeEngine):
            decode_s, decoded, wasted = 0.5, 10, 1

            def run_on(self, threads: int, *, adapt: bool) -> None:
                house.told[n].append((threads, adapt))

            def submit(self, flow, request) -> None:
                house.flows[n].add(flow)
                super().submit(flow, request)

            def step(self) -> Sequence[tuple[str, Reply]]:
                house.threads[n].add(threading.current_thread().name.split("_")[0])
                if n in house.failing:
                    raise RunnerError("llama_decode failed with -3", code="engine")
                return super().step()

            def close(self) -> None:
                assert not house.weights.closed
                house.closed.append(n)
                super().close()

        self.made.append(Context(self.options))
        self.told.append([])
        self.threads.append(set())
        self.flows.append(set())
        return self.made[-1]


def lanes(house: House, most: int = 2, threads: int = 2, adapt: bool = True) -> Lanes:
    return Lanes(house.weights, house.open, most=most, threads=threads, adapt=adapt)


def ask(engine: Lanes, *names: tuple[str, str]) -> None:
    for flow, key in names:
        engine.submit(flow, contract.request(key))


@pytest.mark.parametrize("case", contract.CASES, ids=contract.name)
@pytest.mark.parametrize("most", [1, 2, 3])
def test_contract(case, most):
    """Lanes are an engine, however many there are."""
    case(lambda: lanes(House(), most))


def test_a_lane_for_each_flow():
    """Opened as flows come, no more than there may be; a flow stays where it is; a free lane is used again."""
    house = House()
    engine = lanes(house)
    ask(engine, ("a", "1"), ("a", "2"))
    assert len(house.made) == 1
    ask(engine, ("b", "1"), ("c", "1"), ("a", "3"))
    assert house.flows == [{"a", "c"}, {"b"}]
    contract.drain(engine)
    engine.release("b")
    engine.release("unknown")
    engine.forget("unknown", ("1",))
    ask(engine, ("d", "1"))
    assert house.flows == [{"a", "c"}, {"b", "d"}]
    contract.drain(engine)
    assert (engine.decode_s, engine.decoded, engine.wasted) == (1.0, 20, 2)
    engine.close()
    assert (house.closed, house.weights.closed) == ([0, 1], 1)


def test_one_at_work_has_all_threads():
    """In the caller's own thread, and it alone may give threads up; two have half of them each, in their own."""
    house = House()
    engine = lanes(house, threads=5)
    ask(engine, ("a", "1"))
    contract.drain(engine)
    assert (house.threads, set(house.told[0])) == ([{"MainThread"}], {(5, True)})
    house.told[0].clear()
    house.threads[0].clear()
    ask(engine, ("a", "2"), ("b", "1"))
    first = engine.step()
    assert len(first) >= 1
    assert (house.told[0][0], house.told[1][0]) == ((2, False), (2, False))
    contract.drain(engine)
    assert "lane" in house.threads[0] & house.threads[1]
    engine.close()


def test_never_fewer_than_one_thread():
    """More lanes than threads."""
    house = House()
    engine = lanes(house, most=3, threads=2)
    ask(engine, ("a", "1"), ("b", "1"), ("c", "1"))
    engine.step()
    assert {told[0] for told in house.told} == {(1, False)}
    contract.drain(engine)
    engine.close()


def test_no_memory_for_one_more():
    """Those that are open have to do, and it is not tried again."""
    house = House(room=1)
    engine = lanes(house, most=4)
    ask(engine, ("a", "1"), ("b", "1"), ("c", "1"))
    assert sorted(flow for flow, _ in contract.drain(engine)) == ["a", "b", "c"]
    engine.close()


def test_no_memory_for_the_first():
    """The weights do not stay behind."""
    house = House(room=0)
    with pytest.raises(RunnerError, match="no memory"):
        lanes(house)
    assert house.weights.closed == 1


def test_what_fails_in_a_lane_ends_the_run():
    """The error comes out of `step`, and closing still frees everything."""
    house = House()
    engine = lanes(house)
    ask(engine, ("a", "1"), ("b", "1"))
    house.failing = {1}
    with pytest.raises(RunnerError, match="llama_decode failed"):
        contract.drain(engine)
    engine.close()
    assert (house.closed, house.weights.closed) == ([0, 1], 1)


def test_submitting_to_a_lane_at_work():
    """It is touched between its steps only; what those answered is not lost."""
    house = House()
    engine = lanes(house)
    ask(engine, ("a", "1"), ("a", "2"), ("b", "1"), ("b", "2"))
    replies = list(engine.step())
    ask(engine, ("a", "3"), ("b", "3"))
    engine.check(contract.request("x"))
    replies += contract.drain(engine)
    assert sorted((flow, r.key) for flow, r in replies) == [(f, k) for f in "ab" for k in "123"]
    assert list(engine.progress()) == []
    engine.close()


# ---- with the model ------------------------------------------------------------------------------------------------


def real(most: int, threads: int = 2) -> Lanes:
    weights = Weights(find_model("smollm2-135m-instruct").path)
    context = partial(LlamaCpp, weights, context_tokens=2048, n_seq_max=16, threads=threads, cache_type_k="q8_0")
    return Lanes(weights, context, most=most, threads=threads, adapt=False)


@pytest.mark.model
@pytest.mark.parametrize("case", contract.CASES, ids=contract.name)
def test_contract_with_the_model(case):
    """Two contexts over one model."""
    case(lambda: real(2))


@pytest.mark.model
def test_neighbours_change_nothing():
    """What a flow is answered, to the last bit of a score: alone on one thread or on two, or beside others."""

    def answers(engine: Lanes, *flows: str) -> dict[str, Reply]:
        for flow in flows:
            for n in range(3):
                engine.submit(flow, contract.request(f"r/{n}", f"Name weakness {n} for {flow}.", max_tokens=40))
            engine.submit(flow, contract.request("v", "Right?", choices=('"YES"', '"NO"')))
        found = {(flow, r.key): (r.text, r.scores, r.tokens_cached) for flow, r in contract.drain(engine)}
        engine.close()
        return {key: found[flow, key] for flow, key in found if flow == "a"}

    alone = answers(real(1, threads=1), "a")
    assert len(alone) == 4
    assert answers(real(2), "a", "b") == alone
    assert answers(real(1, threads=2), "a") == alone
    assert answers(real(3, threads=3), "c", "b", "a") == alone


@pytest.mark.model
def test_closed_while_at_work():
    """The steps under way come to their end before anything is freed."""
    engine = real(2)
    for flow in "ab":
        engine.submit(flow, contract.request("r", max_tokens=200))
    engine.step()
    engine.close()
    engine.close()
