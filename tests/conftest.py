"""Brains to write into."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples every time and no clock: a suite that passed passes again, also on a busy machine.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="debate-state-")  # device locks of other runs are not ours

DEMO = Path(__file__).parent / "brains" / "demo" / "project-brain"


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A copy of the example brain, in a project folder of its own."""
    return Path(shutil.copytree(DEMO, tmp_path / "project" / "project-brain"))
