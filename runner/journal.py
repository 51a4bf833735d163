"""Replies so far, on disk: JSON lines, one file per flow.

1. One line, one `write`: the only damage a crash can do is a last line without its line break. Nobody has acted on
   such a line (a reply counts once it is synced), so `open` cuts it off. Any other unreadable line is an error.
2. Four kinds of lines of ours: {"header"}, {"key", "digest", "reply"}, {"warning"}, and notes of the caller's:
   {"event"}, {"file", "sha256"}, {"pass"}, {"end", "exhausted"}. Each carries `at`, from the clock that was given.
3. A key stands for one request. The same program version asking something else under a recorded key is an error; after
   an upgrade the wording of a prompt may differ, so then the recorded reply stands and a warning is recorded. Which
   version wrote a reply is told by the last header above it: opening under another version adds a header.
4. Replies are only ever added. The first one of a key counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner import store
from runner.errors import Integrity, RunnerError
from runner.values import Reply

TRIES_PER_PASS = 2


@dataclass(frozen=True, slots=True)
class Recorded:
    """A reply with what it answered: the request's digest, and the program version that asked."""

    digest: str
    reply: Reply
    version: str


@dataclass(slots=True)
class JournalFile:
    """One flow's journal. header: what it was opened with this time. lines: as they are on disk.

    written_under: the version in the last header among the lines; None before the first.
    """

    path: Path
    header: dict[str, Any]
    lines: list[dict[str, Any]] = field(default_factory=list)
    recorded: dict[str, Recorded] = field(default_factory=dict)
    written_under: str | None = None
    appender: store.Appender | None = None
    dirty: bool = False

    @property
    def version(self) -> str:
        return _version(self.header)


class Journal:
    """Routes by flow id. clock: the present moment as text, for `at`."""

    def __init__(self, clock: Callable[[], str]) -> None:
        self._clock = clock
        self._files: dict[str, JournalFile] = {}

    def open(self, flow: str, path: Path, header: Mapping[str, Any]) -> JournalFile:
        """Make the file with this header, or read what is there and go on after it. The folder must exist.

        header: plain JSON values; `version` is the program's. Opening a flow a second time reads its file anew.
        Raises Integrity with file and line when it was damaged, RunnerError (code `disk`) when it cannot be used.
        """
        self.close(flow)
        file = JournalFile(path, dict(header))
        for line in _read(path):
            _take(file, line)
        self._files[flow] = file
        if file.written_under != file.version:
            self._write(file, {"header": file.header})
            self.sync()
        return file

    def answer(self, flow: str, key: str, digest: str) -> Reply | None:
        """The recorded reply to this request, or None. Raises Integrity when the key stood for another request."""
        file = self._file(flow)
        found = file.recorded.get(key)
        if found is None:
            return None
        if found.digest != digest:
            self._changed(file, key, found)
        return found.reply

    def add(self, flow: str, digest: str, reply: Reply) -> None:
        """Record a reply; nobody may act on it before `sync`."""
        line = {"key": reply.key, "digest": digest, "reply": reply.to_json()}
        self._write(self._file(flow), line)

    def note(self, flow: str, line: Mapping[str, Any], *, once: bool = False) -> None:
        """Record another line. once: not when one with the same content (`at` aside) is there, say, after a resume."""
        file = self._file(flow)
        if once and any(_content(old) == dict(line) for old in file.lines):
            return
        self._write(file, dict(line))

    def sync(self) -> None:
        """Make everything durable that was added since the last time; only files that got something are touched."""
        for file in self._files.values():
            if file.dirty and file.appender is not None:
                file.appender.sync()
                file.dirty = False

    def close(self, flow: str) -> None:
        """Sync and give the descriptor back. What was read stays; a later line opens the file again. Idempotent."""
        file = self._files.get(flow)
        if file is None or file.appender is None:
            return
        if file.dirty:
            file.appender.sync()
            file.dirty = False
        file.appender.close()
        file.appender = None

    def forget(self, flow: str) -> None:
        """Close the flow's file and drop what was read of it: a run of thousands keeps the living ones only."""
        self.close(flow)
        self._files.pop(flow, None)

    def lines(self, flow: str) -> tuple[dict[str, Any], ...]:
        """All lines in the order written, with their `at`."""
        return tuple(self._file(flow).lines)

    def replies(self, flow: str) -> dict[str, Reply]:
        """Every recorded reply by its key, in the order recorded; whatever its finish."""
        return {key: found.reply for key, found in self._file(flow).recorded.items()}

    def passes(self, flow: str) -> int:
        """Which pass this flow is in: 1, until {"pass": p} says more."""
        return passes(self._file(flow).lines)

    def exhausted(self, flow: str) -> tuple[str, ...]:
        """Keys (without `~n`) that used up the tries of the present pass and have no good reply, sorted."""
        file = self._file(flow)
        replies = [found.reply for found in file.recorded.values()]
        return tuple(sorted({*_listed(file.lines), *_used_up(replies, TRIES_PER_PASS * passes(file.lines))}))

    def _file(self, flow: str) -> JournalFile:
        try:
            return self._files[flow]
        except KeyError:
            raise RunnerError(f"no journal is open for the flow {flow}") from None

    def _write(self, file: JournalFile, content: dict[str, Any]) -> None:
        line = content | {"at": self._clock()}
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        # A lone surrogate becomes the JSON escape that reads back as the same one.
        data = text.encode(errors="backslashreplace") + b"\n"
        if file.appender is None:
            file.appender = store.Appender(file.path)
        file.dirty = True
        file.appender.write(data)
        # Kept as it reads back from the disk, so that a first run and a resumed one see equal lines.
        _take(file, json.loads(data))

    def _changed(self, file: JournalFile, key: str, found: Recorded) -> None:
        if found.version == file.version:
            raise Integrity(
                f"the request {key} has changed since its reply was recorded",
                path=str(file.path),
                hint="what it was built from is not what it was: restore it, or give this run up and start anew",
            )
        text = (
            f"the request {key} differs under version {file.version}: "
            f"the reply recorded under version {found.version} stands"
        )
        if not any(line.get("warning") == text for line in file.lines):
            self._write(file, {"warning": text})


def passes(lines: Iterable[Mapping[str, Any]]) -> int:
    """The highest pass recorded, 1 if none."""
    return max((int(line["pass"]) for line in lines if "pass" in line), default=1)


def _version(header: Mapping[str, Any]) -> str:
    return str(header.get("version", ""))


def _content(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "at"}


def _take(file: JournalFile, line: dict[str, Any]) -> None:
    file.lines.append(line)
    if "header" in line:
        file.written_under = _version(line["header"])
    if "key" in line:
        recorded = Recorded(line["digest"], Reply.from_json(line["reply"]), file.written_under or "")
        file.recorded.setdefault(line["key"], recorded)


def _read(path: Path) -> list[dict[str, Any]]:
    """The lines of the file, none when it does not exist; a torn last one is cut off the file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunnerError(f"cannot read: {error.strerror}", path=str(path), code="disk") from error
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        store.cut(path, whole)
    return [_parse(path, i, text) for i, text in enumerate(data[:whole].split(b"\n")[:-1], 1)]


def _parse(path: Path, number: int, text: bytes) -> dict[str, Any]:
    try:
        line = json.loads(text.decode())
        if not isinstance(line, dict) or (number == 1) > ("header" in line):
            raise ValueError
        _check(line)
    except (ValueError, TypeError, KeyError, AttributeError):
        hint = "restore the file from a copy, or give this run up and start anew"
        raise Integrity("this line of the journal is damaged", path=str(path), line=number, hint=hint) from None
    return line


def _check(line: dict[str, Any]) -> None:
    """Raise anything at all when a line that we act on does not hold what we wrote."""
    dict(line.get("header", {}))
    int(line.get("pass", 1))
    if "key" in line and (line["key"], str) != (Reply.from_json(line["reply"]).key, type(line["digest"])):
        raise ValueError


def family(key: str) -> str:
    """The key without the number of its try."""
    return re.sub(r"~\d+$", "", key)


def _listed(lines: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """What the last end line of the present pass lists: an earlier pass's list is out of date."""
    listed: tuple[str, ...] = ()
    for line in lines:
        if "pass" in line:
            listed = ()
        elif "end" in line:
            listed = tuple(family(key) for key in line.get("exhausted", ()))
    return listed


def _used_up(replies: Iterable[Reply], tries: int) -> list[str]:
    by_family: dict[str, list[Reply]] = {}
    for reply in replies:
        by_family.setdefault(family(reply.key), []).append(reply)
    return [name for name, all_ in by_family.items() if len(all_) >= tries and all_[-1].finish != "stop"]
