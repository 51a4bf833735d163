"""The run folder of an ask or a brief: what it is made of, its journal, its record, and how it is taken back.

In order: the folder is claimed, then `inputs/inputs.json` is stored, then requests are asked (each reply is in
`journal.jsonl` before anyone acts on it), then files are published (their sha256 is in the journal first), and last of
all `record.json` is written. What is there says how far the run has come (`state`), so nothing else keeps it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from runner import publish, render, store
from runner.brain.root import canonical, kind, read_bytes, shown
from runner.errors import Integrity, Refused
from runner.journal import Journal
from runner.values import Document

State = Literal["none", "interrupted", "partial", "done", "aborting"]
IGNORED = ("journal.jsonl", "inputs/")
FAKE = "**FAKE ENGINE: no model read this question; every word here is made up.**"
_INPUTS = "inputs/inputs.json"
_FIRST = {".gitignore", "inputs", "abort"}  # all that can be there while nothing is stored
_TEMP = ".debate-tmp"
_MOST = 1000  # folders of one name


@dataclass(frozen=True, slots=True)
class RunFolder:
    """folder: paths of documents count from here. run: our own state; `<folder>/.run` of an ask, `.run-<TASK_ID>`
    beside the brief of a brief."""

    folder: Path
    run: Path

    @property
    def inputs(self) -> Path:
        return self.run / _INPUTS

    @property
    def journal(self) -> Path:
        return self.run / "journal.jsonl"

    @property
    def record(self) -> Path:
        return self.run / "record.json"

    @property
    def abort(self) -> Path:
        """While this file exists only an abort goes on."""
        return self.run / "abort"

    def lock(self) -> store.Lock:
        """Held from the first write to the last; Refused (locked) when another command works here."""
        return store.Lock(self.run)


def find(path: Path) -> tuple[str, RunFolder] | None:
    """What run a path that the user named stands for: ("ask" or "brief", its place); None when it is none of ours.

    The folder of an ask, a run folder itself, or a brief's file. Reads the first bytes of the inputs only.
    """
    path = canonical(path)
    runs = (path / ".run", path, path.with_name(f".run-{path.stem}"))
    for run in runs:
        schema = _schema(run)
        if schema is not None:
            return schema, RunFolder(run.parent, run)
    own = path / ".run"
    if kind(own) == "folder" and {p.name for p in own.iterdir() if not p.name.endswith(_TEMP)} <= _FIRST:
        return "ask", RunFolder(path, own)  # stopped before its inputs were stored
    return None


def _schema(run: Path) -> str | None:
    try:
        with (run / _INPUTS).open("rb") as file:
            head = file.read(64)
    except OSError:
        return None
    return next((word for word in ("ask", "brief") if f'"schema": "{word}/'.encode() in head), None)


def claim(wanted: Path) -> RunFolder:
    """Make the folder; of a taken one `-2`, `-3`, … Raises RunnerError (code `disk`) where nothing can be written."""
    store.make_folder(wanted.parent)
    for n in range(1, _MOST):
        folder = wanted if n == 1 else wanted.with_name(f"{wanted.name}-{n}")
        _remove_gone(RunFolder(folder, folder / ".run"))
        with contextlib.suppress(Refused):
            store.claim(folder)
            store.make_folder(folder / ".run")
            return RunFolder(folder, folder / ".run")
    raise Refused("there are too many folders of this name", path=shown(wanted), hint="--out names another")


def store_inputs(place: RunFolder, schema: str, inputs: Any) -> None:
    """Durably, before the first request. schema: `ask/1`. inputs: a frozen dataclass of plain values."""
    store.make_folder(place.inputs.parent)
    store.write_atomic(place.run / ".gitignore", ("\n".join(IGNORED) + "\n").encode())
    data = json.dumps({"schema": schema} | asdict(inputs), ensure_ascii=False, indent=1) + "\n"
    store.write_atomic(place.inputs, data.encode("utf-8", "surrogatepass"))


def load_inputs(place: RunFolder, schema: str) -> dict[str, Any]:
    """The stored values without the schema's name. Refused when there are none, Integrity when they are damaged."""
    if not place.inputs.exists():
        raise Refused(
            "this run was stopped before its inputs were stored; it can only be aborted", path=shown(place.run),
            hint="debate abort, then start again",
        )  # fmt: skip
    with contextlib.suppress(ValueError):
        data = json.loads(read_bytes(place.inputs).decode("utf-8", "surrogatepass"))
        if isinstance(data, dict) and data.pop("schema", None) == schema:
            return data
    raise damaged(place, "not what this version wrote")


def damaged(place: RunFolder, why: str) -> Integrity:
    """Of stored inputs that cannot be used."""
    return Integrity(
        f"the stored inputs cannot be read ({why})", path=shown(place.inputs), hint="`debate abort` gives up"
    )


def sweep(place: RunFolder) -> None:
    """Remove what killed writes left. Under the lock."""
    for folder in (place.folder, *sorted(place.folder.glob("round-*")), place.run, place.run / "inputs"):
        if folder.is_dir():
            store.sweep(folder)


class Files:
    """Writes the files of one run. note: what every markdown file begins with.

    replaces: path -> sha256 of a file from before the run that ours takes the place of.
    """

    def __init__(
        self, place: RunFolder, journal: Journal, flow: str, note: str = "", replaces: Mapping[str, str] | None = None
    ) -> None:
        self._place, self._journal, self._flow, self._note = place, journal, flow, note
        self._replaces = dict(replaces or {})

    def publish(self, flow: str, document: Document) -> None:
        """For the scheduler: render and write."""
        marked = bool(self._note) and document.path.endswith(".md")
        noted = replace(document, body=f"{self._note}\n\n{document.body}") if marked else document
        self.write(document.path, render.render(noted))

    def write(self, path: str, data: bytes) -> None:
        """Write a file, durably; Integrity when it holds something that we did not write."""
        old = {self._replaces[path]} if path in self._replaces else ()
        publish.write(self._journal, self._flow, self._place.folder, path, data, "debate", old)

    def sha256(self) -> dict[str, str]:
        """path -> sha256 of every file of ours as it lies there, our own state left out."""
        paths = {line["file"] for line in self._journal.lines(self._flow) if "file" in line}
        own = {p for p in paths if not p.startswith(".run")}
        folder = self._place.folder
        return {p: publish.sha256(read_bytes(folder / p)) for p in sorted(own) if kind(folder / p) == "file"}

    def record(self, schema: str, values: Mapping[str, Any]) -> None:
        """record.json, the last file of a run. values: `complete` is True when nothing is missing."""
        data = json.dumps({"schema": schema} | dict(values), ensure_ascii=False, indent=1) + "\n"
        path = self._place.record.relative_to(self._place.folder).as_posix()
        self.write(path, data.encode("utf-8", "replace"))


def load_record(place: RunFolder) -> dict[str, Any] | None:
    """None while the run goes on. Integrity when the file is damaged."""
    if kind(place.record) == "missing":
        return None
    with contextlib.suppress(ValueError):
        record = json.loads(read_bytes(place.record))
        if isinstance(record, dict) and isinstance(record.get("complete"), bool):
            return record
    raise Integrity("the record cannot be read", path=shown(place.record), hint="restore it from a copy")


def state(place: RunFolder) -> State:
    """How far a run has come: none (nothing stored yet), interrupted, partial (ended, something is missing), done."""
    if place.abort.exists():
        return "aborting"
    if not place.inputs.exists():
        return "none"
    record = load_record(place)
    return "interrupted" if record is None else "done" if record["complete"] else "partial"


def next_pass(journal: Journal, flow: str) -> int:
    """Which pass this is: another one, noted in the journal, when requests have used up their tries."""
    passes = journal.passes(flow)
    if journal.exhausted(flow):
        passes += 1
        journal.note(flow, {"pass": passes})
    return passes


# ---- abort ---------------------------------------------------------------------------------------------------------


def abort(place: RunFolder, before: Callable[[], Mapping[str, bytes]] = dict) -> tuple[str, ...]:
    """Take a run back that is not done; the paths of files that were moved aside because they are not ours.

    before: path -> bytes of files from before the run, put back. Refused when the run is done.
    """
    with place.lock():
        if state(place) == "done":
            raise Refused("this run is done; there is nothing to abort", path=shown(place.folder))
        sweep(place)
        store.write_atomic(place.abort, b"")
        old, known = before(), _known(place)
        moved = [_restore(place, path, data, known) for path, data in old.items()]
        moved += [_take_back(place, path, known) for path in _present(place, known) if path not in old]
        _vanish(place)
    return tuple(name for name in moved if name)


def _known(place: RunFolder) -> dict[str, set[str]]:
    """path -> sha256 of everything we wrote, read leniently: a torn journal must not stop an abort."""
    known: dict[str, set[str]] = {}
    lines = read_bytes(place.journal).splitlines() if kind(place.journal) != "missing" else []
    for text in lines:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            line: dict[str, Any] = json.loads(text)
            if "file" in line:
                known.setdefault(line["file"], set()).add(line["sha256"])
    return known


def _present(place: RunFolder, known: Mapping[str, set[str]]) -> list[str]:
    """Files to take back or to move aside: all of a folder of our own, else those that we wrote."""
    if place.run.parent == place.folder and place.run.name == ".run":
        found = [p for p in place.folder.rglob("*") if (p.is_file() or p.is_symlink()) and place.run not in p.parents]
        return sorted(p.relative_to(place.folder).as_posix() for p in found)
    own = place.run.relative_to(place.folder).as_posix() + "/"
    return sorted(p for p in known if not p.startswith(own) and kind(place.folder / p) == "file")


def _restore(place: RunFolder, path: str, data: bytes, known: Mapping[str, set[str]]) -> str:
    target = place.folder / path
    present = read_bytes(target) if kind(target) == "file" else data
    moved = "" if present == data or publish.sha256(present) in known.get(path, ()) else _aside(place, path)
    store.write_atomic(target, data)
    return moved


def _take_back(place: RunFolder, path: str, known: Mapping[str, set[str]]) -> str:
    target = place.folder / path
    ours = kind(target) == "file" and publish.sha256(read_bytes(target)) in known.get(path, ())
    if not ours:
        return _aside(place, path)
    store.remove(target)
    return ""


def _aside(place: RunFolder, path: str) -> str:
    """Move a file out of the way: `.aborted-<name>/` beside what is removed."""
    own = place.run.name == ".run"
    base = (place.folder if own else place.run).parent / f".aborted-{place.folder.name if own else place.run.name[5:]}"
    target, n = base / path, 1
    while target.exists() or target.is_symlink():
        n += 1
        target = (base / path).with_name(f"{Path(path).name}.{n}")
    store.make_folder(target.parent)
    store.disk.replace(place.folder / path, target)
    return shown(target)


def _gone(place: RunFolder) -> Path:
    whole = place.folder if place.run.name == ".run" else place.run
    return whole.with_name(f".{whole.name.removeprefix('.')}.gone")


def _vanish(place: RunFolder) -> None:
    """In one step: renamed away first."""
    _remove_gone(place)
    store.disk.replace(place.folder if place.run.name == ".run" else place.run, _gone(place))
    _remove_gone(place)


def _remove_gone(place: RunFolder) -> None:
    if _gone(place).is_dir():
        shutil.rmtree(_gone(place))
