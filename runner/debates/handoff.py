"""What a brief begins with: the handoff, the session that allows it, and the files that the handoff lists.

Handoff and session hold `KEY: value` lines, in front matter or not; case does not matter. A key that is there twice is
refused, for nobody can tell which of the two was meant.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.brain.root import canonical, decode, kind, read_bytes, shown
from runner.debates.secrets import redact
from runner.errors import Refused, UsageError

TRIGGER = "reviewer-rejection-2"
FINDINGS_WORDS = 400
_MOST_BYTES = 1 << 20  # of a handoff or a session file
_TASK = re.compile(r"[A-Za-z0-9._-]{1,128}")
_KEY = re.compile(r"\s{0,3}(?:[-*]\s+)?(?:\*\*)?([A-Za-z_]+)(?:\*\*)?:(?:\*\*)?(?:\s+(.*))?$")
_HEADING = re.compile(r"\s{0,3}(#{1,6})\s+(.*)")


@dataclass(frozen=True, slots=True)
class Handoff:
    """files: as listed, in order, each once. findings: the latest, `total_words` long before they were cut."""

    files: tuple[str, ...]
    brief_path: str | None
    findings: str
    total_words: int


@dataclass(frozen=True, slots=True)
class Session:
    """debate_round: as it stands in the session, 0 when it is not said. unmet: why the guard would refuse."""

    debate_round: int
    unmet: tuple[str, ...]


def check_task(task: str) -> str:
    """The id, when it is one path segment of letters, digits, `.`, `_` and `-`. UsageError otherwise."""
    if not _TASK.fullmatch(task) or set(task) == {"."}:
        raise UsageError(
            f"{task!r} is no TASK_ID", hint="one name of letters, digits, '.', '_' and '-', at most 128 characters"
        )
    return task


def find_workspace(given: str | None, cwd: Path) -> Path:
    """`--workspace`; else the nearest folder from here upwards that holds `.ai`; else here."""
    if given is not None:
        found = cwd / given
        if kind(found) != "folder":
            raise UsageError("no such folder", path=given, hint="--workspace names the folder that holds .ai/")
        return canonical(found)
    return canonical(next((f for f in (cwd, *cwd.parents) if (f / ".ai").is_dir()), cwd))


def inside(workspace: Path, name: str, what: str) -> Path:
    """The canonical place of `name`, which must lie in the workspace, links followed. Refused otherwise."""
    try:
        place = canonical(workspace / name)
    except Refused:
        place = Path("/")
    if workspace not in place.parents:
        raise Refused(f"{what} is outside the workspace: {name}", hint=f"the workspace is {workspace}")
    return place


# ---- handoff -------------------------------------------------------------------------------------------------------


def read_handoff(workspace: Path, task: str) -> Handoff:
    """`.ai/handoffs/<task>.md`. Refused, with path and line, when it is missing or does not say what it must."""
    path = inside(workspace, f".ai/handoffs/{task}.md", "the handoff")
    text, where = _text(path, "the handoff"), shown(path)
    start, end = _findings(text)
    fields = _fields(text[:start] + re.sub(r"[^\n]", "", text[start:end]) + text[end:], where)
    for name in ("DEBATE_TRIGGER", "DT"):
        value, line = fields.get(name, (TRIGGER, 0))
        if _bare(value) != TRIGGER:
            what = f"{name} is {redact(value)!r}, not {TRIGGER}"
            raise Refused(what, path=where, line=line, hint="only that calls a debate")
    value, line = fields.get("FILES", ("", 0))
    files = tuple(dict.fromkeys(filter(None, map(_bare, value.strip(" []").split(",")))))
    if not files:
        what = "FILES lists nothing" if "FILES" in fields else "there is no FILES"
        raise Refused(what, path=where, line=line or None, hint="FILES: src/one.py, src/two.py")
    findings = text[start:end].strip()
    brief = _bare(fields.get("BRIEF_PATH", ("", 0))[0]) or None
    return Handoff(files, brief, _first_words(findings), len(findings.split()))


def brief_place(workspace: Path, task: str, handoff: Handoff, taken: Sequence[Path]) -> Path:
    """Where the brief goes: `.ai/context/debates/<task>.md`, or BRIEF_PATH: a .md file that is none of `taken`."""
    if handoff.brief_path is None:
        return inside(workspace, f".ai/context/debates/{task}.md", "the brief")
    place = inside(workspace, handoff.brief_path, "BRIEF_PATH")
    listed = [canonical(workspace / name) for name in handoff.files if "\0" not in name]
    if place.suffix != ".md" or place in [*taken, *listed] or kind(place) not in ("file", "missing"):
        raise Refused(
            f"BRIEF_PATH cannot be written: {handoff.brief_path}", hint="a .md file that is not one of the inputs"
        )
    return place


def _text(path: Path, what: str) -> str:
    if kind(path) == "missing":
        raise Refused(f"{what} is missing", path=shown(path), hint="its writer is the coordinator")
    if kind(path) == "file" and path.stat().st_size > _MOST_BYTES:
        raise Refused(f"{what} has more than {_MOST_BYTES:,} bytes", path=shown(path))
    return decode(read_bytes(path), shown(path)).replace("\r\n", "\n")


def _bare(value: str) -> str:
    """Without the quotes, backticks or bullet of a list."""
    return re.sub(r"^[-*]\s+", "", value.strip()).strip("\"'` \t")


def _fields(text: str, where: str) -> dict[str, tuple[str, int]]:
    """KEY -> (value, line); the items of a list over several lines are joined with commas."""
    found: dict[str, tuple[str, int]] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        m = _KEY.match(line)
        if m is None:
            continue
        name = m[1].upper()
        if name in found:
            raise Refused(
                f"{m[1]} is there twice, in lines {found[name][1]} and {number}", path=where, line=number,
                hint="keep one of them",
            )  # fmt: skip
        value = re.sub(r"\s#.*$", "", m[2] or "").strip()
        if name == "FILES" and (not value or value[-1] in ",[" or (value[0] == "[" and value[-1] != "]")):
            value = ",".join([value, *_items(lines[number:])])
        found[name] = (value, number)
    return found


def _items(lines: Sequence[str]) -> Iterator[str]:
    """The list that follows a key: up to a blank line after its first item, a heading, a rule or another key."""
    started = False
    for line in lines:
        text = line.strip()
        if not text and not started:
            continue
        if not text or _HEADING.match(line) or re.fullmatch(r"-{3,}", text) or _KEY.match(line):
            return
        started = True
        yield re.sub(r"\s#.*$", "", text).strip(" ]") if not text.startswith("[") else text


def _findings(text: str) -> tuple[int, int]:
    """Characters of the latest section whose heading says `findings` or `reviewer`, its heading left out."""
    spans: list[tuple[int, int, int]] = []  # start, end, level
    at, fence = 0, ""
    for line in text.splitlines(keepends=True):
        mark = re.match(r"\s{0,3}(`{3,}|~{3,})", line)
        if mark:
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        m = None if fence or mark else _HEADING.match(line)
        if m and spans and spans[-1][1] < 0 and len(m[1]) <= spans[-1][2]:
            spans[-1] = (spans[-1][0], at, spans[-1][2])
        at += len(line)
        if m and (not spans or spans[-1][1] >= 0) and re.search("findings|reviewer", m[2], re.IGNORECASE):
            spans.append((at, -1, len(m[1])))
    if not spans:
        return len(text), len(text)
    start, end, _ = spans[-1]
    return start, len(text) if end < 0 else end


def _first_words(text: str) -> str:
    words = list(re.finditer(r"\S+", text))
    return text if len(words) <= FINDINGS_WORDS else text[: words[FINDINGS_WORDS - 1].end()]


# ---- session -------------------------------------------------------------------------------------------------------


def read_session(path: Path) -> Session:
    """The guard: `reviewer_loop_count` of 2 or more and `debate_used` false. Whatever is not so, a file that cannot be
    read included, is in `unmet` with the value found."""
    try:
        fields = _fields(_text(path, "the session file"), shown(path))
    except Refused as error:
        return Session(0, (_one_line(error),))
    count, used, said = (_bare(fields.get(k, ("", 0))[0]) for k in _SESSION)
    unmet = []
    if not re.fullmatch(r"\d{1,9}", count) or int(count) < 2:
        unmet.append(f"reviewer_loop_count is {redact(count) or 'missing'}, not 2 or more")
    if used.lower() != "false":
        unmet.append(f"debate_used is {redact(used) or 'missing'}, not false")
    return Session(int(said) if re.fullmatch(r"\d{1,9}", said) else 0, tuple(unmet))


_SESSION = ("REVIEWER_LOOP_COUNT", "DEBATE_USED", "DEBATE_ROUND")


def _one_line(error: Refused) -> str:
    where = "" if error.line is None else f" (line {error.line})"
    return f"{error.message}{where}"


def check_guard(session: Session, path: Path, forced: bool) -> None:
    """Refused, with the values found, when the guard is not met and `--force` was not given."""
    if session.unmet and not forced:
        raise Refused(
            "; ".join(session.unmet), path=shown(path), code="guard",
            hint="a debate follows the second rejection, once; --force overrides this and is recorded",
        )  # fmt: skip


# ---- the files it lists --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listed:
    """A file of FILES. name: from the workspace. text: as much as was read, None when it was not; then `problem`."""

    name: str
    text: str | None
    bytes: int = 0
    problem: str = ""


def read_listed(workspace: Path, names: Sequence[str], most_bytes: int) -> tuple[Listed, ...]:
    """Each file once, whichever way it is named. Only regular text files inside the workspace are read, and no more
    than `most_bytes` of each; whatever else is listed has a `problem`."""
    found: dict[str, Listed] = {}
    for name in names:
        lexical = Path(os.path.normpath(workspace / name))
        shown_as = lexical.relative_to(workspace).as_posix() if workspace in lexical.parents else name
        try:
            real = (workspace / name).resolve()
            key = str(real) if workspace in real.parents else name
        except (OSError, RuntimeError, ValueError):
            real, key = None, name
        if key not in found:
            found[key] = _listed(workspace, lexical, real, shown_as, most_bytes)
    return tuple(found.values())


def _listed(workspace: Path, lexical: Path, real: Path | None, name: str, most_bytes: int) -> Listed:
    if real is None:
        return Listed(name, None, problem="not a file name, or a link that leads to itself")
    if workspace not in real.parents:
        inside_as_written = workspace in lexical.parents
        why = "a symbolic link that leaves the workspace" if inside_as_written else "outside the workspace"
        return Listed(name, None, problem=why)
    try:
        return _read(real, name, most_bytes)
    except FileNotFoundError:
        return Listed(name, None, problem="missing")
    except OSError as error:
        return Listed(name, None, problem=error.strerror or "cannot be read")


def _read(path: Path, name: str, most_bytes: int) -> Listed:
    # Not through a link that was put there meanwhile, and without waiting for a pipe's other end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        return Listed(name, None, problem="a folder" if stat.S_ISDIR(found.st_mode) else "not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(most_bytes)
    if b"\0" in data:
        return Listed(name, None, found.st_size, "binary")
    cut = len(data) < found.st_size
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if not cut or error.start < len(data) - 4:
            return Listed(name, None, found.st_size, "not UTF-8 text")
        text = data[: error.start].decode("utf-8-sig")
    return Listed(name, text, found.st_size, "" if text.strip() else "empty")
