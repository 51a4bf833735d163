"""Brains to write into."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

DEMO = Path(__file__).parent / "brains" / "demo" / "project-brain"


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A copy of the example brain, in a project folder of its own."""
    return Path(shutil.copytree(DEMO, tmp_path / "project" / "project-brain"))
