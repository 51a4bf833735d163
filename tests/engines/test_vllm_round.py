"""A whole round on vLLM, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("vllm")

from runner import cli

ROOT = Path(__file__).resolve().parents[2]
LEAF = "project-brain/tree/auth/session-store.md"
ROUND = "project-brain/tree/auth/debate/session-store/round-01"


def test_a_round_on_vllm(demo, monkeypatch, capfd):
    """Two reviewers, measured verdicts, quotes word for word; stdout is ours alone; the record names the engine."""
    project = demo.parent
    monkeypatch.setenv("DEBATE_MODELS", str(ROOT / ".cache/models"))
    monkeypatch.chdir(project)
    (project / "gpu.yaml").write_text(
        "engine: vllm\nroles: {default: smollm2-135m-instruct-hf}\ncontext_tokens: 6144\nclaims: 2\nmargin: 0.02\n"
        "floor: 0.1\nvllm: {kv_cache_gib: 1}\n"
    )
    code = cli.run(
        ["open", LEAF, "--personas", "red-team,ops-readiness", "--feedback", "Ready?", "--profile", "gpu.yaml",
         "--allow-dirty", "-q", "--json"]
    )  # fmt: skip
    said = json.loads(capfd.readouterr().out)
    assert (code, said["ok"]) == (0, True)
    record = json.loads((project / ROUND / ".run/record.json").read_text())
    assert record["engine"].startswith("vllm 0.")
    assert [m["name"] for m in record["models"]] == ["smollm2-135m-instruct-hf"]
    assert record["complete"]
    body = (demo / "tree/auth/session-store.md").read_text()
    assert record["claims"]
    assert all(c["quote"] in body for c in record["claims"])
    assert {v["method"] for v in record["verdicts"]} == {"choices"}
    reviewers = [c for c in record["calls"] if c["key"].startswith("reviewer/")]
    assert max(c["tokens_cached"] for c in reviewers) > 500
