"""A thread with a connection of its own: it sends one request at a time, again if need be, and reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from runner.engines.server_http import Failed, Link
from runner.engines.server_kinds import Answer, Kind
from runner.engines.server_prompts import Call, Prompt
from runner.engines.server_slots import Plan, prepare
from runner.errors import UsageError
from runner.values import Finish, Reply, Request

MAX_BACKOFF_S = 8.0


@dataclass(eq=False, slots=True)
class Job:
    """A request on its way. rank: requests with the same prefix stand together. started: when it was admitted."""

    flow: str
    request: Request
    prompt: Prompt
    keys: tuple[bytes, ...]  # one for each shared prefix, the longest last
    rank: tuple[int, int, int]
    started: float = 0.0

    def left_s(self) -> float:
        """Seconds to its deadline."""
        deadline = self.request.deadline_s
        return float("inf") if deadline is None else self.started + deadline - time.monotonic()


@dataclass(frozen=True, slots=True)
class Ended:
    """held: tokens of prompt and reply. failed: why there is no answer. broke: it failed on its way."""

    job: Job
    reply: Reply
    plan: Plan | None = None
    held: tuple[int, ...] = ()
    failed: str = ""
    broke: bool = False


@dataclass(frozen=True, slots=True)
class Built:
    plan: Plan
    saved: bool


@dataclass(frozen=True, slots=True)
class Probed:
    """kind: what answers there; None: nothing that could be used, for the reason in `failed`."""

    kind: Kind | None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Crashed:
    """A bug of ours; without this the engine would wait for ever."""

    error: Exception


Report = Ended | Built | Probed | Crashed


class Worker:
    def __init__(
        self, number: int, link: Link, outbox: SimpleQueue[tuple[Worker, Report]], closing: threading.Event,
        *, retries: int, timeout_s: float, backoff_s: float,
    ) -> None:  # fmt: skip
        self.number = number
        self._link = link
        self._outbox = outbox
        self._closing = closing
        self._retries = retries
        self._timeout_s = timeout_s
        self._backoff_s = backoff_s
        self._inbox: SimpleQueue[Callable[[], Report] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def send(self, job: Job, kind: Kind, plan: Plan | None) -> None:
        """Answer this job; the outbox gets an Ended, and before it a Built when the plan has something to save."""
        job.started = time.monotonic()
        self._give(lambda: self._answer(job, kind, plan))

    def probe(self, discover: Callable[[Call], Kind]) -> None:
        """See whether the server answers again; the outbox gets a Probed."""
        self._give(lambda: self._probe(discover))

    def close(self) -> None:
        """End what is under way, and the thread. The engine's `closing` is set before."""
        if self._thread is not None:
            self._link.end()
            self._inbox.put(None)
            self._thread.join(2.0)
            if self._thread.is_alive():  # it is connecting; it ends by its own limit
                return
        self._link.close()

    def _give(self, task: Callable[[], Report]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._inbox.put(task)

    def _run(self) -> None:
        while (task := self._inbox.get()) is not None:
            try:
                report = task()
            except Exception as e:
                report = Crashed(e)
            self._outbox.put((self, report))

    # ---- in the thread -------------------------------------------------------------------------------------------

    def _answer(self, job: Job, kind: Kind, plan: Plan | None) -> Ended:
        tries = 0
        while True:
            try:
                answer = self._try(job, kind, plan, first=tries == 0)
            except Failed as e:
                if job.left_s() <= 0:
                    return self._without(job, plan, "timeout", "")
                tries += 1
                if not e.again or tries > self._retries or self._wait(e, tries, job):
                    return self._without(job, plan, "error", e.what, broke=e.again)
                if job.left_s() <= 0:
                    return self._without(job, plan, "timeout", "")
            else:
                held = (*(job.prompt.ids or ()), *answer.out)
                return Ended(job, _reply(job, answer), plan, held)

    def _try(self, job: Job, kind: Kind, plan: Plan | None, *, first: bool) -> Answer:
        def call(method: str, path: str, body: object) -> Any:
            limit_s = min(self._timeout_s, job.left_s())
            if limit_s <= 0:
                raise Failed("its deadline is over", again=False)
            return self._link.call(method, path, body, limit_s=limit_s)

        if plan is not None and first:
            self._prepare(call, plan)
        path, body = kind.body(job.request, job.prompt)
        if plan is not None:
            body["id_slot"] = plan.slot
        return kind.read(call("POST", path, body))

    def _prepare(self, call: Call, plan: Plan) -> None:
        """Others wait for the prefix, so they hear of it whatever becomes of it."""
        saved = False
        try:
            saved = prepare(call, plan)
        finally:
            if plan.warm:
                self._outbox.put((self, Built(plan, saved)))

    def _wait(self, e: Failed, tries: int, job: Job) -> bool:
        """Before the next try; True when the engine closes meanwhile."""
        wait_s = min(self._backoff_s * 2 ** (tries - 1), MAX_BACKOFF_S) if e.after_s is None else e.after_s
        return self._closing.wait(max(0.0, min(wait_s, job.left_s())))

    def _without(self, job: Job, plan: Plan | None, finish: Finish, failed: str, *, broke: bool = False) -> Ended:
        answer = Answer("", finish, len(job.prompt.ids or ()), 0, 0)
        return Ended(job, _reply(job, answer), plan, (), failed, broke)

    def _probe(self, discover: Callable[[Call], Kind]) -> Probed:
        limit_s = min(self._timeout_s, 10.0)
        try:
            return Probed(discover(lambda method, path, body: self._link.call(method, path, body, limit_s=limit_s)))
        except Failed as e:
            return Probed(None, e.what)
        except UsageError as e:
            return Probed(None, e.message)


def _reply(job: Job, answer: Answer) -> Reply:
    ms = round((time.monotonic() - job.started) * 1000)
    return Reply(
        key=job.request.key, text=answer.text, finish=answer.finish, tokens_in=answer.tokens_in,
        tokens_cached=answer.tokens_cached, tokens_out=answer.tokens_out, ms=ms,
    )  # fmt: skip
