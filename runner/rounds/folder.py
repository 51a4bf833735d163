"""Where a round lies, and how its files get there: journalled, then written, never over someone else's edit."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner import publish, render, store
from runner.brain.artifact import Artifact
from runner.brain.history import round_name
from runner.brain.root import kind, read_bytes, shown
from runner.errors import Integrity
from runner.journal import Journal
from runner.publish import sha256
from runner.values import Document

__all__ = ["FAKE", "IGNORED", "Files", "Round", "load_record", "sha256", "sweep"]

IGNORED = ("journal.jsonl", "inputs/", "undo/")
FAKE = "**FAKE ENGINE: no model read this document; every word of this round is made up.**"


@dataclass(frozen=True, slots=True)
class Round:
    """history: the folder of the artifact's rounds. path: the artifact, relative to the brain's root."""

    history: Path
    number: int
    path: str

    @property
    def name(self) -> str:
        return round_name(self.number)

    @property
    def folder(self) -> Path:
        return self.history / self.name

    @property
    def run(self) -> Path:
        return self.folder / ".run"

    @property
    def flow(self) -> str:
        """The flow's id."""
        return f"{self.path}@{self.name}"

    @property
    def journal(self) -> Path:
        return self.run / "journal.jsonl"

    @property
    def record(self) -> Path:
        return self.run / "record.json"


def sweep(place: Round, artifact: Artifact) -> None:
    """Remove what killed commands left: half-written files, and a round that an abort had renamed away. Under lock."""
    for folder in (place.history, place.folder, place.folder / "tryouts", place.run, place.run / "inputs"):
        store.sweep(folder)
    store.sweep_of(artifact.path)
    for gone in sorted(place.history.glob(".round-[0-9][0-9].gone")):
        shutil.rmtree(gone)


class Files:
    """Writes the files of rounds. One instance serves all flows of a run."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rounds: dict[str, tuple[Round, str]] = {}
        self._unsettled: dict[str, set[Path]] = {}

    def register(self, place: Round, note: str = "") -> None:
        """note: what every markdown file of the round begins with."""
        self._rounds[place.flow] = (place, note)
        self._unsettled[place.flow] = set()

    def forget(self, flow: str) -> None:
        """The flow has ended."""
        self._rounds.pop(flow, None)
        self._unsettled.pop(flow, None)

    def settle(self, flow: str) -> None:
        """From here on, every file written so far survives a power cut."""
        for folder in sorted(self._unsettled[flow]):
            store.settle(folder)
        self._unsettled[flow].clear()

    def publish(self, flow: str, document: Document) -> None:
        """For the scheduler: render and write."""
        note = self._rounds[flow][1]
        noted = replace(document, body=f"{note}\n\n{document.body}") if note else document
        self.write(flow, document.path, render.render(noted))

    def write(self, flow: str, path: str, data: bytes) -> None:
        """Write a file of the round. The journal knows its sha256 first, so abort can tell ours from others.

        Its place in the folder is durable once the flow is settled. Raises Integrity when the file holds something that
        we did not write.
        """
        place, _ = self._rounds[flow]
        publish.write(self._journal, flow, place.folder, path, data, "round", unsettled=self._unsettled[flow])


def load_record(place: Round) -> dict[str, Any] | None:
    """The round's record; None for a round that the pack made. Integrity when it is damaged."""
    if kind(place.record) == "missing":
        return None
    try:
        record = json.loads(read_bytes(place.record))
        if isinstance(record, dict) and record.get("schema") == "round/1":
            return record
    except ValueError:
        pass
    raise Integrity("the record cannot be read", path=shown(place.record), hint="restore it from a copy")
