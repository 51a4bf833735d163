"""Guessing ahead: what is said is what the dice and the grammar say; guesses only save steps."""

from __future__ import annotations

import numpy as np
import pytest

from runner.engines.llama_task import Task
from runner.values import Message, Request, Sampling, Segment

VOCABULARY = 20
END = 19


class Grammar:
    """Admits the given words (lists of token ids), one after the other choice; nothing is forced unless alone."""

    def __init__(self, words: list[list[int]], said: tuple[int, ...] = ()) -> None:
        self.words, self.said = words, said

    def after(self) -> set[int]:
        n = len(self.said)
        return {w[n] for w in self.words if tuple(w[:n]) == self.said and len(w) > n}

    def deep_copy(self) -> Grammar:
        return Grammar(self.words, self.said)

    def consume_token(self, token: int) -> bool:
        ok = token in self.after()
        self.said += (token,)
        return ok

    def try_consume_tokens(self, tokens: list[int]) -> int:
        return int(self.consume_token(tokens[0])) if tokens[0] in self.after() else 0

    def consume_tokens(self, tokens: list[int]) -> None:
        self.said += tuple(tokens)

    def compute_ff_tokens(self) -> list[int]:
        return []

    def is_stopped(self) -> bool:
        return not self.after()

    def is_error(self) -> bool:
        return False


def task(prompt: list[int], words: list[list[int]], max_tokens: int = 50) -> Task:
    message = Message("user", (Segment("x", True),))
    request = Request("r", "default", (message,), max_tokens, sampling=Sampling(temperature=0))
    made = Task("a.md", request, [], [], prompt)
    made.start(None, Grammar(words))
    made.feed = []
    made.pos = len(prompt)
    return made


def row(*tokens: int) -> np.ndarray:
    """Logits that prefer these tokens, the first one most."""
    found = np.zeros(VOCABULARY, dtype=np.float32)
    for rank, token in enumerate(tokens):
        found[token] = 10 - rank
    return found


def step(t: Task, *rows: np.ndarray) -> tuple[object, int]:
    """Feed all there is, guesses included, and use a row after the last certain token and after each guess."""
    n = len(t.feed) + len(t.draft)
    assert len(t.wanted(n)) == len(rows) if n else True
    t.fed(n) if n else None
    t.feed = []
    return t.take(rows, [np.array(sorted(m.after())) for m in t.matchers()], (), mask)


def mask(matcher: Grammar) -> np.ndarray:
    return np.array(sorted(matcher.after()))


def test_a_copied_run_is_guessed_and_taken():
    """The prompt's next tokens are guessed; all right: they are said in one step, and nothing is taken back."""
    t = task([1, 2, 3, 4, 5, 6], [[2, 3, 4, 5, END], [2, 3, 4, 9], [2, 7]])
    assert step(t, row(2)) == (None, 0)
    assert (t.out, t.feed, t.draft) == ([2], [2], [3, 4, 5])
    assert step(t, row(3), row(4), row(5), row(END)) == ("stop", 0)
    assert t.out == [2, 3, 4, 5, END]
    assert t.pos == 6 + 4


def test_a_wrong_guess_is_taken_back():
    """The sampled token stands; the guesses after it go, and the cache with them."""
    t = task([1, 2, 3, 4, 5, 6], [[2, 3, 4, 5, END], [2, 3, 9, 9]])
    step(t, row(2))
    assert t.draft == [3, 4, 5]
    assert step(t, row(3), row(9), row(5), row(END)) == (None, 2)
    assert (t.out, t.feed, t.pos) == ([2, 3, 9], [9], 6 + 2)


def test_no_guess_right():
    """The first one is wrong: as if nothing had been guessed."""
    t = task([1, 2, 3, 4, 5, 6], [[2, 3, 4], [2, 7, 7]])
    step(t, row(2))
    assert t.draft == [3]  # a last token ends the reply and is never fed
    assert step(t, row(7), row(4)) == (None, 1)
    assert (t.out, t.feed, t.pos) == ([2, 7], [7], 6 + 1)


def test_guesses_obey_the_grammar():
    """Nothing is guessed that the grammar does not admit."""
    t = task([1, 2, 3, 4, 5], [[2, 3, 8], [2, 3, 9]])
    step(t, row(2))
    assert t.draft == [3]


@pytest.mark.parametrize(("max_tokens", "guessed"), [(50, 3), (4, 2), (3, 1), (2, 0)])
def test_guesses_stay_within_max_tokens(max_tokens, guessed):
    """Cells are promised for max_tokens; guesses never need more."""
    t = task([1, 2, 3, 4, 5, 6], [[2, 3, 4, 5, END], [2, 9]], max_tokens)
    step(t, row(2))
    assert len(t.draft) == guessed


def test_a_common_token_alone_is_no_place():
    """A token that stands in the prompt twice tells nothing; with the one before it, it does."""
    words = [[2, 3, 7, 7], [9, 3, 4, 7], [2, 3, 8]]
    t = task([1, 2, 3, 7, 9, 3, 4], words)
    t.out = [5, 3]
    assert t._copied() is None
    t.out = [9, 3]
    assert t._copied() == 5


def test_guesses_that_do_not_fit_the_batch_are_not_made():
    """Certain tokens first; guesses never without all of them."""
    t = task([1, 2, 3, 4, 5, 6], [[2, 3, 4, 5, END], [2, 9]])
    step(t, row(2))
    assert (t.feed, t.draft) == ([2], [3, 4, 5])
    assert t.batch(3) == [2, 3, 4]
    assert t.draft == [3, 4]
    t.feed = [2, 2, 2]
    assert t.batch(2) == [2, 2]
    assert t.wanted(2) == []


def test_free_text_is_drawn_first_and_looked_at_afterwards(monkeypatch):
    """Where almost all is allowed no mask is asked for; what the grammar refuses is drawn again under its mask."""
    monkeypatch.setattr("runner.engines.llama_task.FREE", 3)
    words = [[a, b, END] for a in range(2, 8) for b in range(2, 8)]
    t = task([1], words)
    asked = []

    def spied(matcher: Grammar) -> np.ndarray:
        asked.append(matcher.said)
        return mask(matcher)

    assert len(t.matchers()) == 1
    t.take([row(5)], [mask(t.matcher)], (), spied)
    assert (t.out, t.matchers(), asked) == ([5], [], [])
    t.feed = []
    t.take([row(15, 6)], [None], (), spied)  # 15 is not allowed; 6 comes next
    assert (t.out, asked) == ([5, 6], [(5,)])


def test_free_text_that_is_allowed_needs_no_mask(monkeypatch):
    """And its end is noticed like any other."""
    monkeypatch.setattr("runner.engines.llama_task.FREE", 3)
    t = task([1], [[a, b] for a in range(2, 8) for b in range(2, 8)])
    t.take([row(5)], [mask(t.matcher)], (), mask)
    t.feed = []
    refuse = pytest.fail
    assert t.take([row(6)], [None], (), lambda _: refuse("a mask was asked for")) == ("stop", 0)
    assert t.out == [5, 6]
