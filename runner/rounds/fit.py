"""Making a review fit the model's context: fewer claims, then windows, then Refused with the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.errors import Refused
from runner.protocols import round as protocol
from runner.protocols.windows import windows

if TYPE_CHECKING:
    from runner.engines.base import Tokenizer

CONTEXT_CEILING = 8000  # tokens of companions and impl-spec; a quarter of the model's context when that is less
_SLACK = 48  # the words that say which part this is, and tokens that merge across a cut
_LEAST = 128  # tokens of document in a window, below which reviewing it makes no sense


def fit(
    review: protocol.Review, tokenizer: Tokenizer | None, limit: int
) -> tuple[protocol.Review, list[str], Mapping[str, int]]:
    """(the review as it fits, what was changed for it, worst tokens per request). limit: of prompt and reply together.

    Claims are lowered to half before the document is cut at headings into windows, which then get all their claims.
    Raises Refused when not even a small window fits.
    """
    if tokenizer is None:
        return review, [], {}
    least = min(review.max_claims, (review.max_claims + 1) // 2)
    for most in range(review.max_claims, least - 1, -1):
        tried = replace(review, max_claims=most)
        need = protocol.worst_tokens(tried, tokenizer.count)
        if max(need.values()) <= limit:
            return tried, _lowered(most, review), need
    for most in range(review.max_claims, -1, -1):
        found = _windowed(replace(review, max_claims=most), tokenizer, limit)
        if found is not None and (most or not review.max_claims):
            need = protocol.worst_tokens(found, tokenizer.count)
            note = f"the document is long: reviewed in {len(found.windows)} windows"
            return found, [note, *_lowered(most, review)], need
    raise _too_long(review, tokenizer, limit)


def _lowered(most: int, review: protocol.Review) -> list[str]:
    return [f"at most {most} claims per reviewer fit into the context"] if most < review.max_claims else []


def _overhead(review: protocol.Review, tokenizer: Tokenizer) -> int:
    """What a round needs beside the document."""
    need = max(protocol.worst_tokens(review, tokenizer.count).values())
    return need - tokenizer.count_text(review.body) + _SLACK


def _windowed(review: protocol.Review, tokenizer: Tokenizer, limit: int) -> protocol.Review | None:
    room = limit - _overhead(review, tokenizer)
    if room < _LEAST:
        return None
    while room >= _LEAST:
        found = replace(review, windows=_cut_to(review.body, tokenizer, room))
        need = max(protocol.worst_tokens(found, tokenizer.count).values())
        if need <= limit:
            return found
        room -= need - limit + _SLACK
    return None


def _cut_to(body: str, tokenizer: Tokenizer, room: int) -> tuple[tuple[int, int], ...]:
    return windows(body, lambda text: tokenizer.count_text(text) <= room)


def _too_long(review: protocol.Review, tokenizer: Tokenizer, limit: int) -> Refused:
    document = tokenizer.count_text(review.body)
    overhead = _overhead(replace(review, max_claims=1), tokenizer)
    return Refused(
        f"the document is too long: it has {document} tokens, and with prompts and replies the round needs "
        f"{document + overhead}, but the context holds {limit}; about {max(0, limit - overhead)} tokens of document "
        "fit at a time",
        code="context",
        hint="fewer reviewers, a shorter brief, or a model or profile with a longer context",
    )


def shortened(
    texts: Sequence[tuple[str, str]], tokenizer: Tokenizer | None, context_tokens: int
) -> tuple[list[tuple[str, str]], list[str]]:
    """(name, as much of the text from its beginning as its share of the budget allows), and what was left out."""
    budget = min(CONTEXT_CEILING, context_tokens // 4)
    kept, notes = [], []
    for i, (name, text) in enumerate(texts):
        short = _cut(text, budget // (len(texts) - i), tokenizer)
        if short != text:
            notes.append(f"{name}: only the first {len(short.encode())} of {len(text.encode())} bytes were shown")
        budget -= tokens_of(short, tokenizer)
        kept.append((name, short))
    return kept, notes


def tokens_of(text: str, tokenizer: Tokenizer | None) -> int:
    """Tokens of a text; a quarter of its bytes where they cannot be counted."""
    return len(text.encode()) // 4 if tokenizer is None else tokenizer.count_text(text)


def _cut(text: str, budget: int, tokenizer: Tokenizer | None) -> str:
    """As many whole lines from the beginning as fit."""
    if tokens_of(text, tokenizer) <= budget:
        return text
    lines = text.splitlines(keepends=True)
    low, high = 0, len(lines)
    while low < high:
        middle = (low + high + 1) // 2
        if tokens_of("".join(lines[:middle]), tokenizer) <= budget:
            low = middle
        else:
            high = middle - 1
    return "".join(lines[:low])
