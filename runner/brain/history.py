"""Where an artifact's rounds lie, and what state the latest is in.

A leaf's history lies in one of three layouts: `<stem>.debate/`, `debate/<stem>/`, `debate/` (shared by the leaves of a
folder, so whose it is must be told). A first round takes `debate/` when the leaf has it to itself, else
`debate/<stem>/`; after that a history is continued where it lies.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.brain.artifact import Artifact, is_leaf
from runner.brain.front_matter import FrontMatter, read
from runner.brain.index import closed
from runner.brain.index import read as read_index
from runner.brain.root import contained, entries, kind, read_bytes, shown
from runner.errors import Refused

LAST_ROUND = 99
_ROUND = re.compile(r"round-(0[1-9]|[1-9][0-9])")

State = Literal["none", "open", "closed", "interrupted", "closing", "aborting"]
_Owner = Literal["mine", "theirs", "alone", "both", "unknown"]


@dataclass(frozen=True, slots=True)
class RoundState:
    """number: the highest round, None when there is none."""

    number: int | None
    state: State


def round_name(number: int) -> str:
    return f"round-{number:02d}"


def history_folder(artifact: Artifact) -> Path:
    """The folder of the artifact's rounds, index.md and seed; it need not exist. Raises Refused where it is unclear."""
    folder = artifact.directory / "debate" if artifact.scope == "thread" else _leaf_folder(artifact)
    contained(artifact.root, folder)
    return folder


def pointer(artifact: Artifact, folder: Path, number: int) -> str:
    """What `source_debate` or `last_debate_round` holds for this round: relative to the artifact's folder."""
    return (folder.relative_to(artifact.directory) / round_name(number)).as_posix()


def rounds(folder: Path) -> list[int]:
    """The numbers of the rounds in a history folder, ascending. Raises Refused for a gap or a malformed name."""
    names = _round_entries(folder)
    malformed = [name for name in names if not (_ROUND.fullmatch(name) and kind(folder / name) == "folder")]
    if malformed:
        hint = "a round is a folder round-01 to round-99; move anything else away"
        raise Refused(f"not a round: {', '.join(malformed)}", path=shown(folder), hint=hint)
    numbers = [int(name.removeprefix("round-")) for name in names]
    missing = [round_name(n) for n in range(1, len(numbers) + 1) if n not in numbers]
    if missing:
        raise Refused(f"rounds are not sequential: {missing[0]} is missing", path=shown(folder))
    return numbers


def next_round(folder: Path) -> int:
    """The number of the round to open. Raises Refused after 99: a round's name has two digits."""
    number = len(rounds(folder)) + 1
    if number > LAST_ROUND:
        raise Refused("no round can follow round-99", path=shown(folder))
    return number


def state(artifact: Artifact, folder: Path, *, scratch: bool = False) -> RoundState:
    """The state of the highest round.

    Without a close entry in index.md it is open only if the artifact points to it (a leaf must be `hardening`, too);
    with `scratch`, where no artifact is flipped, if it has a record.json. Else it is interrupted.
    """
    numbers = rounds(folder)
    if not numbers:
        return RoundState(None, "none")
    number, run = numbers[-1], folder / round_name(numbers[-1]) / ".run"
    if (run / "abort").exists():
        return RoundState(number, "aborting")
    if (run / "close.json").exists():
        return RoundState(number, "closing")
    if is_closed(folder, number):
        return RoundState(number, "closed")
    pointed = (run / "record.json").exists() if scratch else _is_open(artifact, folder, number)
    return RoundState(number, "open" if pointed else "interrupted")


def is_closed(folder: Path, number: int) -> bool:
    """Has this round a close entry (closed or abandoned) in the folder's index.md?"""
    index = folder / "index.md"
    return kind(index) != "missing" and closed(read_index(read_bytes(index), shown(index)), number)


def _is_open(artifact: Artifact, folder: Path, number: int) -> bool:
    if artifact.scope == "leaf" and artifact.status != "hardening":
        return False
    key = "source_debate" if artifact.scope == "leaf" else "last_debate_round"
    return _pointed(artifact.root, artifact.directory, artifact.front.text(key)) == folder / round_name(number)


def _pointed(root: Path, directory: Path, value: str | None) -> Path | None:
    if not value:
        return None
    base = root if value.startswith("/") else directory
    return Path(os.path.normpath(base / value.lstrip("/")))


def _leaf_folder(artifact: Artifact) -> Path:
    suffixed, named, shared = _layouts(artifact)
    own = [folder for folder in (suffixed, named) if folder is not None and _round_entries(folder)]
    owner = _owner(artifact, shared) if _round_entries(shared) else "theirs"
    if owner in ("mine", "alone", "both") or (owner == "unknown" and not own):
        own.append(shared)
    pointed = _pointed(artifact.root, artifact.directory, artifact.front.text("source_debate"))
    if len(own) > 1 and pointed is not None and pointed.parent in own:
        return pointed.parent
    if len(own) > 1:
        both = " and ".join(shown(folder) for folder in own)
        hint = "set source_debate to the leaf's last round, or move the other's rounds away"
        raise Refused(f"rounds of this leaf lie in {both}", path=shown(artifact.path), hint=hint)
    if own == [shared] and owner in ("unknown", "both"):
        _refuse_shared(artifact, shared)
    return own[0] if own else _first_folder(artifact)


def _layouts(artifact: Artifact) -> tuple[Path, Path | None, Path]:
    shared = artifact.directory / "debate"
    # debate/round-02/ is a round of the folder, whatever leaf is called round-02
    named = None if artifact.slug.startswith("round-") else shared / artifact.slug
    return artifact.directory / f"{artifact.slug}.debate", named, shared


def _first_folder(artifact: Artifact) -> Path:
    suffixed, named, shared = _layouts(artifact)
    for folder in (suffixed, named):
        if folder is not None and kind(folder) == "folder":  # the validator looks here first, even when it is empty
            return folder
    if not _round_entries(shared) and (_is_folder_leaf(artifact) or next(_siblings(artifact), None) is None):
        return shared
    if named is None:
        hint = f"give the leaf another name, or a folder of its own: {artifact.slug}/{artifact.slug}.md"
        raise Refused(f"debate/{artifact.slug}/ would look like a round", path=shown(artifact.path), hint=hint)
    return named


def _owner(artifact: Artifact, shared: Path) -> _Owner:
    """Whose rounds lie in `debate/`: told by source_debate and by the rounds' own records, else by being alone."""
    siblings = list(_siblings(artifact))
    recorded = _recorded(shared)
    mine = artifact.relative in recorded or _points_into(artifact.root, artifact.path, artifact.front, shared)
    theirs = any(
        path.relative_to(artifact.root).as_posix() in recorded
        or _points_into(artifact.root, path, _front(path), shared)
        for path in siblings
    )
    if mine or theirs:
        return "both" if mine and theirs else "mine" if mine else "theirs"
    return "alone" if not siblings or _is_folder_leaf(artifact) else "unknown"


def _refuse_shared(artifact: Artifact, shared: Path) -> None:
    names = [artifact.path.name, *(path.name for path in _siblings(artifact))]
    hint = "set source_debate in the leaf whose rounds these are, e.g. debate/round-01"
    message = f"the rounds here may be of {' or '.join(names)}"
    raise Refused(message, path=shown(shared), hint=hint)


def _is_folder_leaf(artifact: Artifact) -> bool:
    return artifact.directory.name == artifact.slug


def _siblings(artifact: Artifact) -> Iterator[Path]:
    """The other leaves of the leaf's folder; each is read to see that it is one, so no more are taken than needed."""
    return (path for path in entries(artifact.directory) if path != artifact.path and is_leaf(path))


def _round_entries(folder: Path) -> list[str]:
    """Everything that is, or would be taken for, a round: any `round-…` folder, any entry named round-NN."""
    if kind(folder) != "folder":
        return []
    named = [entry for entry in entries(folder) if entry.name.startswith("round-")]
    return [entry.name for entry in named if kind(entry) == "folder" or _ROUND.fullmatch(entry.name)]


def _recorded(folder: Path) -> set[str]:
    """The artifacts, relative to the root, that the records of these rounds name."""
    return {name for entry in _round_entries(folder) if (name := _recorded_path(folder / entry)) is not None}


def _recorded_path(round_folder: Path) -> str | None:
    try:
        record = json.loads((round_folder / ".run" / "record.json").read_bytes())
        return str(record["artifact"]["path"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None  # no record, or not one of ours: it tells nothing


def _points_into(root: Path, path: Path, front: FrontMatter | None, folder: Path) -> bool:
    pointed = None if front is None else _pointed(root, path.parent, front.text("source_debate"))
    return pointed is not None and pointed.parent == folder


def _front(path: Path) -> FrontMatter | None:
    try:
        return read(read_bytes(path), shown(path))
    except Refused:
        return None
