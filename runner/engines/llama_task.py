"""One running request on llama.cpp: what is fed next, what is said, and what can be guessed ahead.

A reply under a grammar holds long runs that the model all but copies: a quote goes on as the document does. Such a
run is *drafted*: the document's next tokens are fed along with the last one said, and each is then sampled from its
own logits, by the same dice, as if it had not been guessed. Draft and sample agree: a step is saved. They differ: the
rest of the draft is taken back. What is said does not depend on what was drafted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import llguidance
import numpy as np
from numpy.typing import NDArray

from runner.engines.choices import Branch, Trie
from runner.engines.llama_cells import Node
from runner.engines.llama_grammars import Allowed
from runner.engines.sampling import FREE, Sampler
from runner.values import Finish, Request, Segment

End = tuple[Finish | None, int]
Mask = Callable[[llguidance.LLMatcher], Allowed]

_DRAFT = 10  # tokens guessed ahead at most; each costs about half of what a step saves
_BACK = 24  # tokens that are compared to find the place that is being copied


@dataclass(eq=False, slots=True)
class Task:
    """feed: tokens still to be fed; draft: guesses to be fed after them. out: what was said; pos: tokens in the cache.

    cells: of its own, promised when it was admitted. branches: chains of a choices request still to be measured.
    """

    flow: str
    request: Request
    pieces: list[Segment]
    prefixes: list[tuple[int, ...]]  # tokens of the shareable prefixes, ascending
    tokens: list[int]
    trie: Trie | None = None
    base: Node | None = None
    seq: int = -1
    cells: int = 0
    pos: int = 0
    feed: list[int] = field(default_factory=list)
    draft: list[int] = field(default_factory=list)
    out: list[int] = field(default_factory=list)
    forced: int = 0
    cached: int = 0
    admitted: float = 0.0
    matcher: llguidance.LLMatcher | None = None
    sampler: Sampler | None = None
    branches: list[Branch] = field(default_factory=list)
    ahead: list[llguidance.LLMatcher] = field(default_factory=list)  # the matcher as it is after each guess
    _narrow: bool = False  # the last token was chosen among few
    _wide: bool = False  # the last mask allowed free text
    _places: dict[int, list[int]] | None = None  # of each token in the prompt

    @property
    def reply_tokens(self) -> int:
        """The most it can still need after the prompt."""
        if self.trie is not None:
            return max(len(b.tokens) for b in self.trie.chains())
        return self.request.max_tokens

    @property
    def late(self) -> bool:
        limit = self.request.deadline_s
        return limit is not None and time.monotonic() - self.admitted > limit

    def start(self, base: Node | None, matcher: llguidance.LLMatcher | None) -> None:
        """Admitted: the prompt's tail is to be fed, and with it what the grammar forces, or the first chain."""
        self.admitted = time.monotonic()
        self.base = base
        self.pos = self.cached = base.length if base else 0
        self.feed = self.tokens[self.pos :]
        if self.trie is not None:
            self.branches = self.trie.chains()
            self.feed += self.branches[0].tokens
            return
        self.sampler = Sampler(self.request.sampling)
        self.sampler.see(self.tokens)
        self.matcher = matcher
        self.feed += self._force()

    # ---- feeding ---------------------------------------------------------------------------------------------------

    def batch(self, room: int) -> list[int]:
        """The tokens to feed now. Guesses go along only behind the whole feed, and as many as there is room for."""
        if len(self.feed) > room:
            return self.feed[:room]
        self.draft = self.draft[: room - len(self.feed)]
        return self.feed + self.draft

    def wanted(self, n: int) -> list[int]:
        """Positions, among the n tokens that are fed now, whose logits are needed."""
        if self.trie is not None:
            start = len(self.tokens)
            rows = (start + at - 1 for at in sorted(self.branches[0].rows))
            return [at for at in rows if self.pos <= at < self.pos + n]
        whole = n == len(self.feed) + len(self.draft)
        return list(range(self.pos + len(self.feed) - 1, self.pos + n)) if whole else []

    def fed(self, n: int) -> None:
        del self.feed[:n]
        self.pos += n

    # ---- saying ----------------------------------------------------------------------------------------------------

    def matchers(self) -> list[llguidance.LLMatcher]:
        """Whose masks are needed: the grammar's state after the last certain token, and after each guess that was fed.

        None in free text: there almost every token is allowed, so one is drawn first and looked at afterwards.
        """
        if self.matcher is None or (self._wide and not self.draft):
            return []
        return [self.matcher, *self.ahead[: len(self.draft)]]

    def take(
        self, rows: Sequence[NDArray[np.float32]], allowed: Sequence[Allowed | None], ends: Sequence[int], mask: Mask
    ) -> End:
        """Use the logits after the last certain token and after each guess. ends: tokens that end a reply without a
        grammar. mask: works out a mask that was not asked for. (finish, or None: it goes on; how many tokens are to be
        taken back, `pos` being corrected already)."""
        draft, self.draft, self.ahead, at = self.draft, [], [], 0
        while True:
            finish, said = self._next(rows[at], allowed[at], ends, mask)
            right = 0
            while right < len(said) and at + right < len(draft) and said[right] == draft[at + right]:
                right += 1
            at += right
            if finish is not None or right < len(said):
                break
        self.feed = said[right:]
        wrong = len(draft) - at
        self.pos -= wrong
        if finish is None:
            self._guess()
        return finish, wrong

    def _next(
        self, logits: NDArray[np.float32], allowed: Allowed | None, ends: Sequence[int], mask: Mask
    ) -> tuple[Finish | None, list[int]]:
        """How the request ends, if it does, and the tokens said: one, and what the grammar forces after it."""
        assert self.sampler is not None
        if (ended := self._ended()) is not None:  # what the grammar forces may be all there is to say
            return ended, []
        if self.matcher is None:
            token = self.sampler.pick(logits, None)
            if token in ends:
                return "stop", []
        else:
            found = self._drawn(logits, allowed, mask, self.matcher)
            if found is None:
                return "error", []
            token = found
        self._say([token])
        forced = [] if self.matcher is None or self.matcher.is_stopped() else self._force()
        return self._ended(), [token, *forced]

    def _drawn(
        self, logits: NDArray[np.float32], allowed: Allowed | None, mask: Mask, matcher: llguidance.LLMatcher
    ) -> int | None:
        """A token that the grammar admits, consumed; None when there is none."""
        assert self.sampler is not None
        if allowed is None:
            token = self.sampler.pick(logits, None)
            if matcher.try_consume_tokens([token]) == 1:
                self._narrow = False
                return token
            allowed = mask(matcher)
        if allowed.size == 0:
            return None
        self._narrow, self._wide = allowed.size <= FREE, allowed.size > FREE
        token = self.sampler.pick(logits, allowed)
        return token if matcher.consume_token(token) else None

    def _ended(self) -> Finish | None:
        if self.matcher is not None and self.matcher.is_stopped():
            return "error" if self.matcher.is_error() else "stop"
        return "length" if len(self.out) >= self.request.max_tokens else None

    def _force(self) -> list[int]:
        """What the grammar forces is said without being sampled."""
        if self.matcher is None:
            return []
        forced: list[int] = self.matcher.compute_ff_tokens()[: self.request.max_tokens - len(self.out)]
        if forced:
            self.matcher.consume_tokens(forced)
            self._say(forced)
            self.forced += len(forced)
        return forced

    def _say(self, tokens: list[int]) -> None:
        self.out += tokens
        if self.sampler is not None:
            self.sampler.see(tokens)

    # ---- guessing --------------------------------------------------------------------------------------------------

    def _guess(self) -> None:
        """Where few tokens are allowed and the last ones stand in the prompt, guess that it goes on as there."""
        most = min(_DRAFT, self.request.max_tokens - len(self.out) - 1)
        if self.matcher is None or not self._narrow or most < 1:
            return
        place = self._copied()
        if place is not None:
            at = self.matcher
            for token in self.tokens[place + 1 : place + 1 + most]:
                at = at.deep_copy()
                if at.try_consume_tokens([token]) == 0 or at.is_stopped():
                    break
                self.ahead.append(at)
                self.draft.append(token)

    def _copied(self) -> int | None:
        """The place in the prompt that reads most like the end of what was said; None without a clear one."""
        if self._places is None:
            self._places = {}
            for i, token in enumerate(self.tokens):
                self._places.setdefault(token, []).append(i)
        best, longest = None, 0
        places = self._places.get(self.out[-1], [])
        for place in places:
            n = 1
            while n < min(_BACK, len(self.out), place + 1) and self.tokens[place - n] == self.out[-1 - n]:
                n += 1
            if n > longest:
                best, longest = place, n
        return None if longest == 1 and len(places) > 1 else best
