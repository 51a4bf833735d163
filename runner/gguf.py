"""The header of a GGUF file: its metadata and the names, shapes and types of its tensors. No weights are read.

The file may come from anywhere, so nothing in it decides how much memory is taken: every length is compared with
what the file still holds and with a limit of ours before it is used, and long arrays are passed over, not kept.
Format: magic `GGUF`, version (u32), number of tensors (u64), number of key-values (u64), the key-values, the tensors,
padding, the weights; all little-endian.
"""

from __future__ import annotations

import os
import stat
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

from runner.errors import Integrity, UsageError

_MAX_HEADER = 128 << 20  # bytes; the largest vocabularies take about 20 MiB
_MAX_KEY = 1 << 10
_MAX_STRING = 16 << 20
_MAX_KEYS = 1 << 16
_MAX_TENSORS = 1 << 18
_MAX_STRINGS = 1 << 23  # in one array
_MAX_DIMENSIONS = 4
_MAX_ALIGNMENT = 1 << 20

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_SIZES = {kind: struct.calcsize(code) for kind, code in _SCALARS.items()}

# ggml's tensor types: name, elements of a block, bytes of a block.
_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}  # fmt: skip

# general.file_type: what most tensors are.
_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE", 39: "NVFP4",
    40: "Q1_0", 41: "Q2_0",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Array:
    """A list among the metadata; only how many values it has is kept."""

    count: int


Value = int | float | bool | str | Array


@dataclass(frozen=True, slots=True)
class Tensor:
    """offset: bytes from the start of the weights."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int

    @property
    def parameters(self) -> int:
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """What it takes in the file; 0 for a type that is not known here."""
        _, elements, size = _TYPES.get(self.type, ("", 1, 0))
        return self.parameters // elements * size


@dataclass(frozen=True, slots=True)
class Gguf:
    """values: the metadata by key; a text that is not UTF-8 keeps its bytes as surrogates."""

    version: int
    values: Mapping[str, Value]
    tensors: tuple[Tensor, ...]

    @property
    def parameters(self) -> int:
        return sum(t.parameters for t in self.tensors)

    def text(self, key: str) -> str | None:
        found = self.values.get(key)
        return found if isinstance(found, str) else None

    def number(self, key: str) -> int | None:
        found = self.values.get(key)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    @property
    def quantisation(self) -> str | None:
        """What the file says it is, else the type that most parameters have."""
        said = self.number("general.file_type")
        if said is not None:
            return _FILE_TYPES.get(said & 1023)  # 1024: guessed
        weights: Counter[int] = Counter()
        for tensor in self.tensors:
            weights[tensor.type] += tensor.parameters
        most = weights.most_common(1)
        return _TYPES.get(most[0][0], (None,))[0] if most else None


def read(path: Path) -> Gguf:
    """UsageError: no GGUF file, or one that cannot be read here. Integrity: a GGUF file that is cut off or damaged."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not make us wait
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise _refused(path, "not a file", "give the path of a .gguf file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return _Reader(file, path, found.st_size).gguf()
        finally:
            os.close(descriptor)
    except OSError as e:
        raise _refused(path, f"cannot be read: {e.strerror}", "check the path and the permissions") from None


def _refused(path: Path, message: str, hint: str) -> UsageError:
    return UsageError(message, path=str(path), hint=hint, code="model")


class _Reader:
    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self.file = file
        self.path = path
        self.size = size
        self.at = 0

    def gguf(self) -> Gguf:
        version = self._start()
        tensors, keys = self.count("tensors", _MAX_TENSORS), self.count("key-values", _MAX_KEYS)
        values: dict[str, Value] = {}
        for _ in range(keys):
            key = self.string(_MAX_KEY)
            if key in values:
                raise self.damaged(f"the key {key[:80]!r} is there twice")
            values[key] = self.value(self.scalar(4))
        found = Gguf(version, values, tuple(self.tensor() for _ in range(tensors)))
        self.check_weights(found)
        return found

    def _start(self) -> int:
        magic = self.file.read(4)
        self.at = 4
        if magic != b"GGUF":
            raise _refused(self.path, "not a GGUF file", "models are GGUF files, or folders of safetensors")
        version = int(self.scalar(4))
        if version & 0xFFFF == 0:
            raise _refused(self.path, "a big-endian GGUF file", "get the little-endian one; most machines need that")
        if version not in (2, 3):
            hint = "convert the model again with a llama.cpp of today"
            raise _refused(self.path, f"GGUF version {version}, and only 2 and 3 can be read", hint)
        return version

    def damaged(self, why: str) -> Integrity:
        hint = "copy or download the file again; do not use this one"
        return Integrity(f"a damaged GGUF file: {why}", path=str(self.path), hint=hint)

    # ---- pieces --------------------------------------------------------------------------------------------------

    def take(self, n: int) -> bytes:
        """The next n bytes. The caller has a limit on n."""
        self.claim(n)
        found = self.file.read(n)
        if len(found) != n:
            raise self.cut_off()
        return found

    def skip(self, n: int) -> None:
        self.claim(n)
        self.file.seek(self.at)

    def claim(self, n: int) -> None:
        self.at += n
        if self.at > self.size:
            raise self.cut_off()
        if self.at > _MAX_HEADER:
            raise self.damaged(f"its header is longer than {_MAX_HEADER >> 20} MiB")

    def cut_off(self) -> Integrity:
        return Integrity(
            f"the model file is cut off: it has {self.size} bytes, and its header goes on",
            path=str(self.path), hint="copy or download the file again",
        )  # fmt: skip

    def scalar(self, kind: int) -> int:
        return int(struct.unpack(_SCALARS[kind], self.take(_SIZES[kind]))[0])

    def count(self, what: str, limit: int) -> int:
        n = self.scalar(10)
        if n > limit:
            raise self.damaged(f"it claims {n} {what}")
        return n

    def string(self, limit: int = _MAX_STRING) -> str:
        n = self.scalar(10)
        if n > limit:
            raise self.damaged(f"a text of {n} bytes")
        return self.take(n).decode("utf-8", "surrogateescape")

    def value(self, kind: int) -> Value:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array()
        if kind not in _SCALARS:
            raise self.damaged(f"a value of type {kind}")
        found: Value = struct.unpack(_SCALARS[kind], self.take(_SIZES[kind]))[0]
        return found

    def array(self) -> Array:
        kind, n = self.scalar(4), self.scalar(10)
        if kind in _SIZES:
            self.skip(n * _SIZES[kind])
        elif kind != _STRING:
            raise self.damaged(f"a list of type {kind}")
        elif n > _MAX_STRINGS:
            raise self.damaged(f"a list of {n} texts")
        else:
            self.skip_strings(n)
        return Array(n)

    def skip_strings(self, n: int) -> None:
        for _ in range(n):
            length = self.scalar(10)
            if length > _MAX_STRING:
                raise self.damaged(f"a text of {length} bytes")
            self.take(length)

    def tensor(self) -> Tensor:
        name, dimensions = self.string(_MAX_KEY), self.scalar(4)
        if dimensions > _MAX_DIMENSIONS:
            raise self.damaged(f"a tensor of {dimensions} dimensions")
        shape = tuple(self.scalar(10) for _ in range(dimensions))
        kind, offset = self.scalar(4), self.scalar(10)
        if prod(shape) >= 1 << 62 or offset >= 1 << 62:
            raise self.damaged(f"a tensor of shape {shape} at byte {offset}")
        return Tensor(name, shape, kind, offset)

    def check_weights(self, found: Gguf) -> None:
        """Does every tensor end inside the file?"""
        alignment = found.number("general.alignment") or 32
        if alignment & (alignment - 1) or not 0 < alignment <= _MAX_ALIGNMENT:
            raise self.damaged(f"an alignment of {alignment}")
        start = -(-self.at // alignment) * alignment
        end = max((start + t.offset + t.size_bytes for t in found.tensors), default=0)
        if end > self.size:
            raise Integrity(
                f"the model file is cut off: it has {self.size} bytes, and its tensors need {end}",
                path=str(self.path), hint="copy or download the file again",
            )  # fmt: skip
