"""Profiles: YAML, checked when loaded, unknown keys refused; and where the project's data lies."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runner.errors import UsageError


class Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SamplingConfig(Checked):
    temperature: float = Field(0.7, ge=0, le=5)
    top_k: int = Field(40, ge=0)
    top_p: float = Field(0.95, gt=0, le=1)
    min_p: float = Field(0.05, ge=0, le=1)
    repeat_penalty: float = Field(1.1, ge=1, le=2)
    dry_multiplier: float = Field(0.0, ge=0, le=10)
    dry_base: float = Field(1.75, ge=1, le=4)
    dry_allowed: int = Field(4, ge=1, le=40)
    seed: int = Field(0, ge=0)


class VllmConfig(Checked):
    """Settings of the vLLM engine; the names are vLLM's own and are passed through, except kv_cache_gib (its
    kv_cache_memory_bytes, in GiB). data_parallel_size: independent engines, requests routed by their prefix."""

    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    quantization: str | None = None
    tensor_parallel_size: int = Field(1, ge=1)
    pipeline_parallel_size: int = Field(1, ge=1)
    data_parallel_size: int = Field(1, ge=1)
    distributed_executor_backend: Literal["mp", "ray", "uni"] | None = None
    gpu_memory_utilization: float = Field(0.90, gt=0, le=1)
    kv_cache_gib: float | None = Field(None, gt=0)
    max_num_seqs: int = Field(256, ge=1)
    max_num_batched_tokens: int = Field(8192, ge=256)
    enforce_eager: bool = False


class ServerConfig(Checked):
    """Settings of the server engine. endpoints: http://host:port, or unix:/path of a socket; in_flight: requests at the
    same time, of each endpoint; model: what the server calls it (None: the only one it has); retries: of a request
    that failed on its way; timeout_s: of a request without a deadline; api_key_env: the variable that holds a key;
    allow_control_tokens: send a document that holds control tokens to a server that takes strings only."""

    endpoints: list[str] = Field(default_factory=lambda: ["http://127.0.0.1:8080"], min_length=1)
    in_flight: int = Field(8, ge=1, le=256)
    model: str | None = None
    retries: int = Field(2, ge=0, le=10)
    connect_timeout_s: float = Field(5.0, gt=0)
    timeout_s: float = Field(600.0, gt=0)
    api_key_env: str | None = None
    allow_control_tokens: bool = False


ENGINES = ("llama.cpp", "vllm", "server", "fake", "none")


class Profile(Checked):
    """How to run. roles: role -> model; every role that is not named uses `default`. None: the model's or ours.

    Of llama.cpp: kv_unified: artifacts share one pool of context_tokens cells; else each has such a pool of its own and
    its share of the threads. cache_type_k: how keys are stored. requantize: weights that CPUs compute slowly are run as
    Q8_0 (see settings.run_as). memory_gib: what all models of the roles may take together; more: they are loaded one
    after the other. wait_s: how long to wait for a device that another run holds.
    """

    engine: Literal["llama.cpp", "vllm", "server", "fake", "none"] = "llama.cpp"
    roles: dict[str, str] = Field(default_factory=lambda: {"default": "smollm2-135m-instruct"})
    threads: int = Field(0, ge=0)  # 0: the cores this process may use
    context_tokens: int = Field(12288, ge=512)
    max_running: int = Field(8, ge=1)
    claims: int = Field(4, ge=0, le=4)
    sampling: dict[str, float] = Field(default_factory=dict)
    margin: float = Field(0.10, ge=0, le=1)
    floor: float = Field(0.05, gt=0, le=0.25)
    deadline_s: float | None = Field(None, gt=0)
    flash_attention: bool = False
    cache_type_k: Literal["f16", "q8_0"] = "f16"
    kv_unified: bool = True
    requantize: bool = False
    batch_tokens: int = Field(512, ge=32, le=4096)
    feedback: str | None = None
    allow_hosts: list[str] = Field(default_factory=list)
    memory_gib: float | None = Field(None, gt=0)
    wait_s: float = Field(0.0, ge=0)
    vllm: VllmConfig = VllmConfig.model_validate({})
    server: ServerConfig = ServerConfig.model_validate({})
    fake: dict[str, Any] = Field(default_factory=dict)  # options of the fake engine: seed, per_step, faults, scores


T = TypeVar("T", bound=Checked)


# ---- where things lie ----------------------------------------------------------------------------------------------


def bundled(name: str) -> Path:
    """models, prompts or configs: beside the package in a checkout, inside it when installed."""
    here = Path(__file__).resolve().parent
    checkout = here.parent / name
    return checkout if checkout.is_dir() else here / "data" / name


def xdg(kind: Literal["CONFIG", "DATA", "CACHE", "STATE"]) -> Path:
    """Our folder below an XDG base folder."""
    default = {"CONFIG": ".config", "DATA": ".local/share", "CACHE": ".cache", "STATE": ".local/state"}[kind]
    base = os.environ.get(f"XDG_{kind}_HOME") or str(Path.home() / default)
    return Path(base) / "debate-runner"


def folders(name: str, project: Path | None) -> tuple[Path, ...]:
    """Where files of this kind are looked for, first hit wins: the project's, the user's, ours."""
    own = [] if project is None else [project / name]
    top, *rest = Path(name).parts
    return (*own, xdg("CONFIG") / name, bundled(top).joinpath(*rest))


def texts(name: str, pattern: str, project: Path | None) -> dict[str, str]:
    """All files of a data folder by name, those of the project and the user in the place of ours."""
    found: dict[str, str] = {}
    for folder in reversed(folders(name, project)):
        for path in sorted(folder.glob(pattern)):
            try:
                found[path.name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                raise UsageError("not UTF-8 text", path=str(path)) from None
    return found


# ---- reading -------------------------------------------------------------------------------------------------------


def profile(name: str, project: Path | None = None) -> tuple[Profile, str]:
    """A run profile by name, or by path when the name has a slash or ends in .yaml; and where it was read."""
    path = find(name, "configs", project)
    return load(Profile, path.read_bytes(), str(path)), str(path)


def with_engine(p: Profile, engine: str) -> Profile:
    """The profile on another engine."""
    if engine not in ENGINES:
        raise UsageError(f"no engine named {engine!r}", hint=meant(engine, ENGINES))
    return p.model_copy(update={"engine": engine})


def find(name: str, kind: str, project: Path | None) -> Path:
    if "/" in name or name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            raise UsageError("no such file", path=name)
        return Path(name)
    known: dict[str, Path] = {}
    for folder in folders(kind, project):
        for path in sorted(folder.glob("*.yaml")):
            known.setdefault(path.stem, path)
    if name not in known:
        raise UsageError(f"no {kind[:-1]} named {name!r}", hint=meant(name, known))
    return known[name]


def meant(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(sorted(known))


def load(kind: type[T], raw: bytes, path: str) -> T:
    try:
        data = yaml.safe_load(raw)
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        mark = getattr(e, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise UsageError("not readable as YAML", path=path, line=line) from None
    if not isinstance(data, dict):
        raise UsageError("expected keys and values", path=path)
    try:
        return kind.model_validate(data)
    except ValidationError as e:
        raise wrong(e, kind, path) from None


def wrong(e: ValidationError, kind: type[BaseModel], path: str, within: str = "") -> UsageError:
    """The first thing that is wrong, in the file's words."""
    first = e.errors()[0]
    where = within + ".".join(str(p) for p in first["loc"])
    if first["type"] != "extra_forbidden":
        return UsageError(f"{where}: {first['msg']}", path=path)
    for step in first["loc"][:-1]:
        if isinstance(step, str):
            part = kind.model_fields[step].annotation
            kind = next(a for a in (part, *get_args(part)) if isinstance(a, type) and issubclass(a, BaseModel))
    return UsageError(f"unknown key {where!r}", path=path, hint=meant(str(first["loc"][-1]), kind.model_fields))
