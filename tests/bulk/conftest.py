"""Brains of many leaves, on a disk that does not wait. The helpers are those of the rounds' tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[1] / "rounds"), str(Path(__file__).parents[1])]

from faults import QuickDisk  # noqa: E402
from helpers import make, write  # noqa: E402

from runner import store  # noqa: E402


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(store, "disk", QuickDisk())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny brain of the rounds' tests: four leaves and a thread; its project is the working directory."""
    made = make(tmp_path / "project")
    write(made / "tree/area/NODE.md", b"---\nid: n\n---\n# Node\n")
    monkeypatch.chdir(made.parent)
    return made
