"""thread-index.md and current-state.md, made again from the front matter of threads and leaves.

The same brain gives the same bytes, whenever and wherever it is done: no clock, no user, order by time and id.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from runner.brain.front_matter import quoted
from runner.brain.root import CONVENTIONS, contained, kind, read_bytes
from runner.brain.verify import page_rules, thread_rules
from runner.brain.verify.model import Brain, Violation
from runner.brain.verify.page import Page
from runner.brain.verify.rules import read
from runner.errors import Refused

Changes = Mapping[Path, tuple[bytes | None, bytes]]

_THREAD_RULES = (
    page_rules.readable, page_rules.title, page_rules.required,
    thread_rules.status, thread_rules.promoted_pairs, thread_rules.parked,
)  # fmt: skip
_LEAF_RULES = (page_rules.readable, page_rules.required)
_TIMES = ("last_modified_at", "archived_at", "parked_at", "built_at", "created_at")
# Heading, status, the field that orders the threads, and the one that says when something last happened.
_GROUPS = (
    ("Active", "active", "last_modified_at", "last_modified_at"),
    ("In review", "in-review", "created_at", "last_modified_at"),
    ("Parked", "parked", "parked_at", "parked_at"),
    ("Archived", "archived", "archived_at", "archived_at"),
)
_NONE = "_None._"
_RECENT = 5


class Unsound(Refused):
    """A thread or leaf breaks a rule that the index files depend on; `violations` are those."""

    code = "unsound"

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        first = violations[0]
        more = f" (and {len(violations) - 1} more)" if len(violations) > 1 else ""
        hint = "repair the front matter (debate verify shows all there is), then run this again"
        super().__init__(f"[{first.code}] {first.message}{more}", path=first.file, line=first.line or None, hint=hint)
        self.violations = violations


@dataclass(frozen=True, slots=True)
class _Facts:
    """groups: status -> threads in order. building: leaves. newest: the latest time in any of them."""

    project: str
    title: str
    groups: dict[str, list[Page]]
    building: list[Page]
    newest: str


def rebuild(root: Path) -> dict[Path, tuple[bytes | None, bytes]]:
    """What the two files hold now (None: no such file) and what they should. Nothing is written.

    Raises Unsound when a thread or leaf breaks V-01, V-06, V-07, V-08 or V-12; RunnerError as `check` does.
    """
    facts = _facts(read(root))
    made = {"thread-index.md": _thread_index(facts), "current-state.md": _current_state(facts)}
    changes: dict[Path, tuple[bytes | None, bytes]] = {}
    for name, lines in made.items():
        target = contained(root, root / name)
        old = None if kind(target) == "missing" else read_bytes(target)
        changes[target] = (old, ("\n".join(lines).rstrip("\n") + "\n").encode())
    return changes


def diff(changes: Changes) -> str:
    """The changes as one unified diff; empty when both files are as they should be."""
    lines: list[str] = []
    for path, (old, new) in changes.items():
        before = "/dev/null" if old is None else f"a/{path.name}"
        lines += difflib.unified_diff(_lines(old or b""), _lines(new), before, f"b/{path.name}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(data: bytes) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", data.decode("utf-8", "replace"))


def _facts(brain: Brain) -> _Facts:
    threads = [page for page in brain.pages if _is_thread(page)]
    leaves = [page for page in brain.pages if _is_in_tree(page)]
    found = [v for page in threads for rule in _THREAD_RULES for v in rule(brain, page)]
    found += [v for page in leaves for rule in _LEAF_RULES for v in rule(brain, page)]
    if found:
        raise Unsound(tuple(found))
    conventions = brain.by_path[CONVENTIONS]
    times = (_time(page.fields.get(name)) for page in threads + leaves for name in _TIMES)
    return _Facts(
        project=_flat(conventions.text("primary_project")) or "project",
        title=_flat(conventions.text("project_title") or conventions.text("title")) or "Project",
        groups={status: _in_order(threads, status, order) for _, status, order, _ in _GROUPS},
        building=sorted((p for p in leaves if p.kind == "leaf" and p.fields.get("status") == "building"), key=_id),
        newest=max((t for t in times if _is_time(t)), default="none"),
    )


def _is_thread(page: Page) -> bool:
    return len(page.parts) == 3 and page.parts[0] in ("threads", "archive") and page.parts[2] == "thread.md"


def _is_in_tree(page: Page) -> bool:
    return page.parts[0] == "tree" and page.parts[-1] != "NODE.md" and "debate" not in page.parts


def _in_order(threads: list[Page], status: str, order: str) -> list[Page]:
    """The latest first; of one time, by id."""
    group = sorted((page for page in threads if page.fields.get("status") == status), key=_id)
    return sorted(group, key=lambda page: _when(page, order), reverse=True)


def _head(facts: _Facts, name: str, what: str, kind: str) -> list[str]:
    title = f"{facts.title} — {what}"
    return [
        "<!--",
        "Made by `debate verify --rebuild-index` from the front matter of threads and leaves.",
        "Do not edit: the next rebuild writes it anew.",
        f"Newest time in the sources: {facts.newest}",
        "-->",
        "",
        "---",
        f"id: {quoted(f'{facts.project}-{name}')}",
        f"title: {quoted(title)}",
        f"primary_project: {quoted(facts.project)}",
        f"kind: {quoted(kind)}",
        "---",
        "",
        f"# {title}",
        "",
    ]


def _thread_index(facts: _Facts) -> list[str]:
    lines = [*_head(facts, "thread-index", "Thread Index", "index"), "All threads, by status; the latest first.", ""]
    for heading, status, _, latest in _GROUPS:
        lines += [f"## {heading}", "", *(_table(facts.groups[status], latest) or [_NONE]), ""]
    return lines


def _table(threads: list[Page], latest: str) -> list[str]:
    rows = [
        f"| `{_cell(_id(p))}` | {_cell(p.fields.get('title'))} | {_cell(p.fields.get('maturity')) or '—'} "
        f"| {_cell(_when(p, latest))} | {_cell(p.fields.get('owner'))} |"
        for p in threads
    ]
    head = [
        "| Slug | Title | Maturity | Last activity | Owner |",
        "|------|-------|----------|---------------|-------|",
    ]
    return head + rows if rows else []


def _current_state(facts: _Facts) -> list[str]:
    counts = ", ".join(f"{len(facts.groups[status])} {status}" for _, status, _, _ in _GROUPS)
    sections: tuple[tuple[str, Iterator[str]], ...] = (
        ("Active threads", _items(facts.groups["active"][:_RECENT], _touched)),
        ("Threads in review", _items(facts.groups["in-review"], _pull_requests)),
        ("Parked threads", _items(facts.groups["parked"], _why_parked)),
        ("Leaves building", _items(facts.building, lambda _: "")),
        ("Recent merges", iter(["See the history of the repository."])),
    )
    lines = [*_head(facts, "current-state", "Current State", "snapshot"), f"Threads: {counts}.", ""]
    for heading, items in sections:
        lines += [f"## {heading}", "", *(list(items) or [_NONE]), ""]
    return lines


def _items(pages: list[Page], say: Callable[[Page], str]) -> Iterator[str]:
    for page in pages:
        said = say(page)
        yield f"- **{_flat(page.fields.get('title'))}** (`{_id(page)}`)" + (f" — {said}" if said else "")


def _touched(page: Page) -> str:
    return f"last touched {_when(page, 'last_modified_at')}"


def _pull_requests(page: Page) -> str:
    found = page.fields.get("tree_prs")
    return ", ".join(_flat(pr) for pr in found) if isinstance(found, list) and found else "no pull request"


def _why_parked(page: Page) -> str:
    trigger = _flat(page.fields.get("unpark_trigger"))
    return _flat(page.fields.get("parked_reason")) + (f" (until: {trigger})" if trigger else "")


def _when(page: Page, name: str) -> str:
    return _time(page.fields.get(name)) or _time(page.fields.get("created_at"))


def _time(value: Any) -> str:
    """A time in UTC, as 2026-04-22T09:00:00Z; what is none, as it is written."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip()) if "T" in value or " " in value.strip() else value
        except ValueError:
            return _flat(value)
    if not isinstance(value, datetime):
        return value.isoformat() if isinstance(value, date) else _flat(value)
    try:
        return value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError):  # the year 1, east of Greenwich
        return value.isoformat()


def _is_time(text: str) -> bool:
    return re.match(r"\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}:\d{2}Z)?$", text) is not None


def _id(page: Page) -> str:
    return _flat(page.fields.get("id"))


def _flat(value: Any) -> str:
    """Text on one line; what is no text or number of a sane length is left out."""
    if isinstance(value, int) and value.bit_length() > 64:
        return ""
    return " ".join(str(value).split()) if isinstance(value, (str, int, float)) else ""


def _cell(value: Any) -> str:
    return _flat(value).replace("\\", "\\\\").replace("|", "\\|")
