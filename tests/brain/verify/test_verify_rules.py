"""Our verdict on every broken brain is the pack's, violation for violation, or differs for a written reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from verify_broken import apply
from verify_cases import CASES, Case

from runner.brain.verify import check

VERDICTS = json.loads((Path(__file__).parent / "verdicts.json").read_text())
NAMES = [f"V-{n:02d}" for n in range(1, 23)] + [f"N-{n:02d}" for n in range(1, 5)]


@pytest.fixture(autouse=True)
def no_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    """No aliases but those of the brain."""
    for name in ("PROJECT_BRAIN_CONFIG", "PROJECT_BRAIN_PROJECTS_YAML"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")


def found(brain: Path, case: Case) -> list[tuple[str, str]]:
    report = check(brain, thread=case.thread, path=case.path)
    return sorted((v.code, v.file) for v in report.errors + report.warnings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_verdict(demo: Path, case: Case) -> None:
    """The same codes on the same files, each as often as the pack reports it."""
    apply(demo, case.edits)
    theirs = VERDICTS[case.name]
    if case.ours is None:
        assert found(demo, case) == [tuple(v) for v in theirs]
    else:
        assert case.why
        assert found(demo, case) == sorted(case.ours) != theirs


def test_recorded() -> None:
    """Every case has a verdict, no verdict is left over, no name is used twice."""
    assert [case.name for case in CASES] == list(VERDICTS)


@pytest.mark.parametrize("code", NAMES)
def test_three_brains_break_each_rule(code: str) -> None:
    """No rule is tested by fewer than three brains that break it."""
    breaking = [name for name, theirs in VERDICTS.items() if any(v[0] == code for v in theirs)]
    assert len(breaking) >= 3


def test_an_answer_for_every_case_the_pack_cannot_answer() -> None:
    """Where the pack ends in a traceback, we have a verdict of our own."""
    assert [case.name for case in CASES if VERDICTS[case.name] == "crash" and case.ours is None] == []
