"""No network: switches, allow list, the guard on Python's sockets, and the namespace, by what the kernel says."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner import offline
from runner.errors import Integrity, RunnerError, UsageError
from runner.offline import namespace, sockets

ROOT = Path(__file__).parents[1]
NOBODY = 65534


@pytest.fixture(autouse=True)
def guarded() -> Iterator[None]:
    """Every test begins and ends with an empty allow list and no attempts."""
    offline.guard()
    yield
    offline.guard()


def udp(family: int = socket.AF_INET) -> socket.socket:
    """A socket that sends nothing when it is connected."""
    return socket.socket(family, socket.SOCK_DGRAM)


# ---- switches ------------------------------------------------------------------------------------------------------


def test_switches_are_set_whatever_the_user_has_set() -> None:
    """A telemetry switch is no user's choice; a cache folder is; a proxy goes."""
    environ = {
        "HF_HUB_OFFLINE": "0", "VLLM_NO_USAGE_STATS": "0", "HTTPS_PROXY": "http://127.0.0.1:3128", "all_proxy": "x",
        "VLLM_CACHE_ROOT": "/mine", "XDG_CACHE_HOME": "/cache", "NO_PROXY": "*",
    }  # fmt: skip
    assert offline.wrong(environ)[0] == "HF_HUB_OFFLINE" and offline.wrong(environ)[-2:] == ("HTTPS_PROXY", "all_proxy")
    offline.switches(environ)
    assert offline.wrong(environ) == ()
    assert {name: environ[name] for name in offline.SWITCHES} == offline.SWITCHES
    assert environ["VLLM_CACHE_ROOT"] == "/mine"
    assert environ["TORCHINDUCTOR_CACHE_DIR"] == "/cache/debate-runner/torchinductor"
    assert environ["NO_PROXY"] == "*" and not {"HTTPS_PROXY", "all_proxy"} & set(environ)


def test_an_import_leaves_the_environment_alone() -> None:
    """Whoever imports the package keeps the environment; a command line sets the switches before anything else."""
    code = (
        "import os; before = dict(os.environ); import runner.cli, runner.runs; assert before == dict(os.environ)\n"
        "from runner import offline; runner.cli.run(['--version']); assert offline.wrong() == ()"
    )
    env = {k: v for k, v in os.environ.items() if k not in offline.SWITCHES} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# ---- allow_hosts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "name", "network", "port", "local"),
    [
        ("GPU-1.lab", "gpu-1.lab", None, None, False),
        ("gpu:8000", "gpu", None, 8000, False),
        ("10.0.0.7", "10.0.0.7", "10.0.0.7/32", None, False),
        ("10.0.0.0/24", "10.0.0.0/24", "10.0.0.0/24", None, False),
        ("10.0.0.0/24:80", "10.0.0.0/24", "10.0.0.0/24", 80, False),
        ("2001:db8::1", "2001:db8::1", "2001:db8::1/128", None, False),
        ("[2001:db8::1]:443", "2001:db8::1", "2001:db8::1/128", 443, False),
        ("localhost:8080", "localhost", None, 8080, True),
        ("127.0.0.1", "127.0.0.1", "127.0.0.1/32", None, True),
        ("[::1]:1", "::1", "::1/128", 1, True),
    ],
)
def test_hosts(entry: str, name: str, network: str | None, port: int | None, local: bool) -> None:
    """Each form of an entry, and whether it is this machine."""
    (host,) = offline.hosts([entry])
    assert (host.name, host.network and str(host.network), host.port, host.local) == (name, network, port, local)


@pytest.mark.parametrize(
    "entry", ["", "http://gpu:80", "gpu/x", "*", "a b", "1.2.3", "300.1.1.1", "10.0.0.5/24", "gpu:x", "[gpu]:80",
              "[::1", "0.0.0.0/0", "::/0", "gpu:0", "gpu:65536", "-gpu", "gpu\n"],
)  # fmt: skip
def test_wrong_hosts(entry: str) -> None:
    """An entry that means nothing, or everything, is an error that shows it."""
    with pytest.raises(UsageError, match="allow_hosts: ") as error:
        offline.hosts(["gpu", entry])
    assert repr(entry) in error.value.message and error.value.hint


def test_note() -> None:
    """The transcript's line names what leads off the machine; without such an entry there is none."""
    assert offline.note(["localhost:80", "unix:/run/x.sock", "127.0.0.0/8"]) == offline.note([]) == ""
    assert offline.outside(["localhost", "gpu:80", "10.0.0.0/24"]) == ("gpu:80", "10.0.0.0/24")
    assert offline.note(["gpu:80", "10.0.0.7"]) == (
        "This run may leave the machine: allow_hosts of its profile names gpu:80, 10.0.0.7."
    )


# ---- the guard -----------------------------------------------------------------------------------------------------

CALLS: list[tuple[str, str, Callable[[socket.socket], Any]]] = [
    ("socket.connect", "192.0.2.1:9", lambda s: s.connect(("192.0.2.1", 9))),
    ("socket.connect", "192.0.2.1:9", lambda s: s.connect_ex(("192.0.2.1", 9))),
    ("socket.connect", "example.org:9", lambda s: s.connect(("example.org", 9))),
    ("socket.connect", "example.org:9", lambda s: s.connect_ex((b"example.org", 9))),
    ("socket.connect", "0.0.0.0:9", lambda s: s.connect(("0.0.0.0", 9))),
    ("socket.connect", '"":9', lambda s: s.connect(("", 9))),
    ("socket.connect", "<broadcast>:9", lambda s: s.connect(("<broadcast>", 9))),
    ("socket.connect", "127.1:9", lambda s: s.connect(("127.1", 9))),
    ("socket.connect", "[2001:db8::1]:9", lambda s: s.connect(("2001:db8::1", 9))),
    ("socket.connect", "[::ffff:192.0.2.1]:9", lambda s: s.connect(("::ffff:192.0.2.1", 9, 0, 0))),
    ("socket.sendto", "192.0.2.1:9", lambda s: s.sendto(b"", ("192.0.2.1", 9))),
    ("socket.sendto", "stats.example.org:9", lambda s: s.sendto(b"", 0, ("stats.example.org", 9))),
    ("socket.sendmsg", "192.0.2.1:9", lambda s: s.sendmsg([b""], [], 0, ("192.0.2.1", 9))),
    ("socket.sendmsg", "example.org:9", lambda s: s.sendmsg([b""], [], 0, ("example.org", 9))),
    ("socket.bind", "0.0.0.0:9", lambda s: s.bind(("0.0.0.0", 9))),
    ("socket.bind", '"":9', lambda s: s.bind(("", 9))),
    ("socket.bind", "192.0.2.1:0", lambda s: s.bind(("192.0.2.1", 0))),
    ("socket.bind", "[::]:9", lambda s: s.bind(("::", 9))),
    ("socket.getaddrinfo", "example.org", lambda _: socket.getaddrinfo("example.org", 80)),
    ("socket.getaddrinfo", "example.org", lambda _: socket.create_connection(("example.org", 80))),
    ("socket.getaddrinfo", socket.gethostname(), lambda _: socket.getaddrinfo(socket.gethostname(), 80)),
    ("socket.gethostbyname", "example.org", lambda _: socket.gethostbyname("example.org")),
    ("socket.gethostbyname", "example.org", lambda _: socket.gethostbyname_ex("example.org")),
    ("socket.gethostbyaddr", "192.0.2.1", lambda _: socket.gethostbyaddr("192.0.2.1")),
    ("socket.getnameinfo", "192.0.2.1", lambda _: socket.getnameinfo(("192.0.2.1", 9), 0)),
    ("http.client.connect", "example.org:443", lambda _: http.client.HTTPSConnection("example.org").connect()),
    ("urllib.Request", "example.org", lambda _: urllib.request.urlopen("https://example.org/x")),
]


@pytest.mark.parametrize(("event", "target", "call"), CALLS, ids=[f"{i}-{c[0]}" for i, c in enumerate(CALLS)])
def test_a_call_out_is_refused(event: str, target: str, call: Callable[[socket.socket], Any]) -> None:
    """Exit 5, with target and caller named, before a name is looked up; and it is on record once, however often."""
    for _ in range(2):
        with udp(socket.AF_INET6 if "[" in target else socket.AF_INET) as s, pytest.raises(Integrity) as error:
            call(s)
        assert (error.value.code, error.value.exit_code) == ("network", 5)
    (attempt,) = offline.attempts()
    assert error.value.message == f"a call out of this machine was refused: {attempt}"
    assert (attempt.event, attempt.target) == (event, target)
    assert attempt.caller.startswith(f"{__name__}:<lambda>:")


def test_an_odd_family_is_refused() -> None:
    """What is neither internal to the machine nor an internet socket does not pass."""
    with pytest.raises(Integrity, match=r"socket\.connect AF_VSOCK \(2, 9\), by "):
        sys.audit("socket.connect", SimpleNamespace(family=socket.AF_VSOCK), (2, 9))


def test_loopback_and_unix_pass(tmp_path: Path) -> None:
    """Everything that stays on the machine: both families, a name, a datagram, a path, a look for a free port."""
    with socket.create_server(("127.0.0.1", 0)) as server, udp() as s:
        port = server.getsockname()[1]
        for host in ("127.0.0.1", "localhost", "LocalHost", b"127.0.0.1"):
            socket.create_connection((host, port)).close()
        with contextlib.closing(http.client.HTTPConnection("localhost", port)) as connection:
            connection.connect()
        s.bind(("", 0))
        s.sendto(b"x", ("127.8.9.1", 9))
        with socket.socket(socket.AF_INET6) as mapped:
            mapped.connect(("::ffff:127.0.0.1", port))
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "s"))
        server.listen()
        client.connect(str(tmp_path / "s"))
        client.sendmsg([b"x"])
    with udp(socket.AF_INET6) as s, contextlib.suppress(OSError):  # a machine may have no IPv6
        s.connect(("::1", 9))
    for host in (None, "127.0.0.1", "::1", "192.0.2.1", "localhost"):  # a numeric look-up asks no one
        socket.getaddrinfo(host, 80)
    sys.audit("urllib.Request", "file:///etc/hostname", None, {}, "GET")
    assert offline.attempts() == ()


def test_localhost_must_be_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hosts file that sends localhost elsewhere opens no way out."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [(2, 1, 6, "", ("192.0.2.5", 0))])
    with udp() as s, pytest.raises(Integrity, match="localhost:9"):
        s.connect(("localhost", 9))


def swallowing() -> None:
    """What a library with telemetry does."""
    with contextlib.suppress(Exception):
        socket.create_connection(("telemetry.example.org", 443))


def test_a_swallowed_attempt_is_on_record() -> None:
    """Nobody can hide one: the record names who called."""
    swallowing()
    line = swallowing.__code__.co_firstlineno + 3
    assert [str(a) for a in offline.attempts()] == [
        f"socket.getaddrinfo telemetry.example.org, by {__name__}:swallowing:{line}"
    ]
    offline.guard()
    assert offline.attempts() == ()


def test_a_thread_is_guarded() -> None:
    """The hook is the process's, not a thread's."""
    thread = threading.Thread(target=swallowing)
    thread.start()
    thread.join()
    assert [a.target for a in offline.attempts()] == ["telemetry.example.org"]


@pytest.mark.parametrize(
    ("host", "caller"),
    [("192.0.2.1", f"{__name__}:test_asyncio_is_guarded.<locals>.call:"), ("example.org", "socket:getaddrinfo:")],
)
def test_asyncio_is_guarded(host: str, caller: str) -> None:
    """Of a coroutine, too; a name is looked up in a thread of the loop's, where no caller is to be seen."""

    async def call() -> None:
        await asyncio.open_connection(host, 80)

    with pytest.raises(Integrity):
        asyncio.run(call())
    (attempt,) = offline.attempts()
    assert attempt.target.startswith(host) and attempt.caller.startswith(caller)


def test_probe_is_off_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard's own test of itself is no attempt; a guard that lets it through is found."""
    swallowing()
    before = offline.attempts()
    assert offline.probe().startswith(
        f"a call out of this machine was refused: socket.connect 192.0.2.1:9, by {__name__}:test_probe"
    )
    assert offline.attempts() == before
    monkeypatch.setattr(sockets, "_WATCHED", {})
    with pytest.raises(Integrity, match=r"the guard let a call to 192\.0\.2\.1 through"):
        offline.probe()


# ---- hosts that are allowed ----------------------------------------------------------------------------------------


def reach(host: str, port: int = 9) -> bool:
    """Does the guard let it through? A connected UDP socket has sent nothing."""
    with udp() as s:
        try:
            s.connect((host, port))
        except Integrity:
            return False
        except OSError:
            return True  # the kernel's answer: the guard had none
    return True


def test_addresses_and_networks_that_are_allowed() -> None:
    """An address passes on its port; a network with all in it; nothing else does; a new guard forgets them."""
    offline.allow(["192.0.2.1:9", "198.51.100.0/24"])
    assert (reach("192.0.2.1"), reach("192.0.2.1", 10), reach("192.0.2.2")) == (True, False, False)
    assert (reach("198.51.100.200", 10), reach("198.51.101.1")) == (True, False)
    offline.guard(["192.0.2.2"])
    assert (reach("192.0.2.1"), reach("192.0.2.2")) == (False, True)


def test_a_name_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be looked up, and what it resolves to may be called on its port; an address it had stays allowed."""
    offline.allow(["GPU.lab:9"])
    known = {"gpu.lab": "192.0.2.7"}
    asked: list[str] = []

    def resolve(host: str, *_: Any) -> list[tuple[Any, ...]]:
        sys.audit("socket.getaddrinfo", host, None, 0, 0, 0)  # as the real one does
        asked.append(host)
        return [(2, 1, 6, "", (known[host], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert reach("192.0.2.7") and not reach("192.0.2.7", 10) and not reach("192.0.2.8")
    known["gpu.lab"] = "192.0.2.8"
    socket.getaddrinfo("gpu.lab", 9)
    known["gpu.lab"] = "192.0.2.9"  # a name with several addresses gives another each time
    looked_up = len(asked)
    assert reach("192.0.2.8") and reach("192.0.2.7") and len(asked) == looked_up
    assert reach("192.0.2.9")
    with pytest.raises(Integrity):
        socket.getaddrinfo("other.lab", 9)
    assert set(asked) == {"gpu.lab"}


def test_a_wrong_entry_allows_nothing() -> None:
    """An error in the list leaves the list as it was."""
    with pytest.raises(UsageError):
        offline.allow(["192.0.2.1", "http://x"])
    assert not reach("192.0.2.1")


def test_isolation_excludes_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be reached is not promised; entries of this machine are no contradiction."""
    monkeypatch.setattr(sockets, "made_here", lambda: True)
    offline.allow(["localhost:80", "unix:/run/x.sock"])
    with pytest.raises(UsageError) as error:
        offline.allow(["localhost", "gpu:80"])
    assert str(error.value) == (
        "allow_hosts (gpu:80) and --isolate exclude each other\n"
        "hint: run without --isolate, or with a profile that allows no other machine"
    )


def test_isolation_cuts_off_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's port on loopback is another loopback's; a socket with a path is still there."""
    offline.check_endpoints(["http://127.0.0.1:8080"])
    monkeypatch.setattr(namespace, "made_here", lambda: True)
    offline.check_endpoints(["unix:/run/x.sock"])
    with pytest.raises(UsageError) as error:
        offline.check_endpoints(["http://127.0.0.1:8080", "unix:/run/x.sock"])
    assert str(error.value) == (
        "http://127.0.0.1:8080 cannot be reached with --isolate, which has a loopback of its own\n"
        "hint: let the server listen on a socket with a path and name it unix:/path, or run without --isolate"
    )


# ---- the namespace -------------------------------------------------------------------------------------------------

# Inside: what the kernel says to native code, to a child process, and what was passed on.
INSIDE = """
import json, os, socket, subprocess, sys
from pathlib import Path
from runner import offline
if not offline.made_here():
    print(os.getpid(), flush=True)
    offline.isolate([sys.executable, __file__])
child = "import socket, sys; sys.exit(socket.socket().connect_ex(('192.0.2.1', 9)))"
Path("made").write_text("x")
with socket.create_server(("127.0.0.1", 0)) as server:
    socket.create_connection(server.getsockname()).close()
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps({
    "pid": os.getpid(), "uid": os.getuid(), "stdin": sys.stdin.read(), "up": offline.interfaces(),
    "native": offline.unreachable(), "child": subprocess.run([sys.executable, "-c", child]).returncode,
    "capabilities": int(status["CapEff"], 16), "threads": status["Threads"].strip(),
}))
sys.exit(7)
"""


def ordinary() -> str:
    """An interpreter that an ordinary user can start."""
    for python in (sys.executable, "/usr/bin/python3.11", "/usr/bin/python3"):
        code = f"import sys; sys.path.append({str(ROOT)!r}); import runner.offline"
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-B", "-c", code], user=NOBODY, check=False, stderr=-3).returncode == 0:
                return python
    pytest.skip("no interpreter that an ordinary user can start")


def start(folder: Path, python: str, code: str, **options: Any) -> subprocess.Popen[str]:
    (folder / "inside.py").write_text(code)
    env = {k: v for k, v in os.environ.items() if k != "DEBATE_ISOLATED"} | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [python, "-B", "inside.py"], cwd=folder, env=env | {"PYTHONDONTWRITEBYTECODE": "1"}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def may_isolate(**options: Any) -> None:
    """Skip where another program is refused a namespace, too (or the machine has no network to be cut off from)."""
    flags = "-n" if os.geteuid() == 0 and not options else "-rn"
    if shutil.which("unshare") is None or subprocess.run(["unshare", flags, "true"], check=False, **options).returncode:
        pytest.skip("this system allows no network namespace")
    if offline.isolated():
        pytest.skip("there is no network here")


@pytest.mark.parametrize("who", ["as we are", "ordinary"])
def test_isolate(tmp_path: Path, who: str) -> None:
    """Loopback alone is up and works; native code and children get the kernel's refusal; all else is as it was."""
    as_nobody = who == "ordinary" and os.geteuid() == 0
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents[:2] if as_nobody else ():
        parent.chmod(0o755)
    python = ordinary() if as_nobody else sys.executable
    options = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if as_nobody else {}
    may_isolate(**options)
    process = start(tmp_path, python, INSIDE, **options)
    out, err = process.communicate("what the user wrote")
    assert process.returncode == 7, err
    first, found = out.splitlines()
    uid = NOBODY if as_nobody else os.getuid()
    said = json.loads(found)
    capabilities = said.pop("capabilities")
    assert int(first) == process.pid
    assert said == {
        "pid": process.pid, "uid": uid, "stdin": "what the user wrote", "up": ["lo"], "native": "ENETUNREACH",
        "child": errno.ENETUNREACH, "threads": "1",
    }  # fmt: skip
    assert (tmp_path / "made").stat().st_uid == uid
    ways_out = 1 << 12 | 1 << 19 | 1 << 21
    assert capabilities & ways_out == 0 and (uid == 0 or capabilities == 0)


def test_a_signal_reaches_the_isolated_process(tmp_path: Path) -> None:
    """The process id stays, so whoever started the command stops it as before."""
    may_isolate()
    process = start(
        tmp_path, sys.executable, INSIDE.replace("sys.exit(7)", "sys.stdout.flush(); import signal; signal.pause()")
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdin.close()
    assert process.stdout.readline() and process.stdout.readline(), process.stderr.read()
    process.send_signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM
    process.stdout.close()
    process.stderr.close()


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A system that allows no namespace; the flags it was asked for. Nothing is executed."""
    asked: list[int] = []

    def unshare(flags: int) -> int:
        asked.append(flags)
        ctypes.set_errno(errno.EPERM)
        return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(unshare=unshare))
    monkeypatch.setattr(namespace, "interfaces", lambda: ("lo", "eth0"))
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("went on without isolation"))
    monkeypatch.delenv("DEBATE_ISOLATED", raising=False)
    return asked


@pytest.mark.parametrize(("uid", "flags"), [(1000, [0x50000000]), (0, [0x40000000, 0x50000000])])
def test_a_system_that_refuses(
    refusing: list[int], monkeypatch: pytest.MonkeyPatch, uid: int, flags: list[int]
) -> None:
    """Exit 2, what was refused and what to do; root without the right tries it as a user does."""
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(RunnerError) as error:
        offline.isolate(["never"])
    assert refusing == flags
    assert (error.value.code, error.value.exit_code) == ("isolate", 2)
    assert error.value.message == "the system refused a network namespace: Operation not permitted"
    assert "unprivileged_userns_clone" in str(error.value.hint) and "--network none" in str(error.value.hint)


def test_another_system(refusing: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere there is no such thing, and that is said."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(RunnerError, match="the system refused a network namespace: only Linux has one"):
        offline.isolate(["never"])
    assert refusing == [] and not offline.isolated()


def test_the_variable_proves_nothing(refusing: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """DEBATE_ISOLATED where there is a network is an error, not isolation."""
    monkeypatch.setenv("DEBATE_ISOLATED", "1")
    assert not offline.isolated() and not offline.made_here()
    with pytest.raises(RunnerError) as error:
        offline.isolate(["never"])
    assert (error.value.code, refusing) == ("isolate", [])
    assert str(error.value) == (
        "DEBATE_ISOLATED is set, but there is a network: lo, eth0\nhint: unset DEBATE_ISOLATED; --isolate sets it"
    )


@pytest.mark.parametrize("up", [("lo",), ()])
def test_where_there_is_no_network_already(
    refusing: list[int], monkeypatch: pytest.MonkeyPatch, up: tuple[str]
) -> None:
    """A container without a network, or `unshare -n`, is isolation enough: the run goes on where it is."""
    monkeypatch.setattr(namespace, "interfaces", lambda: up)
    offline.isolate(["never"])
    assert refusing == [] and offline.isolated() and not offline.made_here()


def test_an_interface_that_is_down_is_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """New namespaces may come with tunnels that are down."""
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(1, "lo"), (2, "tunl0"), (3, "sit0")])
    monkeypatch.setattr(namespace, "_flags", lambda _, name: 0x49 if name == "lo" else 0x80)
    assert offline.interfaces() == ("lo",) and offline.isolated()
    monkeypatch.setattr(namespace, "_flags", lambda _, __: 0x41)
    assert offline.interfaces() == ("lo", "tunl0", "sit0") and not offline.isolated()


def test_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same interpreter with the same strictness, and never a `runner` of the working directory."""
    monkeypatch.setattr(sys, "flags", SimpleNamespace(isolated=0, ignore_environment=1, no_user_site=1))
    monkeypatch.setattr(sys, "warnoptions", ["error"])
    main = str(ROOT / "runner" / "cli" / "__main__.py")
    assert offline.again(["open", "--", "x"]) == [sys.executable, "-P", "-E", "-s", "-Werror", main, "open", "--", "x"]
