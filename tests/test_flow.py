"""ask_as by hand: no engine, no disk."""

from __future__ import annotations

import json

import pytest

from runner.protocols.flow import ask_as, exhausted, failure, family, nth_try
from runner.values import Ask, Message, Reply, Request, Sampling, Segment

REQUEST = Request(
    "reviewer/red-team", "default", (Message("user", (Segment("Hi", True),)),), 20, sampling=Sampling(seed=5), keep=True
)


def reply(ask, text, finish="stop"):
    (request,) = ask.requests
    return (Reply(request.key, text, finish),)


def finish(flow, *answers):
    """Send these answers in turn; what the flow returns."""
    ask = next(flow)
    for i, answer in enumerate(answers):
        try:
            ask = flow.send(reply(ask, *answer))
        except StopIteration as end:
            assert i == len(answers) - 1
            return end.value
    raise AssertionError(f"the flow asks for more: {ask}")


def test_first_reply_is_good():
    """The request is asked as it is; the value and its reply come back."""
    flow = ask_as(REQUEST, json.loads)
    ask = next(flow)
    assert ask == Ask((REQUEST,))
    with pytest.raises(StopIteration) as end:
        flow.send(reply(ask, "[1]"))
    assert end.value.value == ([1], Reply("reviewer/red-team", "[1]", "stop"))


@pytest.mark.parametrize("word", ["length", "degenerate", "timeout", "error"])
def test_other_finish_is_never_parsed(word):
    """Only `stop` is parsed, even when the text could be; a retry may succeed."""
    value, last = finish(ask_as(REQUEST, json.loads), ("[1]", word), ("[2]",))
    assert (value, last.key) == ([2], "reviewer/red-team~2")


def test_unparsable_text_is_asked_again():
    """A ValueError of `parse` is a failed try, named invalid."""
    value, last = finish(ask_as(REQUEST, json.loads), ("{",), ("}",))
    assert (value, last.text, failure(last)) == (None, "}", "invalid")


def test_failure_is_the_engines_word():
    """Otherwise the failure is the last reply's finish."""
    value, last = finish(ask_as(REQUEST, json.loads), ("{",), ("", "timeout"))
    assert (value, failure(last)) == (None, "timeout")


def test_other_errors_of_parse_are_bugs():
    """Anything but a ValueError goes through."""
    flow = ask_as(REQUEST, lambda text: {}[text])
    with pytest.raises(KeyError):
        flow.send(reply(next(flow), "x")) if False else finish(flow, ("x",))


@pytest.mark.parametrize("tries", [1, 2, 4])
def test_tries_are_used_up(tries):
    """`tries` requests, keys ~2, ~3, …, each with a seed of its own and nothing else changed."""
    flow = ask_as(REQUEST, json.loads, tries)
    asked = [next(flow).requests[0]]
    with pytest.raises(StopIteration) as end:
        while True:
            asked.append(flow.send(reply(Ask((asked[-1],)), "", "error")).requests[0])
    names = ["reviewer/red-team", "reviewer/red-team~2", "reviewer/red-team~3", "reviewer/red-team~4"]
    assert [r.key for r in asked] == names[:tries]
    assert [r.sampling.seed for r in asked] == [5, 7924, 15843, 23762][:tries]
    for request in asked:
        assert (request.messages, request.max_tokens, request.keep) == (REQUEST.messages, 20, True)
    assert end.value.value[0] is None


def test_no_tries_is_one():
    """At least one request is made."""
    assert finish(ask_as(REQUEST, json.loads, 0), ("", "error"))[0] is None


def test_a_value_that_is_false_is_a_value():
    """An empty value is a good reply."""
    assert finish(ask_as(REQUEST, json.loads), ("[]",))[0] == []


def test_nth_try_digests_differ():
    """No two tries are the same request."""
    assert nth_try(REQUEST, 1) is REQUEST
    assert len({nth_try(REQUEST, n).digest("m") for n in range(1, 6)}) == 5


def test_exhausted_names_families():
    """The keys whose tries were used up, without the number of the try, in the order given."""
    answers = [(None, Reply("b~2", "", "error")), ([], Reply("c", "[]", "stop")), (None, Reply("a", "", "stop"))]
    assert exhausted(answers) == ("b", "a")
    assert family("defender/p2/C-09~3") == "defender/p2/C-09"
