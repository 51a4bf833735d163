"""Asking on a terminal for what the command line left out. Elsewhere nothing is asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, cast

STATUSES = {
    "Applied in a separate commit": "applied",
    "Partially applied — some rejected": "partial",
    "Rejected — don't land any": "rejected",
}


def interactive(no_input: bool) -> bool:
    """May we ask? Only a person at a terminal answers."""
    return not no_input and sys.stdin.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def personas(names: Sequence[str], charters: dict[str, str]) -> list[str]:
    """A multi-select of the roster, each with its charter's first line."""
    import questionary

    choices = [questionary.Choice(title=_titled(name, charters.get(name)), value=name) for name in names]
    chosen = _answer(questionary.checkbox("Which personas review?", choices=choices, validate=_at_least_one))
    return cast("list[str]", chosen)


def _titled(name: str, charter: str | None) -> str:
    first = next((line.strip() for line in (charter or "").splitlines() if line.strip()), "no charter")
    return f"{name} — {first.lstrip('-*# ')[:80]}"


def _at_least_one(chosen: Sequence[str]) -> bool | str:
    return bool(chosen) or "choose at least one"


def persona() -> str:
    """An ad-hoc persona, where § 10.2 lists none."""
    import questionary

    return str(_answer(questionary.text("No personas in § 10.2. An own one, as name:charter:")))


def feedback() -> str:
    """The brief of the round."""
    import questionary

    return str(_answer(questionary.text("What should this round address? (1 to 5 sentences)")))


def clarified(question: str) -> str:
    """One question back about a question that is too short to be clear."""
    import questionary

    return str(_answer(questionary.text(f"What exactly is to be decided about {question!r}?")))


def patches_status() -> str:
    """What came of the proposed patches."""
    import questionary

    return STATUSES[str(_answer(questionary.select("What came of the proposed patches?", choices=list(STATUSES))))]


def confirm(question: str) -> bool:
    """Yes or no; no is the default."""
    import questionary

    return bool(_answer(questionary.confirm(question, default=False)))


def _answer(question: Any) -> Any:
    found = question.ask()
    if found is None:  # Ctrl-C at a question
        raise KeyboardInterrupt
    return found
