"""What is checked before vLLM loads anything: the model folder, the parallel settings, the memory. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.config import VllmConfig
from runner.errors import RunnerError, UsageError

_GIB = 1 << 30
# Formats that can hold code: pickles, and Python itself.
_CODE = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".py", ".so"}


# ---- the model folder ----------------------------------------------------------------------------------------------


def check_folder(path: Path) -> None:
    """UsageError unless this is a folder of safetensors that needs no code of its own."""
    if not path.is_dir():
        hint = "vLLM reads folders of safetensors; tools/convert_gguf.py makes one of a GGUF file"
        raise UsageError("not a model folder", path=str(path), hint=hint)
    files = sorted(p for p in path.rglob("*") if p.is_file())
    for file in files:
        if file.suffix.lower() in _CODE:
            hint = "use a copy with *.safetensors only, without this file"
            raise UsageError("this file could hold code and is never loaded", path=str(file), code="model", hint=hint)
        if file.suffix == ".json" and "auto_map" in _keys(file):
            hint = "trust_remote_code is never set: use a model of an architecture that vLLM knows"
            raise UsageError("this model brings its own code (auto_map)", path=str(file), code="model", hint=hint)
    if not any(f.suffix == ".safetensors" for f in files):
        raise UsageError("no *.safetensors in the model folder", path=str(path), code="model")


def _keys(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except ValueError:
        raise UsageError("not readable as JSON", path=str(file), code="model") from None
    return found if isinstance(found, dict) else {}


def read_config(path: Path) -> dict[str, Any]:
    """The model's config.json."""
    file = path / "config.json"
    if not file.is_file():
        raise UsageError("the model folder has no config.json", path=str(path), code="model")
    return _keys(file)


# ---- how it is spread over GPUs ------------------------------------------------------------------------------------


def check_parallel(o: VllmConfig, config: dict[str, Any], *, ray: bool) -> None:
    """UsageError for what no machine can do. config: the model's; ray: is it installed?"""
    tensor, pipeline, backend = o.tensor_parallel_size, o.pipeline_parallel_size, o.distributed_executor_backend
    if backend == "uni" and tensor * pipeline > 1:
        raise _wrong("uni runs one process, and these sizes ask for", tensor * pipeline, "leave the backend out")
    if backend == "ray" and not ray:
        raise _wrong("ray is not installed, and the backend is ray", None, "pip install ray, or use the backend mp")
    if backend == "ray" and o.data_parallel_size > 1:
        hint = "start one process for each engine, or use the backend mp"
        raise _wrong("data_parallel_size cannot go with ray; it is", o.data_parallel_size, hint)
    if o.max_num_batched_tokens < o.max_num_seqs:
        raise _wrong("max_num_batched_tokens is below max_num_seqs:", o.max_num_batched_tokens, "raise it")
    heads, layers = int(config.get("num_attention_heads") or 0), int(config.get("num_hidden_layers") or 0)
    if heads and heads % tensor:
        hint = f"use a divisor of {heads}"
        raise _wrong(f"the model has {heads} attention heads, not divisible by tensor_parallel_size", tensor, hint)
    if layers and pipeline > layers:
        raise _wrong(f"the model has {layers} layers, fewer than pipeline_parallel_size", pipeline, "lower it")


def check_gpus(o: VllmConfig, n_gpus: int) -> None:
    """UsageError when this machine has fewer GPUs than the settings need. With ray they may be elsewhere."""
    sizes = (o.tensor_parallel_size, o.pipeline_parallel_size, o.data_parallel_size)
    needed = sizes[0] * sizes[1] * sizes[2]
    if o.distributed_executor_backend == "ray" or needed <= n_gpus:
        return
    asked = " × ".join(str(s) for s in sizes)
    raise UsageError(
        f"vllm: tensor × pipeline × data parallel = {asked} = {needed} GPUs, but there are {n_gpus}",
        hint="lower one of the sizes in the profile",
    )


def check_cpu(o: VllmConfig) -> None:
    """UsageError for what vLLM's CPU build cannot do."""
    if o.pipeline_parallel_size > 1:
        raise _wrong("without a GPU there is no pipeline_parallel_size", o.pipeline_parallel_size, "set it to 1")


def local_gpus(o: VllmConfig, n_gpus: int) -> int:
    """How many of this machine's GPUs are used; with ray, any may be."""
    sizes = o.tensor_parallel_size * o.pipeline_parallel_size * o.data_parallel_size
    return n_gpus if o.distributed_executor_backend == "ray" else sizes


def _wrong(message: str, value: int | None, hint: str) -> UsageError:
    return UsageError(f"vllm: {message}" + ("" if value is None else f" {value}"), hint=f"{hint} (in the profile)")


# ---- memory --------------------------------------------------------------------------------------------------------


def weights_bytes(path: Path) -> int:
    return sum(f.stat().st_size for f in path.rglob("*.safetensors"))


def cache_bytes(config: dict[str, Any], context_tokens: int, dtype: str) -> int:
    """KV cache of one context; 0 when config.json does not say enough."""
    layers, heads = config.get("num_hidden_layers"), config.get("num_key_value_heads")
    width = config.get("head_dim") or (config.get("hidden_size") or 0) // (config.get("num_attention_heads") or 1)
    if not (isinstance(layers, int) and isinstance(heads, int) and width):
        return 0
    return 2 * layers * heads * int(width) * (4 if dtype == "float32" else 2) * context_tokens


def check_memory(o: VllmConfig, gpus: Sequence[tuple[int, int]], weights: int, cache: int) -> None:
    """RunnerError (code memory, with numbers) when a GPU has too little. gpus: (free, total) bytes of those used by
    one engine; weights, cache: bytes of the whole model and of one context."""
    share = o.tensor_parallel_size * o.pipeline_parallel_size
    kept = int(o.kv_cache_gib * _GIB) if o.kv_cache_gib else cache // share
    for i, (free, total) in enumerate(gpus):
        budget = int(total * o.gpu_memory_utilization)
        if free < budget:
            raise _memory(
                f"GPU {i} has {_gib(free)} GiB free of {_gib(total)}, and gpu_memory_utilization "
                f"{o.gpu_memory_utilization:g} asks for {_gib(budget)}",
                f"end what else uses the GPU, or lower gpu_memory_utilization to {_floor(free / total)} in the profile",
            )
        if weights // share + kept > budget:
            raise _memory(
                f"the model needs {_gib(weights // share)} GiB for weights and {_gib(kept)} GiB for the KV cache on "
                f"GPU {i}, more than its {_gib(budget)} GiB",
                "use a smaller or quantised model, more GPUs (tensor_parallel_size), or a lower context_tokens",
            )


def check_host(available: int, weights: int, cache: int) -> None:
    """The same for a CPU build, against the machine's memory."""
    if weights + cache > available:
        raise _memory(
            f"the model needs {_gib(weights)} GiB for weights and {_gib(cache)} GiB for the KV cache, and "
            f"{_gib(available)} GiB of memory are free",
            "use a smaller model, or a lower kv_cache_gib",
        )


def host_cache_bytes(o: VllmConfig, cache: int) -> int:
    """The KV cache of a CPU build when the profile does not say: room for two whole contexts, 2 GiB at least."""
    return int(o.kv_cache_gib * _GIB) if o.kv_cache_gib else max(2 * _GIB, 2 * cache)


def available_bytes() -> int:
    """Memory that new processes can have, files that are only cached included."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _memory(message: str, hint: str) -> RunnerError:
    return RunnerError(message, code="memory", hint=hint)


def _gib(n: int) -> str:
    return f"{n / _GIB:.1f}"


def _floor(share: float) -> str:
    return f"{int(share * 100) / 100:.2f}"


# ---- what vLLM is given --------------------------------------------------------------------------------------------


def engine_args(o: VllmConfig, path: Path, context_tokens: int, model_context: int, rank: int) -> dict[str, Any]:
    """Arguments of vLLM's EngineArgs. context_tokens: the most of a prompt and its reply; rank: of the data parallel
    engines, each on GPUs of its own."""
    args: dict[str, Any] = {
        "model": str(path),
        "tokenizer": str(path),
        "trust_remote_code": False,
        "load_format": "safetensors",
        "generation_config": "vllm",  # neutral: every request says how it samples
        # The token that ends a reply under a grammar counts for vLLM and not for us.
        "max_model_len": min(context_tokens + 1, model_context or context_tokens + 1),
        "enable_prefix_caching": True,
        "structured_outputs_config": {"backend": "guidance", "disable_any_whitespace": True},
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "seed": 0,
    }
    names = (
        "dtype", "quantization", "tensor_parallel_size", "pipeline_parallel_size", "distributed_executor_backend",
        "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "enforce_eager",
    )  # fmt: skip
    args |= {name: getattr(o, name) for name in names}
    if o.kv_cache_gib is not None:
        args["kv_cache_memory_bytes"] = int(o.kv_cache_gib * _GIB)
    if o.data_parallel_size > 1:
        each = o.tensor_parallel_size * o.pipeline_parallel_size
        args["device_ids"] = list(range(rank * each, (rank + 1) * each))
    return args
