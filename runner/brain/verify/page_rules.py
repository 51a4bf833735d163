"""Rules for every page, for NODE.md and for a thread's artifacts: V-01, V-04 to V-06, V-10, V-21, V-22, N-01, N-02."""

# Paths are text here: thousands of Path objects would cost more than the rules.
# ruff: noqa: PTH113, PTH118
from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from runner.brain.verify import words
from runner.brain.verify.model import Brain, Violation, exists, real, scan
from runner.brain.verify.page import FREE, Page

_UNSAFE = re.compile(r'[\s/\\:*?"<>|\x00-\x1f]')
_UNSAFE_IN_SLUG = re.compile(r'[A-Z\s/\\:*?"<>|\x00-\x1f]')
_IDENTIFIED = ("thread", "leaf", "node", "impl-spec")
_UNTITLED = (FREE, "round-index", "round-output")


def readable(_brain: Brain, page: Page) -> Iterator[Violation]:
    """V-06, first half: front matter that can be read, where one is due."""
    if page.problem and page.kind != FREE:
        yield Violation(page.rel, page.problem_line, "V-06", page.problem)


def required(_brain: Brain, page: Page) -> Iterator[Violation]:
    """V-06, second half: the fields of this kind, none empty."""
    for name in words.REQUIRED.get(page.kind, ()):
        value = page.fields.get(name)
        if value is None or (isinstance(value, str) and not value.strip()):
            how = "is empty" if name in page.fields else "is missing"
            yield Violation(page.rel, page.line(name), "V-06", f"the field {name} {how}; every {page.kind} needs it")


def title(_brain: Brain, page: Page) -> Iterator[Violation]:
    """V-01: the title is the first heading."""
    written = page.text("title").strip()
    if page.kind in _UNTITLED or not written:
        return
    if page.heading is None:
        yield Violation(page.rel, page.line("title"), "V-01", f"no heading `# …`; the title is {words.shown(written)}")
    elif page.heading != written:
        message = f"the heading {words.shown(page.heading)} differs from the title {words.shown(written)}"
        yield Violation(page.rel, page.heading_line, "V-01", message)


def safe_name(_brain: Brain, page: Page) -> Iterator[Violation]:
    """V-21: names without blanks, reserved or control characters."""
    for part in page.parts:
        if part not in words.FILE_NAMES and _UNSAFE.search(part):
            message = f'the name {words.shown(part)} holds a blank, a control character or one of / \\ : * ? " < > |'
            yield Violation(page.rel, 0, "V-21", message)
            return


def slug(_brain: Brain, page: Page) -> Iterator[Violation]:
    """N-01: an id of 2 to 40 characters, in kebab-case, without capitals A to Z."""
    name = page.fields.get("id")
    if page.kind in _IDENTIFIED and isinstance(name, str) and not is_slug(name):
        message = (
            f"the id {words.shown(name)} is no slug (2 to 40 characters, lower case, single hyphens between words)"
        )
        yield Violation(page.rel, page.line("id"), "N-01", message, warning=True)


def is_slug(name: str) -> bool:
    """The form of an id; any script is fine."""
    return 2 <= len(name) <= 40 and not _UNSAFE_IN_SLUG.search(name) and all(name.split("-"))


def reserved_name(_brain: Brain, page: Page) -> Iterator[Violation]:
    """N-02: a reserved file name in its exact case."""
    name = page.parts[-1]
    spelled = words.SPELLED.get(name.lower(), name)
    if spelled != name:
        yield Violation(page.rel, 0, "N-02", f"the file must be called {spelled}, not {words.shown(name)}")


def node_status(_brain: Brain, page: Page) -> Iterator[Violation]:
    """V-10: a NODE.md is decided."""
    status = page.fields.get("status")
    if status != "decided":
        message = f"the status of a NODE.md must be decided, not {words.shown(status)}"
        yield Violation(page.rel, page.line("status"), "V-10", message)


def node_lists_all(brain: Brain, page: Page) -> Iterator[Violation]:
    """V-04: every markdown file beside a NODE.md is linked below its `## Leaves`."""
    listed = {PurePosixPath(target).name for target, _ in page.links}
    for name in sorted(entry.name for entry in scan(brain.folder(page))):
        if name in listed or name == "NODE.md" or PurePosixPath(name).suffix != ".md":
            continue
        if os.path.isfile(os.path.join(brain.folder(page), name)):
            yield Violation(page.rel, 0, "V-04", f"{words.shown(name)} is not linked below `## Leaves`")


def node_links(brain: Brain, page: Page) -> Iterator[Violation]:
    """V-05: every link below `## Leaves` leads to something; a leading `/` or `../` is dropped first."""
    for target, line in page.links:
        place = os.path.join(brain.folder(page), target.lstrip("/").lstrip("./"))
        if not (exists(place) or exists(real(place))):  # `none/../leaf.md` will do
            yield Violation(page.rel, line, "V-05", f"the link {words.shown(target)} leads nowhere")


def artifact_thread(brain: Brain, page: Page) -> Iterator[Violation]:
    """V-22: an artifact below a thread's `artifacts/` names that thread."""
    home, folder, kind = (*page.parts, "", "")[:3]
    named = page.text("source_thread")
    if home not in ("threads", "archive") or kind != "artifacts" or not named:
        return
    if named != folder:
        message = f"source_thread is {words.shown(named)}, but the file lies in the thread {words.shown(folder)}"
        yield Violation(page.rel, page.line("source_thread"), "V-22", message)
    elif brain.thread(named) is None:
        message = f"the thread {words.shown(named)} has no thread.md"
        yield Violation(page.rel, page.line("source_thread"), "V-22", message)
