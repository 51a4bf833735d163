"""Offline on the command line: attempts end in exit 5, `--isolate`, and what `debate doctor --offline` proves."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner import cli, offline
from runner.engines.fake import FakeEngine
from runner.offline import namespace, sockets

ROOT = Path(__file__).parents[2]
LEAF = "project-brain/tree/auth/session-store.md"
OPEN = ("open", LEAF, "--personas", "red-team", "--feedback", "Is it ready?", "--profile", "fake", "-q")
ROUND = Path("project-brain/tree/auth/debate/session-store/round-01")
CALL = "socket.getaddrinfo telemetry.example.org, by "


@pytest.fixture
def project(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project folder of a writable example brain, as the working directory."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("PROJECT_BRAIN_VERBOSITY", raising=False)
    monkeypatch.delenv("DEBATE_ISOLATED", raising=False)
    monkeypatch.chdir(demo.parent)
    return demo.parent


def calling(monkeypatch: pytest.MonkeyPatch, swallow: bool) -> None:
    """An engine that calls out at every step."""
    step = FakeEngine.step

    def calls(self: FakeEngine) -> Any:
        with contextlib.suppress(Exception if swallow else ZeroDivisionError):
            socket.create_connection(("telemetry.example.org", 443))
        return step(self)

    monkeypatch.setattr(FakeEngine, "step", calls)


def test_a_swallowed_call_is_exit_5(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The round is done and stays; the run is told apart all the same, with the caller, once."""
    calling(monkeypatch, swallow=True)
    assert cli.run([*OPEN, "--json"]) == 5
    out, err = capsys.readouterr()
    assert json.loads(out)["schema"] == "open/1" and out.count("\n") == 1
    calls = [line for line in err.splitlines() if line.startswith("debate: ")]
    assert len(calls) == 1 and calls[0].startswith(f"debate: refused: {CALL}{__name__}:calling.<locals>.calls:")
    assert (ROUND / ".run/record.json").exists()
    assert cli.run(["status", LEAF]) == 0
    assert capsys.readouterr().err == ""


def test_a_call_that_is_not_swallowed(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run stops there, with the error as its one document."""
    calling(monkeypatch, swallow=False)
    assert cli.run([*OPEN, "--json"]) == 5
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["exit"]) == ("network", 5)
    assert error["message"].startswith(f"a call out of this machine was refused: {CALL}")
    assert "allow_hosts" in error["hint"]


def test_a_signal_wins(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A stopped run has the signal's code; what it called is told."""
    calling(monkeypatch, swallow=True)
    monkeypatch.setattr("runner.journal.Journal.add", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    assert cli.run(list(OPEN)) == 130
    assert f"debate: refused: {CALL}" in capsys.readouterr().err


# ---- --isolate -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_which_commands_have_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command that runs an engine, and help says what it does; no other takes it and does nothing."""
    assert cli.run([name, "--help"]) == 0
    has = "--isolate " in capsys.readouterr().out
    assert has == (name in {*cli.ISOLATING, "doctor"})
    if not has:
        assert cli.run([name, "--isolate"]) == 2


# Every interpreter that starts writes down which process it is, and which interfaces are up.
SPY = """
import json, os, socket, sys
with open({log!r}, "a") as log:
    print(json.dumps([os.getpid(), [name for _, name in socket.if_nameindex()]]), file=log)
"""


def debate(project: Path, *argv: str, given: str = "") -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """The command line in a process of its own; each start of the interpreter in it: process id, interfaces."""
    flags = "-n" if os.geteuid() == 0 else "-rn"
    if shutil.which("unshare") is None or subprocess.run(["unshare", flags, "true"], check=False).returncode:
        pytest.skip("this system allows no network namespace")
    if offline.isolated():
        pytest.skip("there is no network here")
    spy, log = project.parent / "spy", project.parent / "starts"
    spy.mkdir(exist_ok=True)
    (spy / "sitecustomize.py").write_text(SPY.format(log=str(log)))
    log.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "runner.cli", *argv], cwd=project, check=False, capture_output=True, text=True,
        input=given, env=os.environ | {"PYTHONPATH": f"{spy}{os.pathsep}{ROOT}"},
    )  # fmt: skip
    return done, [json.loads(line) for line in log.read_text().splitlines()]


def test_a_round_in_isolation(project: Path) -> None:
    """The same process goes on where loopback is all there is; what was typed reaches it; the round is as ever."""
    argv = [word.replace("Is it ready?", "-") for word in OPEN]
    done, starts = debate(project, *argv, "--isolate", given="Is it *really* ready?")
    assert done.returncode == 0, done.stderr
    (first, outer), (second, interfaces) = starts
    assert first == second and "lo" in interfaces and set(interfaces) < set(outer)
    assert "Is it *really* ready?" in (ROUND / "feedback-in.md").read_text()
    assert {p.stat().st_uid for p in ROUND.rglob("*")} == {os.getuid()}


def test_the_exit_code_comes_through(project: Path) -> None:
    """A refusal inside is a refusal outside."""
    done, starts = debate(project, "resume", LEAF, "--isolate")
    assert (done.returncode, len(starts)) == (1, 2)


def test_a_wrong_command_line_starts_nothing(project: Path) -> None:
    """What is typed is checked first."""
    done, starts = debate(project, "open", LEAF, "--isolate", "--no-such-option")
    assert (done.returncode, len(starts)) == (2, 1)


@pytest.fixture
def refusing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system with a network that allows no namespace."""

    def unshare(_: int) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(unshare=unshare))
    monkeypatch.setattr(namespace, "interfaces", lambda: ("lo", "eth0"))


def test_never_without(refusing: None, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where isolation cannot be had the run does not begin: exit 2, and what to do."""
    for argv in ((*OPEN, "--isolate", "--json"), ("bench", "--isolate", "--json"), ("doctor", "--isolate", "--json")):
        assert cli.run(list(argv)) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert (error["code"], error["message"]) == (
            "isolate", "the system refused a network namespace: Operation not permitted"
        )  # fmt: skip
        assert "--network none" in error["hint"]
    assert not ROUND.exists()


# ---- doctor --------------------------------------------------------------------------------------------------------


def rows(out: str) -> dict[str, tuple[bool, str]]:
    found = json.loads(out)
    assert found["schema"] == "doctor/1" and found["ok"] == all(r["ok"] for r in found["checks"])
    return {r["check"]: (r["ok"], r["says"]) for r in found["checks"]}


def test_doctor_proves_it(project: Path) -> None:
    """A tiny round where there is no network, with no attempt; each part of the proof has its row."""
    done, starts = debate(project, "doctor", "--offline", "--profile", "fake", "--json")
    assert (done.returncode, done.stderr, len(starts)) == (0, "", 2)
    found = rows(done.stdout)
    assert list(found) == ["kernel", "switches", "guard", "profile", "hosts", "model", "round", "attempts"]
    assert found["kernel"] == (True, "interfaces up: lo; native code that calls out gets ENETUNREACH")
    assert found["switches"] == (True, f"{len(offline.SWITCHES)} set, no proxy")
    assert found["guard"][1].startswith("a call out of this machine was refused: socket.connect 192.0.2.1:9, by ")
    assert found["hosts"] == (True, "the profile allows no other machine")
    assert found["round"][1].startswith("opened and reviewed: ")
    assert found["attempts"] == (True, "0, but for the guard's own")


def test_doctor_and_a_profile_that_allows_hosts(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plain check says who is allowed; the proof fails, exit 2, for there the two exclude each other."""
    (project / "configs").mkdir()
    (project / "configs/lab.yaml").write_text(
        "engine: fake\nroles: {default: fake}\nallow_hosts: [localhost, 'gpu.lab:80', 10.0.0.0/24]\n"
    )
    assert cli.run(["doctor", "--profile", "lab", "--json"]) == 0
    assert rows(capsys.readouterr().out)["hosts"] == (True, "leaves this machine: gpu.lab:80, 10.0.0.0/24")
    done, _ = debate(project, "doctor", "--offline", "--profile", "lab", "--json")
    assert done.returncode == 2
    ok, says = rows(done.stdout)["hosts"]
    assert not ok and says.startswith("allow_hosts (gpu.lab:80, 10.0.0.0/24) and --isolate exclude each other")


def test_doctor_without_isolation(refusing: None, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No proof is worse than a failed row: exit 2, and nothing is run that would look like one."""
    assert cli.run(["doctor", "--offline", "--profile", "fake"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "FAIL  kernel   the system refused a network namespace: Operation not permitted"
    assert lines[1].startswith("hint: allow it (sysctl ")
    assert [line[:14] for line in lines[2:]] == ["ok    switches", "ok    guard   "]


@pytest.fixture
def isolated(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the kernel had isolated this process."""
    monkeypatch.setattr(namespace, "interfaces", lambda: ("lo",))
    monkeypatch.setattr(offline, "unreachable", lambda: "ENETUNREACH")


def test_doctor_finds_a_call(
    isolated: None, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An engine that calls out, and hides it, is found: exit 5, with the caller."""
    calling(monkeypatch, swallow=True)
    assert cli.run(["doctor", "--offline", "--profile", "fake", "--json"]) == 5
    found = rows(capsys.readouterr().out)
    assert [name for name, (ok, _) in found.items() if not ok] == ["attempts"]
    assert found["attempts"][1].startswith(f"1: {CALL}")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("kernel", "the kernel has a way to another machine"),
        ("switches", "not as they must be: HF_HUB_OFFLINE, https_proxy"),
        ("guard", "the guard let a call to 192.0.2.1 through"),
    ],
)
def test_doctor_finds_what_is_missing(
    isolated: None, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], row: str,
    says: str,
) -> None:  # fmt: skip
    """Each part of the proof can fail on its own: exit 5."""
    if row == "kernel":
        monkeypatch.setattr(offline, "unreachable", lambda: "")
    elif row == "switches":
        monkeypatch.setattr(offline, "switches", lambda: None)
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setenv("https_proxy", "http://127.0.0.1:3128")
        for name in set(offline.SWITCHES) - {"HF_HUB_OFFLINE"}:
            monkeypatch.setenv(name, offline.SWITCHES[name])
    else:
        monkeypatch.setattr(sockets, "_WATCHED", {})
    assert cli.run(["doctor", "--offline", "--profile", "fake", "--json"]) == 5
    found = rows(capsys.readouterr().out)
    assert [name for name, (ok, _) in found.items() if not ok] == [row] and found[row][1] == says


def test_doctor_without_an_engine(
    isolated: None, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scaffold mode asks nobody, so it proves nothing."""
    (project / "configs").mkdir()
    (project / "configs/people.yaml").write_text("engine: none\n")
    assert cli.run(["doctor", "--offline", "--profile", "people", "--json"]) == 2
    assert rows(capsys.readouterr().out)["round"][1].startswith("there is no engine to prove it with")
