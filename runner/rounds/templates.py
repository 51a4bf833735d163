"""A brain's own templates, `assets/debate-templates/*.md`: of files (headings and prose around our entries) and of
prompts (the task text after the shared part)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from runner import render
from runner.brain.artifact import Artifact
from runner.brain.root import kind, read_bytes, shown
from runner.errors import Refused

FOLDER = Path("assets") / "debate-templates"
CHARTER = "PERSONA_CHARTER"
_KNOWN = {
    CHARTER, "PERSONA_NAME", "PERSONA_SLUG", "SUBJECT_PATH", "SUBJECT_TITLE", "ROUND_NO", "PREV_ROUND_NO",
    "CREATED_AT", "USER_PROMPT", "FEEDBACK_BODY",
}  # fmt: skip
_NAME = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


_NAMES = (
    "feedback-in.md", "proposed-patches.md", "open-issues.md", "index.md", "reviewer-prompt.md",
    "reviewer-prompt-delta.md", "defender-prompt.md", "synthesizer-prompt.md",
)  # fmt: skip


def missing(root: Path) -> tuple[str, ...]:
    """The templates that ours stand in for."""
    return tuple(name for name in _NAMES if kind(root / FOLDER / name) != "file")


@dataclass(frozen=True, slots=True)
class Templates:
    """files: by name, ours where the brain has none. index: of debate/index.md, or None. tasks: of prompts."""

    files: dict[str, str]
    index: str | None
    tasks: dict[str, str]
    warnings: tuple[str, ...]


def load(artifact: Artifact, ours: dict[str, str], mode: str) -> Templates:
    """Read what the brain has. Refused for a reviewer's prompt that leaves the charter out."""
    folder = artifact.root / FOLDER
    files, warnings = dict(ours), list[str]()
    for name in files:
        text = _text(folder / name)
        if text is not None:
            files[name] = text
            warnings += render.template_warnings(name, text)
    index = _text(folder / "index.md")
    warnings += [] if index is None else render.template_warnings("index.md", index)
    tasks: dict[str, str] = {}
    for role in ("reviewer", "defender", "synthesizer"):
        text, name = _task(folder, role, mode)
        if text is not None:
            tasks[role] = text
            unknown = dict.fromkeys(n for n in _NAME.findall(text) if n not in _KNOWN)
            warnings += [f"{name}: unknown placeholder {{{{{n}}}}} becomes empty" for n in unknown]
    return Templates(files, index, tasks, tuple(warnings))


def _text(path: Path) -> str | None:
    return read_bytes(path).decode("utf-8", "replace") if kind(path) == "file" else None


def _task(folder: Path, role: str, mode: str) -> tuple[str | None, str]:
    """The brain's task text. A delta review's own text comes before the reviewer's, which it adds to."""
    name = f"{role}-prompt.md"
    text = _text(folder / name)
    if role != "reviewer":
        return text, name
    more = _text(folder / "reviewer-prompt-delta.md") if mode == "delta" else None
    if more is not None:
        text = more + "\n" + (text if text is not None and CHARTER not in _NAME.findall(more) else "")
        name = "reviewer-prompt-delta.md"
    if text is not None and CHARTER not in _NAME.findall(text):
        raise Refused(
            f"this prompt template has no {{{{{CHARTER}}}}}, so the charter would not reach the reviewer",
            path=shown(folder / name), hint=f"put {{{{{CHARTER}}}}} before the task",
        )  # fmt: skip
    return text, name
