"""Choosing the next token from a row of logits: grammar mask first, then the usual filters, one seed per request."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runner.values import Sampling

FREE = 512  # more allowed tokens than this: free text; fewer: an enum, a quote, punctuation
_GRAM = 4  # the same run of so many tokens is never written a third time


_LONGEST = 40  # tokens of a copied run that are looked at


class Sampler:
    """One request's random numbers and the memory that keeps its free text from going in circles.

    The caller shows it every token of the sequence (`see`): the prompt first, then what is sampled or forced.
    """

    def __init__(self, sampling: Sampling) -> None:
        self._s = sampling
        self._rng = np.random.Generator(np.random.PCG64(sampling.seed))
        self._history: list[int] = []
        self._seen: set[int] = set()
        self._grams: Counter[tuple[int, ...]] = Counter()
        self._tokens: list[int] = []
        self._places: defaultdict[int, list[int]] = defaultdict(list)

    def see(self, tokens: Sequence[int]) -> None:
        if self._s.dry_multiplier > 0:
            for token in tokens:
                self._places[token].append(len(self._tokens))
                self._tokens.append(token)

    def pick(self, row: NDArray[np.float32], allowed: NDArray[np.intp] | None) -> int:
        """The next token id. row: logits of the whole vocabulary, not changed. allowed: ids the grammar admits."""
        ids = np.arange(row.shape[0]) if allowed is None else allowed
        if ids.size == 1:
            return int(ids[0])
        values = row[ids].astype(np.float64)
        free = ids.size > FREE
        if free:
            self._discourage(ids, values)
        token = int(ids[self._draw(values)])
        if free:
            self._remember(token)
        return token

    def _discourage(self, ids: NDArray[np.intp], values: NDArray[np.float64]) -> None:
        """Lower what was said before. ids are sorted, so each token's place is found by bisection."""
        if self._s.repeat_penalty != 1.0 and self._seen:
            at = _at(ids, list(self._seen))
            v = values[at]
            values[at] = np.where(v > 0, v / self._s.repeat_penalty, v * self._s.repeat_penalty)
        for token, length in self._copied().items():
            at = _at(ids, [token])
            values[at] -= self._s.dry_multiplier * self._s.dry_base ** (length - self._s.dry_allowed)
        tail = tuple(self._history[-(_GRAM - 1) :])
        values[_at(ids, [g[-1] for g, n in self._grams.items() if n >= 2 and g[:-1] == tail])] = -np.inf

    def _copied(self) -> dict[int, int]:
        """Tokens that would lengthen a run copied from earlier in the sequence, with the run's length so far."""
        if not self._tokens:
            return {}
        t, last = self._tokens, len(self._tokens) - 1
        found: dict[int, int] = {}
        for place in self._places[t[last]]:
            if place == last:
                continue
            n = 1
            while n < _LONGEST and n <= place and t[place - n] == t[last - n]:
                n += 1
            if n >= self._s.dry_allowed:
                found[t[place + 1]] = max(n, found.get(t[place + 1], 0))
        return found

    def _remember(self, token: int) -> None:
        self._history.append(token)
        self._seen.add(token)
        if len(self._history) >= _GRAM:
            self._grams[tuple(self._history[-_GRAM:])] += 1

    def _draw(self, values: NDArray[np.float64]) -> int:
        """Index into values: top-k, then temperature, then top-p and min-p over what is left."""
        s = self._s
        if s.temperature < 1e-6:  # below, the division overflows
            return int(np.argmax(values))
        at = np.arange(values.size)
        if 0 < s.top_k < values.size:
            # Ranking a whole vocabulary takes longer than all the rest; what is e^15 times less likely than the best
            # is left out first: together less than a hundred thousandth of the others.
            at = np.flatnonzero(values >= values.max() - 15 * s.temperature)
            if s.top_k < at.size:
                at = at[np.argpartition(values[at], -s.top_k)[-s.top_k :]]
        at = at[np.argsort(-values[at], kind="stable")]
        p = np.exp((values[at] - values[at[0]]) / s.temperature)
        p /= p.sum()
        keep = (np.cumsum(p) - p < s.top_p) & (p >= s.min_p * p[0])
        p, at = p[keep], at[keep]
        return int(at[min(int(np.searchsorted(np.cumsum(p), self._rng.random() * p.sum())), p.size - 1)])


def _at(ids: NDArray[np.intp], tokens: Sequence[int]) -> NDArray[np.intp]:
    """Where these tokens stand among the sorted ids; those that are not there are left out."""
    wanted = np.asarray(tokens, dtype=np.intp)
    at: NDArray[np.intp] = np.minimum(np.searchsorted(ids, wanted), ids.size - 1)
    found: NDArray[np.intp] = at[ids[at] == wanted]
    return found
