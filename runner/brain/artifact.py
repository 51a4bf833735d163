"""The artifact under review: a leaf below tree/, or a thread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.brain.front_matter import FrontMatter, read
from runner.brain.root import canonical, contained, decode, entries, kind, read_bytes, shown
from runner.errors import Refused

Scope = Literal["leaf", "thread"]

COMPANIONS = ("decisions-candidates.md", "open-questions.md", "proposal.md")  # of a thread
_H1 = re.compile(r"^# +(.+?)[ \t\r]*$", re.MULTILINE)
_NOT_LEAVES = {"NODE.md": "a folder's list of leaves", "transcript.md": "a transcript"}


@dataclass(frozen=True, slots=True)
class Artifact:
    """root, path, directory: canonical. relative: posix, from the root. slug: a leaf's stem, a thread's folder.

    raw: the whole file. body: the bytes after the front matter. status is empty when the file declares none.
    companions: (name, text) of a thread's other files. impl_spec: (path from the root, text), when `impl_spec` is set
    and resolves.
    """

    scope: Scope
    root: Path
    path: Path
    relative: str
    slug: str
    raw: bytes
    front: FrontMatter
    companions: tuple[tuple[str, str], ...] = ()
    impl_spec: tuple[str, str] | None = None

    @property
    def directory(self) -> Path:
        return self.path.parent

    @property
    def body(self) -> bytes:
        return self.raw[self.front.body_start :]

    @property
    def status(self) -> str:
        return self.front.text("status") or ""

    @property
    def maturity(self) -> str | None:
        return self.front.text("maturity")

    @property
    def title(self) -> str:
        """The declared title, else the first H1, else the slug."""
        heading = _H1.search(self.body.decode())
        return self.front.text("title") or (heading.group(1) if heading else self.slug)


def load(root: Path, artifact_path: Path, scope: str | None, cwd: Path | None = None) -> Artifact:
    """Read the artifact that `artifact_path` names: a leaf or its folder, thread.md or the thread's folder.

    A relative path counts from `cwd` (default: the working directory), else from the root. `scope` is what `--scope`
    said. Raises Refused where preconditions 1 or 4 do not hold, or `scope` does not fit.
    """
    root = canonical(root)
    path = _file(root, contained(root, _written(root, artifact_path, cwd or Path.cwd())))
    found = _scope(root, path)
    if scope is not None and scope != found:
        raise Refused(f"--scope={scope} does not fit: this is a {found}", path=shown(path))
    raw = read_bytes(path)
    front = read(raw, shown(path))
    if found == "leaf":
        _check_leaf(root, path, front)
    return Artifact(
        scope=found,
        root=root,
        path=path,
        relative=path.relative_to(root).as_posix(),
        slug=path.stem if found == "leaf" else path.parent.name,
        raw=raw,
        front=front,
        companions=_companions(root, path.parent) if found == "thread" else (),
        impl_spec=_impl_spec(root, path.parent, front.text("impl_spec")) if found == "leaf" else None,
    )


def is_leaf(path: Path) -> bool:
    """Would the brain count this file of a folder below tree/ as a leaf? An unreadable one counts."""
    if path.suffix != ".md" or path.name.startswith(".") or path.name in _NOT_LEAVES or kind(path) != "file":
        return False
    try:
        return read(read_bytes(path), shown(path)).text("kind") != "impl-spec"
    except Refused:
        return True


def _written(root: Path, artifact_path: Path, cwd: Path) -> Path:
    from_cwd, from_root = cwd / artifact_path, root / artifact_path
    return from_root if kind(from_cwd) == "missing" and kind(from_root) != "missing" else from_cwd


def _file(root: Path, path: Path) -> Path:
    """The artifact's file: the path itself, or the one its folder stands for."""
    if kind(path) != "folder":
        return path
    parts = path.relative_to(root).parts
    if len(parts) == 2 and parts[0] in ("threads", "archive"):
        return contained(root, path / "thread.md")
    own = path / f"{path.name}.md"
    if len(parts) > 1 and parts[0] == "tree" and kind(own) == "file":
        return contained(root, own)
    leaves = [entry.name for entry in entries(path) if is_leaf(entry)] if parts[:1] == ("tree",) else []
    hint = f"name one of its leaves: {', '.join(leaves)}" if leaves else "name a leaf below tree/ or a thread"
    raise Refused("a folder that is neither a leaf's nor a thread's", path=shown(path), hint=hint)


def _scope(root: Path, path: Path) -> Scope:
    parts = path.relative_to(root).parts
    if len(parts) >= 2 and parts[0] == "tree":
        return "leaf"
    if len(parts) == 3 and parts[0] in ("threads", "archive"):
        if parts[2] == "thread.md":
            return "thread"
        raise _not_an_artifact(path, "a file beside a thread", f"name {parts[0]}/{parts[1]}/thread.md")
    raise _not_an_artifact(path, "neither a leaf below tree/ nor threads/<slug>/thread.md")


def _check_leaf(root: Path, path: Path, front: FrontMatter) -> None:
    parts = path.relative_to(root).parts
    if path.suffix != ".md":
        raise _not_an_artifact(path, "not a markdown file")
    if path.name in _NOT_LEAVES:
        raise _not_an_artifact(path, f"{_NOT_LEAVES[path.name]}, not a leaf")
    if front.text("kind") == "impl-spec":
        raise _not_an_artifact(path, "an impl-spec, not a leaf", f"review its leaf: {front.text('source_leaf')}")
    if any(part == "debate" or part.endswith(".debate") for part in parts[:-1]):
        raise _not_an_artifact(path, "a file of a debate, not a leaf")
    domain, expected = front.text("domain"), "/".join(parts[1:-1])
    if domain is not None and domain != expected:
        message = f"domain `{domain}` is not the leaf's folder below tree/, `{expected}`"
        raise Refused(message, path=shown(path), line=front.lines["domain"])


def _not_an_artifact(path: Path, what: str, hint: str | None = None) -> Refused:
    return Refused(f"not an artifact: {what}", path=shown(path), hint=hint)


def _companions(root: Path, directory: Path) -> tuple[tuple[str, str], ...]:
    present = [name for name in COMPANIONS if kind(directory / name) == "file"]
    return tuple((name, _text(contained(root, directory / name))) for name in present)


def _impl_spec(root: Path, directory: Path, reference: str | None) -> tuple[str, str] | None:
    """`impl_spec` is a path from the root, one from the leaf's folder, or an id."""
    if not reference:
        return None
    named = [root / reference.lstrip("/"), directory / reference]
    found = next((path for path in named if kind(path) == "file"), None)
    found = found or next((path for path in _impl_specs(root, directory) if _has_id(path, reference)), None)
    if found is None:
        return None
    path = contained(root, found)
    return path.relative_to(root).as_posix(), _text(path)


def _impl_specs(root: Path, directory: Path) -> Iterator[Path]:
    """The leaf's own, then those of the whole tree, which is walked only when it comes to that."""
    yield directory / "impl-spec.md"
    yield from sorted((root / "tree").rglob("impl-spec.md"))


def _has_id(path: Path, name: str) -> bool:
    try:
        return read(read_bytes(path), shown(path)).text("id") == name
    except Refused:
        return False


def _text(path: Path) -> str:
    return decode(read_bytes(path), shown(path))
