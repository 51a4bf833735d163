"""Delta review: the baseline that the round before left at its close, and what has changed since."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runner.brain import front_matter
from runner.brain.artifact import Artifact
from runner.brain.history import round_name
from runner.brain.root import kind, read_bytes, shown
from runner.errors import Refused
from runner.protocols.delta import Delta, delta

NAME = "baseline.md"


@dataclass(frozen=True, slots=True)
class Mode:
    """The mode that runs. note: why it is not the one asked for, for transcript.md. baseline: of a delta review."""

    word: str
    note: str | None = None
    baseline: bytes | None = None
    changed: Delta | None = None


def mode(requested: str, folder: Path, number: int, artifact: Artifact) -> Mode:
    """Full, or delta where the round before left a baseline. Refused when nothing has changed since."""
    if requested == "full":
        return Mode("full")
    if number == 1:
        return Mode("full", "delta review needs a prior closed round; this is round-01, so the review is full")
    path = folder / round_name(number - 1) / NAME
    if kind(path) == "missing":
        return Mode("full", f"no baseline at {round_name(number - 1)}/{NAME}, so the review is full")
    raw = read_bytes(path)
    try:
        before = raw[front_matter.read(raw, shown(path)).body_start :].decode()
    except Refused as error:
        return Mode("full", f"{round_name(number - 1)}/{NAME} cannot be read ({error.message}), so the review is full")
    changed = delta(before, artifact.body.decode())
    if changed is None or not changed.quotable:
        raise Refused(
            f"nothing has changed since {round_name(number - 1)} was closed", path=shown(artifact.path),
            hint="review the whole with --review-mode=full",
        )  # fmt: skip
    return Mode("delta", None, raw, changed)
