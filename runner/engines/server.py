"""The server engine: an OpenAI-compatible server that runs already, on this machine or an address that was allowed.

How it works. The engine's thread decides, and workers (server_worker.py) only carry out: each endpoint has as many as
requests may be in flight, each with a connection of its own. Waiting requests are started in the order of their
prefixes, at the endpoint that was sent the same prefix before, as long as it has room. How a server is asked is in
server_kinds.py: llama-server and vLLM get token ids, so that no document can hold a control token; any other gets
strings, and a document with a control token is refused. llama-server shares a prefix between slots only through files
(server_slots.py); vLLM shares what is sent together.

What fails on its way (connection, status 5xx or 429, time-out) is sent again after a wait that doubles; then the reply
is `error`. An endpoint that failed `breaker` requests in a row is left out for a time that doubles too, and comes back
when it answers a probe. When none is left the engine is dead.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from runner.config import ServerConfig
from runner.engines.base import Progress
from runner.engines.server_endpoint import Endpoint, differs, open_endpoints, worker_of
from runner.engines.server_http import Failed
from runner.engines.server_kinds import Kind, discover
from runner.engines.server_prompts import Call, Prompt, control_token
from runner.engines.server_slots import Plan
from runner.engines.server_worker import Built, Crashed, Ended, Job, Probed, Report, Worker
from runner.errors import RunnerError, UsageError
from runner.values import Message, Reply, Request

STEP_S = 0.2  # the most a step waits
FIRST_HOLD_S = 1.0
T = TypeVar("T")


class Server:
    """See engines.base.Engine. context_tokens: the most a prompt and its reply may take, if the server allows it.

    grammar: replies follow the JSON schema only, so whether a quote is verbatim is for the host to check.
    repeatable: the same request can bring another reply, because what else a server computes changes the last bits.
    allow_control_tokens: send a document that holds control tokens to a server that takes strings only.
    breaker: requests failing one after the other, after which an endpoint is left out.
    """

    scores = False
    grammar = False
    repeatable = False

    def __init__(
        self,
        options: ServerConfig,
        *,
        context_tokens: int,
        allow_hosts: Sequence[str] = (),
        allow_control_tokens: bool = False,
        backoff_s: float = 0.5,
        breaker: int = 3,
    ) -> None:
        self._allow_control_tokens = allow_control_tokens
        self._breaker = breaker
        self._tries = options.retries + 1
        self._backoff_s = backoff_s
        self._outbox: SimpleQueue[tuple[Worker, Report]] = SimpleQueue()
        self._closing = threading.Event()
        self._make = worker_of(self._outbox, self._closing, backoff_s)
        self._waiting: list[Job] = []
        self._running: dict[Worker, tuple[Endpoint, Job]] = {}
        self._probes: dict[Worker, Endpoint] = {}
        self._groups: dict[bytes, int] = {}
        self._n_submitted = 0
        self._endpoints = open_endpoints(options, allow_hosts)
        kinds = [e.kind for e in self._endpoints if e.kind is not None]
        for endpoint in self._endpoints:
            self._begin(endpoint)
        self._about = kinds[0].about
        limits = [k.about.context_tokens for k in kinds if k.about.context_tokens is not None]
        self.context_tokens = min([context_tokens, *limits])
        many = f", {len(self._endpoints)} endpoints" if len(self._endpoints) > 1 else ""
        self.identity = f"server: {self._about}{many}"

    def _begin(self, endpoint: Endpoint) -> None:
        if endpoint.kind is not None:
            endpoint.use(endpoint.kind, self._make)
        else:  # one worker, to see whether it comes back
            endpoint.hire(1, self._make)
            endpoint.trip(FIRST_HOLD_S)

    # ---- the contract --------------------------------------------------------------------------------------------

    def check(self, request: Request) -> None:
        if request.choices:
            raise UsageError(f"the request {request.key} asks for scores, which a server does not give")
        prompt = self._prompt(request)
        limit = self.context_tokens
        if prompt.tokens + request.max_tokens > limit:
            about = "" if prompt.ids is not None else "about "
            raise UsageError(
                f"request {request.key}: the prompt has {about}{prompt.tokens} tokens and the reply may take "
                f"{request.max_tokens}, but the context holds {limit}",
                code="context",
                hint=f"shorten the document by about {prompt.tokens + request.max_tokens - limit} tokens, "
                "or start the server with a longer context",
            )
        if prompt.ids is None and not self._allow_control_tokens:
            self._check_control(request)

    def _check_control(self, request: Request) -> None:
        found = control_token(request.messages)
        if found is not None:
            line, token = found
            raise UsageError(
                f"request {request.key}: line {line} of a document or reply holds the control token {token}, and this "
                "server takes strings, where it cannot be told from ours",
                hint="use llama-server or vLLM, which take token ids, or --allow-control-tokens",
            )

    def submit(self, flow: str, request: Request) -> None:
        keys = _prefix_keys(request)
        n = self._n_submitted
        self._n_submitted += 1
        groups = [self._groups.setdefault(k, n) for k in keys] or [n]
        self._waiting.append(Job(flow, request, self._prompt(request), keys, (groups[0], groups[-1], n)))

    def step(self) -> Sequence[tuple[str, Reply]]:
        done: list[tuple[str, Reply]] = []
        until = time.monotonic() + STEP_S
        while self.busy() and not done:
            self._probe()
            self._dispatch()
            self._check_alive()
            try:
                done += self._take(*self._outbox.get(timeout=max(0.0, until - time.monotonic())))
                while True:
                    done += self._take(*self._outbox.get_nowait())
            except Empty:
                if time.monotonic() >= until:
                    break
        return done

    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    def progress(self) -> Sequence[Progress]:
        """Replies come whole, so a running request has none of its tokens yet."""
        return [Progress(j.flow, j.request.key, 0, j.request.max_tokens) for _, j in self._running.values()]

    def forget(self, flow: str, keys: Sequence[str]) -> None:
        """What is kept is the server's business."""

    def release(self, flow: str) -> None:
        """What is kept is the server's business."""

    def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        for endpoint in self._endpoints:
            endpoint.close()
        self._waiting, self._running = [], {}

    # ---- prompts -------------------------------------------------------------------------------------------------

    def _prompt(self, request: Request) -> Prompt:
        return self._ask(lambda kind, call: kind.prompt(call, request.messages, request.shared))

    def _ask(self, what: Callable[[Kind, Call], T]) -> T:
        """Ask the first endpoint that can answer. RunnerError when none does."""
        for n in range(self._tries):
            for endpoint in self._endpoints:
                if endpoint.kind is None:
                    continue
                try:
                    return what(endpoint.kind, endpoint.call)
                except Failed as e:
                    endpoint.last = e.what
            if n + 1 < self._tries:
                self._closing.wait(self._backoff_s * 2**n)
        raise self._dead()

    # ---- who gets what -------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Start what can be started."""
        if not any(e.usable() and e.idle for e in self._endpoints):
            return
        alike = Counter(job.keys[-1] for job in self._waiting if job.keys)
        for job in sorted(self._waiting, key=lambda job: job.rank):
            others = alike[job.keys[-1]] - 1 if job.keys else 0
            endpoint = self._place(job)
            if endpoint is None:
                return
            if self._start(job, endpoint, others) and job.keys:
                alike[job.keys[-1]] -= 1

    def _place(self, job: Job) -> Endpoint | None:
        """The endpoint that knows the longest of its prefixes, else the one with the least to do."""
        free = [e for e in self._endpoints if e.usable() and e.idle]
        for key in reversed(job.keys):
            for endpoint in free:
                if key in endpoint.prefixes:
                    return endpoint
        return min(free, key=lambda e: e.running, default=None)

    def _start(self, job: Job, endpoint: Endpoint, others: int) -> bool:
        plan: Plan | None = None
        worker = endpoint.idle[0]
        if endpoint.slots is not None and job.prompt.ids is not None:
            plan = endpoint.slots.plan(job.prompt, [w.number for w in endpoint.idle], others)
            if plan is None:
                return False
            worker = next(w for w in endpoint.idle if w.number == plan.slot)
        assert endpoint.kind is not None
        endpoint.idle.remove(worker)
        endpoint.sent(job.keys)
        self._waiting.remove(job)
        self._running[worker] = endpoint, job
        worker.send(job, endpoint.kind, plan)
        return True

    # ---- what came back ------------------------------------------------------------------------------------------

    def _take(self, worker: Worker, report: Report) -> list[tuple[str, Reply]]:
        match report:
            case Built(plan=plan, saved=saved):
                endpoint, _ = self._running[worker]
                if endpoint.slots is not None:
                    endpoint.slots.built(plan, saved)
            case Probed():
                self._probed(worker, report)
            case Ended():
                return [self._ended(worker, report)]
            case Crashed(error=error):
                raise error
        return []

    def _ended(self, worker: Worker, ended: Ended) -> tuple[str, Reply]:
        endpoint, job = self._running.pop(worker)
        endpoint.idle.append(worker)
        endpoint.idle.sort(key=lambda w: w.number)
        if ended.plan is not None and endpoint.slots is not None:
            endpoint.slots.done(ended.plan, ended.held, ended.reply)
        if ended.broke:
            endpoint.failed(ended.failed, self._breaker, FIRST_HOLD_S)
        elif ended.reply.finish != "timeout":
            endpoint.last = ended.failed or endpoint.last
            endpoint.answered()
        return job.flow, ended.reply

    # ---- endpoints that are left out -----------------------------------------------------------------------------

    def _probe(self) -> None:
        now = time.monotonic()
        for endpoint in self._endpoints:
            due = endpoint.open_until is not None and now >= endpoint.open_until
            if not due or endpoint.probing or not endpoint.idle:
                continue
            worker = endpoint.idle.pop(0)
            endpoint.probing = True
            self._probes[worker] = endpoint
            worker.probe(partial(discover, named=endpoint.options.model))

    def _probed(self, worker: Worker, probed: Probed) -> None:
        endpoint = self._probes.pop(worker)
        endpoint.probing = False
        endpoint.idle.append(worker)
        if probed.kind is None:
            endpoint.last = probed.failed
            endpoint.trip(FIRST_HOLD_S)
        elif differs(probed.kind.about, self._about):
            endpoint.last = f"serves {probed.kind.about} now"
            endpoint.trip(FIRST_HOLD_S)
        else:
            endpoint.use(probed.kind, self._make)
            endpoint.recovered(self._breaker)

    def _check_alive(self) -> None:
        """RunnerError when nothing runs, and no endpoint can be used or is being probed."""
        if not self._running and not any(e.usable() or e.probing for e in self._endpoints):
            raise self._dead()

    def _dead(self) -> RunnerError:
        reasons = "; ".join(f"{e.address.text}: {e.last or 'not used'}" for e in self._endpoints)
        return RunnerError(
            f"no endpoint of the server engine is left: {reasons}",
            code="engine",
            hint="start the server again; `debate resume` continues from the journal",
        )


def _prefix_keys(request: Request) -> tuple[bytes, ...]:
    """One for each of the prefixes it can share, equal where the prefixes are."""
    segments = [[m.role, s.text, s.trusted] for m in request.messages for s in m.segments]
    return tuple(hashlib.sha256(json.dumps(segments[:n]).encode()).digest() for n in sorted(request.shared))


# ---- counting tokens -------------------------------------------------------------------------------------------------


class ServerTokenizer:
    """Counts tokens where the server does. See engines.base.Tokenizer; RunnerError when the server does not answer."""

    def __init__(self, endpoint: Endpoint, kind: Kind, context_tokens: int) -> None:
        self._endpoint = endpoint
        self._kind = kind
        self.context_tokens = context_tokens

    def count(self, messages: Sequence[Message]) -> int:
        return self._ask(lambda: self._kind.prompt(self._endpoint.call, messages).tokens)

    def count_text(self, text: str) -> int:
        return self._ask(lambda: self._kind.count_text(self._endpoint.call, text))

    def _ask(self, what: Callable[[], int]) -> int:
        try:
            return what()
        except Failed as e:
            raise RunnerError(
                f"{self._endpoint.address.text}: {e.what}", code="engine", hint="start the server again"
            ) from None

    def close(self) -> None:
        self._endpoint.close()


def open_tokenizer(options: ServerConfig, allow_hosts: Sequence[str] = ()) -> ServerTokenizer | None:
    """None where the server does not count tokens, or does not say how many its context has.

    UsageError when no server can be reached, as for the engine.
    """
    endpoints = open_endpoints(options, allow_hosts)
    for endpoint in endpoints:
        about = endpoint.kind.about if endpoint.kind is not None else None
        if endpoint.kind is None or about is None or not endpoint.kind.protects or about.context_tokens is None:
            continue
        for other in endpoints:
            if other is not endpoint:
                other.close()
        return ServerTokenizer(endpoint, endpoint.kind, about.context_tokens)
    for endpoint in endpoints:
        endpoint.close()
    return None
