"""The process that vLLM runs in. It reads a message, does one thing and answers; it ends with its parent.

Messages are JSON objects over a socket, one answer each; {"failed": text} stands for any exception.

{"do": "look"}                                  {"gpus": [[free bytes, total bytes], ...], "cpu": is it a CPU build?};
                                                gpus: null where there is no CUDA
{"do": "load", "args": {...}}                   {"ready": true}; args: those of vLLM's EngineArgs
{"do": "step", "add": [...], "abort": [...]}    {"out": [...], "step_s": seconds inside LLMEngine.step}
{"do": "reset"}                                 {"reset": true}; nothing in flight, nothing cached

An element of add: id, tokens, max_tokens, stop, then either ids (tokens to be measured) or temperature, top_k, top_p,
min_p, repetition_penalty, seed and grammar. An element of out: id, tokens (since the last step), finish (null while
it goes on), cached (tokens of the prompt), measured ([[id, log-probability], ...]).
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import time
import warnings
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


def main(socket: int, lifeline: int) -> None:
    """Serve until killed. lifeline: the reading end of a pipe that the parent keeps open while it lives."""
    watch(lifeline, socket)
    _hush()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # this process is the engine's own
    connection, served = Connection(socket), Served()
    while True:
        try:
            message = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            signal.pause()  # the watching process ends us, and must find what we have mapped
            return
        do = message.pop("do")
        try:
            answer = getattr(served, do)(**message)
        except Exception as e:  # while there are requests, its words may be the document's
            answer = {"failed": type(e).__name__ + ("" if do == "step" else f": {e}")}
        connection.send_bytes(json.dumps(answer).encode())


def watch(lifeline: int, connection: int) -> None:
    """Leave a process behind that does nothing but wait for the end of our parent, then kills our whole group and
    removes its shared memory. It needs nothing of us, so whatever we are stuck in, it works."""
    group = os.getpgrp()
    if os.fork():
        os.close(lifeline)
        return
    try:
        os.setsid()
        os.close(connection)  # our parent learns of our end by the end of this
        os.read(lifeline, 1)
        end(group)
    finally:
        os._exit(0)


def end(group: int) -> None:
    """Kill a process group of ours, and remove the shared memory that vLLM leaves even when it is stopped. Python's
    resource tracker is left to end by itself, when the others have: it removes what they registered."""
    killed: set[int] = set()
    while new := {pid for pid in _members(group) if not _is_tracker(pid)} - killed:
        shared = {path for pid in new for path in _shared_memory(pid)}
        for pid in new:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for path in shared:
            path.unlink(missing_ok=True)
        killed |= new


def _members(group: int) -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rsplit(")", 1)[1].split()[2]) == group:
                found.add(int(stat.parent.name))
    return found


def _is_tracker(pid: int) -> bool:
    with suppress(OSError):
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _shared_memory(pid: int) -> set[Path]:
    """Files below /dev/shm that the process has mapped and that no tracker knows of, by their names."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/maps").read_text().split()
        return {Path(w) for w in words if re.match(r"/dev/shm/(vllm|torch_|nccl-)", w)}
    return set()


def _hush() -> None:
    """Errors only, unless VLLM_LOGGING_LEVEL says otherwise; stdout is stderr here."""
    if "VLLM_LOGGING_LEVEL" not in os.environ:
        os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        os.environ.setdefault("PYTHONWARNINGS", "ignore")  # for its workers
        logging.lastResort = logging.NullHandler()  # for what is said before vLLM sets up its logging
        warnings.simplefilter("ignore")
    os.environ.setdefault("LLGUIDANCE_LOG_LEVEL", "0")  # its warnings quote the grammar, which quotes the document


class Served:
    """What the messages do."""

    def __init__(self) -> None:
        self.engine: Any = None

    def look(self) -> dict[str, Any]:
        """By NVML, so that looking takes no memory; an accelerator of another make is not looked at."""
        from vllm.platforms import current_platform as platform

        if not platform.is_cuda():
            return {"gpus": None, "cpu": platform.is_cpu()}
        from vllm.utils.import_utils import import_pynvml

        nvml = import_pynvml()
        nvml.nvmlInit()
        try:
            ids = [platform.visible_device_id_to_physical_device_id(i) for i in range(platform.device_count())]
            found = [nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(i)) for i in ids]
        finally:
            nvml.nvmlShutdown()
        return {"gpus": [[memory.free, memory.total] for memory in found], "cpu": False}

    def load(self, args: dict[str, Any]) -> dict[str, Any]:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.llm_engine import LLMEngine

        if current_platform.is_cpu():
            _prepare_cpu(args)
        self.engine = LLMEngine.from_engine_args(EngineArgs(**args))
        _compile_in_order(self.engine)
        return {"ready": True}

    def step(self, add: list[dict[str, Any]], abort: list[str]) -> dict[str, Any]:
        out = [refused for one in add if (refused := self._add(one)) is not None]
        if abort:
            self.engine.abort_request(abort)
        start = time.perf_counter()
        found = self.engine.step() if self.engine.has_unfinished_requests() else []
        step_s = time.perf_counter() - start
        return {"out": out + [_told(one) for one in found], "step_s": step_s}

    def _add(self, one: dict[str, Any]) -> dict[str, Any] | None:
        """Hand a request to vLLM; what it refuses ends here, and only that."""
        from vllm.exceptions import VLLMValidationError
        from vllm.inputs import TokensPrompt

        try:
            self.engine.add_request(one["id"], TokensPrompt(prompt_token_ids=one["tokens"]), _params(one))
        except (ValueError, VLLMValidationError):
            return {"id": one["id"], "tokens": [], "finish": "error", "cached": 0, "measured": []}
        return None

    def reset(self) -> dict[str, Any]:
        self.engine.abort_request(list(self.engine.output_processor.external_req_ids))
        while self.engine.has_unfinished_requests():
            self.engine.step()
        return {"reset": bool(self.engine.reset_prefix_cache())}


def _prepare_cpu(args: dict[str, Any]) -> None:
    """vLLM's settings of the CPU build; what the user has set wins."""
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")  # its structured outputs need CUDA
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    # Compiling takes minutes and a C++ compiler; a block of 32 tokens shares more of a prefix than one of 128.
    import torch._dynamo

    torch._dynamo.config.disable = True
    args |= {"enforce_eager": True, "block_size": 32}
    args.pop("device_ids", None)
    os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # it would win over kv_cache_memory_bytes


def _compile_in_order(engine: Any) -> None:
    """Grammars are compiled as requests come, not by threads: the schedule, and with it every reply, repeats itself."""
    core = getattr(engine.engine_core, "engine_core", None)
    manager = getattr(core, "structured_output_manager", None)
    if manager is not None and hasattr(manager, "_use_async_grammar_compilation"):
        manager._use_async_grammar_compilation = False


def _params(one: dict[str, Any]) -> Any:
    from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

    common = {"max_tokens": one["max_tokens"], "detokenize": False, "output_kind": RequestOutputKind.DELTA}
    if one["ids"]:
        return SamplingParams(
            **common, temperature=0.0, allowed_token_ids=one["ids"], logprob_token_ids=one["ids"], ignore_eos=True
        )
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
    grammar = one["grammar"]
    return SamplingParams(
        **common,
        **{n: one[n] for n in names},
        stop_token_ids=one["stop"],
        structured_outputs=None if grammar is None else StructuredOutputsParams(grammar=grammar),
    )


def _told(found: Any) -> dict[str, Any]:
    (said,) = found.outputs
    rows = said.logprobs or []
    measured = [[token, known.logprob] for token, known in rows[0].items()] if rows else []
    return {
        "id": found.request_id,
        "tokens": list(said.token_ids),
        "finish": said.finish_reason if found.finished else None,
        "cached": found.num_cached_tokens or 0,
        "measured": measured,
    }
