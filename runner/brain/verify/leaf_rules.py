"""Rules for leaves: V-02, V-09, V-11, V-13, V-14, V-20."""

# Paths are text here: thousands of Path objects would cost more than the rules.
# ruff: noqa: PTH112, PTH113, PTH118, PTH119
from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from runner.brain.verify import words
from runner.brain.verify.model import ROUND, Brain, Violation, real, rounds
from runner.brain.verify.page import Page
from runner.brain.verify.thread_rules import history_of


def domain(_brain: Brain, page: Page) -> Iterator[Violation]:
    """V-02: the domain is the folder below tree/."""
    top, *folders, _name = page.parts
    written, folder = page.fields.get("domain"), "/".join(folders)
    if top == "tree" and isinstance(written, str) and written != folder:
        message = f"the domain is {words.shown(written)}, but the leaf lies in tree/{folder}"
        yield Violation(page.rel, page.line("domain"), "V-02", message)


def state(brain: Brain, page: Page) -> Iterator[Violation]:
    """V-09: what each status asks for."""
    check = _STATES.get(page.text("status"))
    message = check(brain, page) if check else ""
    if message:
        yield Violation(page.rel, page.line("status"), "V-09", message)


def _in_review(brain: Brain, page: Page) -> str:
    thread = brain.thread(page.text("source_thread")) if page.text("source_thread") else None
    if thread is None or thread.fields.get("tree_prs"):
        return ""
    return f"the leaf is in-review, but its thread {words.shown(page.text('source_thread'))} names no tree_prs"


def _decided(_brain: Brain, page: Page) -> str:
    staged = page.parts[0] == "tree-staging" or (page.parts[0] == "threads" and page.parts[2:3] == ["tree-staging"])
    return "the leaf is decided, but it still lies below tree-staging/" if staged else ""


def _hardening(brain: Brain, page: Page) -> str:
    history = history_of(brain, page)
    if history is None:
        return "the leaf is hardening, but has no debate/ folder"
    found = [name for name in rounds(history) if ROUND.match(name)]
    if found and os.path.isfile(os.path.join(history, found[-1], "feedback-in.md")):
        return ""
    return "the leaf is hardening, but its last round has no feedback-in.md"


def _specified(brain: Brain, page: Page) -> str:
    named = page.text("impl_spec")
    if not named:
        return "the leaf is specified, but names no impl_spec"
    spec = brain.find(named)
    if spec is None:
        return f"the leaf is specified, but its impl_spec {words.shown(named)} is not there"
    status = spec.fields.get("status")
    return "" if status == "ready" else f"the leaf is specified, but its impl-spec is {words.shown(status)}, not ready"


def _building(brain: Brain, page: Page) -> str:
    named = page.text("impl_thread")
    if not named:
        return "the leaf is building, but names no impl_thread"
    thread = brain.thread(named)
    if thread is not None and thread.fields.get("status") == "active":
        return ""
    return f"the leaf is building, but its impl_thread {words.shown(named)} is not an active thread"


def _built(_brain: Brain, page: Page) -> str:
    return "" if page.text("built_in") else "the leaf is built, but has no built_in"


def _superseded(brain: Brain, page: Page) -> str:
    named = page.text("superseded_by")
    if not named:
        return "the leaf is superseded, but has no superseded_by"
    other = brain.find(named)
    if other is None:
        return f"the leaf is superseded, but its superseded_by {words.shown(named)} is not there"
    mine, later = page.fields.get("created_at"), other.fields.get("created_at")
    if isinstance(mine, str) and isinstance(later, str) and later < mine:
        return f"the leaf is superseded by {words.shown(named)}, which is older than it"
    return ""


_STATES: dict[str, Callable[[Brain, Page], str]] = {
    "in-review": _in_review, "decided": _decided, "hardening": _hardening, "specified": _specified,
    "building": _building, "built": _built, "superseded": _superseded,
}  # fmt: skip


def impl_spec(brain: Brain, page: Page) -> Iterator[Violation]:
    """V-11: the statuses of a leaf and of its impl-spec go together."""
    spec = brain.find(page.text("impl_spec")) if page.text("impl_spec") else None
    status = page.fields.get("status")
    if spec is None or words.is_one_of(status, words.WITHOUT_IMPL_SPEC):
        return
    theirs = spec.fields.get("status")
    if not words.is_one_of(theirs, words.IMPL_SPECS.get(page.text("status"), ())):
        message = f"a leaf that is {words.shown(status)} cannot have an impl-spec that is {words.shown(theirs)}"
        yield Violation(page.rel, page.line("impl_spec"), "V-11", message)


def before_hardening(_brain: Brain, page: Page) -> Iterator[Violation]:
    """V-13: pre_hardening_status is decided or specified while hardening, and absent otherwise."""
    hardening, before = page.fields.get("status") == "hardening", page.fields.get("pre_hardening_status")
    line = page.line("pre_hardening_status")
    if hardening and not words.is_one_of(before, words.BEFORE_HARDENING):
        message = f"pre_hardening_status must be decided or specified, not {words.shown(before)}"
        yield Violation(page.rel, line, "V-13", message)
    elif not hardening and before is not None:
        message = f"pre_hardening_status is {words.shown(before)}, but the leaf is not hardening"
        yield Violation(page.rel, line, "V-13", message)


def source_thread(brain: Brain, page: Page) -> Iterator[Violation]:
    """V-14: the thread that a leaf came from is there."""
    named = page.text("source_thread")
    if named and brain.thread(named) is None:
        message = f"the thread {words.shown(named)} is neither below threads/ nor below archive/"
        yield Violation(page.rel, page.line("source_thread"), "V-14", message)


def source_debate(brain: Brain, page: Page) -> Iterator[Violation]:
    """V-20: source_debate, relative to the leaf's folder, is a round's folder."""
    named = page.text("source_debate")
    base = brain.root if named.startswith("thoughts/") else brain.folder(page)
    target = real(os.path.join(base, named))
    if named and not (os.path.isdir(target) and ROUND.match(os.path.basename(target))):
        message = f"source_debate {words.shown(named)} is not the folder of a round"
        yield Violation(page.rel, page.line("source_debate"), "V-20", message)
