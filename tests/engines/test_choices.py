"""Measuring choices: the trie against full enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.engines.choices import Trie

VOCAB = 12


def logits_after(tokens: tuple[int, ...]) -> np.ndarray:
    """A model of its own: the row depends on what was fed, and on nothing else."""
    return np.random.default_rng([7, *tokens]).normal(0, 2, VOCAB).astype(np.float32)


def measured(labels: list[list[int]]) -> list[float]:
    """What an engine does: feed each chain, read the rows it names."""
    trie = Trie(labels)
    for chain in trie.chains():
        for fed, point in chain.rows.items():
            assert tuple(chain.tokens[:fed]) == point
            trie.measure(point, logits_after(point))
    return trie.scores()


def enumerated(labels: list[list[int]]) -> list[float]:
    """The probability that a model held to these labels writes each: token by token, over all that may follow."""
    found = []
    for label in labels:
        total = 0.0
        for i, token in enumerate(label):
            after = sorted({other[i] for other in labels if len(other) > i and other[:i] == label[:i]})
            row = logits_after(tuple(label[:i])).astype(float)[after]
            total += row[after.index(token)] - np.logaddexp.reduce(row)
        found.append(total)
    return found


CASES = {
    "apart at once": [[1], [2], [3]],
    "shared beginning": [[1, 2, 3], [1, 2, 4], [1, 5, 6]],
    "quoted labels": [[9, 1, 8], [9, 1, 2, 3, 8], [9, 4, 8], [9, 5, 6, 8]],
    "two chains": [[1, 2], [1, 3], [4, 5], [4, 6]],
    "three levels, three chains": [[1, 1, 1], [1, 1, 2], [1, 2, 1], [1, 2, 2], [2, 1], [2, 2]],
}


@pytest.mark.parametrize("labels", CASES.values(), ids=CASES.keys())
def test_scores(labels):
    """They are the enumerated log-probabilities, in the given order, and sum to one."""
    scores = measured(labels)
    assert scores == pytest.approx(enumerated(labels), abs=1e-6)
    assert math.isclose(sum(map(math.exp, scores)), 1.0, abs_tol=1e-9)


def test_order_is_the_requests():
    """Another order of labels gives the same numbers in that order."""
    labels = CASES["quoted labels"]
    assert measured(labels[::-1]) == pytest.approx(measured(labels)[::-1])


@pytest.mark.parametrize(
    ("labels", "chains"),
    [
        ([[1], [2]], [([], {0: ()})]),
        ([[9, 1, 8], [9, 1, 2, 8], [9, 4, 8]], [([9, 1], {2: (9, 1), 1: (9,)})]),
        ([[1, 2], [1, 3], [4, 5], [4, 6]], [([1], {1: (1,), 0: ()}), ([4], {1: (4,)})]),
        ([[7, 7, 7]], [([], {})]),
    ],
)
def test_only_branching_points_are_fed(labels, chains):
    """A chain ends at the last point that decides something; what all share is read once."""
    assert [(c.tokens, c.rows) for c in Trie(labels).chains()] == chains


def test_one_label_is_certain():
    """A choice of one needs no measurement."""
    assert measured([[3, 4, 5]]) == [0.0]


@st.composite
def label_sets(draw):
    """Distinct labels that all end with a token of its own, as a closing quote or an end token gives them."""
    words = st.lists(st.integers(1, 4), max_size=5).map(tuple)
    return [[*w, 0] for w in draw(st.lists(words, min_size=2, max_size=7, unique=True))]


@settings(max_examples=60, deadline=None)
@given(label_sets())
def test_any_label_set(labels):
    """Also when one is the beginning of another but for its end: enumerated, and summing to one."""
    scores = measured(labels)
    assert scores == pytest.approx(enumerated(labels), abs=1e-6)
    assert math.isclose(sum(map(math.exp, scores)), 1.0, abs_tol=1e-9)


@settings(max_examples=60, deadline=None)
@given(label_sets())
def test_every_branching_point_once(labels):
    """Each point at which labels part stands in exactly one chain; no chain is the beginning of another."""
    chains = Trie(labels).chains()
    points = [p for c in chains for p in c.rows.values()]
    begun = {tuple(x[:i]) for x in labels for i in range(len(x))}
    parting = [b for b in begun if len({x[len(b)] for x in labels if len(x) > len(b) and tuple(x[: len(b)]) == b}) > 1]
    assert sorted(points) == sorted(parting)
    tokens = [tuple(c.tokens) for c in chains]
    assert not any(a != b and b[: len(a)] == a for a in tokens for b in tokens)


def test_measure_reads_its_own_tokens_only():
    """Tokens that no label goes on with change nothing, be they ever so likely."""
    trie = Trie([[1], [2]])
    row = np.full(VOCAB, -50, dtype=np.float32)
    row[[1, 2, 5]] = 0.0, math.log(3), 80.0
    trie.measure((), row)
    assert [math.exp(s) for s in trie.scores()] == pytest.approx([0.25, 0.75], abs=1e-6)
