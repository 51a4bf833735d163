"""A tiny brain, and every command of a round as the command line runs it: fake engine, fixed clock."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from runner import runs
from runner.brain import artifact as artifacts
from runner.engines.fake import FakeEngine, options_of
from runner.rounds import close as closing
from runner.rounds.conduct import Opened
from runner.rounds.folder import Round
from runner.rounds.plan import Options, Plan

AT = "2026-01-02T03:04:05Z"
LEAF = "tree/area/limits.md"
ALONE = "tree/alone/backups.md"
FOLDER = "tree/area/pipeline/pipeline.md"
THREAD = "threads/webhooks/thread.md"
TWO = ("red-team", "fresh-eyes-reader")
THREE = (*TWO, "simplicity-critic")

CONVENTIONS = """---
id: "c"
title: "Conventions"
---

# Conventions

### 10.2 Reviewers

```
- fresh-eyes-reader
- red-team
- simplicity-critic
- ops-readiness
- plain-reader
```
"""
BODY = """
# {title}

A request may take two seconds. After that the caller gets an error and tries again at once.
The limit is the same for all shops. Nobody has measured whether it is enough.

## Going back

The old version stays for a week. It is started again by hand when the new one fails.
A failed start is reported to the team. Most failures are noticed quickly.
"""
HEADS = {
    LEAF: 'id: "limits"  # one of two\ntitle: "Limits"\nstatus: decided\ndomain: "area"\n',
    "tree/area/other.md": 'id: "other"\ntitle: "Other"\nstatus: "specified"\ndomain: "area"\n',
    ALONE: "id: backups\ntitle: Backups\nstatus: 'specified' # soon\nsource_thread: x\ndomain: alone\n",
    FOLDER: 'id: "pipeline"\ntitle: "Pipeline"\nstatus: "decided"\ndomain: "area/pipeline"\n',
    THREAD: 'id: "webhooks"\ntitle: "Webhooks"\nstatus: "active"\nmaturity: "refining"\n',
}


def make(project: Path) -> Path:
    """The tiny brain below a new project folder; its root."""
    root = project / "project-brain"
    for path, head in HEADS.items():
        write(root / path, f"---\n{head}---\n{BODY.format(title=path)}".encode())
    write(root / "CONVENTIONS.md", CONVENTIONS.encode())
    return root


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def replace(path: Path, old: str, new: str) -> None:
    """Edit a file by hand; the text must be there."""
    data = path.read_bytes()
    assert old.encode() in data
    path.write_bytes(data.replace(old.encode(), new.encode()))


def copy(root: Path, project: Path) -> Path:
    """The brain with its project's profiles, somewhere else."""
    shutil.copytree(root.parent, project, symlinks=True)
    return project / root.name


def profile(root: Path, name: str, claims: int = 3, **fake: Any) -> str:
    """A profile of the project for the fake engine with these options."""
    text = yaml.safe_dump({"engine": "fake", "roles": {"default": "fake"}, "claims": claims, "fake": fake})
    write(root.parent / "configs" / f"{name}.yaml", text.encode())
    return name


# ---- the commands --------------------------------------------------------------------------------------------------


def clock() -> str:
    return AT


def load(root: Path, path: str = LEAF) -> artifacts.Artifact:
    return artifacts.load(root, root / path, None)


def settings(root: Path, name: str = "fake") -> runs.Settings:
    return runs.settings(name, None, root.parent)


def plan(root: Path, path: str = LEAF, name: str = "fake", **options: Any) -> Plan:
    wished = {"personas": TWO, "feedback": "Is it complete?\n\nSay *why*."} | options
    return runs.open_plan(load(root, path), Options(**wished), settings(root, name), clock)


def open_(root: Path, path: str = LEAF, name: str = "fake", **options: Any) -> Opened:
    return runs.open_round(plan(root, path, name, **options), settings(root, name), clock=clock)


def place_of(root: Path, path: str = LEAF) -> Round:
    return closing.current(load(root, path))[0]


def state(root: Path, path: str = LEAF) -> str:
    return closing.current(load(root, path))[1]


def resume(root: Path, path: str = LEAF, name: str | None = "fake", min_reviewers: int | None = None) -> Opened:
    place = place_of(root, path)
    s = runs.resume_settings(place, name, None, root.parent)
    return runs.resume_round(load(root, path), place, s, clock=clock, min_reviewers=min_reviewers)


def abort(root: Path, path: str = LEAF) -> tuple[str, ...]:
    return runs.abort_round(load(root, path))[1]


def close(
    root: Path, path: str = LEAF, status: str | None = "applied", revisit: tuple[str, ...] = ()
) -> closing.Closed:
    return runs.close_round(load(root, path), status, revisit, clock)


# ---- what lies on the disk -----------------------------------------------------------------------------------------


LOCAL = ("journal.jsonl", "made.json")  # not committed; they tell in which order things happened


def tree(root: Path, *, local: bool = False) -> dict[str, bytes]:
    """Every file with its bytes, every folder (with `/`). local: the LOCAL files, too."""
    return dict(_walk(root, local))


def _walk(root: Path, local: bool) -> Iterator[tuple[str, bytes]]:
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        for name in folders:
            yield f"{(here / name).relative_to(root)}/", b""
        for name in files:
            if local or name not in LOCAL:
                yield str((here / name).relative_to(root)), (here / name).read_bytes()


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """Names of what is not the same."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def lines(place: Round) -> list[dict[str, Any]]:
    """The journal."""
    return [json.loads(line) for line in place.journal.read_bytes().splitlines()] if place.journal.exists() else []


def answered(place: Round) -> list[str]:
    """Keys of the replies in the journal; a torn last line does not count."""
    if not place.journal.exists():
        return []
    whole = place.journal.read_bytes().rpartition(b"\n")[0].splitlines()
    return [line["key"] for line in map(json.loads, whole) if "key" in line]


def record(place: Round) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(place.record.read_bytes())
    return found


class Engines:
    """In the place of runs.open_engine: keeps every engine. faults: of all of them, beside the profile's."""

    def __init__(self) -> None:
        self.made: list[FakeEngine] = []
        self.faults: dict[str, str] = {}

    def __call__(self, s: runs.Settings) -> FakeEngine:
        faults = {**s.profile.fake.get("faults", {}), **self.faults}
        self.made.append(FakeEngine(options_of({**s.profile.fake, "faults": faults})))
        return self.made[-1]

    @property
    def asked(self) -> list[str]:
        """Keys that the last engine was asked, in order."""
        return [key for _, key in self.made[-1].submitted] if self.made else []
