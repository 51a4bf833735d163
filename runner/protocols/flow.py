"""Asking, reading and asking again: what every protocol does with a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from runner.values import Ask, Reply, Request

T = TypeVar("T")

_SEED_STEP = 7919  # any odd number does: another try must only not repeat the last one's dice


def ask_as(
    request: Request, parse: Callable[[str], T], tries: int = 2
) -> Generator[Ask, tuple[Reply, ...], tuple[T | None, Reply]]:
    """Ask until a reply can be used, at most `tries` times; its value, or None, and the last reply.

    Only a reply with finish `stop` is parsed. parse: raises ValueError for text it cannot use, which is a failed try.
    The second try is the request `key~2` with another seed, and so on. `failure` names what was wrong with a None.
    """
    for n in range(1, max(1, tries) + 1):
        (reply,) = yield Ask((nth_try(request, n),))
        if reply.finish == "stop":
            try:
                return parse(reply.text), reply
            except ValueError:
                pass
    return None, reply


def nth_try(request: Request, n: int) -> Request:
    """The request as it is asked the nth time, from 1."""
    if n == 1:
        return request
    seed = request.sampling.seed + (n - 1) * _SEED_STEP
    return replace(request, key=f"{request.key}~{n}", sampling=replace(request.sampling, seed=seed))


def family(key: str) -> str:
    """The key without the number of its try: one question, however often it was asked."""
    return re.sub(r"~\d+$", "", key)


def failure(reply: Reply) -> str:
    """Why the last reply of `ask_as` was of no use: the engine's word, or `invalid` when it could not be parsed."""
    return "invalid" if reply.finish == "stop" else reply.finish


def exhausted(answers: Iterable[tuple[Any, Reply]]) -> tuple[str, ...]:
    """Of several results of `ask_as`: the keys that used up their tries, in the order given."""
    return tuple(family(reply.key) for value, reply in answers if value is None)
