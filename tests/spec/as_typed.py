"""What the tests of this folder share: paths of the example brain, and command lines as a user types them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from runner import cli
from runner.protocols import defender
from runner.values import Label, Verdict

LEAF = "project-brain/tree/auth/session-store.md"
LINKED = "project-brain/tree/auth/token-rotation.md"
SPECIFIED = "project-brain/tree/storage/backup-policy/backup-policy.md"
THREAD = "project-brain/threads/webhook-delivery"
TWO = ("--personas", "red-team,ops-readiness", "--feedback", "Is it ready?", "--profile", "fake", "-q")


def debate(*argv: str) -> int:
    """Run one command line; its exit code."""
    return cli.run(list(argv))


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below the folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text that must be there."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def judged(patch: pytest.MonkeyPatch, label: Label, others: Mapping[str, Label] | None = None) -> None:
    """From here on the defender's every verdict is `label`, or what `others` says of a claim."""

    def verdict_of(claim: str, reason: str, *_: object) -> Verdict:
        return Verdict(claim, (others or {}).get(claim, label), "measured", reason, 0.9, True, "choices")

    patch.setattr(defender, "verdict_of", verdict_of)
