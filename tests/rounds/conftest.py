"""Rounds on a disk that does not wait, away from the user's own configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest
import scripted
from faults import QuickDisk
from helpers import Engines, make
from jinja2.sandbox import ImmutableSandboxedEnvironment

from runner import store
from runner.engines import fake


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(store, "disk", QuickDisk())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The tiny brain of helpers.py."""
    return make(tmp_path / "project")


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    """Every fake engine that a command opens."""
    made = Engines()
    monkeypatch.setattr("runner.settings.open_engine", made)
    return made


@pytest.fixture(autouse=True, scope="session")
def compiled_once() -> Iterator[None]:
    """The same few templates, thousands of times: their code is made once."""
    compile_ = ImmutableSandboxedEnvironment.compile
    known: dict[str, CodeType] = {}

    def cached(self: ImmutableSandboxedEnvironment, source: str) -> CodeType:
        return known.get(source) or known.setdefault(source, compile_(self, source))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ImmutableSandboxedEnvironment, "compile", cached)
        yield


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake engine says what scripted.py tells it."""
    monkeypatch.setattr(fake, "answer", scripted.answer)
