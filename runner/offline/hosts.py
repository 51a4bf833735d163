"""allow_hosts: the machines that a profile lets a run reach."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

from runner.errors import UsageError

FORMS = "write host, host:port, address, [v6]:port, or a network such as 10.0.0.0/24"
_ENTRY = re.compile(
    r"\[(?P<v6>[^\]]+)\](?::(?P<v6_port>[0-9]{1,5}))?|(?P<host>[^:]+)(?::(?P<port>[0-9]{1,5}))?|(?P<bare_v6>[^\[\]]+)"
)
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?!(?:.*\.)?[0-9]+$)(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")  # no name ends in a number


@dataclass(frozen=True, slots=True)
class Host:
    """An entry of allow_hosts. network: of an address, else None, and `name` is a name. port: None for any."""

    name: str
    network: IPv4Network | IPv6Network | None
    port: int | None

    @property
    def local(self) -> bool:
        """Is it this machine?"""
        return self.name == "localhost" or (self.network is not None and self.network.is_loopback)


def hosts(entries: Sequence[str]) -> tuple[Host, ...]:
    """The entries as hosts; `unix:/path` needs no permission and is passed over. Raises UsageError for a wrong one."""
    return tuple(_host(entry) for entry in entries if not entry.startswith("unix:/"))


def _host(entry: str) -> Host:
    found = _ENTRY.fullmatch(entry)
    if found is None:
        raise UsageError(f"allow_hosts: not a host: {entry!r}", hint=FORMS)
    port = _port(entry, found["v6_port"] or found["port"])
    name = found["v6"] or found["host"] or found["bare_v6"]
    try:
        network = ip_network(name)
    except ValueError:
        if found["host"] is None or not _NAME.fullmatch(name):
            raise UsageError(f"allow_hosts: not a host: {entry!r}", hint=FORMS) from None
        return Host(name.lower(), None, port)
    if network.prefixlen == 0:
        raise UsageError(f"allow_hosts: {entry!r} is every address there is", hint=FORMS)
    return Host(name, network, port)


def _port(entry: str, digits: str | None) -> int | None:
    if digits is not None and not 0 < int(digits) < 65536:
        raise UsageError(f"allow_hosts: no such port: {entry!r}", hint="a port is 1 to 65535")
    return None if digits is None else int(digits)


def outside(entries: Sequence[str]) -> tuple[str, ...]:
    """Those entries that lead off this machine."""
    return tuple(entry for entry in entries if any(not host.local for host in hosts([entry])))


def note(entries: Sequence[str]) -> str:
    """What a round's transcript says when the run may reach other machines; empty when it may not."""
    names = ", ".join(outside(entries))
    return f"This run may leave the machine: allow_hosts of its profile names {names}." if names else ""
