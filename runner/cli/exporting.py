"""What `debate export` was told to export: from paths to records, with the artifact's text beside each."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.brain import front_matter
from runner.brain import root as roots
from runner.brain.root import kind, read_bytes, shown
from runner.cli.common import find
from runner.errors import Integrity, Refused, RunnerError
from runner.export import findings
from runner.export.model import Findings, Gap

_ROUND = re.compile(r"round-(0[1-9]|[1-9][0-9])")


@dataclass(frozen=True, slots=True)
class _Place:
    """A brain. root: None where there is none. prefix: from the project's folder, ending in a slash, or empty."""

    root: Path | None
    prefix: str


def read(paths: list[str], brain: str | None) -> list[Findings]:
    """Everything that these paths stand for, each round once. Raises Refused where there is nothing to export."""
    found: dict[tuple[str, int | None], Findings] = {}
    for path in paths:
        for one in _read(path, brain):
            found.setdefault((one.file or one.title, one.round), one)
    return list(found.values())


def _read(path: str, brain: str | None) -> Iterator[Findings]:
    here = Path(path)
    if here.suffix == ".json" and kind(here) == "file":
        yield from _json(here, brain)
        return
    record = next((r for r in _records(here) if kind(r) == "file"), None)
    if record is not None:
        yield _record(record, brain)
        return
    if _ROUND.fullmatch(here.name) and kind(here) == "folder":
        raise _no_record(here)
    _check_debate(here)
    try:
        yield _record(_latest(path, brain), brain)
    except Refused:
        below = list(_below(here, brain)) if kind(here) == "folder" else []
        if not below:
            raise
        yield from below


def _records(path: Path) -> tuple[Path, ...]:
    """Where a record lies when the path is a round, an ask, a run folder, or a brief's file."""
    inside = (path / ".run" / "record.json", *([path / "record.json"] if path.name.startswith(".run") else []))
    return (*inside, path.with_name(f".run-{path.stem}") / "record.json") if path.name else inside


def _no_record(folder: Path) -> Refused:
    if kind(folder / ".run") == "missing":
        return Refused(
            "this round has no record (.run/record.json): it was not made by debate-runner", path=shown(folder),
            hint="only rounds that debate-runner made can be exported",
        )  # fmt: skip
    return Refused(
        "this round was interrupted: .run/record.json is missing", path=shown(folder),
        hint="`debate resume` finishes it",
    )  # fmt: skip


def _check_debate(path: Path) -> None:
    from runner.debates import folder

    if folder.find(path) is not None:
        hint = "`debate resume` finishes it"
        raise Refused("this debate was interrupted: its record is missing", path=shown(path), hint=hint)


def _latest(path: str, brain: str | None) -> Path:
    """The record of the artifact's highest round."""
    from runner.rounds import close

    place, _ = close.current(find(path, brain, None))
    if kind(place.record) != "file":
        raise _no_record(place.folder)
    return place.record


def _below(folder: Path, brain: str | None) -> Iterator[Findings]:
    """The highest round of every artifact below a folder; one without a record is named, never left out."""
    latest: dict[tuple[Path, str], Findings] = {}
    for base, folders, _ in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in [f for f in folders if _ROUND.fullmatch(f)]:
            one = _one_below(Path(base) / name, folder, brain)
            latest[Path(base), one.path] = one
    yield from latest.values()


def _one_below(round_folder: Path, folder: Path, brain: str | None) -> Findings:
    record = round_folder / ".run" / "record.json"
    if kind(record) == "file":
        return _record(record, brain)
    path = round_folder.relative_to(folder).as_posix()
    why = _no_record(round_folder).message
    return Findings("", path, path, path, False, "failed", why, gaps=(Gap("artifact", why),))


# ---- files ---------------------------------------------------------------------------------------------------------


def _load(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(read_bytes(path))
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise Integrity("the record cannot be read", path=shown(path), hint="restore it from a copy")
    return data


def _json(path: Path, brain: str | None) -> Iterator[Findings]:
    """A bulk report, or a record by its own name."""
    data = _load(path)
    if data.get("schema") != findings.BULK:
        yield _of(data, path, brain)
        return
    rows = data.get("artifacts")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Integrity("the report is damaged (artifacts)", path=shown(path))
    place = _brain(str(path), brain)
    for row in rows:
        record = row.get("record")
        front, body = _text(place, record if isinstance(record, dict) else {})
        with _at(path):
            yield findings.of_bulk(row, place.prefix, front, body)


def _record(path: Path, brain: str | None) -> Findings:
    return _of(_load(path), path, brain)


def _of(data: Mapping[str, Any], path: Path, brain: str | None) -> Findings:
    run = path.parent
    with _at(path):
        if data.get("schema") == "round/1":
            place = _brain(str(path), brain)
            front, body = _text(place, data)
            return findings.of_record(data, path=shown(path), prefix=place.prefix, front=front, body=body)
        base = run.parent.absolute()
        if data.get("schema") == "brief/1":
            base = _up(base, len(Path(str(data.get("path"))).parent.parts))
            return findings.of_record(data, path=shown(path), prefix=_prefix(base))
        return findings.of_record(data, path=_prefix(base).rstrip("/"))


class _at:  # noqa: N801  (reads as a word of the `with` line)
    """An error of what is read here names this file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, RunnerError):
            error.path = shown(self._path)


def _up(folder: Path, steps: int) -> Path:
    for _ in range(steps):
        folder = folder.parent
    return folder


# ---- the brain around it -------------------------------------------------------------------------------------------


def _brain(path: str, brain: str | None) -> _Place:
    """The brain that a record's paths count from; a record may also lie on its own."""
    try:
        root = roots.find_root(path, brain, Path.cwd())
    except Refused:
        if brain is not None:
            raise
        return _Place(None, "")
    return _Place(root, _prefix(root))


def _prefix(folder: Path) -> str:
    """From the project's folder: the one with .git, else the folder above."""
    folder = folder.resolve()
    project = next((p for p in (folder, *folder.parents) if (p / ".git").exists()), folder.parent)
    return "" if project == folder else folder.relative_to(project).as_posix() + "/"


def _text(place: _Place, record: Mapping[str, Any]) -> tuple[bytes, bytes | None]:
    """Front matter and body of the artifact as it is now; no body when there is none that can be read."""
    try:
        path = str(record["artifact"]["path"])
        if place.root is None or kind(target := roots.contained(place.root, place.root / path)) != "file":
            return b"", None
        raw = read_bytes(target)
        start = front_matter.read(raw, path).body_start
        return raw[:start], raw[start:]
    except (RunnerError, LookupError, TypeError, ValueError):
        return b"", None  # gone, outside, unreadable: the record stands on its own
