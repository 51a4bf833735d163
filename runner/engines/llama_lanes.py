"""Several llama.cpp contexts over one loaded model: each artifact at work has cells and threads of its own.

Why. The threads of one context meet after every operation, hundreds of times per token, and attention looks at every
cell of the context, whoever owns it. So on a few cores two contexts on one thread each get more done than one context
on two threads that holds both artifacts. A large model is another matter: there the time goes into reading its
weights, and one context reads them once for all that run (`kv_unified: true` in the profile).

How. A *lane* is a context with a share of the threads. All requests of a flow go to one lane, so what an artifact's
reviewers say does not depend on what else is running. Lanes step side by side, each in a thread of its own; a lane is
touched from outside only between its steps. One lane alone steps in the caller's thread, with all threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Protocol

from runner.engines.base import Engine, Progress
from runner.errors import RunnerError
from runner.values import Reply, Request

Replies = list[tuple[str, Reply]]

_SLICE_S = 0.1  # a lane works so long before it is looked at, or until a request has ended


class Weights(Protocol):
    """What all contexts stand on: a loaded model, freed after them."""

    vocab: Any

    def close(self) -> None: ...


class Context(Engine, Protocol):
    """See llama_cpp.LlamaCpp."""

    context_tokens: int
    decode_s: float
    decoded: int
    wasted: int

    def run_on(self, threads: int, *, adapt: bool) -> None: ...


@dataclass(eq=False, slots=True)
class Lane:
    """flows: those that run here. work: the steps under way in another thread. seen: its progress after them."""

    engine: Context
    flows: set[str] = field(default_factory=set)
    work: Future[Replies] | None = None
    seen: Sequence[Progress] = ()

    @property
    def busy(self) -> bool:
        return self.work is not None or self.engine.busy()

    def run(self) -> Replies:
        """Some steps."""
        until, done = time.monotonic() + _SLICE_S, Replies()
        while not done and self.engine.busy() and time.monotonic() < until:
            done += self.engine.step()
        self.seen = self.engine.progress()
        return done

    def ended(self) -> Replies:
        """Wait for the steps under way; what they answered."""
        work, self.work = self.work, None
        return [] if work is None else work.result()


class Lanes:
    """See engines.base.Engine. open_context: a context over the weights; it is called once now, and once more whenever
    a flow comes and none is free, for `most` in all. threads: of the lanes at work together. adapt: see llama_threads.
    """

    scores = True

    def __init__(
        self, weights: Weights, open_context: Callable[[], Context], *, most: int, threads: int, adapt: bool
    ) -> None:
        self._weights, self._open = weights, open_context
        self._most, self._threads, self._adapt = most, threads, adapt
        try:
            self._lanes = [Lane(open_context())]
        except BaseException:
            weights.close()
            raise
        self._answered = Replies()  # by steps that ended while something else was asked of their lane
        self._workers: ThreadPoolExecutor | None = None
        self._closed = False
        self.vocab = weights.vocab
        self.identity = self._lanes[0].engine.identity

    @property
    def context_tokens(self) -> int:
        return self._lanes[0].engine.context_tokens

    @property
    def decode_s(self) -> float:
        """Seconds inside llama_decode, of all lanes together."""
        return sum(lane.engine.decode_s for lane in self._lanes)

    @property
    def decoded(self) -> int:
        return sum(lane.engine.decoded for lane in self._lanes)

    @property
    def wasted(self) -> int:
        return sum(lane.engine.wasted for lane in self._lanes)

    # ---- lanes -----------------------------------------------------------------------------------------------------

    def _still(self, lane: Lane) -> Context:
        """The lane's engine, once its steps have ended."""
        self._answered += lane.ended()
        return lane.engine

    def _known(self, flow: str) -> Lane | None:
        return next((lane for lane in self._lanes if flow in lane.flows), None)

    def _place(self, flow: str) -> Lane:
        """A lane for this flow: a free one, a new one, or the one with the fewest flows."""
        least = min(self._lanes, key=lambda lane: len(lane.flows))
        if least.flows and len(self._lanes) < self._most:
            try:
                least = Lane(self._open())
            except RunnerError:  # no memory for one more: those that are open have to do
                self._most = len(self._lanes)
            else:
                self._lanes.append(least)
        least.flows.add(flow)
        return least

    def _side_by_side(self, busy: Sequence[Lane]) -> None:
        """Set every lane going that is not, in a thread of its own."""
        if self._workers is None:
            self._workers = ThreadPoolExecutor(self._most, "lane")
        for lane in busy:
            if lane.work is None:
                lane.engine.run_on(max(1, self._threads // len(busy)), adapt=False)
                lane.work = self._workers.submit(lane.run)

    # ---- the contract ----------------------------------------------------------------------------------------------

    def check(self, request: Request) -> None:
        """Every lane would say the same."""
        lane = next((lane for lane in self._lanes if lane.work is None), self._lanes[0])
        self._still(lane).check(request)

    def submit(self, flow: str, request: Request) -> None:
        self._still(self._known(flow) or self._place(flow)).submit(flow, request)

    def step(self) -> Sequence[tuple[str, Reply]]:
        busy = [lane for lane in self._lanes if lane.busy]
        if not self._answered and len(busy) == 1 and busy[0].work is None:
            busy[0].engine.run_on(self._threads, adapt=self._adapt)
            done = busy[0].engine.step()
            busy[0].seen = busy[0].engine.progress()
            return done
        if busy:
            self._side_by_side(busy)
        if not self._answered:
            wait([lane.work for lane in busy if lane.work is not None], return_when=FIRST_COMPLETED)
        for lane in busy:
            if lane.work is not None and lane.work.done():
                self._answered += lane.ended()
        done, self._answered = self._answered, []
        return done

    def busy(self) -> bool:
        return bool(self._answered) or any(lane.busy for lane in self._lanes)

    def progress(self) -> Sequence[Progress]:
        return [p for lane in self._lanes for p in lane.seen]

    def forget(self, flow: str, keys: Sequence[str]) -> None:
        if (lane := self._known(flow)) is not None:
            self._still(lane).forget(flow, keys)

    def release(self, flow: str) -> None:
        if (lane := self._known(flow)) is not None:
            self._still(lane).release(flow)
            lane.flows.discard(flow)

    def close(self) -> None:
        """Steps under way come to their end first: nothing is freed under them."""
        if self._closed:
            return
        self._closed = True
        if self._workers is not None:
            self._workers.shutdown(wait=True)
        for lane in self._lanes:
            lane.engine.close()
        self._weights.close()
