"""The sampler on hand-made logits."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.engines.sampling import Sampler
from runner.values import Sampling

OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0)
BIG = 1000  # rows wider than the bound below which a choice counts as forced, not as free text


def row(*best: tuple[int, float], size: int = BIG, rest: float = -30.0) -> np.ndarray:
    """Logits that are `rest` everywhere but at the given tokens."""
    values = np.full(size, rest, dtype=np.float32)
    for token, logit in best:
        values[token] = logit
    return values


def picks(sampling: Sampling, logits: np.ndarray, n: int, allowed: np.ndarray | None = None) -> Counter[int]:
    """How often each token is picked by n samplers that differ in their seed alone."""
    made = (Sampler(Sampling(**{**_fields(sampling), "seed": seed})) for seed in range(n))
    return Counter(s.pick(logits, allowed) for s in made)


def _fields(s: Sampling) -> dict[str, float]:
    return {name: getattr(s, name) for name in s.__slots__}


def say(sampler: Sampler, logits: np.ndarray, n: int) -> list[int]:
    """Sample n tokens the way an engine does: each is shown to the sampler again."""
    said = []
    for _ in range(n):
        said.append(sampler.pick(logits, None))
        sampler.see(said[-1:])
    return said


def test_same_seed_same_tokens():
    """One seed gives one sequence; another seed gives another."""
    logits = np.linspace(0, 3, BIG, dtype=np.float32)
    one, again, other = (say(Sampler(Sampling(seed=seed)), logits, 20) for seed in (7, 7, 8))
    assert one == again
    assert one != other


@pytest.mark.parametrize("temperature", [0.0, -1.0, 5e-324])
def test_greedy(temperature):
    """Temperature 0 takes the largest logit, whatever the seed."""
    sampling = Sampling(temperature=temperature, repeat_penalty=1.0)
    assert picks(sampling, row((3, 1.0), (700, 1.5)), 20) == {700: 20}


def test_only_allowed_tokens():
    """The grammar's ids alone are candidates, however large the others are."""
    logits = row((3, 50.0), (10, 1.0), (20, 1.0))
    assert set(picks(OPEN, logits, 60, np.array([10, 20]))) == {10, 20}


def test_single_allowed_token_draws_nothing():
    """A forced token costs no random number, so what follows is the same with and without it."""
    logits = np.linspace(0, 3, BIG, dtype=np.float32)
    one, other = Sampler(OPEN), Sampler(OPEN)
    assert one.pick(logits, np.array([5])) == 5
    assert say(one, logits, 10) == say(other, logits, 10)


def test_probabilities():
    """At temperature 1 without filters a token comes as often as its softmax says."""
    n = 3000
    found = picks(OPEN, row((1, math.log(0.7)), (2, math.log(0.3))), n)
    assert set(found) == {1, 2}
    assert found[1] / n == pytest.approx(0.7, abs=0.03)


def test_temperature():
    """At temperature 2 log-odds are halved."""
    n = 3000
    sampling = Sampling(**{**_fields(OPEN), "temperature": 2.0})
    found = picks(sampling, row((1, math.log(0.9)), (2, math.log(0.1)), rest=-200), n)
    assert found[1] / n == pytest.approx(0.75, abs=0.03)  # 3 : 1


@pytest.mark.parametrize(
    ("name", "value", "left"),
    [
        ("top_k", 1, {1}),
        ("top_k", 2, {1, 2}),
        ("top_k", 0, {1, 2, 3, 4}),
        ("top_p", 0.39, {1}),  # the first token alone reaches it
        ("top_p", 0.41, {1, 2}),
        ("top_p", 0.71, {1, 2, 3}),
        ("top_p", 1.0, {1, 2, 3, 4}),
        ("min_p", 0.3, {1, 2, 3}),  # 0.12 of 0.4
        ("min_p", 0.6, {1, 2}),
        ("min_p", 0.9, {1}),
    ],
)
def test_filter(name, value, left):
    """Each filter keeps the largest: so many; until their sum is reached; all with that share of the best."""
    logits = row(*((i, math.log(p)) for i, p in enumerate((0.4, 0.3, 0.2, 0.1), 1)), rest=-200)
    assert set(picks(Sampling(**{**_fields(OPEN), name: value}), logits, 150)) == left


def test_best_always_survives():
    """No setting of the filters leaves nothing to draw from."""
    strict = Sampling(temperature=0.01, top_k=1, top_p=1e-9, min_p=1.0)
    assert picks(strict, row((4, 2.0), (5, 2.0 - 1e-3)), 5) == {4: 5}


def test_four_tokens_never_a_third_time():
    """Of a run of four tokens two copies may stand in free text, never three."""
    sampler, logits = Sampler(Sampling(temperature=0, repeat_penalty=1.0)), row((1, 9.0), (2, 8.0), (3, 7.0))
    said = say(sampler, logits, 60)
    grams = Counter(tuple(said[i : i + 4]) for i in range(len(said) - 3))
    assert said[:5] == [1, 1, 1, 1, 1]  # a greedy model stays at its favourite while it may
    assert max(grams.values()) == 2
    assert len(set(said)) > 1


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.0, 2.0))
def test_four_tokens_never_a_third_time_whatever_the_dice(seed, temperature):
    """The same for any seed and temperature."""
    sampling = Sampling(temperature=temperature, seed=seed)
    said = say(Sampler(sampling), row((1, 9.0), (2, 8.9), (3, 8.8)), 60)
    assert max(Counter(tuple(said[i : i + 4]) for i in range(len(said) - 3)).values()) <= 2


def test_narrow_choice_is_left_alone():
    """An enum or a quote may repeat as often as it likes: only wide choices are free text."""
    sampler, few = Sampler(Sampling(temperature=0, repeat_penalty=2.0)), np.arange(5)
    said = [sampler.pick(row((1, 9.0), (2, 8.9)), few) for _ in range(30)]
    assert said == [1] * 30


def test_repeat_penalty():
    """What was said is divided by the penalty when its logit is positive and multiplied when it is negative."""
    plus = say(Sampler(Sampling(temperature=0, repeat_penalty=1.5)), row((1, 9.0), (2, 7.0), (3, 5.0)), 3)
    minus = say(Sampler(Sampling(temperature=0, repeat_penalty=1.5)), row((1, -2.0), (2, -2.5), (3, -2.9)), 3)
    assert plus == [1, 2, 1]  # 9 / 1.5 = 6 is below 7; then 6 above 7 / 1.5 and above 5
    assert minus == [1, 2, 3]  # -2 * 1.5 = -3 is below both others


def test_repeat_penalty_spares_the_prompt():
    """Tokens of the prompt alone are not said yet."""
    sampler = Sampler(Sampling(temperature=0, repeat_penalty=2.0))
    sampler.see([1, 1, 1])
    assert sampler.pick(row((1, 9.0), (2, 8.0)), None) == 1


def dry(prompt: list[int], **changes: float) -> int:
    """The token after this prompt: 5 is wanted most, 6 is 4 logits behind."""
    values = {"temperature": 0.0, "repeat_penalty": 1.0, "dry_multiplier": 1.0, "dry_base": 2.0, "dry_allowed": 3}
    sampler = Sampler(Sampling(**(values | changes)))
    sampler.see(prompt)
    return sampler.pick(row((5, 10.0), (6, 6.0)), None)


@pytest.mark.parametrize(
    ("prompt", "token"),
    [
        ([1, 2, 3, 5, 9, 1, 2, 3], 5),  # run of 3: 1 * 2 ** 0 = 1
        ([9, 1, 2, 3, 5, 9, 1, 2, 3], 5),  # run of 4: 2
        ([7, 9, 1, 2, 3, 5, 7, 9, 1, 2, 3], 5),  # run of 5: 4, a tie, and the first wins
        ([8, 7, 9, 1, 2, 3, 5, 8, 7, 9, 1, 2, 3], 6),  # run of 6: 8
        ([8, 7, 9, 1, 2, 3, 4, 8, 7, 9, 1, 2, 3], 5),  # the run went on with another token
        ([8, 7, 9, 1, 2, 3, 5, 8, 7, 9, 1, 2, 4], 5),  # the run is broken at its end
    ],
)
def test_dry_penalty_grows_with_the_run(prompt, token):
    """What would lengthen a copied run of n tokens is lowered by multiplier * base ** (n - allowed)."""
    assert dry(prompt) == token


def test_dry_off():
    """Without a multiplier a copy is free."""
    assert dry([8, 7, 9, 1, 2, 3, 5] * 3 + [8, 7, 9, 1, 2, 3], dry_multiplier=0.0) == 5


def test_dry_counts_overlapping_copies():
    """One token over and over is a run like any other."""
    assert dry([5] * 12) == 6


def test_dry_does_not_overflow():
    """A very long copy is a very large penalty, not an error."""
    assert dry([*range(100, 180), 5, *range(100, 180)], dry_base=4.0, dry_multiplier=10.0) == 6


def test_dry_ends_quadratic_growth():
    """A long prompt of one repeated pair is looked at in bounded runs: a pick stays far below a second."""
    assert dry([1, 5] * 2000 + [1]) == 6


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, BIG - 1), max_size=30))
def test_row_is_not_changed(seed, seen):
    """The row is a view of the engine's memory: it is read only."""
    logits = np.random.default_rng(seed).normal(0, 3, BIG).astype(np.float32)
    before = logits.copy()
    logits.flags.writeable = False
    sampler = Sampler(Sampling(seed=seed, dry_multiplier=1.0))
    sampler.see(seen)
    for allowed in (None, np.arange(0, BIG, 3), np.arange(600), None):
        token = sampler.pick(logits, allowed)
        assert allowed is None or token in allowed
        sampler.see([token])
    np.testing.assert_array_equal(logits, before)
