"""Models: what a manifest says of one, where its files lie, and whether they are the ones it describes."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from runner.config import Checked, Profile, SamplingConfig, folders, load, meant, wrong, xdg
from runner.errors import Integrity, UsageError
from runner.values import Sampling

PART = re.compile(r"-(\d{5})-of-(\d{5})$")  # how the files of a split GGUF end, before the suffix


class ModelFile(Checked):
    """Where one file of a model lies: `path`, relative to a models folder, or a file of an installed `package`."""

    path: str | None = None
    package: str | None = None
    file: str | None = None
    bytes: int | None = None
    sha256: str | None = None


class Manifest(Checked):
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
    """A manifest, where it was read, what was found for it (a GGUF file, or the folder with all files), and the
    manifest's own sha256."""

    manifest: Manifest
    source: str
    path: Path
    manifest_sha256: str

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file of the manifest: that of a GGUF model or its parts, which lie together, or those of the folder."""
        if self.manifest.format == "gguf":
            return (self.path, *(self.path.with_name(Path(f.path or "").name) for f in self.manifest.files[1:]))
        return tuple(self.path.parent / (f.path or "") for f in self.manifest.files)


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
        raise UsageError(f"no model named {name!r}", hint=meant(name, known))
    raw = known[name].read_bytes()
    manifest = load(Manifest, raw, str(known[name]))
    return Model(manifest, str(known[name]), weights(manifest, known[name], project), hashlib.sha256(raw).hexdigest())


def model_name(path: Path) -> str:
    """The name of a model's manifest: that of its folder, or of its file without the suffix and the part's number."""
    return path.name if path.is_dir() else PART.sub("", path.stem)


def _by_path(name: str) -> Model:
    path = Path(name).expanduser()
    if not path.exists():
        hint = "models are local files: give the path of a .gguf file, or put it under $DEBATE_MODELS with a manifest"
        raise UsageError("no such model file", path=name, hint=hint)
    beside = path.parent / f"{model_name(path)}.yaml"
    if beside.is_file():
        raw = beside.read_bytes()
        manifest = load(Manifest, raw, str(beside))
        if len(manifest.files) > 1 and manifest.format == "gguf":  # any part was given; the first one is loaded
            path = path.with_name(Path(manifest.files[0].path or path.name).name)
        return Model(manifest, str(beside), path.resolve(), hashlib.sha256(raw).hexdigest())
    if path.is_dir():
        raise UsageError("a model folder needs a manifest", path=name, hint=f"debate models add {name} writes one")
    sha256 = hash_file(path)
    manifest = Manifest(name=path.stem, files=[ModelFile(path=path.name, bytes=path.stat().st_size, sha256=sha256)])
    return Model(manifest, str(path), path.resolve(), sha256)


def weights(manifest: Manifest, source: Path, project: Path | None) -> Path:
    """The first file of the manifest on this machine, or the folder it lies in. Integrity when it is missing."""
    file = manifest.files[0]
    places: list[Path] = []
    if file.package is not None:
        places += [folder / (file.file or "") for folder in _package(file.package)]
    name = file.path or file.file or ""
    places += [folder / name for folder in (source.parent, *model_folders(project))]
    for place in places:
        if place.is_file():
            return place if manifest.format == "gguf" else place.parent
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
    """Compare every file with the manifest; the sha256 of the first. Integrity when one differs or is missing."""
    found = [_verify(file, path) for file, path in zip(model.manifest.files, model.files, strict=True)]
    return found[0]


def _verify(file: ModelFile, path: Path) -> str:
    if not path.is_file():
        raise Integrity("the model's file is missing", path=str(path), hint="copy or install the model again")
    size = path.stat().st_size
    if file.bytes is not None and size != file.bytes:
        raise Integrity(
            f"the model file has {size} bytes, its manifest says {file.bytes}",
            path=str(path), hint="copy or install the file again",
        )  # fmt: skip
    found = hash_file(path)
    if file.sha256 is not None and found != file.sha256:
        raise Integrity(
            f"the model file is not the one its manifest describes: sha256 {found}, expected {file.sha256}",
            path=str(path), hint="copy or install the file again; do not use this one",
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
        raise wrong(e, SamplingConfig, source, within="sampling.") from None
