"""The one loop: it runs flows side by side on one engine, and puts every reply on disk before anyone acts on it.

1. A flow waits for its whole `Ask` or `Join`; all other flows fill the engine meanwhile.
2. A reply is journalled and synced before the flow that asked sees it. What the journal knows is not asked again, so
   resuming is running the flows again from the top.
3. A flow that raises a `RunnerError` is over; the others go on. A sub-flow's error is thrown into the parent at its
   `Join`, once all its siblings have ended; of several errors, the first in the order of the sub-flows.
4. There is no cancellation; a deadline is the engine's.
5. Every flow that can go on does so before the engine makes a step, in the order the flows were started, so requests
   that share a prefix wait together. The order in which replies arrive decides no result.
6. One recovery path. What the engine, the journal or the keyboard raises ends the run (the journal synced, the flows
   closed), and so does an error that is not a `RunnerError`: a bug of ours. Running again is the only repair.

Flows talk through exactly three values: `Ask`, `Publish`, `Join`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runner.errors import RunnerError
from runner.journal import Journal
from runner.values import Ask, Document, Flow, Join, Publish, Reply, Request

if TYPE_CHECKING:
    from runner.engines.base import Engine, Progress


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a flow ended: what it returned, or the error that ended it."""

    result: Any = None
    error: RunnerError | None = None


@dataclass(slots=True, eq=False)
class _Task:
    """A flow or a sub-flow. It waits for `keys` (an Ask) or for `children` (a Join), never for both."""

    number: int  # order of starting
    flow: str
    steps: Flow
    parent: _Task | None = None
    keys: tuple[str, ...] | None = None
    fresh: tuple[Request, ...] = ()  # of the Ask, what has yet to be submitted
    missing: set[str] = field(default_factory=set)
    children: list[_Task] | None = None
    kept: list[str] = field(default_factory=list)
    outcome: Outcome | None = None


def run(
    flows: Iterable[tuple[str, Flow]],
    engine: Engine,
    journal: Journal,
    publish: Callable[[str, Document], None],
    observe: Callable[[Sequence[Progress]], None] | None = None,
    max_running: int = 8,
    *,
    manifest_sha256: Callable[[str], str],
) -> dict[str, Outcome]:
    """Run all flows to their end; what each came to, by its id, in the order of `flows`.

    flows: taken one by one, never more than `max_running` at work at a time. A flow's journal is open before its
    first Ask (the flow may open it itself). publish: write a document of this flow, durably. observe: called after
    each step of the engine. manifest_sha256: of a request's `model`. The engine stays open.
    """
    loop = _Loop(engine, journal, publish, manifest_sha256)
    waiting = iter(flows)
    try:
        while loop.admit(waiting, max_running):
            if loop.asked:
                loop.step()
                if observe is not None:
                    observe(engine.progress())
    except BaseException:
        with suppress(RunnerError):  # the error under way is the one to report
            journal.sync()
        raise
    finally:
        loop.close()
    return loop.outcomes()


class _Loop:
    """What `run` knows while it runs. replies, digests: per flow, by key."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        publish: Callable[[str, Document], None],
        manifest_sha256: Callable[[str], str],
    ) -> None:
        self.engine = engine
        self.journal = journal
        self.publish = publish
        self.manifest_sha256 = manifest_sha256
        self.top: dict[str, _Task] = {}
        self.alive: dict[int, _Task] = {}
        self.started = 0
        self.asked: dict[tuple[str, str], list[_Task]] = {}
        self.replies: dict[str, dict[str, Reply]] = {}
        self.digests: dict[str, dict[str, str]] = {}

    # ---- the outer loop --------------------------------------------------------------------------------------------

    def admit(self, waiting: Iterator[tuple[str, Flow]], max_running: int) -> bool:
        """Start flows until the house is full; False when there is nothing left to do."""
        while len(self.replies) < max(1, max_running):
            entry = next(waiting, None)
            if entry is None:
                break
            flow, steps = entry
            if flow in self.top:
                raise RunnerError(f"the flow {flow} was given twice", hint="each artifact is reviewed once a run")
            self.replies[flow], self.digests[flow] = {}, {}
            self.top[flow] = self._start(flow, steps, None)
            self._go_on([self.top[flow]])
        return bool(self.replies)

    def step(self) -> None:
        """One step of the engine: record what it answered, then wake whoever has all replies."""
        arrived = self.engine.step()
        for flow, reply in arrived:
            if (flow, reply.key) not in self.asked:
                raise RunnerError(f"the engine answered {reply.key} of {flow}, which nobody waits for")
            self.journal.add(flow, self.digests[flow][reply.key], reply)
        self.journal.sync()
        if not arrived and not self.engine.busy():
            keys = ", ".join(f"{key} of {flow}" for flow, key in self.asked)
            raise RunnerError(f"the engine has lost these requests: {keys}")
        self._go_on([task for flow, reply in arrived for task in self._deliver(flow, reply)])

    def close(self) -> None:
        """End the flows that are still at work, sub-flows first, so that their `finally` runs now."""
        for number in sorted(self.alive, reverse=True):
            self.alive[number].steps.close()

    def outcomes(self) -> dict[str, Outcome]:
        return {flow: task.outcome or Outcome() for flow, task in self.top.items()}

    # ---- one task --------------------------------------------------------------------------------------------------

    def _start(self, flow: str, steps: Flow, parent: _Task | None) -> _Task:
        task = _Task(self.started, flow, steps, parent)
        self.started += 1
        self.alive[task.number] = task
        return task

    def _go_on(self, ready: list[_Task]) -> None:
        """Advance these and all who can go on because of them."""
        ready = sorted(ready, key=lambda task: task.number)
        while ready:
            ready = self._advance(ready.pop(0)) + ready

    def _advance(self, task: _Task) -> list[_Task]:
        """Let the task run until it waits or ends; whoever can go on now: its sub-flows, or its parent."""
        value = self._waited_for(task)
        while True:
            try:
                wish = task.steps.throw(value) if isinstance(value, RunnerError) else task.steps.send(value)
            except StopIteration as end:
                return self._end(task, Outcome(result=end.value))
            except RunnerError as error:
                return self._end(task, Outcome(error=error))
            try:
                self._grant(task, wish)
            except RunnerError as error:
                value = error
                continue
            self._submit(task)
            if task.missing or task.children:
                return list(task.children or ())
            value = self._waited_for(task)

    def _waited_for(self, task: _Task) -> Any:
        """The replies of its Ask, the results (or the first error) of its Join, or None; then it waits no more."""
        keys, children = task.keys, task.children
        task.keys = task.children = None
        if keys is not None:
            return tuple(self.replies[task.flow][key] for key in keys)
        if children is not None:
            outcomes = [child.outcome or Outcome() for child in children]
            first = next((o.error for o in outcomes if o.error is not None), None)
            return first or tuple(o.result for o in outcomes)
        return None

    def _end(self, task: _Task, outcome: Outcome) -> list[_Task]:
        task.outcome = outcome
        del self.alive[task.number]
        if task.parent is None:
            self.engine.release(task.flow)
            self.journal.close(task.flow)
            del self.replies[task.flow], self.digests[task.flow]
            return []
        if task.kept:
            self.engine.forget(task.flow, tuple(task.kept))
        siblings = task.parent.children or ()
        return [task.parent] if all(child.outcome is not None for child in siblings) else []

    # ---- what a flow may yield -------------------------------------------------------------------------------------

    def _grant(self, task: _Task, wish: object) -> None:
        """Do what the flow asks for, or note what it waits for. A RunnerError is the flow's to deal with."""
        match wish:
            case Ask(requests=requests):
                self._ask(task, requests)
            case Publish(document=document):
                self.publish(task.flow, document)
            case Join(flows=flows):
                _check_flows(task.flow, flows)
                task.children = [self._start(task.flow, steps, task) for steps in flows]
            case _:
                raise _alien(task.flow, wish)

    def _ask(self, task: _Task, requests: tuple[Request, ...]) -> None:
        """Answer from the journal what it knows; the rest is checked, all of it, before any is submitted."""
        digests, replies = self.digests[task.flow], self.replies[task.flow]
        asked, fresh = dict(digests), dict[str, Request]()
        for request in requests:
            digest = request.digest(self.manifest_sha256(request.model))
            if asked.setdefault(request.key, digest) != digest:
                raise RunnerError(f"two different requests of {task.flow} have the key {request.key}")
            if request.key in digests or request.key in fresh:
                continue
            found = self.journal.answer(task.flow, request.key, digest)
            if found is None:
                self.engine.check(request)
                fresh[request.key] = request
            else:
                replies[request.key] = found
        digests.update(asked)
        task.fresh = tuple(fresh.values())
        task.keys = tuple(request.key for request in requests)
        task.kept += [request.key for request in requests if request.keep]

    def _submit(self, task: _Task) -> None:
        for request in task.fresh:
            self.engine.submit(task.flow, request)
            self.asked[task.flow, request.key] = []
        task.fresh = ()
        task.missing = {key for key in task.keys or () if key not in self.replies[task.flow]}
        for key in task.missing:
            self.asked[task.flow, key].append(task)

    def _deliver(self, flow: str, reply: Reply) -> list[_Task]:
        """Whoever waited for this reply alone."""
        self.replies[flow][reply.key] = reply
        waiting = self.asked.pop((flow, reply.key))
        for task in waiting:
            task.missing.discard(reply.key)
        return [task for task in waiting if not task.missing]


def _check_flows(flow: str, flows: object) -> None:
    if not isinstance(flows, tuple):
        raise _alien(flow, flows)
    for steps in flows:
        if not isinstance(steps, Generator):
            raise _alien(flow, steps)
    if len({id(steps) for steps in flows}) < len(flows):
        raise RunnerError(f"a Join of the flow {flow} holds one sub-flow twice")


def _alien(flow: str, wish: object) -> RunnerError:
    """What was yielded instead of Ask, Publish or Join, and what was probably meant."""
    return RunnerError(
        f"the flow {flow} yielded {reprlib.repr(wish)}, which is not Ask, Publish or Join", hint=_guess(wish)
    )


def _guess(wish: object) -> str:
    first = next(iter(wish), None) if isinstance(wish, (tuple, list)) else wish
    if isinstance(first, Request):
        return "put requests into an Ask: yield Ask((request,))"
    if isinstance(first, Document):
        return "put the document into a Publish: yield Publish(document)"
    if isinstance(first, Generator):
        return "run a sub-flow with `yield from flow`, or several side by side with yield Join((flow, flow))"
    if hasattr(first, "__await__"):
        return "this looks written for asyncio; a flow is a plain generator"
    if callable(first):
        return "a sub-flow is the generator that the function returns: call it"
    return "a flow talks to the scheduler through these three only; a bare `yield` says nothing"
