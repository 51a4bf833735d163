"""Rounds for the tests of bug classes: the tiny brain of tests/rounds, and an engine that says what a test tells it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rounds"))

from faults import QuickDisk
from helpers import make

from runner import store
from runner.engines import fake


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A disk that does not wait, away from the user's own configuration."""
    monkeypatch.setattr(store, "disk", QuickDisk())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    for name in ("PROJECT_BRAIN_VERBOSITY", "DEBATE_MODELS", "DEBATE_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny brain; its project is the working directory."""
    made = make(tmp_path / "project")
    monkeypatch.chdir(made.parent)
    return made


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`says(answer)`: the fake engine answers with this function, see hostile.Says."""
    return lambda answer: monkeypatch.setattr(fake, "answer", answer)
