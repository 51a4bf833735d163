"""Several models as one engine: the common contract, and where requests go."""

from __future__ import annotations

from collections.abc import Sequence

import contract
import pytest

from runner.engines.fake import FakeEngine, FakeTokenizer, Options
from runner.engines.pool import Member, Pool
from runner.errors import UsageError
from runner.values import Reply


class House:
    """Opens fake engines under names, and keeps count of which are open."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.most = 0
        self.log: list[str] = []
        self.made: dict[str, FakeEngine] = {}

    def member(self, name: str, size: int = 100) -> Member:
        return Member(lambda: self._opened(name), FakeTokenizer, size)

    def _opened(self, name: str) -> FakeEngine:
        house = self

        class Counted(FakeEngine):
            def close(self) -> None:
                if name in house.open:
                    house.open.remove(name)
                    house.log.append(f"close {name}")
                super().close()

        self.open.append(name)
        self.log.append(f"open {name}")
        self.most = max(self.most, len(self.open))
        self.made[name] = Counted(Options(per_step=1))
        return self.made[name]


def pool(house: House, memory: int) -> Pool:
    members = {"default": house.member("default"), "defender": house.member("defender")}
    return Pool(members, {"default": "default", "defender": "defender"}, memory)


@pytest.mark.parametrize("case", contract.CASES, ids=contract.name)
@pytest.mark.parametrize("memory", [0, 1000])
def test_contract(case, memory):
    """A pool is an engine, whether its models fit side by side or not."""
    case(lambda: pool(House(), memory))


def ask(engine: Pool, *pairs: tuple[str, str]) -> None:
    for key, role in pairs:
        made = contract.request(key)
        engine.submit("a.md", type(made)(key, role, made.messages, made.max_tokens))


def order(replies: Sequence[tuple[str, Reply]]) -> list[str]:
    return [reply.key for _, reply in replies]


def test_one_after_the_other():
    """Without room for both, a model is drained before the next is loaded; at no time are two open."""
    house = House()
    engine = pool(house, memory=0)
    ask(engine, ("r/1", "default"), ("d/1", "defender"), ("r/2", "default"), ("d/2", "defender"))
    found = order(contract.drain(engine))
    assert (sorted(found[:2]), sorted(found[2:])) == (["r/1", "r/2"], ["d/1", "d/2"])
    assert (house.most, house.log) == (1, ["open default", "close default", "open defender"])
    engine.close()
    assert house.open == []


def test_side_by_side():
    """With room for both, both are loaded, each once."""
    house = House()
    engine = pool(house, memory=1000)
    ask(engine, ("r/1", "default"), ("d/1", "defender"), ("r/2", "default"))
    assert sorted(order(contract.drain(engine))) == ["d/1", "r/1", "r/2"]
    assert (house.most, house.log) == (2, ["open default", "open defender"])


def test_nothing_is_loaded_before_it_is_asked():
    """Opening a pool and checking requests loads no model; only the model that is asked is loaded."""
    house = House()
    engine = pool(house, memory=1000)
    engine.check(contract.request("r/1"))
    assert house.log == []
    ask(engine, ("r/1", "reviewers"))  # a role without a model of its own
    contract.drain(engine)
    assert house.log == ["open default"]


def test_a_request_only_the_model_itself_refuses():
    """It ends in an error of its own; the others are answered."""
    house = House()
    engine = pool(house, memory=1000)
    ask(engine, ("r/0", "default"))
    contract.drain(engine)

    def refuses(request):
        if request.key == "r/bad":
            raise UsageError("no")

    ask(engine, ("r/bad", "default"), ("r/good", "default"))
    house.made["default"].check = refuses
    assert {r.key: r.finish for _, r in contract.drain(engine)} == {"r/bad": "error", "r/good": "stop"}
