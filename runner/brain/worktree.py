"""Precondition 7: are the artifact, its history and the brain's index files as the last commit has them?

Git's data is read in-process; no git program is run and nothing of the repository is changed. Only the paths asked
about are looked at, so a large work tree costs nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.brain.artifact import Artifact
from runner.brain.root import shown
from runner.errors import Refused, UsageError

if TYPE_CHECKING:
    from dulwich.repo import Repo

INDEX_FILES = ("thread-index.md", "current-state.md")


def changes(artifact: Artifact, history: Path) -> list[str] | None:
    """Untracked, modified, staged and deleted files among them, from the work tree's root; ignored ones do not count.

    None when the brain is in no work tree. Refused when git's data cannot be read.
    """
    from dulwich.errors import NotGitRepository
    from dulwich.repo import Repo

    try:
        repo = Repo.discover(str(artifact.root))
    except NotGitRepository:
        return None
    except Exception as error:
        raise _unreadable(artifact, error) from error
    with repo:
        if repo.bare:
            return None
        try:
            return sorted(_changes(repo, artifact, history))
        except Exception as error:  # a damaged repository raises all kinds of errors
            raise _unreadable(artifact, error) from error


def _unreadable(artifact: Artifact, error: Exception) -> Refused:
    return Refused(
        f"the git work tree cannot be read ({type(error).__name__})", path=shown(artifact.root),
        hint="repair it, or give --allow-dirty",
    )  # fmt: skip


def _changes(repo: Repo, artifact: Artifact, history: Path) -> Iterator[str]:
    top = Path(repo.path).resolve()
    files = [artifact.path, *(artifact.root / name for name in INDEX_FILES)]
    wanted, folder = {_name(top, path) for path in files}, _name(top, history)
    committed, staged = _head(repo, wanted, folder), _index(repo)
    lead = folder + b"/"
    known = {p for p in {*committed, *staged} if p in wanted or p.startswith(lead)}
    present = {_name(top, p): p for p in [*files, *_files(history)] if os.path.lexists(p)}
    for name in known | set(present):
        found = _blob_id(repo, name, present[name]) if name in present else None
        if name not in known:
            if not _ignored(repo, name):
                yield os.fsdecode(name)
        elif not (committed.get(name) == staged.get(name) == found):
            yield os.fsdecode(name)


def _name(top: Path, path: Path) -> bytes:
    return os.fsencode(path.relative_to(top).as_posix())


def _files(folder: Path) -> Iterator[Path]:
    for base, _, names in os.walk(folder):
        yield from (Path(base) / name for name in names)


def _index(repo: Repo) -> Mapping[bytes, bytes]:
    return {path: getattr(entry, "sha", b"") for path, entry in repo.open_index().items()}


def _head(repo: Repo, wanted: set[bytes], folder: bytes) -> dict[bytes, bytes]:
    """path -> blob id in the last commit, of these files and of all below the folder; nothing before the first one."""
    from dulwich.object_store import iter_tree_contents, tree_lookup_path

    try:
        head = repo.head()
    except KeyError:
        return {}
    commit: Any = repo[head]
    found: dict[bytes, bytes] = {}
    for name in (*wanted, folder):
        try:
            _, sha = tree_lookup_path(repo.object_store.__getitem__, commit.tree, name)
        except (KeyError, NotADirectoryError):
            continue
        if name == folder:
            found |= {folder + b"/" + e.path: e.sha for e in iter_tree_contents(repo.object_store, sha)}
        else:
            found[name] = sha
    return found


def _blob_id(repo: Repo, name: bytes, path: Path) -> bytes:
    """The id that git would store this file under, line ends normalised as the repository asks for."""
    from dulwich.objects import Blob

    if path.is_symlink():
        return bytes(Blob.from_string(os.fsencode(path.readlink())).id)
    blob = Blob.from_string(path.read_bytes())
    return bytes(repo.get_blob_normalizer().checkin_normalize(blob, name).id)


def _ignored(repo: Repo, name: bytes) -> bool:
    from dulwich.ignore import IgnoreFilterManager

    return bool(IgnoreFilterManager.from_repo(repo).is_ignored(os.fsdecode(name)))


# ---- what changed since a commit -----------------------------------------------------------------------------------


def changed_since(root: Path, ref: str, paths: Sequence[Path]) -> set[Path]:
    """Of these files, those whose content differs from what the commit has under the same path: edited, new or renamed.

    Committed or not makes no difference. UsageError when the reference or the history cannot be read.
    """
    from dulwich.errors import NotGitRepository
    from dulwich.repo import Repo

    try:
        repo = Repo.discover(str(root))
    except NotGitRepository:
        raise UsageError("--changed-since: the brain is in no git work tree", path=str(root)) from None
    except Exception as error:
        raise _no_history(root, ref, error) from error
    with repo:
        try:
            tree: Any = _commit(repo, ref).tree
            top = Path(repo.path).resolve()
            return {path for path in paths if _stored(repo, tree, _name(top, path)) != _now(repo, top, path)}
        except Exception as error:  # a damaged or shallow repository raises all kinds of errors
            raise _no_history(root, ref, error) from error


def _commit(repo: Repo, ref: str) -> Any:
    """The commit of a name, with git's `~n` and `^n` after it. Raises KeyError where there is none."""
    from dulwich.objectspec import parse_commit

    name, steps = re.fullmatch(r"(.*?)((?:[~^][0-9]*)*)", ref, re.DOTALL).groups()  # type: ignore[union-attr]
    commit: Any = parse_commit(repo, name)
    for kind, digits in re.findall(r"([~^])([0-9]*)", steps):
        n = int(digits or 1)
        for _ in range(n if kind == "~" else min(n, 1)):
            parents = commit.parents
            if len(parents) < (1 if kind == "~" else n):
                raise KeyError(ref)
            commit = repo[parents[0 if kind == "~" else n - 1]]
    return commit


def _no_history(root: Path, ref: str, error: Exception) -> UsageError:
    return UsageError(
        f"--changed-since {ref}: the commit cannot be read ({type(error).__name__})", path=str(root),
        hint="name a commit, tag or branch that this clone holds; a shallow clone may lack it (fetch-depth: 0)",
    )  # fmt: skip


def _stored(repo: Repo, tree: Any, name: bytes) -> bytes | None:
    from dulwich.object_store import tree_lookup_path

    try:
        return bytes(tree_lookup_path(repo.object_store.__getitem__, tree, name)[1])
    except (KeyError, NotADirectoryError):
        return None


def _now(repo: Repo, top: Path, path: Path) -> bytes | None:
    return _blob_id(repo, _name(top, path), path) if os.path.lexists(path) else None
