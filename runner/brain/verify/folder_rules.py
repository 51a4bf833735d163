"""Rules for folders, in the whole brain whatever the scope: N-03, N-04."""

from __future__ import annotations

from collections.abc import Iterator

from runner.brain.verify import words
from runner.brain.verify.model import ROUND, Brain, Violation


def reserved_names(brain: Brain) -> Iterator[Violation]:
    """N-03: a reserved folder name in lower case."""
    for folder in brain.folders:
        for name in folder.folders:
            if name.lower() in words.FOLDER_NAMES and name != name.lower():
                message = f"the folder must be called {name.lower()}, not {words.shown(name)}"
                yield Violation(_below(folder.rel, name), 0, "N-03", message)


def round_names(brain: Brain) -> Iterator[Violation]:
    """N-04: the rounds in a folder called debate are round-01, round-02, … without a gap."""
    for folder in brain.folders:
        if folder.rel.rpartition("/")[2] != "debate":
            continue
        named = [name for name in folder.folders if name.startswith("round-")]
        good = [name for name in named if ROUND.match(name)]
        for name in named:
            if name not in good:
                message = f"the folder of a round is called round- and two digits, not {words.shown(name)}"
                yield Violation(_below(folder.rel, name), 0, "N-04", message)
        if good != [f"round-{n:02d}" for n in range(1, len(good) + 1)]:
            yield Violation(folder.rel, 0, "N-04", f"the rounds do not go up by one from round-01: {', '.join(good)}")


def _below(rel: str, name: str) -> str:
    return f"{rel}/{name}" if rel else name
