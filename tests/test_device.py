"""One run at a time on a device."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from runner import device
from runner.errors import Incomplete

HOLD = """
import sys
from runner import device
with device.held("cpu", 0):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def other(tmp_path, monkeypatch):
    """A process that holds the CPU until its input ends."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait(10)
    process.stdin.close()
    process.stdout.close()


def test_busy(other):
    """Another run holds the device: exit 4 `busy`, naming its process and the way to wait."""
    with pytest.raises(Incomplete) as caught, device.held("cpu", 0):
        pytest.fail("two runs hold the device")
    assert (caught.value.exit_code, caught.value.reason) == (4, "busy")
    assert str(caught.value) == (
        f"process {other.pid} runs a model on the cpu\nhint: --wait-s SECONDS waits until it has ended"
    )


def test_another_device(other):
    """Devices do not wait for each other, and no device is held by an engine that has none."""
    with device.held("gpu", 0), device.held(None, 0):
        pass


def test_wait(other):
    """--wait-s: the run starts when the other one ends."""
    timer = threading.Timer(0.05, other.stdin.close)
    timer.start()
    with device.held("cpu", 30):
        assert other.wait(10) == 0
    timer.join()


def test_a_killed_run_holds_nothing(other):
    """The kernel gives the lock back."""
    other.kill()
    other.wait(10)
    with device.held("cpu", 0):
        pass
