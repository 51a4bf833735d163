"""Check a brain: walk it once, read each file once, apply every rule to what it is for."""

# Paths are text here: thousands of Path objects would cost more than the rules.
# ruff: noqa: PTH110, PTH118
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.brain.root import CONVENTIONS
from runner.brain.verify import folder_rules, leaf_rules, link_rules, page_rules, thread_rules
from runner.brain.verify.model import Brain, Folder, Violation, walk
from runner.brain.verify.page import Page, load
from runner.errors import RunnerError, UsageError

# The kinds of page a rule is for; none: all.
_PAGE_RULES: tuple[tuple[tuple[str, ...], Callable[[Brain, Page], Iterator[Violation]]], ...] = (
    ((), page_rules.readable),
    ((), page_rules.required),
    ((), page_rules.title),
    ((), page_rules.safe_name),
    ((), page_rules.slug),
    ((), page_rules.reserved_name),
    (("thread",), thread_rules.status),
    (("thread",), thread_rules.promoted_pairs),
    (("thread",), thread_rules.promoted_once),
    (("thread",), thread_rules.promoted_in_order),
    (("thread",), thread_rules.parked),
    (("thread", "leaf"), thread_rules.rounds_in_order),
    (("leaf",), leaf_rules.domain),
    (("leaf",), leaf_rules.state),
    (("leaf",), leaf_rules.impl_spec),
    (("leaf",), leaf_rules.before_hardening),
    (("leaf",), leaf_rules.source_thread),
    (("leaf",), leaf_rules.source_debate),
    (("node",), page_rules.node_status),
    (("node",), page_rules.node_lists_all),
    (("node",), page_rules.node_links),
    (("artifact",), page_rules.artifact_thread),
)
_BRAIN_RULES: tuple[Callable[[Brain], Iterator[Violation]], ...] = (
    link_rules.resolve, link_rules.not_to_itself, link_rules.no_cycle,
    folder_rules.reserved_names, folder_rules.round_names,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """errors, warnings: by file, line and code. walked: how many markdown files were read."""

    errors: tuple[Violation, ...]
    warnings: tuple[Violation, ...]
    walked: int


def check(root: Path, *, thread: str | None = None, path: str | None = None) -> Report:
    """Check the brain at `root`, or the pages of one thread (by slug) or below one path (from the root).

    N-03 and N-04 look at the whole brain all the same. Raises RunnerError when nothing can be said: no readable
    CONVENTIONS.md, a scope that is not there, a folder that cannot be read.
    """
    brain = read(root, thread=thread, path=path)
    found = [v for page in brain.pages for kinds, rule in _PAGE_RULES if not kinds or page.kind in kinds
             for v in rule(brain, page)]  # fmt: skip
    found += [v for rule in _BRAIN_RULES for v in rule(brain)]
    found.sort(key=lambda v: (v.file, v.line, v.code, v.message))
    errors = tuple(v for v in found if not v.warning)
    return Report(errors, tuple(v for v in found if v.warning), len(brain.pages))


def read(root: Path, *, thread: str | None = None, path: str | None = None) -> Brain:
    """The brain with the pages in scope."""
    conventions_readable(root)
    folders = tuple(walk(str(root)))
    pages = tuple(load(os.path.join(root, rel), rel) for rel in _in_scope(root, folders, thread, path))
    by_id: dict[str, Page] = {}
    for page in pages:
        name = page.fields.get("id")
        if isinstance(name, str):
            by_id.setdefault(name, page)
    return Brain(str(root), pages, folders, {page.rel: page for page in pages}, by_id)


def conventions_readable(root: Path) -> None:
    """Raises RunnerError unless CONVENTIONS.md is there with front matter that can be read."""
    found = load(os.path.join(root, CONVENTIONS), CONVENTIONS)
    if found.problem:
        hint = f"{CONVENTIONS} marks the root of a brain and begins with front matter"
        raise RunnerError(found.problem, path=CONVENTIONS, line=found.problem_line or None, hint=hint, code="verify")


def _in_scope(root: Path, folders: tuple[Folder, ...], thread: str | None, path: str | None) -> list[str]:
    if thread is not None and path is not None:
        raise UsageError("--thread and --path cannot be given together")
    if thread is not None:
        return [rel for top in _thread_folders(root, thread) for rel in _markdown(tuple(walk(str(root / top), top)))]
    if path is None:
        files = _markdown(folders)
        return [CONVENTIONS, *(rel for rel in files if rel != CONVENTIONS)]
    rel = _inside(root, path)
    if (root / rel).is_dir():
        top = "" if rel == "." else rel
        return _markdown(tuple(walk(str(root / rel), top)))
    return [rel] if rel.endswith(".md") else []


def _thread_folders(root: Path, slug: str) -> list[str]:
    named = "/" not in slug and slug not in ("", ".", "..")
    found = [f"{home}/{slug}" for home in ("threads", "archive") if named and (root / home / slug).is_dir()]
    if not found:
        raise UsageError(f"--thread={slug}: neither threads/ nor archive/ has a folder of that name")
    return found


def _inside(root: Path, path: str) -> str:
    rel = os.path.relpath(os.path.join(root, path), root)
    if rel == ".." or rel.startswith("../"):
        raise UsageError(f"--path={path}: lies outside the brain")
    if not os.path.exists(os.path.join(root, rel)):
        raise UsageError(f"--path={path}: is not there", hint="the path is taken from the brain root")
    return rel


def _markdown(folders: tuple[Folder, ...]) -> list[str]:
    """The markdown files, those below hidden folders left out; the first folder is where the walk began."""
    top = folders[0].rel
    return [
        f"{folder.rel}/{name}" if folder.rel else name
        for folder in folders
        if "/." not in "/" + folder.rel[len(top) :].lstrip("/")
        for name in folder.files
        if name.lower().endswith(".md")
    ]
