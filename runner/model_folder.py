"""A model folder as vLLM and transformers lay it out: config.json, tokenizer files, *.safetensors. No weights are read.

The folder may come from anywhere: links, pickles and code are refused, every file that is read has a limit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from runner.engines.vllm_settings import check_folder
from runner.errors import Integrity, UsageError

_MAX_JSON = 256 << 20  # tokenizer.json of a large vocabulary takes 35 MiB
_MAX_HEADER = 100 << 20  # the limit of the safetensors format
_MAX_TEMPLATE = 16 << 20
_MAX_README = 1 << 20
_MAX_FILES = 10_000
_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_LICENCE_LINE = re.compile(rb"(?m)^(license|license_name):[ \t]*[\"']?([^\"'#\r\n]+?)[\"']?[ \t]*$")
_LICENCE_TEXTS = {
    "Apache License": "Apache-2.0", "MIT License": "MIT", "Permission is hereby granted, free of charge": "MIT",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Said:
    """template: the chat template's bytes. generation: the keys of generation_config.json. None: not said."""

    context_tokens: int | None
    architecture: str | None
    quantisation: str | None
    template: bytes | None
    licence: str | None
    parameters: int
    generation: Mapping[str, Any]


def files(path: Path) -> Sequence[Path]:
    """Every file of the folder, hidden ones left out: the weights first, then the others by depth and name.

    UsageError: a link, something that could hold code, no weights. Integrity: a file of weights is missing.
    """
    found = []
    for file in _walk(path):
        if file.is_symlink():
            hint = "copy the model with its links followed: cp -rL FOLDER COPY"
            raise _refused(file, "a link in a model folder", hint)
        if file.is_file():
            found.append(file)
        if file.suffix == ".json":
            _bounded(file, _MAX_JSON)
        if len(found) > _MAX_FILES:
            raise _refused(path, f"more than {_MAX_FILES} files", "give the folder of one model")
    if not any(f.suffix == ".safetensors" for f in found) and any(f.suffix == ".gguf" for f in found):
        raise _refused(path, "a folder of GGUF files", "give the .gguf file itself")
    try:
        check_folder(path)
    except RecursionError:
        raise _refused(path, "a JSON file is nested too deeply", "do not use this model") from None
    if not any(_is_weights(f, path) for f in found):
        raise _refused(path, "no *.safetensors in the model folder", "they must lie in the folder itself")
    _check_index(path)
    return sorted(found, key=lambda f: (not _is_weights(f, path), len(f.parts), f.name))


def read(path: Path) -> Said:
    """What the folder says of the model; `files` has been called. Integrity: weights that are cut off or damaged."""
    config, generation = _json(path / "config.json"), _json(path / "generation_config.json", needed=False)
    inner = config["text_config"] if isinstance(config.get("text_config"), dict) else {}
    both = {**inner, **{k: v for k, v in config.items() if v is not None}}
    return Said(
        context_tokens=next((n for k in _CONTEXT if isinstance(n := both.get(k), int) and n > 0), None),
        architecture=_text(both.get("model_type")),
        quantisation=_quantisation(both),
        template=_template(path),
        licence=_licence(path),
        parameters=sum(_parameters(f, both) for f in sorted(path.glob("*.safetensors"))),
        generation=generation,
    )


def _walk(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith("."):
            continue
        yield entry
        if entry.is_dir() and not entry.is_symlink():
            yield from _walk(entry)


def _is_weights(file: Path, path: Path) -> bool:
    return file.suffix == ".safetensors" and file.parent == path


def _refused(path: Path, message: str, hint: str) -> UsageError:
    return UsageError(message, path=str(path), hint=hint, code="model")


def _bounded(file: Path, limit: int) -> None:
    size = file.stat().st_size
    if size > limit:
        raise _refused(file, f"{size} bytes, more than the {limit} that are read", "this is no usual model")


def _json(file: Path, *, needed: bool = True) -> dict[str, Any]:
    if not file.is_file():
        if needed:
            hint = "give the folder that holds config.json and *.safetensors"
            raise _refused(file.parent, f"the model folder has no {file.name}", hint)
        return {}
    _bounded(file, _MAX_JSON)
    return _object(file, file.read_bytes())


def _object(file: Path, raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise _refused(file, "not readable as JSON", "copy or download the file again") from None
    if not isinstance(found, dict):
        raise _refused(file, "expected keys and values", "copy or download the file again")
    return found


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _quantisation(config: Mapping[str, Any]) -> str | None:
    how = config.get("quantization_config")
    if isinstance(how, dict) and isinstance(how.get("quant_method"), str):
        bits = how.get("bits") or how.get("w_bit")
        return f"{how['quant_method']}" + (f" {bits}-bit" if isinstance(bits, int) else "")
    return _text(config.get("dtype")) or _text(config.get("torch_dtype"))


def _template(path: Path) -> bytes | None:
    file = path / "chat_template.jinja"
    if file.is_file():
        _bounded(file, _MAX_TEMPLATE)
        return file.read_bytes()
    found = _json(path / "tokenizer_config.json", needed=False).get("chat_template")
    if isinstance(found, list):  # several, by name
        named = [t for t in found if isinstance(t, dict) and t.get("name") == "default"]
        found = named[0].get("template") if named else None
    return found.encode("utf-8", "surrogatepass") if isinstance(found, str) else None


def _licence(path: Path) -> str | None:
    """From the front matter of the README, else from the first lines of a licence file."""
    front = re.match(rb"---\r?\n(.*?)\r?\n---", _start(path / "README.md"), re.DOTALL)
    fields: dict[bytes, bytes] = dict(_LICENCE_LINE.findall(front[1])) if front else {}
    said = fields.get(b"license_name" if fields.get(b"license") == b"other" else b"license")
    if said is not None:
        return said.decode("utf-8", "replace")
    for name in ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE"):
        text = _start(path / name)[:2000].decode("utf-8", "replace")
        for words, licence in _LICENCE_TEXTS.items():
            if words in text:
                return licence
    return None


def _start(file: Path) -> bytes:
    if not file.is_file():
        return b""
    with file.open("rb") as f:
        return f.read(_MAX_README)


# ---- safetensors ---------------------------------------------------------------------------------------------------


def _check_index(path: Path) -> None:
    """Are all files there that the index names?"""
    index = path / "model.safetensors.index.json"
    listed = _json(index, needed=False).get("weight_map")
    for name in sorted({str(v) for v in listed.values()}) if isinstance(listed, dict) else ():
        if "/" in name or not (path / name).is_file():
            hint = "copy or download the whole model again"
            raise Integrity(f"a file of weights is missing: {name}", path=str(index), hint=hint)


def _parameters(file: Path, config: Mapping[str, Any]) -> int:
    """Of one file: the elements of its tensors; where weights are packed into 32-bit words, those of the words."""
    size = file.stat().st_size
    with file.open("rb") as f:
        length = int.from_bytes(f.read(8), "little")
        if not 2 <= length <= min(_MAX_HEADER, size - 8):
            raise _damaged(file, f"a header of {length} bytes in a file of {size}")
        header = _object(file, f.read(length))
    packed = isinstance(config.get("quantization_config"), dict)
    tensors = [t for name, t in header.items() if name != "__metadata__"]
    try:
        ends = max((int(t["data_offsets"][1]) for t in tensors), default=0)
        total = sum(prod(int(n) for n in t["shape"]) * (8 if packed and t["dtype"] == "I32" else 1) for t in tensors)
    except (TypeError, KeyError, IndexError, ValueError):
        raise _damaged(file, "a tensor without shape or place") from None
    if 8 + length + ends != size:
        raise _damaged(file, f"its tensors need {8 + length + ends} bytes, and it has {size}")
    return total


def _damaged(file: Path, why: str) -> Integrity:
    hint = "copy or download the file again"
    return Integrity(f"a damaged or cut off safetensors file: {why}", path=str(file), hint=hint)
