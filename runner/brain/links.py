"""Soft links: what an artifact's front matter points at, where each link leads, and the text that lies there.

Reads only. Nothing is fetched: a link to the web or to an MCP server is `offline`. A link is followed one step, never
on from what it leads to, so links in a circle end by themselves. Where it leads is judged after every symbolic link is
followed: out of the folder that it may read is `outside`, whatever its spelling.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from runner.brain.front_matter import FrontMatter
from runner.brain.root import canonical, kind, read_bytes
from runner.brain.verify.aliases import Layer
from runner.errors import Refused

ROLES = ("spec", "prior-decision", "related-work", "conversation", "scratch", "external-reference")
Reason = Literal["", "not-found", "unknown alias", "alias root unreachable", "unsupported-scheme", "offline", "outside"]
MAX_BYTES = 16 * 1024 * 1024  # a longer file is named, not shown

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file):/", re.IGNORECASE)
_OFFLINE = ("http", "https", "mcp")
_OLD_NAME = "thoughts/"  # what a brain's folder was called before rc4; links may still begin with it
_UNSAFE_IN_URI = re.compile(
    "[\x00-\x20\x7f-\xa0<>`\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\U000e0000-\U000e007f\ud800-\udfff]"
)
_LONE_HALF = re.compile("[\ud800-\udfff]")

# Control characters but tab and line feed; the line ends that only some readers see; bidirectional overrides; tags.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
_FENCE = re.compile(r"(BEGIN|END)[\W_]*RESOLVED[\W_]*CONTENT", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Link:
    """uri: as written. role: one of ROLES, or empty."""

    uri: str
    role: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a link leads. path: canonical, a file or a folder without a page of its own; None when there is a reason.

    target: the path as a file may name it: from the brain root, else `../…` in its project, else `<alias>:…`.
    """

    path: Path | None
    target: str = ""
    reason: Reason = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    """The text of a file, made safe to stand in a fence. size, sha256: of the file's bytes (sha256 empty: not read).

    notes: what differs from the file. hidden: why there is no text, else empty.
    """

    size: int
    sha256: str = ""
    text: str = ""
    notes: tuple[str, ...] = ()
    hidden: str = ""


def parse(front: FrontMatter) -> tuple[tuple[Link, ...], tuple[str, ...]]:
    """The artifact's soft links, in order, and warnings. A link that is not one has an empty uri."""
    written = front.fields.get("soft_links")
    warnings = []
    if written is not None and not isinstance(written, list):
        warnings.append("soft_links is not a list: read as one link")
        written = [written]
    found = []
    for entry in written or []:
        uri, role = (entry.get("uri"), entry.get("role")) if isinstance(entry, dict) else (entry, None)
        link = Link(_LONE_HALF.sub("\ufffd", uri) if isinstance(uri, str) else "", role if role in ROLES else "")
        if role and not link.role:
            warnings.append(f"{shown(link.uri)}: its role is none of {', '.join(ROLES)}: read as no role")
        found.append(link)
    return tuple(found), tuple(warnings)


def shown(uri: str) -> str:
    """The uri on one line and harmless in a comment, in code and on a terminal: what is not is percent-encoded."""
    return _UNSAFE_IN_URI.sub(lambda c: quote(c.group(), safe="", errors="surrogatepass"), uri) or "(empty)"


# ---- where a link leads --------------------------------------------------------------------------------------------


def resolve(uri: str, root: Path, layers: Sequence[Layer]) -> Place:
    """Where a soft link of the brain at `root` (canonical) leads. layers: the files of aliases. Raises nothing."""
    if uri.startswith("/") or (uri.strip() and ":" not in uri):
        return _below(root, uri.lstrip("/"), root, "")
    scheme = _SCHEME.match(uri)
    if scheme is None and uri.strip():
        return _aliased(uri, root, layers)
    name = (scheme.group(1) or scheme.group(2)).lower() if scheme else ""
    if name in _OFFLINE:
        return Place(None, reason="offline")
    return _file(uri, root) if name == "file" else Place(None, reason="unsupported-scheme")


def _file(uri: str, root: Path) -> Place:
    """`file:///path`, percent-encoded; only inside the brain or its project."""
    rest = uri.partition(":")[2]
    host, _, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest[1:])
    if host.lower() not in ("", "localhost"):
        return Place(None, reason="outside", detail="names another machine")
    return _below(project(root), Path("/", unquote(path)), root, "")


def _aliased(uri: str, root: Path, layers: Sequence[Layer]) -> Place:
    alias, _, rest = uri.partition(":")
    layer = next((layer for layer in layers if alias in layer.entries), None)
    if layer is None:
        return Place(None, reason="unknown alias")
    home = _home(layer, alias)
    if home is None:
        return Place(None, reason="alias root unreachable")
    rest = rest.lstrip("/")
    if not rest.startswith("thread/"):
        return _below(home, rest, root, alias)
    slug = rest.removeprefix("thread/")
    active = _below(home, f"threads/{slug}/thread.md", root, alias)
    archived = _below(home, f"archive/{slug}/thread.md", root, alias)
    return archived if active.path is None and archived.path is not None else active


def _home(layer: Layer, alias: str) -> Path | None:
    """The folder of an alias: its `brain:`, else its `root:`, from the folder of the file that names it."""
    entry = layer.entries[alias]
    written = (entry.get("brain") or entry.get("root")) if isinstance(entry, dict) else entry
    if not isinstance(written, str) or not written:
        return None
    try:
        home = canonical(layer.folder / Path(written).expanduser())
        return home if kind(home) == "folder" and os.access(home, os.R_OK | os.X_OK) else None
    except (Refused, RuntimeError):
        return None


def project(root: Path) -> Path:
    """The folder that a brain belongs to; the brain itself when it lies at the top of the file system."""
    return root.parent if root.parent != root.parent.parent else root


def _below(home: Path, rel: str | Path, root: Path, alias: str) -> Place:
    """A path inside `home`, under either name of the brain's folder."""
    place = _inside(home, home / rel, root, alias)
    if place.reason == "not-found" and isinstance(rel, str):
        other = rel.removeprefix(_OLD_NAME) if rel.startswith(_OLD_NAME) else _OLD_NAME + rel
        renamed = _inside(home, home / other, root, alias)
        return renamed if renamed.path is not None else place
    return place


def _inside(home: Path, written: Path, root: Path, alias: str) -> Place:
    try:
        path = canonical(written)
        if home not in (path, *path.parents):
            return Place(None, reason="outside")
        path = canonical(_page(path))
        if home not in (path, *path.parents):
            return Place(None, reason="outside")
        if kind(path) in ("file", "folder"):
            return Place(path, _target(path, home, root, alias))
        return Place(None, reason="not-found", detail="" if kind(path) == "missing" else "not a regular file")
    except Refused:
        return Place(None, reason="not-found", detail="cannot be resolved")


def _page(path: Path) -> Path:
    """The file that a folder stands for: a node, a thread, a leaf as a folder; else the path itself."""
    if kind(path) != "folder":
        return path
    pages = (path / name for name in ("NODE.md", "thread.md", f"{path.name}.md"))
    return next((page for page in pages if kind(page) == "file"), path)


def _target(path: Path, home: Path, root: Path, alias: str) -> str:
    if root in (path, *path.parents):
        return path.relative_to(root).as_posix()
    rel = path.relative_to(home).as_posix()
    return f"{alias}:{rel}" if alias else f"../{rel}"


# ---- what lies there -----------------------------------------------------------------------------------------------


def copy(path: Path) -> Copy:
    """What a resolved link leads to. A binary file, a folder or a very long file is described, not shown."""
    try:
        if kind(path) == "folder":
            return Copy(0, hidden="a folder without a page of its own")
        size = path.stat().st_size
        if size > MAX_BYTES:
            return Copy(size, hidden=f"a file of {size} bytes, more than {MAX_BYTES}")
        raw = read_bytes(path)
    except (Refused, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error.message
        return Copy(0, hidden=f"a file that cannot be read ({reason})")
    return _copy(raw)


def _copy(raw: bytes) -> Copy:
    sha256 = hashlib.sha256(raw).hexdigest()
    text = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    bad = text.count("\ufffd") - raw.count("\ufffd".encode())
    if b"\0" in raw[:8192] or bad * 3 > len(text):
        return Copy(len(raw), sha256, hidden=f"a binary file of {len(raw)} bytes")
    if not text.strip():
        return Copy(len(raw), sha256, hidden="an empty file")
    safe, notes = neutral(text)
    broken = (f"not UTF-8 in {_count(bad, 'place')}, read as U+FFFD",) if bad > 0 else ()
    return Copy(len(raw), sha256, safe, broken + notes)


def neutral(text: str) -> tuple[str, tuple[str, ...]]:
    """A copy that cannot break out of its fence, and what was changed in it.

    Line ends become LF. Unprintable characters are spelled out, so that every reader sees the same lines. In a line
    that reads like the fence, also in look-alikes or with blanks, marks or invisible characters in between, the word
    `(quoted)` breaks the phrase: no line of the copy, nor a part of one, reads `BEGIN` or `END RESOLVED CONTENT`.
    """
    text, spelled = _UNPRINTABLE.subn(_spelled, re.sub(r"\r\n?", "\n", text))
    lines = text.split("\n")
    forged = 0
    for at, line in enumerate(lines):
        plain = line if line.isascii() else _plain(line)
        lines[at], found = _FENCE.subn(r"\1 (quoted) RESOLVED CONTENT", plain)
        forged += found > 0
        if not found:
            lines[at] = line
    notes = []
    if spelled:
        notes.append(f"{_count(spelled, 'unprintable character')} spelled out")
    if forged:
        notes.append(f"{_count(forged, 'line')} that read like this fence marked (quoted)")
    return "\n".join(lines), tuple(notes)


def _plain(line: str) -> str:
    """Look-alikes as the letters they stand for, without accents and invisible characters."""
    decomposed = unicodedata.normalize("NFKD", line)
    return "".join(c for c in decomposed if unicodedata.category(c) not in ("Mn", "Me", "Cf"))


def _spelled(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"
