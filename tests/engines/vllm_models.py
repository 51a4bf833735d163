"""The bundled model as vLLM reads it; tools/vllm-setup.sh makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

SMOLLM2 = Path(__file__).resolve().parents[2] / ".cache" / "models" / "smollm2-135m-instruct-hf"

needs_model = pytest.mark.skipif(
    not SMOLLM2.with_name(f"{SMOLLM2.name}.yaml").is_file(), reason="tools/vllm-setup.sh makes the model"
)
