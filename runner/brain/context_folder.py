"""Where a context is written, and which links have gone stale since one was."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import store
from runner.brain.artifact import Artifact
from runner.brain.context import SCHEMA, Context, LinkReport
from runner.brain.links import shown
from runner.brain.root import canonical, kind
from runner.brain.root import shown as shown_path
from runner.errors import Refused

PERSISTED = ".context"
STALE = "stale-refs.md"
_NOT_IN_A_NAME = re.compile(r"[^\w.-]+|^\.+")
_MOST_IN_A_SECOND = 99


@dataclass(frozen=True, slots=True)
class Stale:
    """A link that leads nowhere, or (reason `changed`) to another text than in the newest context that has it."""

    uri: str
    role: str
    reason: str


def cache() -> Path:
    """The folder for contexts that nobody asked to keep, below the XDG cache folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "")
    if not base.is_absolute():
        base = Path.home() / ".cache"
    return base / "project-brain" / "materialize-context"


def cached(context: Context) -> Path:
    """The cache folder of one artifact; its contexts lie in it, by time."""
    return cache() / _name(context.project) / _name(context.id)


def target(artifact: Artifact, context: Context, out: Path | None, persist: bool) -> Path:
    """The folder to write: `out`, else beside the artifact, else in the cache. It is new; nothing is made here.

    Raises Refused when it exists, or lies neither in the brain nor in the cache once links are followed.
    """
    if out is None and not persist:
        return _free(cached(context) / _stamp(context.created_at))
    folder = canonical(out if out is not None else artifact.directory / PERSISTED / _stamp(context.created_at))
    if not _within(folder, (artifact.root, canonical(cache()))):
        hint = f"choose a folder below {shown_path(artifact.root)} or {cache()}"
        raise Refused("lies outside the brain and the cache", path=shown_path(folder), hint=hint, code="unsafe")
    if kind(folder) != "missing":
        raise Refused("already exists", path=shown_path(folder), hint="choose a new folder", code="claimed")
    return folder


def in_the_way(artifact: Artifact, folder: Path) -> bool:
    """Would the brain's rules read a document in this folder as a page of the brain?"""
    if artifact.root not in folder.parents:
        return False
    return not any(part.startswith(".") for part in folder.relative_to(artifact.root).parts)


def stale(artifact: Artifact, context: Context) -> tuple[Stale, ...]:
    """The links of `context` that fail, or whose text is not the one in the newest context written before."""
    before = _known([cached(context), artifact.directory / PERSISTED], context.artifact)
    reasons = ((link, _stale(link, before)) for link in context.links if link.status != "skipped")
    return tuple(Stale(link.uri, link.role, reason) for link, reason in reasons if reason)


def write_stale(found: Iterable[Stale], context: Context, folder: Path) -> Path:
    """The list as `stale-refs.md` in `folder`, which must be new; no text of any link is in it."""
    store.make_folder(folder.parent)
    store.claim(folder)
    rows = [f"- `{shown(s.uri)}` ({s.role or 'no role'}): {s.reason}\n" for s in found]
    head = f"# Stale links of {shown(context.artifact)}\n\nAs of {context.created_at}.\n\n"
    store.write_atomic(folder / STALE, (head + ("".join(rows) or "None.\n")).encode("utf-8", "replace"))
    return folder / STALE


def _stale(link: LinkReport, before: Mapping[str, str]) -> str:
    if link.status == "unresolved":
        return link.reason + (f" ({link.detail})" if link.detail else "")
    was = before.get(link.uri)
    return "changed" if was and link.sha256 and was != link.sha256 else ""


def _known(folders: Iterable[Path], artifact: str) -> dict[str, str]:
    """uri -> sha256, of the newest context that has it. A sidecar that cannot be read is none."""
    found = [_sidecar(path) for folder in folders for path in sorted(folder.glob("*/context.json"))]
    found = [data for data in found if data.get("schema") == SCHEMA and data.get("artifact") == artifact]
    known: dict[str, str] = {}
    for data in sorted(found, key=lambda data: str(data.get("created_at"))):
        links = data.get("links")
        for link in links if isinstance(links, list) else []:
            if isinstance(link, dict) and isinstance(link.get("sha256"), str) and link["sha256"]:
                known[str(link.get("uri"))] = link["sha256"]
    return known


def _sidecar(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _name(text: str) -> str:
    """One harmless name for a folder; a text that is none gets a hash, so that no two share one."""
    name = _NOT_IN_A_NAME.sub("-", text)[:60]
    return name if name == text else f"{name}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _stamp(clock: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", "", clock)


def _free(folder: Path) -> Path:
    """The folder, else its name with the next number: in the cache, two in one second are no collision."""
    tried = [folder, *(folder.with_name(f"{folder.name}-{n}") for n in range(2, _MOST_IN_A_SECOND + 1))]
    found = next((path for path in tried if kind(path) == "missing"), None)
    if found is None:
        raise Refused("already exists", path=str(folder), hint="wait a second", code="claimed")
    return found


def _within(path: Path, homes: Iterable[Path]) -> bool:
    return any(home in path.parents for home in homes)
