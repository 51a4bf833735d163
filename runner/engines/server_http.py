"""One HTTP connection to a server on this machine: where it may lead, how long it may take, how much it may bring.

No proxy, no redirect, no compressed body, no body above `MAX_BODY`. What goes wrong is a `Failed`, whose words hold
neither a prompt nor a key: of what a server says of an error, only its type is repeated.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from runner.errors import UsageError

MAX_BODY = 32 * 1024 * 1024  # bytes; the token ids of a document of 2 MB have less
MAX_RETRY_AFTER_S = 30.0
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_]{2,48}")


class Failed(Exception):
    """A call that brought no answer. again: it failed on its way, so another try may do; after_s: not before that.
    status: of the answer, when there was one."""

    def __init__(self, what: str, *, again: bool, after_s: float | None = None, status: int | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.again = again
        self.after_s = after_s
        self.status = status


# ---- addresses -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Address:
    """text: as messages name it. socket: path of a unix socket, else None."""

    text: str
    base: str
    socket: str | None = None


def parse(text: str, allow_hosts: Sequence[str] = ()) -> Address:
    """`http://host:port` or `unix:/path`. UsageError when it is neither, or leads away from this machine.

    allow_hosts: hosts, or host:port, that may be used though they are not this machine.
    """
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/"):
            raise UsageError(f"the endpoint {text} names no socket", hint="unix:/run/llama.sock")
        return Address(text, "http://localhost", path)
    host, port, base = _split(text)
    if not (_loopback(host) or host in allow_hosts or f"{host}:{port}" in allow_hosts):
        raise UsageError(
            f"the endpoint {base} is not on this machine",
            hint=f"use a loopback address or a unix socket, or list {host} in allow_hosts of the profile",
        )
    return Address(base, base)


def _split(text: str) -> tuple[str, int, str]:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or parts.username:
        # A user name or a query may be a secret, so what was written is not repeated.
        raise UsageError("an endpoint is not readable", hint="http://127.0.0.1:8080 or unix:/run/llama.sock")
    shown = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/").removesuffix("/v1")
    where = f"{shown}:{port}" if port is not None else shown
    return host, port or (443 if parts.scheme == "https" else 80), f"{parts.scheme}://{where}{path}"


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# ---- one connection ------------------------------------------------------------------------------------------------


class Link:
    """A keep-alive connection, used by one thread at a time; only `cut` and `end` may come from another."""

    def __init__(self, address: Address, connect_timeout_s: float, key: str | None = None) -> None:
        self.address = address
        self._connect_s = connect_timeout_s
        self._socket: socket.socket | None = None
        self._ended = False
        headers = {"Accept-Encoding": "identity", "User-Agent": "debate-runner"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        transport = httpx.HTTPTransport(
            uds=address.socket,
            verify=address.base.startswith("https:"),  # loading certificates takes a while, and http needs none
            trust_env=False,
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
        )
        self._client = httpx.Client(
            base_url=address.base, transport=transport, headers=headers, trust_env=False, follow_redirects=False
        )

    def call(self, method: str, path: str, body: object = None, *, limit_s: float) -> Any:
        """The JSON that comes back. Failed when none does within limit_s seconds."""
        until = time.monotonic() + limit_s
        timeout = httpx.Timeout(max(limit_s, 0.001), connect=min(self._connect_s, max(limit_s, 0.001)))
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        headers = {} if body is None else {"Content-Type": "application/json"}
        more = {"trace": self._trace}
        # httpx's limits are for each piece that is read; this one is for the whole.
        alarm = threading.Timer(limit_s + 0.02, self.cut)
        alarm.daemon = True
        alarm.start()
        try:
            with self._client.stream(
                method, path, content=content, headers=headers, timeout=timeout, extensions=more
            ) as answer:
                raw = _read(answer)
        except httpx.HTTPError as e:
            raise _late(limit_s) if time.monotonic() > until else _failed(e, limit_s) from None
        finally:
            alarm.cancel()
        if answer.status_code != 200:
            raise _refused(answer, raw)
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            raise Failed("the answer is not JSON", again=True, status=200) from None

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event in ("connection.connect_tcp.complete", "connection.connect_unix_socket.complete"):
            self._socket = info["return_value"].get_extra_info("socket")
            if self._ended:
                self.cut()

    def cut(self) -> None:
        """End the call that is under way; the thread that waits for it gets a Failed."""
        if self._socket is not None:
            with suppress(OSError):  # closed already
                self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Cut, also a connection that is only being made."""
        self._ended = True
        self.cut()

    def close(self) -> None:
        self._client.close()


def _read(answer: httpx.Response) -> bytes:
    """The body; of a redirect, nothing."""
    if 300 <= answer.status_code < 400:
        return b""
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise Failed("the answer is compressed, which was not asked for", again=False)
    parts: list[bytes] = []
    size = 0
    for chunk in answer.iter_raw():
        size += len(chunk)
        if size > MAX_BODY:
            raise Failed(f"the answer is larger than {MAX_BODY} bytes", again=False)
        parts.append(chunk)
    return b"".join(parts)


def _late(limit_s: float) -> Failed:
    return Failed(f"no answer within {limit_s:.3g} s", again=True)


def _failed(e: httpx.HTTPError, limit_s: float) -> Failed:
    if isinstance(e, httpx.ConnectError | httpx.ConnectTimeout):
        return Failed("cannot be reached", again=True)
    if isinstance(e, httpx.TimeoutException):
        return _late(limit_s)
    if isinstance(e, httpx.TransportError):
        return Failed("the connection broke off", again=True)
    return Failed(f"the call failed ({type(e).__name__})", again=False)


def _refused(answer: httpx.Response, raw: bytes) -> Failed:
    status = answer.status_code
    if 300 <= status < 400:
        return Failed(f"answers with a redirect ({status}), which is not followed", again=False, status=status)
    word = _type(raw)
    what = f"answers with status {status}" + (f" ({word})" if word else "")
    wait = answer.headers.get("retry-after", "")
    after_s = min(float(wait), MAX_RETRY_AFTER_S) if wait.isascii() and wait.isdigit() else None
    return Failed(what, again=status == 429 or status >= 500, after_s=after_s, status=status)


def _type(raw: bytes) -> str:
    """The server's own word for an error, when it looks like one word; its message may repeat the prompt."""
    try:
        error = json.loads(raw)["error"]
        word = error["type"] if isinstance(error, dict) else ""
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""
    return word if isinstance(word, str) and _TYPE.fullmatch(word) else ""
