"""Small GGUF and safetensors files, written by the formats' descriptions and not by the code that reads them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

STRING, ARRAY, U32, F32, BOOL, U64 = 8, 9, 4, 6, 7, 10
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
METADATA: dict[str, tuple[int, Any]] = {
    "general.architecture": (STRING, "llama"),
    "general.license": (STRING, "apache-2.0"),
    "general.file_type": (U32, 15),
    "llama.context_length": (U32, 8192),
    "tokenizer.ggml.tokens": (ARRAY, (STRING, ["a", "bc", "ü"])),
    "tokenizer.ggml.scores": (ARRAY, (F32, [0.0, 1.0])),
    "tokenizer.ggml.add_bos_token": (BOOL, True),
    "tokenizer.chat_template": (STRING, CHATML),
}


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def value(kind: int, found: Any) -> bytes:
    if kind == STRING:
        return text(found)
    if kind == ARRAY:
        inner, values = found
        return struct.pack("<IQ", inner, len(values)) + b"".join(value(inner, v) for v in values)
    return struct.pack({U32: "<I", F32: "<f", BOOL: "<?", U64: "<Q"}[kind], found)


def keys(metadata: dict[str, tuple[int, Any]]) -> bytes:
    return b"".join(text(k) + struct.pack("<I", kind) + value(kind, v) for k, (kind, v) in metadata.items())


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def head(n_tensors: int, n_keys: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_keys)


def gguf(path: Path, changed: dict[str, tuple[int, Any] | None] | None = None, shape: tuple[int, ...] = (4, 8)) -> Path:
    """A whole file with one F32 tensor. changed: metadata over the usual; None takes a key away."""
    metadata = {k: v for k, v in (METADATA | (changed or {})).items() if v is not None}
    raw = head(1, len(metadata)) + keys(metadata) + tensor("output.weight", shape)
    size = 4
    for n in shape:
        size *= n
    path.write_bytes(raw + bytes(-len(raw) % 32))
    with path.open("r+b") as f:
        f.truncate(path.stat().st_size + size)  # sparse: a large tensor takes no room
    return path


def safetensors(path: Path, shape: tuple[int, ...] = (4, 8)) -> Path:
    size = 2
    for n in shape:
        size *= n
    header = json.dumps({"w": {"dtype": "BF16", "shape": shape, "data_offsets": [0, size]}}).encode()
    with path.open("wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.truncate(8 + len(header) + size)
    return path


def folder(path: Path, **changed: Any) -> Path:
    """A model folder. changed: keys of config.json."""
    path.mkdir(parents=True)
    config = {"model_type": "llama", "max_position_embeddings": 8192, "torch_dtype": "bfloat16"} | changed
    (path / "config.json").write_text(json.dumps(config))
    (path / "generation_config.json").write_text(json.dumps({"temperature": 0.6, "top_k": 20, "top_p": 0.9}))
    (path / "tokenizer.json").write_text("{}")
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    (path / "README.md").write_text("---\nlicense: apache-2.0\ntags: [a]\n---\n# A model\n")
    safetensors(path / "model.safetensors")
    return path
