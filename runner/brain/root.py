"""Which folder is the brain, and does a path stay inside it?"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from runner.errors import Refused

CONVENTIONS = "CONVENTIONS.md"


def find_root(path_as_written: str | None, brain_flag: str | None, cwd: Path) -> Path:
    """The canonical brain root, chosen from what the user wrote, before any link is resolved.

    `--brain`; else the nearest ancestor of `cwd` that holds CONVENTIONS.md; else `./project-brain`; else the nearest
    ancestor of the path. Raises Refused when there is none.
    """
    if brain_flag is not None:
        return canonical(_first([cwd / brain_flag], brain_flag))
    tried = [*_upwards(cwd), cwd / "project-brain"]
    if path_as_written is not None:
        tried += _upwards(cwd / path_as_written)
    return canonical(_first(tried, None))


def contained(root: Path, path: Path) -> Path:
    """The canonical form of `path`, which must lie in the brain (precondition 1). It need not exist."""
    inside, target = canonical(root), canonical(path)
    if target != inside and inside not in target.parents:
        raise Refused(f"artifact_path escapes brain_path: {target}")
    return target


def canonical(path: Path) -> Path:
    """`path` without `..` and symbolic links, absolute. Raises Refused where that has no answer (a loop of links)."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise Refused(f"cannot be resolved: {error}", path=str(path)) from error


def shown(path: Path) -> str:
    """How a message names a file: from the working directory when it lies below it, else absolute."""
    cwd = Path.cwd()
    return str(path.relative_to(cwd)) if cwd in path.parents else str(path)


def kind(path: Path) -> Literal["file", "folder", "other", "missing"]:
    """What lies at `path`, links followed. Raises Refused where the system does not say."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"


def entries(folder: Path) -> list[Path]:
    """What lies in a folder, by name. Raises Refused with the system's reason."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise _unreadable(folder, error) from error


def read_bytes(path: Path) -> bytes:
    """The bytes of a regular file. Raises Refused with the system's reason."""
    found = kind(path)
    if found != "file":
        raise Refused("no such file" if found == "missing" else "not a regular file", path=shown(path))
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def decode(raw: bytes, path: str) -> str:
    """UTF-8 text without its byte-order mark. Raises Refused with the line of the first bad byte."""
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise Refused("not valid UTF-8", path=path, line=line, hint="save the file as UTF-8") from error


def _unreadable(path: Path, error: OSError | ValueError) -> Refused:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return Refused(f"cannot be read: {reason}", path=shown(path))


def _upwards(path: Path) -> list[Path]:
    lexical = Path(os.path.normpath(path))  # `..` taken as written: links are resolved only afterwards
    return [lexical, *lexical.parents]


def _first(tried: Iterable[Path], flag: str | None) -> Path:
    for folder in tried:
        if _holds_conventions(folder):
            return folder
    raise Refused(
        "Brain root not found" + ("" if flag is None else f": --brain={flag} holds no {CONVENTIONS}"),
        hint=f"run inside a brain, or give the folder that holds {CONVENTIONS} with --brain=<path>",
    )


def _holds_conventions(folder: Path) -> bool:
    try:
        return (folder / CONVENTIONS).is_file()
    except (OSError, ValueError):
        return False
