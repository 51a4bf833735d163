"""Taking back an interrupted round: the tree is as it was, byte for byte; what others wrote is moved aside, not lost.

`.run/abort` is written first, so a killed abort is finished by the next one. Order: the seed and index.md, then the
round's files, last the folder itself (renamed away first, so that it vanishes in one step).
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

from runner import store
from runner.brain import history
from runner.brain.artifact import Artifact, load
from runner.brain.history import RoundState, State
from runner.brain.root import kind, read_bytes, shown
from runner.errors import Refused
from runner.rounds import seed
from runner.rounds.conduct import remove_empty
from runner.rounds.folder import Round, sha256, sweep

_OURS = {".run/.gitignore", ".run/journal.jsonl", ".run/abort"}


def finish(artifact: Artifact) -> Round | None:
    """An abort that was killed after its last step but one: the round, its renamed-away folder now gone. Else None."""
    folder = history.history_folder(artifact)
    left = sorted(folder.glob(".round-[0-9][0-9].gone")) if kind(folder) == "folder" else []
    if not left:
        return None
    place = Round(folder, int(left[-1].name[7:9]), artifact.relative)
    with store.Lock(folder):
        made = _made(left[-1] / ".run", place, artifact)
        sweep(place, artifact)
        remove_empty(artifact.directory, made)
    return place


def abort(place: Round, artifact: Artifact, state: State) -> tuple[str, ...]:
    """Remove the round; the paths (from the history folder) of files that were moved aside. Refused unless it may go.

    state: of the round, see brain.history. An open round is closed as rejected instead.
    """
    if state not in ("interrupted", "aborting"):
        where = shown(artifact.path)
        hint = f"debate close {where} --patches-status rejected" if state == "open" else None
        raise Refused(f"{place.name} is {state}; only an interrupted round can be aborted", path=where, hint=hint)
    with store.Lock(place.history):
        if history.state(load(artifact.root, artifact.path, None), place.history) != RoundState(place.number, state):
            raise Refused(f"{place.name} changed meanwhile", path=shown(place.folder), hint="run this again")
        sweep(place, artifact)
        store.make_folder(place.run)
        store.write_atomic(place.run / "abort", b"")
        made = _made(place.run, place, artifact)
        known = _known(place)
        moved = [*_restore(place, known), *_move_aside(place, known)]
        _vanish(place)
        remove_empty(artifact.directory, made)
    return tuple(moved)


def _made(run: Path, place: Round, artifact: Artifact) -> list[Path]:
    """The folders that opening made, outermost first."""
    try:
        names = json.loads(read_bytes(run / "undo" / "made.json"))
        return [artifact.directory / str(name) for name in names]
    except (Refused, ValueError, TypeError):
        # Stopped before it was noted: a history folder that holds nothing else is ours.
        return [f for f in reversed(place.history.parents) if artifact.directory in f.parents] + [place.history]


def _known(place: Round) -> dict[str, set[str]]:
    """path -> sha256 of everything we wrote, read leniently: a torn journal must not stop an abort."""
    known: dict[str, set[str]] = {}
    if kind(place.journal) == "missing":
        return known
    for text in read_bytes(place.journal).splitlines():
        with contextlib.suppress(ValueError, TypeError, KeyError):
            line: dict[str, Any] = json.loads(text)
            if "file" in line:
                known.setdefault(line["file"], set()).add(line["sha256"])
    return known


def _restore(place: Round, known: dict[str, set[str]]) -> list[str]:
    """index.md and the seed as they were before the round."""
    moved: list[str] = []
    undo = place.run / "undo"
    if not (undo / "made.json").exists():
        return moved  # stopped before anything outside the round's folder could change
    for name in ("index.md", seed.NAME):
        now, old = place.history / name, undo / f"{name}.bytes"
        before = read_bytes(old) if old.exists() else None
        present = read_bytes(now) if kind(now) != "missing" else None
        if present == before:
            continue
        if present is not None and sha256(present) not in known.get(f"../{name}", set()):
            moved.append(_aside(place, now, name))
        if before is None:
            store.remove(now)
        else:
            store.write_atomic(now, before)
    return moved


def _aside(place: Round, path: Path, name: str) -> str:
    target = place.history / f".aborted-{place.name}" / name
    data, n = read_bytes(path), 1
    while target.exists() and read_bytes(target) != data:  # equal: an abort that was killed had moved it
        n += 1
        target = target.with_name(f"{Path(name).name}.{n}")
    store.make_folder(target.parent)
    store.write_atomic(target, data)
    return str(target.relative_to(place.history))


def _move_aside(place: Round, known: dict[str, set[str]]) -> list[str]:
    """Files of the round that we did not write, or that someone changed."""
    moved = []
    for path in sorted(p for p in place.folder.rglob("*") if p.is_file()):
        name = path.relative_to(place.folder).as_posix()
        ours = name in _OURS or name.startswith((".run/undo/", ".run/inputs")) or path.name.endswith(".debate-tmp")
        if not ours and sha256(read_bytes(path)) not in known.get(name, set()):
            moved.append(_aside(place, path, name))
    return moved


def _vanish(place: Round) -> None:
    """A dot-named folder is no round, so from the rename on there is none."""
    gone = place.history / f".{place.name}.gone"
    if gone.exists():
        shutil.rmtree(gone)
    store.disk.replace(place.folder, gone)
    shutil.rmtree(gone)
