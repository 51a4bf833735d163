"""The manifest that tools/convert_gguf.py writes, and what a folder must be to match it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from vllm_models import SMOLLM2, needs_model

from runner import manifests
from runner.errors import Integrity

TOOL = Path(__file__).resolve().parents[2] / "tools" / "convert_gguf.py"
LIKE = {"licence": "Apache-2.0", "prose": "strict", "context_tokens": 512, "files": ["never copied"], "name": "other"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with its manifest, as the tool describes it."""
    spec = importlib.util.spec_from_file_location("convert_gguf", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    made = tmp_path / "tiny"
    (made / "deep").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "chat_template.jinja", "deep/a.json"):
        (made / name).write_text(f"text of {name}")
    tool.manifest_of(made).write_text(yaml.safe_dump(tool.describe(made, LIKE)))
    monkeypatch.setenv("DEBATE_MODELS", str(tmp_path))
    return made


def test_manifest(folder):
    """Every file with size and sha256, the folder's own first; the GGUF's manifest gives what still holds."""
    model = manifests.find_model("tiny")
    assert model.path == folder
    assert [f.path for f in model.manifest.files] == [
        "tiny/chat_template.jinja", "tiny/config.json", "tiny/model.safetensors", "tiny/deep/a.json",
    ]  # fmt: skip
    assert all(f.bytes and len(f.sha256) == 64 for f in model.manifest.files)
    m = model.manifest
    assert (m.name, m.format, m.licence, m.prose, m.context_tokens) == (
        "tiny",
        "safetensors",
        "Apache-2.0",
        "strict",
        512,
    )
    assert m.chat_template_sha256 == m.files[0].sha256
    manifests.verify_model(model)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "deep/a.json"])
def test_another_file(folder, name):
    """One byte of one file that is another: the model is not the one that is described."""
    raw = (folder / name).read_bytes()
    (folder / name).write_bytes(b"T" + raw[1:])
    with pytest.raises(Integrity):
        manifests.verify_model(manifests.find_model("tiny"))


def test_what_cannot_be_converted(tmp_path):
    """Exit 2 and one line; nothing that looks like a model is left."""
    pytest.importorskip("gguf")
    source = tmp_path / "m.gguf"
    source.write_bytes(b"never a model, but long enough to be looked at")
    done = subprocess.run([sys.executable, TOOL, source, tmp_path / "out"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"convert_gguf: {source}: ")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.gguf"]


@needs_model
def test_the_bundled_model_is_as_described(monkeypatch):
    """What tools/vllm-setup.sh made is what its manifest says."""
    monkeypatch.setenv("DEBATE_MODELS", str(SMOLLM2.parent))
    model = manifests.find_model(SMOLLM2.name)
    manifests.verify_model(model)
    assert (
        model.manifest.chat_template_sha256
        == manifests.find_model("smollm2-135m-instruct").manifest.chat_template_sha256
    )
