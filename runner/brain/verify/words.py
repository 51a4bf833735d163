"""The conventions' words: which statuses there are, what each kind of page must carry, which names are reserved."""

from __future__ import annotations

import datetime
from typing import Any

MATURITIES = ("exploring", "refining", "locking")
# A thread's status and the maturities that go with it.
THREADS: dict[str, tuple[str, ...]] = {
    "active": MATURITIES, "parked": MATURITIES, "in-review": ("locking",), "archived": (),
}  # fmt: skip
PARKED = ("parked_at", "parked_by", "parked_reason")
BEFORE_HARDENING = ("decided", "specified")
# A leaf's status and the statuses its impl-spec may have meanwhile; before a leaf is specified, any.
IMPL_SPECS: dict[str, tuple[str, ...]] = {
    "specified": ("ready",),
    "building": ("building",),
    "built": ("built",),
    "hardening": ("ready", "building", "built"),
    "superseded": ("stale", "built", "ready"),
}
WITHOUT_IMPL_SPEC = ("draft", "in-review", "decided")

_SHARED = ("id", "title", "created_at", "owner", "primary_project")
_DECISION = (*_SHARED, "status", "node_type", "domain")
_ROUND = ("id", "kind", "created_at")
_GENERATED = ("id", "title", "primary_project", "kind")
REQUIRED: dict[str, tuple[str, ...]] = {
    "thread": (*_SHARED, "status"),
    "leaf": _DECISION,
    "node": _DECISION,
    "impl-spec": (*_SHARED, "kind", "source_leaf", "status"),
    "index": _GENERATED,
    "snapshot": _GENERATED,
    "round-index": _ROUND,
    "round-output": _ROUND,
    "artifact": ("id", "title", "kind", "created_at", "source_thread"),
}

FILE_NAMES = (
    "NODE.md", "CONVENTIONS.md", "README.md", "LICENSE", "thread.md", "decisions-candidates.md",
    "open-questions.md", "feedback-in.md", "feedback-out.md", "current-state.md", "thread-index.md",
    "transcript.md", "AUDIT-LOG.md", "CODEOWNERS", "CONTRIBUTING.md", "SECURITY.md", "QUICKSTART.md",
    "INSTALL.md", "RUNTIME.md", "index.md", "config.yaml",
)  # fmt: skip
SPELLED = {name.lower(): name for name in FILE_NAMES}
FOLDER_NAMES = (
    "project-brain", "thoughts", "threads", "archive", "tree", "tree-staging", "debate", "tryouts", "diagrams",
    "attachments", "artifacts",
)  # fmt: skip


def shown(value: Any) -> str:
    """A field's value in a message: short, on one line, and never expanded (an alias may stand for millions)."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:59] + "…")
    if value is None:
        return "nothing"
    if isinstance(value, (datetime.date, bool)):
        return str(value)
    names = {int: "a number", float: "a number", list: "a list", dict: "a mapping"}
    return names.get(type(value), "something else")


def is_one_of(value: Any, words: tuple[str, ...]) -> bool:
    """Is the value one of these words? False for whatever is no string."""
    return isinstance(value, str) and value in words
