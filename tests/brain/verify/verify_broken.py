"""Brains that break a rule, each as a few edits of the example brain.

What the pack's validator says to each is in verdicts.json, recorded by oracle.py. Ours must be the same, unless the
case has a list of its own in `ours`, and the reason in `why`.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

SESSION = "tree/auth/session-store.md"
TOKENS = "tree/auth/token-rotation.md"
DEPLOY = "tree/ops/deploy-pipeline.md"
BACKUP = "tree/storage/backup-policy/backup-policy.md"
SPEC = "tree/storage/backup-policy/impl-spec.md"
HOOKS = "threads/webhook-delivery/thread.md"
DONE = "archive/auth-foundations/thread.md"
AUTH = "tree/auth/NODE.md"
ROOT = "tree/NODE.md"
CONVENTIONS = "CONVENTIONS.md"
Found = tuple[str, str]
Edit = tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """ours: (code, file) where it differs from the pack's; thread, path: the scope."""

    name: str
    edits: tuple[Edit, ...]
    ours: tuple[Found, ...] | None = None
    why: str = ""
    thread: str | None = None
    path: str | None = None


def edit(path: str, old: str, new: str) -> Edit:
    return ("edit", path, old, new)


def add(path: str, text: str = "") -> Edit:
    return ("add", path, text)


def drop(path: str) -> Edit:
    return ("drop", path)


def move(path: str, to: str) -> Edit:
    return ("move", path, to)


def folder(path: str) -> Edit:
    return ("folder", path)


def link(path: str, to: str) -> Edit:
    return ("link", path, to)


def apply(brain: Path, edits: tuple[Edit, ...]) -> None:
    """Change the brain. Text may hold any byte, as a surrogate escape."""
    for what, path, *rest in edits:
        target = brain / path
        if what == "edit":
            text = read(target)
            assert rest[0] in text, f"{path} does not hold {rest[0]!r}"
            write(target, text.replace(rest[0], rest[1], 1))
        elif what == "add":
            write(target, rest[0])
        elif what == "move":
            (brain / rest[0]).parent.mkdir(parents=True, exist_ok=True)
            target.rename(brain / rest[0])
        elif what == "folder":
            target.mkdir(parents=True, exist_ok=True)
        elif what == "link":
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(rest[0])
        elif target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()


def read(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "surrogateescape")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))


def page(name: str, **fields: object) -> str:
    """A leaf or thread that is in order, with these fields besides or instead; None leaves one out."""
    title = name.replace("-", " ").capitalize()
    front: dict[str, object] = {
        "id": name, "title": title, "created_at": '"2026-05-01T08:00:00Z"', "owner": "mara",
        "primary_project": "parcel-desk", "status": "decided",
    } | fields  # fmt: skip
    lines = [f"{key}: {value}" for key, value in front.items() if value is not None]
    return "\n".join(["---", *lines, "---", "", f"# {title}", "", "Text.", ""])


def leaf(name: str, domain: str, **fields: object) -> str:
    return page(name, **({"node_type": "leaf", "domain": domain} | fields))


def thread(name: str, **fields: object) -> str:
    return page(name, **({"status": "active", "maturity": "refining"} | fields))


def listed(name: str) -> Edit:
    """Put a leaf of tree/auth into its NODE.md."""
    return edit(AUTH, "- [Session store]", f"- [New]({name})\n- [Session store]")


def auth(name: str, **fields: object) -> tuple[Edit, Edit]:
    """A new leaf below tree/auth, listed."""
    return add(f"tree/auth/{name}.md", leaf(name, "auth", **fields)), listed(f"{name}.md")


def rounds(place: str, *names: str) -> tuple[Edit, ...]:
    return tuple(add(f"{place}/{name}/feedback-in.md", "Ready?\n") for name in names)


STATUS = 'status: "decided"'
HARD = edit(SESSION, STATUS, 'status: "hardening"\npre_hardening_status: "decided"')
LINKS = "soft_links: []"


def to(*uris: str) -> str:
    return "soft_links:\n" + "\n".join(f'  - uri: "{uri}"' for uri in uris)
