"""Measuring a choice: the probability that a constrained model takes each label, read at the branching points only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class Branch:
    """A chain of tokens to feed after the prompt. rows: tokens fed -> the branching point whose logits stand there."""

    tokens: list[int]
    rows: dict[int, tuple[int, ...]] = field(default_factory=dict)


class Trie:
    """The labels as token sequences. A node where they part is a branching point; elsewhere nothing is decided."""

    def __init__(self, labels: Sequence[Sequence[int]]) -> None:
        self._labels = [tuple(label) for label in labels]
        self._next: dict[tuple[int, ...], list[int]] = {}
        for label in self._labels:
            for i in range(len(label)):
                after = self._next.setdefault(label[:i], [])
                if label[i] not in after:
                    after.append(label[i])
        self._log_p: dict[tuple[int, ...], dict[int, float]] = {}

    def chains(self) -> list[Branch]:
        """As few chains as possible that pass through every branching point; the longest first."""
        points = sorted((p for p, after in self._next.items() if len(after) > 1), key=len, reverse=True)
        chains: list[Branch] = []
        for point in points:
            home = next((c for c in chains if tuple(c.tokens[: len(point)]) == point), None)
            if home is None:
                home = Branch(list(point))
                chains.append(home)
            home.rows[len(point)] = point
        return chains or [Branch([])]

    def measure(self, point: tuple[int, ...], logits: NDArray[np.float32]) -> None:
        """Renormalise over the tokens that go on from here."""
        after = self._next[point]
        values = logits[after].astype(np.float64)
        values -= np.logaddexp.reduce(values)
        self._log_p[point] = dict(zip(after, values.tolist(), strict=True))

    def scores(self) -> list[float]:
        """Log-probability of each label, in the given order; they sum to one."""
        return [
            sum(self._log_p[label[:i]][label[i]] for i in range(len(label)) if label[:i] in self._log_p)
            for label in self._labels
        ]
