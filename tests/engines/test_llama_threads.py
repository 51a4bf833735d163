"""Threads of llama.cpp: given up while others need the cores, taken back when they are idle."""

from __future__ import annotations

import pytest

from runner.engines import llama_threads
from runner.engines.llama_threads import Threads, decide, idle_s


@pytest.mark.parametrize(
    ("now", "most", "got", "free", "then"),
    [
        (2, 2, 1.97, 0.05, 2),  # all ours
        (2, 2, 1.5, 0.0, 1),  # one other process on two cores
        (2, 2, 1.5, 0.9, 2),  # we did not use them ourselves
        (8, 8, 6.1, 0.2, 6),
        (8, 8, 7.8, 0.0, 8),
        (1, 2, 0.6, 0.0, 1),  # never none
        (1, 2, 1.0, 1.0, 2),  # the other one has gone
        (1, 2, 1.0, 0.5, 1),  # half a core is not one
        (1, 8, 1.0, 5.0, 6),
        (6, 8, 6.0, 5.0, 8),  # never more than was asked for
    ],
)
def test_decide(now, most, got, free, then):
    """From the cores we had and those nobody had."""
    assert decide(now, most, got, free) == then


class World:
    """A clock, and how many cores are idle."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at, self.idle = 0.0, 0.0
        self.applied: list[int] = []
        monkeypatch.setattr(llama_threads.time, "monotonic", lambda: self.at)

    def run(self, threads: Threads, seconds: float, got: float, free: float) -> None:
        for _ in range(round(seconds / 0.5)):
            self.at += 0.5
            self.idle += free * 0.5
            threads.inside(0.5, got * 0.5)


def test_given_up_and_taken_back(monkeypatch):
    """A busy neighbour: one thread less; it goes: one more, and only changes are told."""
    world = World(monkeypatch)
    threads = Threads(2, world.applied.append, lambda: world.idle)
    world.run(threads, 3, got=2.0, free=0.0)
    assert (threads.now, world.applied) == (2, [])
    world.run(threads, 3, got=1.4, free=0.0)
    assert (threads.now, world.applied) == (1, [1])
    world.run(threads, 3, got=1.0, free=1.0)
    assert (threads.now, world.applied) == (2, [1, 2])


def test_patience(monkeypatch):
    """A core that is lost again each time it is taken back is tried ever more rarely."""
    world = World(monkeypatch)
    threads = Threads(2, world.applied.append, lambda: world.idle)
    for _ in range(60):
        world.run(threads, 0.5, got=1.3, free=0.0)
        world.run(threads, 0.5, got=1.0, free=1.0)
    assert len(world.applied) < 16


def test_short_times_are_not_judged(monkeypatch):
    """A look needs half a second inside the model."""
    world = World(monkeypatch)
    threads = Threads(2, world.applied.append, lambda: world.idle)
    threads.inside(0.2, 0.1)
    threads.inside(0.2, 0.1)
    assert world.applied == []


def test_a_system_that_does_not_say(monkeypatch):
    """Without /proc/stat nothing changes."""
    world = World(monkeypatch)
    threads = Threads(4, world.applied.append, lambda: None)
    world.run(threads, 5, got=1.0, free=0.0)
    assert world.applied == []


def test_idle_time_of_this_machine():
    """Seconds, never going back."""
    first = idle_s()
    assert first is not None
    assert 0 <= first <= idle_s()
