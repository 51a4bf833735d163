"""--fail-on and --known where rounds are made: parsed before anything begins, applied when all is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.common import warn
from runner.errors import EXIT_DONE, EXIT_GATE, worst

if TYPE_CHECKING:
    from runner.gate import Gate


@dataclass(frozen=True, slots=True)
class Wanted:
    """What --fail-on and --known say. A mistake in them is found before the first prompt."""

    rules: Gate
    known: frozenset[str]


def wanted(fail_on: str, known: Path | None) -> Wanted:
    from runner import gate
    from runner.cli.export import known_of

    return Wanted(gate.parse(fail_on), known_of(known))


def code(asked: Wanted, records: Sequence[Path], before: int = EXIT_DONE) -> int:
    """The exit code with the gate: `before` says what the run came to without it. records: record.json of rounds."""
    if not asked.rules:
        return before
    from runner import gate
    from runner.export.findings import of_record, without

    found = [without(of_record(json.loads(r.read_bytes())), asked.known) for r in records if r.is_file()]
    trips = gate.tripped(asked.rules, found)
    for trip in trips:
        warn(f"debate: {trip}")
    return worst([before, *([EXIT_GATE] if trips else [])])
