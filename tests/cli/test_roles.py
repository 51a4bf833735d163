"""A model of its own for a role: from the profile to the record, and on resume."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runner import cli
from runner.manifests import find_model

pytestmark = pytest.mark.model
LEAF = "project-brain/tree/auth/session-store.md"
ROUND = "project-brain/tree/auth/debate/session-store/round-01"


@pytest.fixture
def project(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo's project, with a second model: the same weights under another name, free prose, another temperature."""
    weights = find_model("smollm2-135m-instruct")
    models = demo.parent / "models"
    models.mkdir()
    (models / "judge.gguf").symlink_to(weights.path)
    known = weights.manifest.files[0]
    (models / "judge.yaml").write_text(
        f"name: judge\nfiles: [{{path: judge.gguf, bytes: {known.bytes}, sha256: {known.sha256}}}]\n"
        "context_tokens: 8192\nprose: strict\nsampling: {temperature: 0.1}\n"
    )
    (demo.parent / "two.yaml").write_text(
        "engine: llama.cpp\nroles: {default: smollm2-135m-instruct, defender: judge}\ncontext_tokens: 6144\nclaims: 1\n"
        "threads: 1\nmemory_gib: 0.001\n"
    )
    monkeypatch.chdir(demo.parent)
    return demo.parent


def test_the_defender_has_a_model_of_its_own(project: Path) -> None:
    """One model after the other, as memory_gib asks; the record names both; every verdict is measured."""
    code = cli.run(
        ["open", LEAF, "--personas", "red-team", "--feedback", "Ready?", "--profile", "two.yaml", "--allow-dirty", "-q"]
    )
    assert code == 0
    record = json.loads((project / ROUND / ".run/record.json").read_text())
    assert [(m["role"], m["name"]) for m in record["models"]] == [
        ("default", "smollm2-135m-instruct"), ("defender", "judge"),
    ]  # fmt: skip
    assert {v["method"] for v in record["verdicts"]} == {"choices"}
    inputs = json.loads((project / ROUND / ".run/inputs/inputs.json").read_text())
    assert inputs["review"]["roles"]["defender"]["sampling"]["temperature"] == 0.1
    assert inputs["review"]["sampling"]["temperature"] == 0.7


def test_a_second_run_is_busy(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another process runs a model: exit 4 `busy`, and nothing is written."""
    hold = (
        "import sys\nfrom runner import device\nwith device.held('cpu', 0):\n print(1, flush=True)\n sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        code = cli.run(["open", LEAF, "--personas", "red-team", "--feedback", "x", "--allow-dirty", "-q"])
        other.stdin.close()
    assert code == 4
    assert capsys.readouterr().err == (
        f"debate: process {other.pid} runs a model on the cpu\nhint: --wait-s SECONDS waits until it has ended\n"
    )
    assert not (project / ROUND).exists()
