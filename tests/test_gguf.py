"""GGUF headers: what is read, and every way in which a file can be wrong, word for word."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import gguf_files as make
import pytest
from gguf_files import ARRAY, STRING, U32, U64

from runner import gguf
from runner.errors import Integrity, RunnerError, UsageError
from runner.manifests import find_model

BUNDLED = "smollm2-135m-instruct"


def refusal(path: Path, kind: type[RunnerError]) -> str:
    """The message; exactly this kind of error, naming the file, with a hint."""
    with pytest.raises(RunnerError) as e:
        gguf.read(path)
    assert type(e.value) is kind and e.value.path == str(path) and e.value.hint
    return e.value.message


def test_metadata(tmp_path):
    """Texts and numbers are kept, of arrays the count; tensors with name, shape and type."""
    found = gguf.read(make.gguf(tmp_path / "m.gguf"))
    assert found.values == {
        "general.architecture": "llama", "general.license": "apache-2.0", "general.file_type": 15,
        "llama.context_length": 8192, "tokenizer.ggml.tokens": gguf.Array(3), "tokenizer.ggml.scores": gguf.Array(2),
        "tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": make.CHATML,
    }  # fmt: skip
    assert found.tensors == (gguf.Tensor("output.weight", (4, 8), 0, 0),)
    assert (found.version, found.parameters, found.quantisation) == (3, 32, "Q4_K_M")


def test_kinds_of_values(tmp_path):
    """A number is no text and a flag no number; bytes that are not UTF-8 come back as they were."""
    found = gguf.read(make.gguf(tmp_path / "m.gguf", {"x": (STRING, b"a\xff")}))
    assert found.text("general.file_type") is None
    assert found.number("general.architecture") is None and found.number("tokenizer.ggml.add_bos_token") is None
    assert found.text("x").encode("utf-8", "surrogateescape") == b"a\xff"


@pytest.mark.parametrize(
    ("said", "expected"), [(None, "F32"), (1, "F16"), (32, "BF16"), (1024 + 7, "Q8_0"), (999, None)]
)
def test_quantisation(tmp_path, said, expected):
    """The file's own word, also when it was guessed; without one, the type of most parameters."""
    changed = {"general.file_type": None if said is None else (U32, said)}
    assert gguf.read(make.gguf(tmp_path / "m.gguf", changed)).quantisation == expected


def test_bundled_model():
    """The real file: the facts that its manifest states."""
    model = find_model(BUNDLED)
    found = gguf.read(model.path)
    assert found.parameters == 134_515_008 and len(found.tensors) == 272
    assert (found.text("general.architecture"), found.quantisation) == ("llama", "Q4_1")
    assert found.number("llama.context_length") == model.manifest.context_tokens
    assert sum(t.size_bytes for t in found.tensors) < model.path.stat().st_size


@pytest.mark.parametrize("raw", [b"", b"GGU", b"PK\x03\x04" + bytes(60), b"<html>no</html>"])
def test_another_file(tmp_path, raw):
    """What does not start as a GGUF file."""
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    assert refusal(path, UsageError) == "not a GGUF file"


def test_versions(tmp_path):
    """Big-endian files and versions that nobody writes any more."""
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    assert refusal(path, UsageError) == "a big-endian GGUF file"
    path.write_bytes(make.head(0, 0, version=1))
    assert refusal(path, UsageError) == "GGUF version 1, and only 2 and 3 can be read"


def test_not_readable(tmp_path):
    """A folder, a pipe (which must not make us wait) and nothing at all."""
    assert refusal(tmp_path, UsageError) == "not a file"
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe", UsageError) == "not a file"
    assert refusal(tmp_path / "gone", UsageError) == "cannot be read: No such file or directory"


def test_every_cut(tmp_path):
    """Cut off anywhere, the file is refused; whole, it is not."""
    whole = make.gguf(tmp_path / "m.gguf").read_bytes()
    path = tmp_path / "cut.gguf"
    for n in range(4, len(whole)):
        path.write_bytes(whole[:n])
        assert refusal(path, Integrity).startswith(f"the model file is cut off: it has {n} bytes, and its ")
    path.write_bytes(whole)
    assert gguf.read(path).parameters == 32


def test_a_list_that_is_cut(tmp_path):
    """A list is passed over, not read: its end is missed all the same."""
    raw = make.head(0, 1) + make.keys({"k": (ARRAY, (U32, [1, 2, 3]))})
    path = tmp_path / "m.gguf"
    path.write_bytes(raw[:-1])
    assert refusal(path, Integrity) == f"the model file is cut off: it has {len(raw) - 1} bytes, and its header goes on"
    path.write_bytes(raw)
    assert gguf.read(path).values == {"k": gguf.Array(3)}


HUGE = 1 << 40
HOSTILE = {
    "tensors": (make.head(HUGE, 0), f"it claims {HUGE} tensors"),
    "keys": (make.head(0, HUGE), f"it claims {HUGE} key-values"),
    "key": (make.head(0, 1) + struct.pack("<Q", HUGE), f"a text of {HUGE} bytes"),
    "text": (
        make.head(0, 1) + make.text("k") + struct.pack("<IQ", STRING, HUGE), f"a text of {HUGE} bytes",
    ),
    "texts": (
        make.head(0, 1) + make.text("k") + struct.pack("<IIQ", ARRAY, STRING, HUGE), f"a list of {HUGE} texts",
    ),
    "text in a list": (
        make.head(0, 1) + make.text("k") + struct.pack("<IIQQ", ARRAY, STRING, 1, HUGE), f"a text of {HUGE} bytes",
    ),
    "list of lists": (
        make.head(0, 1) + make.text("k") + struct.pack("<IIQ", ARRAY, ARRAY, 1), "a list of type 9",
    ),
    "type": (make.head(0, 1) + make.text("k") + struct.pack("<I", 77), "a value of type 77"),
    "twice": (make.head(0, 2) + make.keys({"k": (U32, 1)}) * 2, "the key 'k' is there twice"),
    "dimensions": (make.head(1, 0) + make.text("t") + struct.pack("<I", 9), "a tensor of 9 dimensions"),
    "shape": (
        make.head(1, 0) + make.tensor("t", (HUGE, HUGE)), f"a tensor of shape ({HUGE}, {HUGE}) at byte 0",
    ),
    "alignment": (
        make.head(0, 1) + make.keys({"general.alignment": (U32, 48)}), "an alignment of 48",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile(tmp_path, case):
    """Lengths that nothing can have are refused before they are believed: no memory is taken for them."""
    raw, why = HOSTILE[case]
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    with path.open("r+b") as f:
        f.truncate(HUGE)  # sparse: the file itself seems large enough for anything
    tracemalloc.start()
    try:
        assert refusal(path, Integrity) == f"a damaged GGUF file: {why}"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_long_header(tmp_path, monkeypatch):
    """Many long texts one after the other: the header as a whole has a limit."""
    monkeypatch.setattr(gguf, "_MAX_HEADER", 1 << 20)
    path = make.gguf(tmp_path / "m.gguf", {f"k{i}": (STRING, "x" * 300_000) for i in range(4)})
    assert refusal(path, Integrity) == "a damaged GGUF file: its header is longer than 1 MiB"


def test_weights_of_quantised_tensors(tmp_path):
    """Where a tensor ends is counted in blocks: 64 elements of Q4_0 are 36 bytes; an unknown type counts as none."""
    raw = make.head(1, 0) + make.tensor("t", (64,), kind=2)
    raw += bytes(-len(raw) % 32)
    path = tmp_path / "m.gguf"
    path.write_bytes(raw + bytes(35))
    size = len(raw) + 35
    assert (
        refusal(path, Integrity) == f"the model file is cut off: it has {size} bytes, and its tensors need {size + 1}"
    )
    path.write_bytes(raw + bytes(36))
    assert gguf.read(path).tensors[0].size_bytes == 36
    path.write_bytes((make.head(1, 0) + make.tensor("t", (64,), kind=200)).ljust(128, b"\0"))
    assert gguf.read(path).quantisation is None


def test_alignment_moves_the_weights(tmp_path):
    """The weights start at a multiple of the file's own alignment."""
    path = make.gguf(tmp_path / "m.gguf", {"general.alignment": (U32, 4096)})
    assert refusal(path, Integrity).endswith(f"its tensors need {4096 + 128}")
    assert gguf.read(make.gguf(path, {"general.alignment": (U64, 32)})).parameters == 32
