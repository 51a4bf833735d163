"""Grammars for llama.cpp: compiled once, a matcher for each request, and the masks of a whole batch at a time."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

import llguidance
import llguidance.numpy as guidance
import numpy as np
from llguidance.llamacpp import lltokenizer_from_vocab
from numpy.typing import NDArray

from runner.engines.llama_vocab import Vocab
from runner.errors import RunnerError

Allowed = NDArray[np.intp]  # token ids, ascending


class Grammars:
    """Matchers hold the vocabulary's pointer: drop this, and every matcher, before the model."""

    def __init__(self, vocab: Vocab, threads: int) -> None:
        with warnings.catch_warnings():  # one deprecation warning per token of the vocabulary
            warnings.simplefilter("ignore", DeprecationWarning)
            self._tokenizer = lltokenizer_from_vocab(vocab.ptr, vocab.size, vocab.eog)
        self._size = vocab.size
        self._executor = llguidance.LLExecutor(num_threads=threads)
        self._known: dict[str, llguidance.LLMatcher] = {}

    def matcher(self, lark: str) -> llguidance.LLMatcher:
        """A fresh matcher. RunnerError (code grammar) when the grammar does not compile."""
        known = self._known.get(lark)
        if known is None:
            known = llguidance.LLMatcher(self._tokenizer, lark, log_level=0, limits=limits())
            if known.is_error():
                # The message goes on with lines of the grammar, and those hold text of the document.
                what = re.split(r"""["'`\n]""", known.get_error())[0].strip(" :")
                raise RunnerError(f"the grammar does not compile: {what}", code="grammar")
            if len(self._known) > 256:
                self._known.clear()
            self._known[lark] = known
        return known.deep_copy()

    def forget(self, lark: str) -> None:
        """Its automaton may be at a limit, and copies share it: whoever asks next gets a new one."""
        self._known.pop(lark, None)

    def allowed(self, matchers: Sequence[llguidance.LLMatcher]) -> list[Allowed]:
        """What each matcher admits next."""
        masks = guidance.allocate_token_bitmask(len(matchers), self._tokenizer.vocab_size)
        if matchers:
            guidance.fill_next_token_bitmask_par(self._executor, [(m, i) for i, m in enumerate(matchers)], masks)
        return [self._ids(mask) for mask in masks]

    def mask(self, matcher: llguidance.LLMatcher) -> Allowed:
        return self.allowed([matcher])[0]

    def _ids(self, mask: NDArray[np.int32]) -> Allowed:
        return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[: self._size])


def limits() -> llguidance.LLParserLimits:
    """Room for long replies: copies of a matcher share one automaton, and masks are computed side by side, so what one
    request builds counts for the other; the defaults ended two of four reviewers. Messages hold no document text."""
    return llguidance.LLParserLimits(
        verbose_errors=False, initial_lexer_fuel=20_000_000, step_lexer_fuel=20_000_000, max_lexer_states=5_000_000
    )
