"""How a file of ours gets to its place: its sha256 is in the journal first, and nobody else's edit is written over."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from runner import store
from runner.brain.root import kind, read_bytes, shown
from runner.errors import Integrity
from runner.journal import Journal


def write(
    journal: Journal, flow: str, folder: Path, path: str, data: bytes, what: str, replaces: Collection[str] = (),
    unsettled: set[Path] | None = None,
) -> None:  # fmt: skip
    """Write `path` (relative to `folder`), durably. The journal knows its sha256 first, so abort can tell ours from
    others'. Raises Integrity when the file holds something that we did not write.

    what: the run, for that message. replaces: sha256 of bytes from before the run that this file takes the place of.
    unsettled: takes the folder, which the caller settles later, for all files at once.
    """
    target = folder / path
    if kind(target) != "missing":
        old = read_bytes(target)
        if old == data:
            return
        if sha256(old) not in {*replaces, *written(journal.lines(flow), path)}:
            raise Integrity(
                f"this file was changed by hand while the {what} runs", path=shown(target),
                hint="move it away, then run `debate resume`",
            )  # fmt: skip
    journal.note(flow, {"file": path, "sha256": sha256(data)}, once=True)
    journal.sync()
    store.make_folder(target.parent)
    store.write_atomic(target, data, sync_folder=unsettled is None)
    if unsettled is not None:
        unsettled.add(target.parent)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def written(lines: Iterable[Mapping[str, Any]], path: str) -> set[str]:
    """The sha256 of everything we wrote under this path."""
    return {line["sha256"] for line in lines if line.get("file") == path}
