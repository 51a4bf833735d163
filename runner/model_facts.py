"""What a model says of itself: the manifest drafted from a GGUF file's metadata or a folder of safetensors."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from runner import gguf, model_folder
from runner.config import SamplingConfig
from runner.errors import Integrity, UsageError
from runner.manifests import PART, Manifest, Model, ModelFile, hash_file

SMALL_CONTEXT = 4096
_VERY_SMALL = 500_000_000  # parameters; measured below that: left free, a model counts or repeats itself
_THINKING = ("<think>", "enable_thinking", "reasoning")
_MAX_PARTS = 1000
_WORD = re.compile(r"[\w .,+/():-]{1,100}", re.ASCII)
# Hubs write licences in lower case; these are the identifiers that licence lists know.
_LICENCES = (
    "Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-NC-4.0", "CC0-1.0",
    "GPL-3.0", "AGPL-3.0", "LGPL-3.0", "MPL-2.0",
)  # fmt: skip
# The keys of GGUF metadata and of generation_config.json, and our names for them.
_GGUF_SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p",
                  "penalty_repeat": "repeat_penalty"}  # fmt: skip
_FOLDER_SAMPLING = {"temperature": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p",
                    "repetition_penalty": "repeat_penalty"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Facts:
    """A drafted manifest; how many parameters the model has (None: not said); what its user should know."""

    manifest: Manifest
    parameters: int | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Said:
    """The same facts from either kind of model, before they are judged."""

    context_tokens: int | None
    architecture: str | None
    quantisation: str | None
    template: bytes | None
    licence: str | None
    parameters: int | None
    sampling: Mapping[str, Any]


def of_path(path: Path, name: str, hashing: Callable[[Path], str] = hash_file) -> Facts:
    """The facts of a GGUF file (any part of a split one) or a folder of safetensors.

    Paths in the manifest are relative to the folder that the model lies in. hashing: the sha256 of a file.
    UsageError: no model, or one that is never loaded. Integrity: it is damaged, or a part is missing.
    """
    if path.is_symlink():
        hint = f"give the file that it leads to: {path.resolve()}"
        raise UsageError("a link, not a model", path=str(path), hint=hint, code="model")
    if not path.exists():
        raise UsageError("no such model", path=str(path), hint="give a .gguf file or a folder of safetensors")
    files = model_folder.files(path) if path.is_dir() else gguf_parts(path)
    said = _of_folder(path) if path.is_dir() else _of_gguf(files)
    listed = [_listed(file, path.parent, hashing) for file in files]
    return _judged(name, "safetensors" if path.is_dir() else "gguf", listed, said)


def _listed(file: Path, base: Path, hashing: Callable[[Path], str]) -> ModelFile:
    return ModelFile(path=file.relative_to(base).as_posix(), bytes=file.stat().st_size, sha256=hashing(file))


def gguf_parts(path: Path) -> Sequence[Path]:
    """All parts of a split GGUF, in order; a file that is not split is its only part. Integrity: one is missing."""
    found = PART.search(path.stem)
    if found is None:
        return (path,)
    n, whole = int(found[2]), path.name[: found.start()]
    if not 1 <= n <= _MAX_PARTS:
        raise UsageError(f"a model in {n} parts", path=str(path), hint="rename the file", code="model")
    parts = [path.parent / f"{whole}-{i:05d}-of-{n:05d}.gguf" for i in range(1, n + 1)]
    for i, part in enumerate(parts, 1):
        if part.is_symlink() or not part.is_file():
            hint = "copy all parts into one folder, as files"
            raise Integrity(f"part {i} of {n} of the model is missing", path=str(part), hint=hint)
    return parts


# ---- what the model says -------------------------------------------------------------------------------------------


def _of_gguf(files: Sequence[Path]) -> _Said:
    headers = [gguf.read(file) for file in files]
    head = headers[0]
    architecture = _word(head.text("general.architecture"))
    template = head.text("tokenizer.chat_template")
    sampling = {ours: head.values.get(f"general.sampling.{key}") for key, ours in _GGUF_SAMPLING.items()}
    return _Said(
        context_tokens=head.number(f"{architecture}.context_length"),
        architecture=architecture,
        quantisation=head.quantisation or next((q for h in headers[1:] if (q := h.quantisation)), None),
        template=None if template is None else template.encode("utf-8", "surrogateescape"),
        licence=_licence(head.text("general.license"), head.text("general.license.name")),
        parameters=sum(h.parameters for h in headers) or None,
        sampling=sampling,
    )


def _of_folder(path: Path) -> _Said:
    said = model_folder.read(path)
    return _Said(
        context_tokens=said.context_tokens,
        architecture=_word(said.architecture),
        quantisation=_word(said.quantisation),
        template=said.template,
        licence=_licence(said.licence, None),
        parameters=said.parameters,
        sampling={ours: said.generation.get(key) for key, ours in _FOLDER_SAMPLING.items()},
    )


def _word(text: str | None) -> str | None:
    return text if text is not None and _WORD.fullmatch(text) else None


def _licence(text: str | None, name: str | None) -> str | None:
    text = name if text is None or text.lower() == "other" else text
    known = {licence.lower(): licence for licence in _LICENCES}
    return None if text is None else known.get(text.lower(), _word(text))


# ---- what we make of it --------------------------------------------------------------------------------------------


def _judged(name: str, kind: str, listed: list[ModelFile], said: _Said) -> Facts:
    thinking = said.template is not None and any(word.encode() in said.template for word in _THINKING)
    sampling, refused = _sampling(said.sampling)
    fields = {
        "name": name, "format": kind, "files": listed, "context_tokens": said.context_tokens,
        "architecture": said.architecture, "quantisation": said.quantisation,
        "chat_template_sha256": None if said.template is None else hashlib.sha256(said.template).hexdigest(),
        "licence": said.licence, "thinking": thinking, "sampling": sampling,
        "prose": "strict" if said.parameters is not None and said.parameters < _VERY_SMALL else "free",
    }  # fmt: skip
    return Facts(Manifest.model_validate(fields), said.parameters, (*_warnings(said, thinking), *refused))


def _sampling(said: Mapping[str, Any]) -> tuple[dict[str, float], list[str]]:
    """Those settings that are within our limits, and a warning for each that is not."""
    kept: dict[str, float] = {}
    warnings = []
    for name, value in said.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        try:
            SamplingConfig.model_validate({name: value})
        except ValidationError:
            warnings.append(f"its {name} of {value} is left out: outside our limits")
            continue
        if math.isfinite(value):
            kept[name] = value if isinstance(value, int) else float(f"{value:.6g}")  # 32-bit floats: 0.7, not 0.699…
    return kept, warnings


def _warnings(said: _Said, thinking: bool) -> list[str]:
    found = []
    if said.template is None:
        found.append("it has no chat template: ChatML is used, and a model that was trained on another answers badly")
    if thinking:
        found.append(
            "its chat template knows thinking: enable_thinking=False is passed, and the grammar of a reply "
            "admits no thinking text; a model that must think first answers worse here"
        )
    if said.context_tokens is None:
        found.append("it does not say how long its context is: set context_tokens in the manifest")
    elif said.context_tokens < SMALL_CONTEXT:
        found.append(
            f"its context has {said.context_tokens:,} tokens, less than {SMALL_CONTEXT:,}: prompts with a document "
            "need more, and long documents are cut into many windows"
        )
    if said.licence is None:
        found.append("it names no licence: find out what you may do with it, and write it into the manifest")
    return found


# ---- is the manifest still true? -----------------------------------------------------------------------------------


def compare(model: Model) -> tuple[str, ...]:
    """Warnings about what a manifest promises and its model does not keep. Integrity: another chat template."""
    m = model.manifest
    if m.chat_template_sha256 is None and m.context_tokens is None:
        return ()
    said = _of_gguf(model.files) if m.format == "gguf" else _of_folder(model.path)
    found = None if said.template is None else hashlib.sha256(said.template).hexdigest()
    if m.chat_template_sha256 not in (None, found):
        raise Integrity(
            "the chat template is not the one its manifest describes: "
            + ("the model has none" if found is None else f"sha256 {found}, expected {m.chat_template_sha256}"),
            path=str(model.path), hint="find out who changed it; `debate models add --force` takes the new one",
        )  # fmt: skip
    if m.context_tokens and said.context_tokens and m.context_tokens > said.context_tokens:
        return (f"the manifest promises {m.context_tokens:,} tokens of context, the model has {said.context_tokens:,}",)
    return ()
