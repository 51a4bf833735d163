"""Which artifacts a bulk run is about. Nothing here looks at the state of a round, which the run itself changes."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from runner.brain import artifact as artifacts
from runner.brain import worktree
from runner.brain.artifact import Artifact
from runner.brain.root import canonical, kind
from runner.errors import RunnerError, UsageError

_NO_LEAVES = ("NODE.md", "impl-spec.md", "transcript.md")


@dataclass(frozen=True, slots=True)
class Selection:
    """What to take. patterns: files, folders, globs, @lists; none: the whole brain. shard: (i, n), i from 1."""

    patterns: tuple[str, ...] = ()
    changed_since: str | None = None
    status: tuple[str, ...] = ()
    domain: str | None = None
    limit: int | None = None
    shard: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A file that was named, by its path from the root. why: what keeps it from being reviewed; broken: it should be an
    artifact and cannot be read as one."""

    path: str
    why: str = ""
    broken: bool = False


def shard_of(text: str) -> tuple[int, int]:
    """`2/5` as (2, 5). UsageError for anything else."""
    i, _, n = text.partition("/")
    if i.isdecimal() and n.isdecimal() and 1 <= int(i) <= int(n):
        return int(i), int(n)
    raise UsageError(f"--shard must be i/n with i from 1 to n, not {text!r}")


def in_shard(path: str, shard: tuple[int, int]) -> bool:
    """By the path alone, so that the same list splits the same way on every machine."""
    digest = hashlib.sha256(path.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest, "big") % shard[1] == shard[0] - 1


def select(root: Path, wanted: Selection, cwd: Path) -> list[Found]:
    """Ordered by path. What was named but is no artifact is found as well, with the reason; what a filter does not
    admit is not. UsageError where a list, a pattern or git's data cannot be read."""
    paths = sorted({_relative(root, p): p for p in _named(root, wanted.patterns, cwd)}.items())
    if wanted.changed_since is not None:
        changed = worktree.changed_since(root, wanted.changed_since, [p for _, p in paths])
        paths = [(name, p) for name, p in paths if p in changed]
    if wanted.shard is not None:
        paths = [(name, p) for name, p in paths if in_shard(name, wanted.shard)]
    found = (x for name, p in paths if (x := _looked_at(root, name, p, wanted)) is not None)
    return list(found if wanted.limit is None else islice(found, wanted.limit))


def _relative(root: Path, path: Path) -> str:
    return os.path.relpath(path, root)


def _looked_at(root: Path, name: str, path: Path, wanted: Selection) -> Found | None:
    """None: a filter does not admit it. What cannot be read is named, never dropped."""
    try:
        return Found(name) if _admitted(artifacts.load(root, path, None), wanted) else None
    except RunnerError as error:
        return Found(name, error.message, broken=not error.message.startswith("not an artifact"))


def _admitted(a: Artifact, wanted: Selection) -> bool:
    """A status is the one before the round where one is open, so that the list stays the same while rounds open."""
    status = a.front.text("pre_hardening_status") if a.status == "hardening" else None
    if wanted.status and (status or a.status) not in wanted.status:
        return False
    return wanted.domain is None or a.front.text("domain") == wanted.domain


# ---- what was named ------------------------------------------------------------------------------------------------


def _named(root: Path, patterns: Sequence[str], cwd: Path) -> Iterator[Path]:
    if not patterns:
        yield from _below(root, root)
    for pattern in patterns:  # a list that is empty names nothing, not everything
        for line in _listed(cwd / pattern[1:]) if pattern.startswith("@") else [pattern]:
            yield from _matching(root, line, cwd)


def _listed(path: Path) -> list[str]:
    """One path per line; blank lines and lines with # are none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        raise UsageError(f"the list cannot be read: {error.strerror}", path=str(path)) from None
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _matching(root: Path, pattern: str, cwd: Path) -> Iterator[Path]:
    """A path as it is written wins over its meaning as a pattern: names may hold brackets."""
    for base in (cwd, root):
        literal = base / pattern
        if os.path.lexists(literal):
            yield from _below(root, literal) if kind(literal) == "folder" else [_inside(root, literal)]
            return
    if not glob.has_magic(pattern):
        raise UsageError("no such file or folder", path=pattern)
    for base in (cwd, root):
        hits = sorted(glob.glob(pattern, root_dir=base, recursive=True))  # noqa: PTH207 (dots and order as a shell has)
        if hits:
            for hit in hits:
                target = base / hit
                yield from _below(root, target) if kind(target) == "folder" else _inside_only(root, [target])
            return


def _inside(root: Path, path: Path) -> Path:
    target = canonical(path)
    if root not in target.parents:
        raise UsageError("lies outside the brain", path=str(path))
    return target


def _inside_only(root: Path, paths: Iterable[Path]) -> list[Path]:
    """Of what a pattern matches: files of the brain, not those of rounds, which the run itself makes."""
    inside = [canonical(p) for p in paths if root in canonical(p).parents]
    return [p for p in inside if not any(_is_history(part) for part in p.relative_to(root).parts[:-1])]


def _is_history(name: str) -> bool:
    return name == "debate" or name.endswith(".debate")


def _below(root: Path, folder: Path) -> Iterator[Path]:
    """Leaves and threads in a folder: not what belongs to a round, to a node or to another artifact."""
    for base, folders, names in os.walk(_inside_or_root(root, folder)):
        here = Path(base)
        folders[:] = sorted(f for f in folders if not f.startswith(".") and not _is_history(f))
        kinds = here.relative_to(root).parts[:1]
        if kinds == ("tree",):
            yield from (here / n for n in sorted(names) if n.endswith(".md") and n not in _NO_LEAVES)
        elif kinds == ("threads",) and "thread.md" in names:
            yield here / "thread.md"


def _inside_or_root(root: Path, path: Path) -> Path:
    return root if canonical(path) == root else _inside(root, path)
