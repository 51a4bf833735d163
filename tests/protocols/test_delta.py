"""Which passages a delta review may quote, and how the differences are shown."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.protocols.delta import delta

BEFORE = """# Store

We keep sessions in one cluster of three nodes.

## Failure

- Writes that fail are retried three times.
- The on-call engineer decides about a fail-over.

| key | value that counts |
|---|---|
| days | thirty days and no more |

The end of the document stands here.
"""


def quotable(after: str, before: str = BEFORE) -> list[str]:
    """The texts that may be quoted."""
    found = delta(before, after)
    assert found is not None
    return [after[a:b] for a, b in found.quotable]


def test_no_change_is_none() -> None:
    """Nothing to review; blanks at line ends and line ends themselves are no change."""
    assert delta(BEFORE, BEFORE) is None
    assert delta(BEFORE, BEFORE.replace("\n", "\r\n")) is None
    assert delta(BEFORE, BEFORE.replace("nodes.", "nodes.  ")) is None


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("three nodes", "five nodes", ["We keep sessions in one cluster of five nodes."]),
        ("retried three times", "dropped at once", ["Writes that fail are dropped at once."]),
        ("| days | thirty", "| days | ninety", ["| days | ninety days and no more |"]),
        ("The end", "A new end", ["A new end of the document stands here."]),
    ],
)
def test_a_changed_passage_alone_is_quotable(old: str, new: str, expected: list[str]) -> None:
    """A paragraph, a list item, a table row: the one that holds the change."""
    assert quotable(BEFORE.replace(old, new)) == expected


def test_both_neighbours_of_a_deletion() -> None:
    """What is left around a deleted item can be quoted."""
    after = BEFORE.replace("- Writes that fail are retried three times.\n", "")
    assert quotable(after) == [
        "We keep sessions in one cluster of three nodes.",
        "The on-call engineer decides about a fail-over.",
    ]


def test_an_added_passage() -> None:
    """New text is quotable, old text beside it is not."""
    after = BEFORE.replace("## Failure\n", "A whole new paragraph was added.\n\n## Failure\n")
    assert quotable(after) == ["A whole new paragraph was added."]


def test_differences_are_marked_under_their_heading() -> None:
    """Removed lines, then new ones."""
    found = delta(BEFORE, BEFORE.replace("retried three times", "dropped"))
    assert found is not None
    assert found.differences == (
        "## Failure\n- - Writes that fail are retried three times.\n+ - Writes that fail are dropped."
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(BEFORE.splitlines(keepends=True)), max_size=12))
def test_any_edit_gives_spans_inside_the_new_body(lines: list[str]) -> None:
    """Whatever was moved or dropped, spans are in order and in the body."""
    after = "".join(lines)
    found = delta(BEFORE, after)
    if found is not None:
        flat = [x for span in found.quotable for x in span]
        assert flat == sorted(flat) and all(0 <= x <= len(after) for x in flat)
