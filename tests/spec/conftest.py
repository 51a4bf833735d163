"""The example brain as a user has it, on a disk that does not wait."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import QuickDisk

from runner import store


@pytest.fixture
def project(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project folder of a writable example brain, as the working directory."""
    monkeypatch.setattr(store, "disk", QuickDisk())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("PROJECT_BRAIN_VERBOSITY", raising=False)
    monkeypatch.delenv("PROJECT_BRAIN_CONFIG", raising=False)
    monkeypatch.delenv("PROJECT_BRAIN_PROJECTS_YAML", raising=False)
    monkeypatch.chdir(demo.parent)
    return demo.parent
