"""The brain as the rules see it: its pages and folders, and how a reference in one page finds another."""

# Paths are text here: thousands of Path objects would cost more than the rules.
# ruff: noqa: PTH110, PTH113, PTH118, PTH120
from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from runner.brain.verify.page import Page, load
from runner.errors import RunnerError

ROUND = re.compile(r"round-\d{2}$")
WEB = ("http://", "https://", "mcp://", "file://")
_OLD_NAME = "thoughts/"  # what a brain's folder was called before rc4; references may still begin with it
_HOMES = ("threads", "archive", "thoughts/threads", "thoughts/archive")


@dataclass(frozen=True, slots=True)
class Violation:
    """file: from the brain root, with `/`; a folder for N-03 and N-04. line: 1-based; 0 for a whole file or folder.

    code: V-01 to V-22, N-01 to N-04. warning: it fails a run only with --warnings-as-errors.
    """

    file: str
    line: int
    code: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Folder:
    """rel: "" for where the walk began. folders, files: names in order; links to folders count as folders."""

    rel: str
    folders: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Brain:
    """pages: those in scope, in the order of a walk. by_path: by `rel`. by_id: the first page with that id.

    folders: of the whole brain, whatever the scope; hidden ones too.
    """

    root: str
    pages: tuple[Page, ...]
    folders: tuple[Folder, ...]
    by_path: dict[str, Page]
    by_id: dict[str, Page]
    outside: dict[str, Page | None] = field(default_factory=dict)  # threads looked up beyond the scope

    def path(self, page: Page) -> str:
        return os.path.join(self.root, page.rel)

    def folder(self, page: Page) -> str:
        return os.path.dirname(self.path(page))

    def find(self, reference: str) -> Page | None:
        """A page by its path or its id."""
        rel = reference.lstrip("/")
        return (
            self.by_path.get(reference)
            or self.by_id.get(reference)
            or self.by_path.get(rel)
            or self.by_path.get(_OLD_NAME + rel)
        )

    def thread(self, slug: str) -> Page | None:
        """A thread by the name of its folder, else by its id, else as it lies on disk outside the scope."""
        for home in _HOMES:
            found = self.by_path.get(f"{home}/{slug}/thread.md")
            if found:
                return found
        by_id = self.by_id.get(slug)
        if by_id and by_id.kind == "thread":
            return by_id
        if slug not in self.outside:
            self.outside[slug] = self._thread_on_disk(slug)
        return self.outside[slug]

    def _thread_on_disk(self, slug: str) -> Page | None:
        for home in ("threads", "archive"):
            rel = f"{home}/{slug}/thread.md"
            path = os.path.join(self.root, rel)
            if not slug.startswith("/") and os.path.isfile(path):
                return load(path, rel)
        return None

    def linked(self, uri: str) -> str | None:
        """The `rel` of the page that a soft link inside the brain means; None for every other link."""
        if uri.startswith(WEB) or (":" in uri and not uri.startswith("/")):
            return None
        rel = uri.lstrip("/")
        for target in (rel, _OLD_NAME + rel):
            for spelled in (target, target.rstrip("/") + "/NODE.md"):
                if spelled in self.by_path:
                    return spelled
        return None

    def on_disk(self, rel: str) -> bool:
        """Does a soft link's path exist, under either name of the brain's folder?"""
        other = rel.removeprefix(_OLD_NAME) if rel.startswith(_OLD_NAME) else _OLD_NAME + rel
        return exists(os.path.join(self.root, rel)) or exists(os.path.join(self.root, other))


def exists(path: str) -> bool:
    """Is something there? A path that cannot be one is not."""
    try:
        return os.path.exists(path)
    except ValueError:
        return False


def real(path: str) -> str:
    """The path without links and `..`; as it is where that has no answer."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


def uris(page: Page) -> list[str]:
    """The uri of every soft link written as a mapping. Links written as a bare string are not checked by any rule."""
    links = page.fields.get("soft_links")
    found: list[Any] = [link.get("uri") for link in links if isinstance(link, dict)] if isinstance(links, list) else []
    return [uri for uri in found if isinstance(uri, str) and uri]


def rounds(history: str) -> list[str]:
    """The folders below a debate folder whose names begin with `round-`, in order."""
    return sorted(e.name for e in scan(history) if e.name.startswith("round-") and _is_folder(e))


def scan(folder: str) -> list[os.DirEntry[str]]:
    """What lies in a folder. Raises RunnerError: a part of the brain that cannot be seen is not a part in order."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        hint = "check the owner and the permissions of the folder"
        raise RunnerError(f"cannot be read: {error.strerror}", path=folder, hint=hint, code="unreadable") from error


def walk(top: str, rel: str = "") -> Iterator[Folder]:
    """A folder and all below it, by name; links to folders are named but not entered."""
    ahead = [(top, rel)]
    while ahead:
        path, rel = ahead.pop()
        entries = sorted(scan(path), key=lambda entry: entry.name)
        below = [entry for entry in entries if _is_folder(entry)]
        names = {entry.name for entry in below}
        yield Folder(rel, tuple(e.name for e in below), tuple(e.name for e in entries if e.name not in names))
        inside = f"{rel}/" if rel else ""
        ahead += [(e.path, inside + e.name) for e in reversed(below) if not e.is_symlink()]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
