"""Closing every open round of a brain, each on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.brain import artifact as artifacts
from runner.brain import worktree
from runner.brain.artifact import Artifact
from runner.bulk.select import Selection, select
from runner.errors import EXIT_DONE, EXIT_REFUSED, RunnerError
from runner.rounds import close as closing
from runner.rounds.folder import Round


@dataclass(frozen=True, slots=True)
class Closed:
    """why: what kept the round from being closed."""

    path: str
    round: str
    why: str = ""
    exit: int = EXIT_DONE

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "round": self.round, "closed": not self.why, "why": self.why, "exit": self.exit}


def open_rounds(root: Path, path: str | None, cwd: Path) -> Iterator[tuple[str, Round]]:
    """Artifacts with an open or half closed round, by path. What has none, or cannot be read, is passed over."""
    for found in select(root, Selection(() if path is None else (path,)), cwd):
        if found.why:
            continue
        try:
            place, state = closing.current(artifacts.load(root, root / found.path, None))
        except RunnerError:
            continue
        if state in ("open", "closing"):
            yield found.path, place


def close_all(
    root: Path, path: str | None, cwd: Path, patches_status: str, clock: Callable[[], str], *, force: bool
) -> list[Closed]:
    """A row for each open round. force: also where the artifact has uncommitted changes."""
    return [_close(root, name, place, patches_status, clock, force) for name, place in open_rounds(root, path, cwd)]


def _close(root: Path, name: str, place: Round, status: str, clock: Callable[[], str], force: bool) -> Closed:
    try:
        artifact = artifacts.load(root, root / name, None)
        place = closing.check(artifact, status)
        if status == "applied" and not force and _dirty(artifact, place):
            return Closed(name, place.name, "uncommitted changes; commit them first, or give --yes", EXIT_REFUSED)
        closing.close(place, artifact, status, clock(), ())
    except RunnerError as error:
        return Closed(name, place.name, error.message, error.exit_code)
    return Closed(name, place.name)


def _dirty(artifact: Artifact, place: Round) -> bool:
    return bool(worktree.changes(artifact, place.history))
