"""debate/index.md: one row changes, nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.brain.front_matter import read as read_front_matter
from runner.brain.index import COLUMNS, closed, read, set_row
from runner.errors import Refused

OPENED = {
    "Round": "round-01", "Opened": "2026-05-01T10:00:00Z", "Scope": "leaf", "Mode": "full",
    "Reviewers": "red-team, human-factors", "Failed": "", "Verdicts": "2 CONCEDE", "Status": "open",
}  # fmt: skip
CLOSED = {
    "Round": "round-01",
    "Status": "closed",
    "Patches": "applied",
    "Closed": "2026-05-02",
    "Close commit": "(pending)",
}

NEW = b"""---
id: "a-debate"
kind: "debate-index"
created_at: "2026-05-01T10:00:00Z"
---

# A title: debate rounds

| Round | Opened | Scope | Mode | Reviewers | Failed | Verdicts | Status | Patches | Closed | Close commit |
|---|---|---|---|---|---|---|---|---|---|---|
| round-01 | 2026-05-01T10:00:00Z | leaf | full | red-team, human-factors |  | 2 CONCEDE | open |  |  |  |
"""
PACK = """---
id: x
kind: debate-index
created_at: 2026-01-01
---

# X

```
| Round | not | this |
|---|---|---|
```

## Rounds

| Round | Started | Status | Patches |
|------:|:-------:|--------|--------:|
| [round-01](round-01/) | May | closed | 3 |
| _later_ |  |  |  |

## Convergence

| Round | other |
|---|---|
| round-01 | x |
"""


def put(raw: bytes | None, row: dict[str, str], template: str | None = None) -> bytes:
    return set_row(
        raw, row, path="index.md", index_id="a-debate", created_at="2026-05-01T10:00:00Z", title="A\n title",
        template=template,
    )  # fmt: skip


def refused(raw: bytes) -> str:
    with pytest.raises(Refused) as error:
        read(raw, "index.md")
    return str(error.value)


def test_new_file() -> None:
    """Front matter the validator needs, a heading, the header and the row."""
    assert put(None, OPENED) == NEW
    assert list(read_front_matter(NEW, "index.md").fields) == ["id", "kind", "created_at"]


def test_same_row_again_is_the_same_file() -> None:
    """Setting a row is idempotent, at open and at close."""
    assert put(NEW, OPENED) == NEW
    once = put(NEW, CLOSED)
    assert put(once, CLOSED) == once


def test_close_changes_the_cells_it_names() -> None:
    """Cells that are not named keep their bytes."""
    after = put(NEW, CLOSED).decode()
    assert after == NEW.decode().replace("| open |  |  |  |", "| closed | applied | 2026-05-02 | (pending) |")


def test_reading() -> None:
    """Rows by number, cells by column, with their line."""
    index = read(put(NEW, {**OPENED, "Round": "round-02"}), "index.md")
    assert index.header == COLUMNS
    assert list(index.rows) == [1, 2]
    assert index.rows[2].line == 12
    assert index.rows[2].cells["Reviewers"] == "red-team, human-factors"
    assert index.rows[2].cells["Closed"] == ""


def test_other_headers_stay() -> None:
    """Missing columns come at the right; the placeholder, the alignment and every other line keep their bytes."""
    after = put(PACK.encode(), {"Round": "round-02", "Mode": "delta", "status": "open", "a|b": "c"}).decode()
    assert after == PACK.replace("Status | Patches |", "Status | Patches | Mode | a\\|b |").replace(
        "--------:|\n", "--------:| --- | --- |\n"
    ).replace("| _later_ |  |  |  |\n", "| _later_ |  |  |  |\n| round-02 |  | open |  | delta | c |\n")


def test_a_row_grows_only_when_it_is_set() -> None:
    """The pack's own row keeps its first cell and gets the new ones."""
    after = put(PACK.encode(), {"Round": "round-01", "Mode": "full"}).decode()
    assert "| [round-01](round-01/) | May | closed | 3 | full |\n| _later_ |  |  |  |\n" in after


def test_numbered_rows_are_rounds() -> None:
    """A row whose first cell is only a number is that round."""
    raw = b"| Round | Status |\n|---|---|\n| 01 | open |\n"
    assert put(raw, {"Round": "round-01", "Status": "closed"}) == raw.replace(b"open", b"closed")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_line_ends_and_bom_stay(newline: str) -> None:
    """The new row takes the file's line end, also after a last line that has none."""
    raw = b"\xef\xbb\xbf" + f"| Round | Status |{newline}|---|---|{newline}| round-01 | closed |".encode()
    after = put(raw, {"Round": "round-02", "Status": "open"})
    assert after == raw + f"{newline}| round-02 | open |{newline}".encode()


def test_rows_without_a_last_pipe() -> None:
    """Markdown allows them; they are read, and completed when they grow."""
    raw = b"| Round | Status\n|---|---\n| round-01 | open\n"
    assert put(raw, {"Round": "round-01", "Status": "closed", "Mode": "full"}) == (
        b"| Round | Status | Mode |\n|---|--- | --- |\n| round-01 | closed | full |\n"
    )


@settings(max_examples=80, deadline=None)
@given(st.text("a|\\n\n\r `<>*é\u2028", max_size=12))
def test_cells_read_back(text: str) -> None:
    """Pipes, backslashes and line breaks neither break the table nor change."""
    after = put(NEW, {"Round": "round-01", "Verdicts": text})
    assert read(after, "index.md").rows[1].cells["Verdicts"] == text.strip()
    assert after.count(b"\n") == NEW.count(b"\n")
    assert put(after, {"Round": "round-01", "Verdicts": text}) == after


def test_two_rows_for_one_round() -> None:
    """Refused with both lines."""
    assert refused(NEW + b"| round-01 |  |\n") == (
        "index.md:12: two rows for round-01 (lines 11 and 12)\nhint: keep one of them"
    )


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"# X\n", 1),
        (b"# X\n\n| Nr | Status |\n|---|---|\n", 3),
        (b"| Round | Status |\n| round-01 | open |\n", 1),
        (b"x\n```\n| Round | Status |\n|---|---|\n", 3),
    ],
)
def test_unreadable_header(raw: bytes, line: int) -> None:
    """No table, another first column, no rule below, or only inside a code block."""
    assert refused(raw).startswith(f"index.md:{line}: no readable table of rounds\nhint: ")


def test_columns_of_one_name() -> None:
    """Which of them is meant cannot be told."""
    assert refused(b"| Round | Status | status |\n|---|---|---|\n").startswith("index.md:1: two columns of one name")


def test_row_longer_than_its_header() -> None:
    """Its surplus cell would fall under a new column."""
    raw = b"| Round | Status |\n|---|---|\n| round-01 | open | x |\n"
    with pytest.raises(Refused) as error:
        put(raw, {"Round": "round-02", "Mode": "full"})
    assert str(error.value) == "index.md:3: a row has more cells than the header"


def test_template_gives_prose_and_columns() -> None:
    """A brain's template stands around the rows; its front matter and placeholder row do not."""
    template = PACK.replace("| [round-01](round-01/) | May | closed | 3 |\n", "").replace("\n", "\r\n")
    after = put(None, {"Round": "round-01", "Status": "open"}, template).decode()
    assert after.startswith('---\nid: "a-debate"\nkind: "debate-index"\n')
    assert "|--------:|\n| round-01 |  | open |  |\n\n## Convergence\n" in after
    assert "_later_" not in after


def test_template_without_a_table() -> None:
    """Ours is added."""
    after = put(None, {"Round": "round-01"}, "# Ours\n\nProse.\n").decode()
    table = NEW.decode().split("\n\n")[2].split("| round-01")[0]
    assert after.endswith("# Ours\n\nProse.\n\n" + table + "| round-01 |" + "  |" * 10 + "\n")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ("| Status |\n|---|---|\n| round-01 | open |", False),
        ("| Status |\n|---|---|\n| round-01 | Abandoned |", True),
        ("| Status | Closed |\n|---|---|---|\n| round-01 | open | (pending) |", False),
        ("| Status | Closed |\n|---|---|---|\n| round-01 | applied | 2026-05-02 |", True),
        ("| Status |\n|---|---|\n| round-02 | closed |", False),
    ],
)
def test_close_entries(cells: str, expected: bool) -> None:
    """A status closed or abandoned, or a close time."""
    assert closed(read(f"| Round {cells}\n".encode(), "index.md"), 1) is expected


def test_row_must_name_a_round() -> None:
    """A caller's mistake, not a user's."""
    with pytest.raises(ValueError, match="not a round: x"):
        put(None, {"Round": "x"})
