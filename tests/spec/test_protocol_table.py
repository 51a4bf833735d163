"""docs/protocol.md: what its table names exists, no cell is empty, and no line of the specification is left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
NOT_APPLICABLE = "not applicable"
_REFERENCE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Row:
    line: int
    cells: tuple[str, ...]

    @property
    def name(self) -> str:
        found = re.match(r"\*\*(.+?)\.\*\* ", self.cells[0])
        assert found is not None, f"line {self.line}: no name"
        return found[1]


def rows() -> Iterator[Row]:
    """The rows of all tables, without headers and rules."""
    for number, line in enumerate(TEXT.splitlines(), 1):
        if line.startswith("| **"):
            yield Row(number, tuple(c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]))


ROWS = tuple(rows())


@cache
def names(path: Path) -> frozenset[str]:
    """What a module defines: functions, classes, methods, constants."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{f.name}" for f in node.body if isinstance(f, ast.FunctionDef)}
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found |= {t.id for t in targets if isinstance(t, ast.Name)}
    return frozenset(found)


def broken(row: Row) -> list[str]:
    """What this row names and is not there."""
    _, where, tests, note = row.cells
    if where == tests == NOT_APPLICABLE:
        return [] if len(note) > len(NOT_APPLICABLE) else ["not applicable without a reason"]
    out = [] if _REFERENCE.search(where) else ["no place"]
    out += [] if _REFERENCE.search(tests) else ["no test"]
    for folder, mark, cell in (("runner", ":", where), ("tests", "::", tests)):
        for reference in _REFERENCE.findall(cell):
            file, _, name = reference.partition(mark)
            path = ROOT / folder / file
            if not path.is_file() or name not in names(path):
                out.append(reference)
            if folder == "tests" and not name.startswith("test_"):
                out.append(f"{reference} is no test")
    return out


def test_every_row_has_four_cells_and_none_is_empty() -> None:
    """A row may say "not applicable"; it may not say nothing."""
    assert len(ROWS) > 120
    assert [r.line for r in ROWS if len(r.cells) != 4 or not all(r.cells)] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_what_a_row_names_exists(row: Row) -> None:
    """Files, functions and tests."""
    assert broken(row) == []


def test_a_stale_row_is_noticed() -> None:
    """The check itself can fail, for each column."""
    good = ("**X.** y", "`guard.py:envelope`", "`test_guard.py::test_linter_format`", "as specified")
    assert broken(Row(1, good)) == []
    for at, text in ((1, "`guard.py:gone`"), (1, "`gone.py:x`"), (2, "`test_guard.py::test_gone`"), (2, "none")):
        assert broken(Row(1, (*good[:at], text, *good[at + 1 :]))) != []
    assert broken(Row(1, (good[0], NOT_APPLICABLE, NOT_APPLICABLE, ""))) != []


def test_names_are_unique() -> None:
    """Each line of the specification has one row."""
    found = [r.name for r in ROWS]
    assert sorted(found) == sorted(set(found))


INPUTS = (
    "artifact_path", "scope", "mode", "personas", "ad_hoc_personas", "reviewers", "review_mode", "feedback",
    "use_synthesizer", "patches_status", "brain", "dry_run",
)  # fmt: skip
OPEN_FILES = (
    "debate/round-NN/", "feedback-in.md", "personas.yaml", "baseline.md", "tryouts/<persona>.md", "defender.md",
    "synthesizer.md", "proposed-patches.md", "open-issues.md", "transcript.md", "index.md",
)  # fmt: skip
FAILURES = (
    "brain root not found", "no personas available", "persona charters missing", "leaf not decided or specified",
    "thread not active", "leaf not hardening", "no open round", "round directory collision",
    "persona unknown to § 10.2", "ad-hoc persona missing charter", "reviewers count exceeds personas",
    "delta review on round-01", "delta baseline commit unreachable", "subagent spawn unavailable",
    "defender fails to produce verdicts", "proposed-patches.md empty", "applied but working tree dirty",
    "commit fails",
)  # fmt: skip
ASSETS = (
    "feedback-in.md", "personas.yaml", "reviewer-prompt.md", "reviewer-prompt-delta.md", "defender-prompt.md",
    "synthesizer-prompt.md", "proposed-patches.md", "open-issues.md", "index.md", "persona-charters/<name>.md",
)  # fmt: skip


def test_every_line_of_the_specification_has_a_row() -> None:
    """Inputs, preconditions, steps, rules, defences, files, flips, failures and assets, by name."""
    wanted = [
        *INPUTS,
        *(f"Open {n}" for n in (*range(1, 19), "8a")),
        *(f"Close {n}" for n in range(1, 9)),
        *(f"Dry run {n}" for n in range(1, 8)),
        *(f"Defence {n}" for n in range(1, 4)),
        *(f"Written: {name}" for name in OPEN_FILES),
        *(f"Failure: {name}" for name in FAILURES),
        *(f"Asset: {name}" for name in ASSETS),
    ]
    found = {r.name for r in ROWS}
    assert [name for name in wanted if name not in found] == []
    for number in range(1, 9):
        assert any(re.fullmatch(rf"Precondition {number}(, .*)?", name) for name in found)
    counts = {"Flip: ": 6, "Verbosity: ": 4, "Output of open: ": 6, "Output of close: ": 4, "External: ": 3}
    for lead, least in counts.items():
        assert sum(name.startswith(lead) for name in found) >= least


def test_departures_are_listed() -> None:
    """Both kinds, each with its reason."""
    part = TEXT.split("\n## Departures\n")[1]
    spec, decisions = part.split("### From the decisions")
    assert spec.count("\n- **") >= 5 and decisions.count("\n- **") >= 3
