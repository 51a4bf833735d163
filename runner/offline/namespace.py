"""A network namespace of our own with only loopback up: the kernel's word, for native code and children as well."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from runner.errors import RunnerError, UsageError

NOWHERE = "192.0.2.1"  # TEST-NET-1 (RFC 5737): an address of documentation, no one's
_MARK = "DEBATE_ISOLATED"  # what we exec has it, so that it does not try again; it proves nothing
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_PR_CAPBSET_DROP = 24
_WAYS_OUT = (12, 19, 21)  # CAP_NET_ADMIN, CAP_SYS_PTRACE, CAP_SYS_ADMIN: what root could undo it with
_HINT = (
    "allow it (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, "
    "kernel.apparmor_restrict_unprivileged_userns=0), or run in `unshare -n`, or in a container with --network none"
)


def isolated() -> bool:
    """Is no network interface of this process up but loopback? Asked of the kernel, not of the environment."""
    return sys.platform == "linux" and set(interfaces()) <= {"lo"}


def made_here() -> bool:
    """Is this process isolated because `isolate` did it? Then no server outside is reachable, loopback or not."""
    return _MARK in os.environ and isolated()


def check_endpoints(endpoints: Sequence[str]) -> None:
    """Raise UsageError for a server that `isolate` cut this process off from: each but `unix:/path`."""
    names = ", ".join(endpoint for endpoint in endpoints if not endpoint.startswith("unix:"))
    if names and made_here():
        raise UsageError(
            f"{names} cannot be reached with --isolate, which has a loopback of its own",
            hint="let the server listen on a socket with a path and name it unix:/path, or run without --isolate",
        )


def interfaces() -> tuple[str, ...]:
    """The network interfaces that are up, in the kernel's order. Linux only."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        return tuple(name for _, name in socket.if_nameindex() if _flags(s, name) & _IFF_UP)


def unreachable() -> str:
    """What the kernel answers, past the guard, to a way to another machine: the error's name; "" when there is one."""
    libc = ctypes.CDLL(None, use_errno=True)
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H", 9) + socket.inet_aton(NOWHERE) + bytes(8)
    number = libc.socket(socket.AF_INET, socket.SOCK_DGRAM, 0)  # UDP: a route is chosen, nothing is sent
    refused = libc.connect(number, address, len(address)) != 0
    code = ctypes.get_errno()
    os.close(number)
    return errno.errorcode.get(code, str(code)) if refused else ""


def again(argv: Sequence[str]) -> list[str]:
    """The command line that runs this program anew with these arguments, in this interpreter and its way of starting.

    -P: the working directory, where anyone may have put a `runner`, is not searched.
    """
    flags = {"-I": sys.flags.isolated, "-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    options = [flag for flag, is_set in flags.items() if is_set] + [f"-W{option}" for option in sys.warnoptions]
    return [sys.executable, "-P", *options, str(Path(__file__).resolve().parents[1] / "cli" / "__main__.py"), *argv]


def isolate(command: Sequence[str]) -> None:
    """Become `command` in a network namespace of its own: the same process id, files, streams and owner.

    Returns only when this process is isolated already. Call it while there is one thread. RunnerError (code `isolate`)
    when the system refuses; the process is then good for nothing but to say so.
    """
    if isolated():
        with suppress(OSError):
            _loopback_up()
        return
    if _MARK in os.environ:
        names = ", ".join(interfaces())
        raise RunnerError(
            f"{_MARK} is set, but there is a network: {names}", code="isolate", hint=f"unset {_MARK}; --isolate sets it"
        )
    try:
        _enter()
    except OSError as e:
        where = f" ({e.filename})" if e.filename else ""
        message = f"the system refused a network namespace: {e.strerror or e}{where}"
        raise RunnerError(message, code="isolate", hint=_HINT) from None
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], list(command), os.environ | {_MARK: "1"})


def _enter() -> None:
    if sys.platform != "linux":
        raise OSError("only Linux has one")
    by_root = os.geteuid() == 0
    if by_root:
        try:
            _unshare(_CLONE_NEWNET)  # without a user namespace root keeps its rights to everyone's files
        except PermissionError:  # the root of a container
            by_root = False
    if not by_root:
        _enter_as_user()
    _loopback_up()
    for capability in _WAYS_OUT:
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def _enter_as_user() -> None:
    """The user keeps its ids, so that files keep their owner, and loses every capability at the exec."""
    uid, gid = os.geteuid(), os.getegid()
    _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path("/proc/self", name).write_text(text, encoding="ascii")


def _unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _loopback_up() -> None:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _flags(s, "lo") | _IFF_UP))


def _flags(s: socket.socket, name: str) -> int:
    import fcntl

    answer = fcntl.ioctl(s, _SIOCGIFFLAGS, struct.pack("16sh22x", name.encode(), 0))
    return int(struct.unpack_from("16xh", answer)[0])
