"""Choosing the next token from a row of logits: grammar mask first, then the usual filters, one seed per request."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from runner.values import Sampling

_FREE = 512  # more allowed tokens than this: free text; fewer: an enum, a quote, punctuation
_GRAM = 4  # the same run of so many tokens is never written a third time


class Sampler:
    """One request's random numbers and the memory that keeps its free text from going in circles."""

    def __init__(self, sampling: Sampling) -> None:
        self._s = sampling
        self._rng = np.random.Generator(np.random.PCG64(sampling.seed))
        self._history: list[int] = []
        self._seen: set[int] = set()
        self._grams: Counter[tuple[int, ...]] = Counter()

    def pick(self, row: NDArray[np.float32], allowed: NDArray[np.intp] | None) -> int:
        """The next token id. row: logits of the whole vocabulary, not changed. allowed: ids the grammar admits."""
        ids = np.arange(row.shape[0]) if allowed is None else allowed
        if ids.size == 1:
            return int(ids[0])
        values = row[ids].astype(np.float64)
        free = ids.size > _FREE
        if free:
            self._discourage(ids, values)
        token = int(ids[self._draw(values)])
        if free:
            self._remember(token)
        return token

    def _discourage(self, ids: NDArray[np.intp], values: NDArray[np.float64]) -> None:
        """ids are sorted, so each token's place is found by bisection."""
        if self._s.repeat_penalty != 1.0 and self._seen:
            old = np.fromiter(self._seen, dtype=np.intp)
            at = np.searchsorted(ids, old)
            hit = at[(at < ids.size) & (ids[np.minimum(at, ids.size - 1)] == old)]
            v = values[hit]
            values[hit] = np.where(v > 0, v / self._s.repeat_penalty, v * self._s.repeat_penalty)
        tail = tuple(self._history[-(_GRAM - 1) :])
        for gram, n in self._grams.items():
            if n >= 2 and gram[:-1] == tail:
                at1 = int(np.searchsorted(ids, gram[-1]))
                if at1 < ids.size and ids[at1] == gram[-1]:
                    values[at1] = -np.inf

    def _remember(self, token: int) -> None:
        self._history.append(token)
        self._seen.add(token)
        if len(self._history) >= _GRAM:
            self._grams[tuple(self._history[-_GRAM:])] += 1

    def _draw(self, values: NDArray[np.float64]) -> int:
        """Index into values: top-k, then temperature, then top-p and min-p over what is left."""
        s = self._s
        if s.temperature <= 0:
            return int(np.argmax(values))
        if 0 < s.top_k < values.size:
            at = np.argpartition(values, -s.top_k)[-s.top_k :]
        else:
            at = np.arange(values.size)
        at = at[np.argsort(-values[at], kind="stable")]
        p = np.exp((values[at] - values[at[0]]) / s.temperature)
        p /= p.sum()
        keep = (np.cumsum(p) - p < s.top_p) & (p >= s.min_p * p[0])
        p, at = p[keep], at[keep]
        return int(at[min(int(np.searchsorted(np.cumsum(p), self._rng.random() * p.sum())), p.size - 1)])
