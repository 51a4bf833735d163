"""The guard: what Python code in this process may call, and what it tried."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from threading import local
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from runner.errors import Integrity, UsageError
from runner.offline.hosts import Host, hosts, outside
from runner.offline.namespace import NOWHERE, made_here

Address = IPv4Address | IPv6Address

_HINT = "models are local files; a server on another machine must be named in the profile's allow_hosts"
# Kernel interfaces that have the shape of a socket: no other machine is behind them.
_INTERNAL = {getattr(socket, name) for name in ("AF_UNIX", "AF_NETLINK", "AF_ALG") if hasattr(socket, name)}
_INTERNET = (socket.AF_INET, socket.AF_INET6)
# Whoever calls is named, not the standard library's code between the caller and the socket.
_PLUMBING = {
    "socket", "ssl", "http", "urllib", "asyncio", "selectors", "concurrent", "threading", "socketserver", "xmlrpc",
    "ftplib", "smtplib", "imaplib", "poplib", "telnetlib", "nntplib",
}  # fmt: skip
_Socket = socket.socket  # a test may have put something else in its place by the time the guard is set


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call that was refused. event: Python's audit event; caller: module:function:line."""

    event: str
    target: str
    caller: str

    def __str__(self) -> str:
        return f"{self.event} {self.target}, by {self.caller}"


@dataclass(slots=True)
class _State:
    installed: bool = False
    allowed: tuple[Host, ...] = ()
    addresses: dict[str, set[Address]] = field(default_factory=dict)  # that allowed names were seen to have
    attempts: dict[Attempt, None] = field(default_factory=dict)


class _Own(local):
    lookup = False  # this thread looks up a name for the guard itself


_state, _own = _State(), _Own()


def guard(allowed: Sequence[str] = ()) -> None:
    """From here on refuse each call of Python code in this process that would leave the machine, except to `allowed`.

    Integrity (code `network`, exit 5) names the target and the caller. AF_UNIX and loopback pass. Called again, it
    starts afresh: this allow list, no attempts. It cannot be taken off.
    """
    _state.allowed = hosts(allowed)
    _state.addresses.clear()
    _state.attempts.clear()
    if not _state.installed:
        _state.installed = True
        for method, position in (("connect", 0), ("connect_ex", 0), ("bind", 0), ("sendto", -1), ("sendmsg", 3)):
            _ask_first(method, position)
        sys.addaudithook(_hook)


def allow(entries: Sequence[str]) -> None:
    """Let these through, too. Raises UsageError for a wrong entry, and for one that isolation bars."""
    added = hosts(entries)
    names = ", ".join(outside(entries))
    if names and made_here():
        raise UsageError(
            f"allow_hosts ({names}) and --isolate exclude each other",
            hint="run without --isolate, or with a profile that allows no other machine",
        )
    _state.allowed += added


def attempts() -> tuple[Attempt, ...]:
    """The distinct calls that were refused since `guard`, those whose error someone swallowed among them."""
    return tuple(_state.attempts)


def probe() -> str:
    """Try a call from Python, off the record: how the guard refused it. Raises Integrity when it did not."""
    before = dict(_state.attempts)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:  # UDP: even unguarded, connecting sends nothing
        try:
            s.connect((NOWHERE, 9))
        except Integrity as refused:
            _state.attempts = before
            return refused.message
        except OSError:
            pass
    raise Integrity(f"the guard let a call to {NOWHERE} through", code="network")


def _ask_first(method: str, position: int) -> None:
    """Python looks up the name in an address before it raises the event: raise it before that, too."""
    original: Callable[..., Any] = getattr(_Socket, method)
    event = "socket." + method.removesuffix("_ex")

    def asking(self: socket.socket, *args: Any) -> Any:
        if len(args) > position:
            sys.audit(event, self, args[position])
        return original(self, *args)

    setattr(_Socket, method, asking)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    check = _WATCHED.get(event)
    target = None if check is None else check(*args)
    if target is not None:
        attempt = Attempt(event, target, _caller())
        _state.attempts[attempt] = None
        raise Integrity(f"a call out of this machine was refused: {attempt}", code="network", hint=_HINT)


def _caller() -> str:
    frames = list(_frames())
    outer = (f for f in frames if _module(f).partition(".")[0] not in _PLUMBING)
    frame = next(outer, frames[0])
    return f"{_module(frame)}:{frame.f_code.co_qualname}:{frame.f_lineno}"


def _frames() -> Iterator[FrameType]:
    """This thread's frames outside this module, innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if _module(frame) != __name__:
            yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "?"))


# ---- what each event checks: the target when it is refused, else None ----------------------------------------------


def _reaches(sock: Any, address: Any) -> str | None:
    if sock.family in _INTERNAL or address is None:
        return None
    if sock.family not in _INTERNET:
        return f"{getattr(sock.family, 'name', sock.family)} {address!r}"
    if not isinstance(address, tuple) or len(address) < 2:
        return None  # Python itself refuses it
    return _refused(address[0], address[1])


def _listens(sock: Any, address: Any) -> str | None:
    """Port 0 of the wildcard address passes: that is how libraries look for a free port."""
    wildcard = isinstance(address, tuple) and len(address) > 1 and address[0] in ("", "0.0.0.0", "::")
    return None if wildcard and address[1] == 0 else _reaches(sock, address)


def _looks_up(host: Any, *_: Any) -> str | None:
    """An address, or nothing at all, is read without asking anyone."""
    name = _text(host)
    return None if not name or _address(name) is not None else _refused(name, None)


def _looks_back(host: Any) -> str | None:
    return _refused(host[0] if isinstance(host, tuple) else host, None)


def _requests(url: Any, *_: Any) -> str | None:
    parts = urlsplit(_text(url))
    return _refused(parts.hostname, parts.port) if parts.scheme in ("http", "https", "ftp") else None


def _connects(_: Any, host: Any, port: Any) -> str | None:
    return _refused(host, port)


_WATCHED: dict[str, Callable[..., str | None]] = {
    "socket.connect": _reaches, "socket.sendto": _reaches, "socket.sendmsg": _reaches, "socket.bind": _listens,
    "socket.getaddrinfo": _looks_up, "socket.gethostbyname": _looks_up, "socket.gethostbyaddr": _looks_back,
    "socket.getnameinfo": _looks_back, "http.client.connect": _connects, "urllib.Request": _requests,
}  # fmt: skip


def _refused(host: Any, port: Any) -> str | None:
    name = _text(host)
    if _permitted(name.lower().rstrip("."), port):
        return None
    shown = f"[{name}]" if ":" in name else name or '""'
    return shown if port is None else f"{shown}:{port}"


def _permitted(name: str, port: Any) -> bool:
    """port: None where it does not matter."""
    if _own.lookup:
        return True
    if name == "localhost":
        return all(address.is_loopback for address in _resolved(name))
    address = _address(name)
    allowed = [host for host in _state.allowed if port is None or host.port in (None, port)]
    if address is None:  # the addresses it has now are allowed from here on
        return any(host.network is None and host.name == name and _resolved(name) is not None for host in allowed)
    if address.is_loopback or any(host.network is not None and address in host.network for host in allowed):
        return True
    named = [host.name for host in allowed if host.network is None]
    return any(address in _state.addresses.get(n, ()) or address in _resolved(n) for n in named)


def _resolved(name: str) -> set[Address]:
    """The addresses that a permitted name has, or had when it was looked up before."""
    _own.lookup = True
    try:
        found = [_address(str(info[4][0])) for info in socket.getaddrinfo(name, None)]
    except OSError:
        found = []
    finally:
        _own.lookup = False
    known = _state.addresses.setdefault(name, set())
    known.update(address for address in found if address is not None)
    return known


def _text(host: Any) -> str:
    return host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else "" if host is None else str(host)


def _address(name: str) -> Address | None:
    """The address that this is, IPv4 in IPv6 clothes as IPv4; None for a name."""
    try:
        found = ip_address(name)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
