"""tools/ci/review.sh when a job is stopped: nothing that it started is left, and the result is no pass."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from steps import Job, Ran, real

# `debate` with an engine that never answers and has a process of its own, in a session of its own, deaf to SIGTERM.
SLOW = """
import os, signal, subprocess, sys
from runner import cli
from runner.engines.fake import FakeEngine

def step(self):
    {before}
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(); signal.pause()"
    engine = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True, stdout=subprocess.PIPE)
    engine.stdout.readline()
    with open({fifo!r}, "w") as f:
        print(os.getpid(), engine.pid, file=f)
    while True:
        signal.pause()

FakeEngine.step = step
cli.main()
"""
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def _heard() -> None:
    """A shell cannot trap what was ignored when it began, and a suite may run where SIGINT or SIGHUP is (nohup)."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def running(job: Job, before: str = "pass") -> Iterator[tuple[subprocess.Popen[bytes], list[int], Path]]:
    """The step once its engine is at work: the script's process, those below it, the log."""
    fifo = job.temp / "fifo"
    os.mkfifo(fifo)
    program = job.temp / "slow.py"
    program.write_text(SLOW.format(before=before, fifo=str(fifo)), encoding="utf-8")
    slow = Job(job.project, job.base, real(job.temp / "slow", str(program)))
    log = job.temp / "log"
    with log.open("wb") as out:
        step = subprocess.Popen(
            slow.command(), cwd=job.project, env=slow.env({}), stdout=out, stderr=out, preexec_fn=_heard
        )
        pids: list[int] = []
        try:
            pids += [int(word) for word in fifo.read_text().split()]
            yield step, pids, log
        finally:
            for pid in (step.pid, *pids):
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
            step.wait()


def alive(pid: int) -> bool:
    """Does it run? A process that has ended and that nobody has asked about does not."""
    try:
        return re.search(r"\) [ZX] ", Path(f"/proc/{pid}/stat").read_text()) is None
    except (FileNotFoundError, ProcessLookupError):
        return False


def ended(job: Job, step: subprocess.Popen[bytes], log: Path) -> Ran:
    code = step.wait(timeout=60)
    return job.ran(code, log.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_stopped(job: Job, sent: signal.Signals, code: int) -> None:
    """debate is told and ends by itself; the engine it left is killed; the signal's code, outputs and summary."""
    with running(job) as (step, pids, log):
        step.send_signal(sent)
        ran = ended(job, step, log)
        assert (ran.code, ran.outputs["exit"]) == (code, str(code)), ran.log
        cut = json.loads(Path(ran.outputs["report"]).read_text(encoding="utf-8"))
        assert (cut["ok"], cut["exit"], cut["counts"]["done"]) == (False, 4, 0)
        assert {a["why"] for a in cut["artifacts"]} == {"not finished: the run was stopped"}
        assert not any(alive(pid) for pid in pids)
    assert re.search("^debate: (interrupted|terminated); `debate resume` goes on", ran.log, re.MULTILINE), ran.log
    assert f"review.sh: killed: process {pids[1]} was left" in ran.log.splitlines()
    fence = re.search("^::stop-commands::(.*)$", ran.log, re.MULTILINE)
    assert fence is not None and f"::{fence[1]}::" in ran.log.splitlines()
    assert ran.summary.startswith(f"**debate-runner: exit {code}, stopped by a signal.**")


def test_stuck(job: Job) -> None:
    """A debate that hears nothing is killed after a while; a second signal changes nothing."""
    with running(job, DEAF) as (step, pids, log):
        step.send_signal(signal.SIGTERM)
        step.send_signal(signal.SIGINT)
        ran = ended(job, step, log)
        assert not any(alive(pid) for pid in pids)
    assert ran.code in (143, 130)
    assert ran.outputs["exit"] == str(ran.code)


def test_debate_alone_is_killed(job: Job) -> None:
    """The engine of a debate that was killed is not left, and its code is the result."""
    with running(job) as (step, pids, log):
        os.kill(pids[0], signal.SIGKILL)
        ran = ended(job, step, log)
        assert ran.code == 137
        assert not any(alive(pid) for pid in pids)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="this system has no setpriv")
def test_the_script_is_killed(job: Job) -> None:
    """Nothing can be said then, but debate does not go on."""
    with running(job) as (step, pids, _):
        debate = os.pidfd_open(pids[0])
        step.kill()
        assert step.wait(timeout=60) == -signal.SIGKILL
        assert select.select([debate], [], [], 60)[0] == [debate]
        os.close(debate)
