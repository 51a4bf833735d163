"""Weights run as Q8_0: made once, checked each time, and made again when it must be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runner import gguf, settings
from runner.config import Profile
from runner.engines import llama_requantize as requantize
from runner.engines.llama_requantize import as_q8_0
from runner.errors import RunnerError
from runner.manifests import find_model, hash_file

pytestmark = pytest.mark.model
MODEL = find_model("smollm2-135m-instruct")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/debate-runner/weights"


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Nothing is computed: a few bytes are written. The calls."""
    calls: list[Path] = []

    def write(path: Path, target: str) -> None:
        calls.append(path)
        Path(target).write_bytes(b"GGUF " * 20)

    monkeypatch.setattr(requantize, "_requantize", write)
    return calls


def test_the_same_tensors_as_q8_0(cache):
    """A GGUF file that llama.cpp loads, of the same model; the original stays as it was."""
    before = hash_file(MODEL.path)
    with as_q8_0(MODEL.path, before) as path:
        assert path.parent == cache
        assert path.name == f"{before[:16]}-{hash_file(path)}.gguf"
        found = gguf.read(path)
        assert (found.quantisation, found.parameters) == ("Q8_0", gguf.read(MODEL.path).parameters)
    assert hash_file(MODEL.path) == before
    assert [p.name for p in cache.iterdir()] == [path.name]


def test_made_once(cache, quickly):
    """The second time it is there."""
    with as_q8_0(MODEL.path, "a" * 64) as first, as_q8_0(MODEL.path, "a" * 64) as second:
        assert first == second and first.is_file()
    with as_q8_0(MODEL.path, "b" * 64) as other:
        assert other != first
    assert len(quickly) == 2


def test_a_changed_copy_is_made_again(cache, quickly):
    """Cut short or altered: seen by its name, removed."""
    with as_q8_0(MODEL.path, "a" * 64) as path:
        pass
    whole = path.read_bytes()
    for damage in (whole[:-1], whole + b"x", b""):
        path.write_bytes(damage)
        with as_q8_0(MODEL.path, "a" * 64) as again:
            assert again.read_bytes() == whole
    assert len(quickly) == 4
    assert len(list(cache.iterdir())) == 1


def test_nothing_stays_of_one_that_failed(cache, monkeypatch):
    """Neither in the cache nor among temporary files; the error says what to do."""
    monkeypatch.setattr(requantize.C, "llama_model_quantize", lambda *_: 1)
    with (
        pytest.raises(RunnerError, match="could not write the weights as Q8_0") as caught,
        as_q8_0(MODEL.path, "a" * 64),
    ):
        pass
    assert "requantize: false" in str(caught.value)
    assert list(cache.iterdir()) == []


def test_what_a_kill_left_goes(cache, quickly):
    """After an hour; one that another process is making stays."""
    cache.mkdir(parents=True)
    old, young = cache / ".making-old", cache / ".making-young"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    with as_q8_0(MODEL.path, "a" * 64):
        assert (old.exists(), young.exists()) == (False, True)


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch, quickly):
    """A copy for this time only."""
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with as_q8_0(MODEL.path, "a" * 64) as path:
        assert path.is_file()
    assert not path.exists()


@pytest.mark.parametrize(
    ("quantisation", "profile", "said"),
    [
        ("Q4_1", {"requantize": True}, ", run as Q8_0"),
        ("Q5_0", {"requantize": True}, ", run as Q8_0"),
        ("Q4_1", {}, ""),
        ("Q4_0", {"requantize": True}, ""),
        ("Q4_K_M", {"requantize": True}, ""),
        ("Q8_0", {"requantize": True}, ""),
        ("Q4_1", {"requantize": True, "engine": "vllm"}, ""),
    ],
)
def test_which_weights(quantisation: str, profile: dict[str, Any], said: str):
    """Those without block kernels, where the profile says so, on llama.cpp."""
    manifest = MODEL.manifest.model_copy(update={"quantisation": quantisation})
    model = type(MODEL)(manifest, MODEL.source, MODEL.path, MODEL.manifest_sha256)
    assert settings.run_as(Profile(**profile), model) == said


def test_the_record_says_so(cache):
    """As the model's quantisation."""
    assert settings.model_facts(settings.settings("cpu", None, None))["default"]["quantisation"] == "Q4_1, run as Q8_0"


def test_killed_while_making(cache):
    """SIGKILL: nothing under the final name, and the next one makes it."""
    code = (
        "import os, signal\nfrom pathlib import Path\nfrom runner.engines import llama_requantize as r\n"
        "r._sha256 = lambda path: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"with r.as_q8_0(Path({str(MODEL.path)!r}), {'a' * 64!r}): pass\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -9
    assert [p.name.startswith(".making-") for p in cache.iterdir()] == [True]
    with as_q8_0(MODEL.path, "a" * 64) as path:
        assert json.dumps(gguf.read(path).quantisation) == '"Q8_0"'
