"""Cutting a long document: every character is shown, cuts are at headings, each window fits."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.protocols.windows import windows

SECTION = "## Part {}\n\nA first paragraph of some length here.\n\nA second one that says a little more.\n\n"
BODY = "# Title\n\n" + "".join(SECTION.format(i) for i in range(9))


def test_one_window_when_it_fits() -> None:
    """The whole body."""
    assert windows(BODY, lambda _: True) == ((0, len(BODY)),)


def test_cuts_stand_before_headings_and_windows_overlap() -> None:
    """A window's own text begins with a heading, after a paragraph of what came before."""
    found = windows(BODY, lambda t: len(t) <= 300, overlap=60)
    assert len(found) > 2
    for (_, end), (start, _) in itertools.pairwise(found):
        assert BODY[end:].startswith("## Part")
        assert 0 < end - start <= 60


@settings(max_examples=80, deadline=None)
@given(st.text("ab \n#", max_size=400), st.integers(5, 60), st.integers(0, 30))
def test_every_character_is_covered_and_every_window_fits(body: str, size: int, overlap: int) -> None:
    """No gap, no window that is too long, progress in every step."""
    found = windows(body, lambda t: len(t) <= size, overlap)
    assert found[0][0] == 0 and found[-1][1] == len(body)
    assert all(b - a <= size for a, b in found)
    assert all(a2 <= b1 < b2 for (_, b1), (a2, b2) in itertools.pairwise(found))


def test_nothing_fits() -> None:
    """No endless loop."""
    with pytest.raises(ValueError, match="not a single character fits"):
        windows("abc", lambda _: False)
