"""One endpoint of the server engine: what it is, whether it can be used, and what it works on."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from runner.config import ServerConfig
from runner.engines.server_http import Address, Failed, Link, parse
from runner.engines.server_kinds import Kind, discover
from runner.engines.server_prompts import About
from runner.engines.server_slots import Slots, wipe
from runner.engines.server_worker import Report, Worker
from runner.errors import UsageError

CONTROL_S = 60.0  # the most that counting tokens, or asking a server what it is, may take
MAX_HOLD_S = 60.0
_START = "start one, e.g. llama-server -m model.gguf --port 8080, or vllm serve; configs/server.yaml has more"
_PREFIXES = 64  # that an endpoint is remembered for


def api_key(options: ServerConfig) -> str | None:
    """The key, from the environment. UsageError when the variable has none that a header can carry."""
    if options.api_key_env is None:
        return None
    key = os.environ.get(options.api_key_env, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise UsageError(f"the variable {options.api_key_env} holds no key", hint="server.api_key_env names it")
    return key


@dataclass(eq=False, slots=True)
class Endpoint:
    """open_until: the breaker is open, nothing is sent before that moment (time.monotonic). failures: requests that
    failed one after the other. hold_s: how long the breaker was open last. last: why the last one failed.
    prefixes: those sent here, the latest last."""

    address: Address
    options: ServerConfig
    key: str | None
    link: Link
    kind: Kind | None = None
    workers: list[Worker] = field(default_factory=list)
    idle: list[Worker] = field(default_factory=list)
    slots: Slots | None = None
    prefixes: dict[bytes, None] = field(default_factory=dict)
    open_until: float | None = None
    probing: bool = False
    failures: int = 0
    hold_s: float = 0.0
    last: str = ""

    def call(self, method: str, path: str, body: object) -> Any:
        return self.link.call(method, path, body, limit_s=min(CONTROL_S, self.options.timeout_s))

    def look(self) -> Kind:
        """See discover."""
        return discover(self.call, self.options.model)

    def use(self, kind: Kind, make: Callable[[Endpoint, int], Worker]) -> None:
        """Take this kind of server into use. What an earlier one held in its slots is gone."""
        self.kind = kind
        self.hire(min(self.options.in_flight, kind.about.slots or self.options.in_flight), make)
        used = self.slots.used if self.slots is not None else ()
        self.slots = Slots(_name(self.address), used) if kind.about.saves else None
        self.prefixes.clear()

    def hire(self, n: int, make: Callable[[Endpoint, int], Worker]) -> None:
        new = [make(self, i) for i in range(len(self.workers), n)]
        self.workers += new
        self.idle += new

    @property
    def running(self) -> int:
        return len(self.workers) - len(self.idle)

    def usable(self) -> bool:
        return self.kind is not None and self.open_until is None

    def sent(self, keys: tuple[bytes, ...]) -> None:
        for key in keys:
            self.prefixes.pop(key, None)
            self.prefixes[key] = None
        while len(self.prefixes) > _PREFIXES:
            del self.prefixes[next(iter(self.prefixes))]

    # ---- the breaker ---------------------------------------------------------------------------------------------

    def answered(self) -> None:
        self.failures, self.hold_s = 0, 0.0

    def failed(self, what: str, limit: int, first_hold_s: float) -> None:
        """A request failed. After `limit` of them the endpoint is left out, longer each time."""
        self.last = what
        self.failures += 1
        if self.failures >= limit and self.open_until is None:
            self.trip(first_hold_s)

    def trip(self, first_hold_s: float) -> None:
        self.hold_s = min(max(first_hold_s, self.hold_s * 2), MAX_HOLD_S)
        self.open_until = time.monotonic() + self.hold_s

    def recovered(self, limit: int) -> None:
        """The probe was answered. One failed request more, and it is left out again."""
        self.open_until = None
        self.failures = limit - 1

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        if self.slots is not None and self.slots.used:
            wipe(lambda m, p, b: self.link.call(m, p, b, limit_s=5.0), self.slots.used)
        self.link.close()


def _name(address: Address) -> str:
    return hashlib.sha256(address.text.encode()).hexdigest()[:8]


def open_endpoints(options: ServerConfig, allow_hosts: Sequence[str]) -> list[Endpoint]:
    """All of the profile, each asked what it is; one that cannot be reached has no kind yet. UsageError when none can,
    or when they do not serve the same model."""
    addresses = list(dict.fromkeys(parse(text, allow_hosts) for text in options.endpoints))
    key = api_key(options)
    endpoints = [Endpoint(a, options, key, Link(a, options.connect_timeout_s, key)) for a in addresses]
    try:
        for endpoint in endpoints:
            _reach(endpoint)
        _check_same([e for e in endpoints if e.kind is not None], endpoints)
    except UsageError:
        for endpoint in endpoints:
            endpoint.close()
        raise
    return endpoints


def _reach(endpoint: Endpoint) -> None:
    try:
        endpoint.kind = endpoint.look()
    except Failed as e:
        endpoint.last = why(e, endpoint.options)
    except UsageError as e:
        raise UsageError(f"{endpoint.address.text}: {e.message}", hint=e.hint) from None


def _check_same(reached: list[Endpoint], endpoints: list[Endpoint]) -> None:
    if not reached:
        reasons = "; ".join(f"{e.address.text}: {e.last}" for e in endpoints)
        raise UsageError(f"no server can be used: {reasons}", hint=_START)
    first, *others = [(e.address.text, e.kind.about) for e in reached if e.kind is not None]
    for address, about in others:
        if differs(about, first[1]):
            raise UsageError(f"the endpoints do not serve the same: {first[0]} {first[1]}; {address} {about}")


def differs(a: About, b: About) -> bool:
    """Would the two give one request different prompts, or different models?"""
    return (a.server, a.model) != (b.server, b.model)


def worker_of(
    outbox: SimpleQueue[tuple[Worker, Report]], closing: threading.Event, backoff_s: float
) -> Callable[[Endpoint, int], Worker]:
    """How an endpoint makes its workers."""

    def make(endpoint: Endpoint, number: int) -> Worker:
        link = Link(endpoint.address, endpoint.options.connect_timeout_s, endpoint.key)
        return Worker(
            number, link, outbox, closing,
            retries=endpoint.options.retries, timeout_s=endpoint.options.timeout_s, backoff_s=backoff_s,
        )  # fmt: skip

    return make


def why(e: Failed, options: ServerConfig) -> str:
    """The words of a failure, with what to do about a refused key."""
    if e.status in (401, 403):
        names = options.api_key_env or "server.api_key_env, which the profile does not set"
        return f"{e.what}: it wants another key than that of {names}"
    return e.what
