"""Only the lines of the changed keys change."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.brain.front_matter import edit, quoted, read, scalar
from runner.errors import Refused

FLIP = [("status", "hardening"), ("source_debate", "debate/round-01"), ("pre_hardening_status", "decided")]


def refused(raw: bytes, changes: list[tuple[str, str | None]] | None = None) -> str:
    with pytest.raises(Refused) as error:
        read(raw, "x.md") if changes is None else edit(raw, changes, "x.md")
    return str(error.value).split("\n")[0]


# ---- reading -------------------------------------------------------------------------------------------------------


def test_values_are_strings_as_written() -> None:
    """C2: dates, times and numbers are not rewritten; only a plain null is None."""
    raw = (
        b"---\ncreated_at: 2026-04-22T09:00:00-07:00\nwindow: 10:00\ncode: 0010\non: yes\nempty:\n"
        b"soft_links:\n  - uri: '/tree/a.md'\n    role: spec\n---\nbody\n"
    )
    front = read(raw, "x.md")
    assert front.fields == {
        "created_at": "2026-04-22T09:00:00-07:00",
        "window": "10:00",
        "code": "0010",
        "on": "yes",
        "empty": None,
        "soft_links": [{"uri": "/tree/a.md", "role": "spec"}],
    }
    assert front.lines == {"created_at": 2, "window": 3, "code": 4, "on": 5, "empty": 6, "soft_links": 7}
    assert raw[front.body_start :] == b"body\n"
    assert front.text("window") == "10:00"
    assert front.text("soft_links") is None
    assert front.text("nothing") is None


@pytest.mark.parametrize(
    ("raw", "line", "body"),
    [
        (b"---\r\na: b\r\n---\r\nbody", 2, b"body"),
        (b"---  \na: b\n--- \t\nbody", 2, b"body"),
        (b"\n\n---\na: b\n---\nbody", 4, b"body"),
        (b"<!-- made\n--- by hand -->\n\n<!-- x -->\n---\na: b\n---\nbody", 6, b"body"),
        (b"\xef\xbb\xbf---\na: b\n---\nbody", 2, b"body"),
        (b"---\na: b\n---", 2, b""),
        ("---\na: b # ü\n---\nbödy".encode(), 2, "bödy".encode()),
    ],
)
def test_what_the_validator_accepts_is_read(raw: bytes, line: int, body: bytes) -> None:
    """CRLF, blanks after the delimiters, blank lines and comments before the opener; a BOM is read, too."""
    front = read(raw, "x.md")
    assert front.fields == {"a": "b"}
    assert front.lines == {"a": line}
    assert raw[front.body_start :] == body


def test_bom_and_newline_are_told() -> None:
    """C7, C8: a byte-order mark is reported, and the more frequent line end."""
    front = read(b"\xef\xbb\xbf---\r\na: b\r\n---\nx\r\n", "x.md")
    assert (front.bom, front.newline) == (True, "\r\n")
    front = read(b"---\na: b\r\n---\nx\r\n", "x.md")
    assert (front.bom, front.newline) == (False, "\n")


def test_limits_are_not_met_early() -> None:
    """Twenty levels are read, and tabs in comments."""
    raw = b"---\na: " + b"[" * 19 + b"]" * 19 + b"\n  # x\ty\n---\n"
    assert list(read(raw, "x.md").fields) == ["a"]


def test_empty_front_matter() -> None:
    """No keys is a front matter without keys."""
    assert read(b"---\n---\nx", "x.md").fields == {}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"# Title\n", "x.md:1: no front matter"),
        (b"", "x.md:1: no front matter"),
        (b"<!-- a -->\n# Title\n", "x.md:2: no front matter"),
        (b"<!-- open\n---\na: b\n---\n", "x.md:1: no front matter"),
        (b" ---\na: b\n---\n", "x.md:1: no front matter"),
        (b"---- \na: b\n---\n", "x.md:1: no front matter"),
        (b"\n---\na: b\n", "x.md:2: the front matter has no closing `---` line"),
        (b"---\na: b\na: c\n---\n", "x.md:3: duplicate key `a` (lines 2 and 3)"),
        (b"---\nx:\n  a: b\n  a: c\n---\n", "x.md:4: duplicate key `a` (lines 3 and 4)"),
        (b"---\na:\tb\n---\n", "x.md:2: tab in the front matter"),
        (b"---\na: !x b\n---\n", "x.md:2: tag `!x` in the front matter"),
        (b"---\na: &x b\n---\n", "x.md:2: anchor `&x` in the front matter"),
        (b"---\nq: 1\na: *x\n---\n", "x.md:3: alias `*x` in the front matter"),
        (b"---\n<<: {a: b}\n---\n", "x.md:2: a key of the front matter is not a plain word"),
        (b"---\nq: 1\na: 2026-13-45\n---\n", "x.md:3: the value of `a` cannot be read: month must be in 1..12"),
        (b"---\n- a\n---\n", "x.md:2: front matter is not a list of `key: value` lines"),
        (
            b"---\na: b\nc: d: e\n---\n",
            "x.md:3: front matter cannot be read as YAML: mapping values are not allowed here",
        ),
        (b"---\na: \x01\n---\n", "x.md:2: front matter cannot be read as YAML: special characters are not allowed"),
        (b"---\na: b\nc: \xff\n---\n", "x.md:3: not valid UTF-8"),
        (b"---\na: b\n---\nbody \xff\n", "x.md:4: not valid UTF-8"),
        ("---\na: b\u2028c: d\n---\n".encode(), "x.md:2: line break U+2028 in the front matter"),
        (b"---\na: b\rc: d\n---\n", "x.md:2: line break U+000D in the front matter"),
        (b"---\na: |\n  x\n  ---\n  y\n---\n", "x.md:4: a `---` that is not at column 0 stands in the front matter"),
        ("---\na: b\n\u00a0---\n---\n".encode(), "x.md:3: a `---` that is not at column 0 stands in the front matter"),
    ],
)
def test_refused_with_file_and_line(raw: bytes, message: str) -> None:
    """C5, C6, C10: one clean refusal each, never a traceback."""
    assert refused(raw) == message


def test_deep_nesting_huge_integer_and_size() -> None:
    """C10: what makes a YAML reader recurse, raise or work for minutes is refused."""
    assert refused(b"---\na: " + b"[" * 5000 + b"]" * 5000 + b"\n---\n") == (
        "x.md:2: front matter is nested more than 20 levels deep"
    )
    assert refused(b"---\na: " + b"9" * 5000 + b"\n---\n").startswith("x.md:2: the value of `a` cannot be read: ")
    big = b"---\na: " + b"x" * 65536 + b"\n---\n"
    assert refused(big) == f"x.md:3: front matter has {len(big)} bytes, more than 65536"


def test_rule_in_the_body_is_body() -> None:
    """C6: only the first column-0 `---` closes."""
    raw = b"---\na: b\n---\n| t |\n\n---\n\n```\n---\n```\n"
    assert raw[read(raw, "x.md").body_start :] == b"| t |\n\n---\n\n```\n---\n```\n"


# ---- editing -------------------------------------------------------------------------------------------------------


def test_order_comments_quotes_and_blank_lines_stay() -> None:
    """C1: a flip is three lines; everything else is byte-equal."""
    raw = b"---\ntitle: T\n# keep\nowner: 'al'\n\nstatus: decided  # why\nwindow: 10:00\n---\n# T\n"
    assert edit(raw, FLIP, "x.md") == (
        b"---\ntitle: T\n# keep\nowner: 'al'\n\nstatus: hardening  # why\nsource_debate: debate/round-01\n"
        b"pre_hardening_status: decided\nwindow: 10:00\n---\n# T\n"
    )


def test_flip_and_back_is_the_same_file() -> None:
    """Closing takes back what opening wrote."""
    raw = b"---\nstatus: decided # c\nx: 1\n---\n"
    back = [("status", "decided"), ("source_debate", None), ("pre_hardening_status", None)]
    assert edit(edit(raw, FLIP, "x.md"), back, "x.md") == raw


def test_long_and_foreign_values_stay() -> None:
    """C3: a title of 120 CJK characters is neither wrapped nor escaped."""
    raw = f"---\ntitle: {'決' * 120}\nstatus: decided\n---\n".encode()
    assert edit(raw, [("status", "hardening")], "x.md") == raw.replace(b"decided", b"hardening")


def test_bom_and_crlf_stay() -> None:
    """C7, C8: the mark stays, inserted lines take the file's line end, odd lines keep theirs."""
    raw = b"\xef\xbb\xbf---\r\nid: a\nstatus: decided\r\n---\r\nx\r\n"
    assert edit(raw, FLIP, "x.md") == (
        b"\xef\xbb\xbf---\r\nid: a\nstatus: hardening\r\nsource_debate: debate/round-01\r\n"
        b"pre_hardening_status: decided\r\n---\r\nx\r\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"status:\n", b"status: hardening\n"),
        (b"status:   # c\n", b"status: hardening   # c\n"),
        (b'"status": "decided"   \n', b'"status": hardening   \n'),
        (b"status: 'de''cided' # c\n", b"status: hardening # c\n"),
        (b"status: [a, b]\n", b"status: hardening\n"),
        (b"  status: decided\n", b"  status: hardening\n"),
        (b"status: hardening\n", b"status: hardening\n"),
        (b"status: 'hardening'\n", b"status: 'hardening'\n"),
        (b"id: a\n", b"id: a\nstatus: hardening\n"),
        (b"", b"status: hardening\n"),
    ],
)
def test_one_value(before: bytes, after: bytes) -> None:
    """The value is replaced where it stands, or a line is added; a value that is there already keeps its bytes."""
    assert edit(b"---\n" + before + b"---\nx", [("status", "hardening")], "x.md") == b"---\n" + after + b"---\nx"


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ([("last_debate_round", "r")], b"status: active\nmaturity: locking\nlast_debate_round: r\nz: 1\n"),
        ([("status", None)], b"maturity: locking\nz: 1\n"),
        ([("absent", None)], b"status: active\nmaturity: locking\nz: 1\n"),
        ([("status", None), ("new", "a b")], b'new: "a b"\nmaturity: locking\nz: 1\n'),
        ([("maturity", None), ("new", "a")], b"status: active\nnew: a\nz: 1\n"),
        ([], b"status: active\nmaturity: locking\nz: 1\n"),
    ],
)  # fmt: skip
def test_insert_and_remove(changes: list[tuple[str, str | None]], after: bytes) -> None:
    """A new line stands by its neighbour; removing takes the whole line; removing nothing is nothing."""
    raw = b"---\nstatus: active\nmaturity: locking\nz: 1\n---\n"
    assert edit(raw, changes, "x.md") == b"---\n" + after + b"---\n"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"---\nstatus: |\n  a\n---\n", "x.md:2: the value of `status` spans several lines"),
        (b"---\nq: 1\nstatus: a\n  b\n---\n", "x.md:3: the value of `status` spans several lines"),
        (b"---\nstatus:\n  decided\n---\n", "x.md:2: the value of `status` spans several lines"),
        (b"---\nstatus: [a,\n  b]\n---\n", "x.md:2: the value of `status` spans several lines"),
        (b"---\nstatus: >\n---\n", "x.md:2: the value of `status` spans several lines"),
        (b"---\n? status\n: decided\n---\n", "x.md:2: the value of `status` spans several lines"),
        (b"---\n? status\nb: 1\n---\n", "x.md:2: the value of `status` spans several lines"),
        (b"---\n{status: a}\n---\n", "x.md:2: front matter is one `{\u2026}` mapping"),
        (b"---\nstatus: a\nstatus: b\n---\n", "x.md:3: duplicate key `status` (lines 2 and 3)"),
    ],
)
def test_values_over_lines_are_refused(raw: bytes, message: str) -> None:
    """A change that would touch another line is not made."""
    assert refused(raw, [("status", "hardening")]) == message


def test_a_key_given_twice_is_refused() -> None:
    """The proof after the edit catches what cannot be done."""
    changes: list[tuple[str, str | None]] = [("status", "b"), ("status", "c")]
    assert refused(b"---\nstatus: a\n---\n", changes) == "x.md:2: the front matter cannot be edited line by line"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("debate/round-01", "debate/round-01"),
        ("decided", "decided"),
        ("yes", '"yes"'),
        ("Null", '"Null"'),
        ("010", '"010"'),
        ("2026-01-01", '"2026-01-01"'),
        ("-", '"-"'),
        ("", '""'),
        ('a "b" \\ # c', '"a \\"b\\" \\\\ # c"'),
        ("debate/旅行/round-01", '"debate/旅行/round-01"'),
        ("a\nb\u2028c\x7f", '"a\\nb\\u2028c\\u007f"'),
    ],
)
def test_new_values(value: str, written: str) -> None:
    """Plain where every reader takes it for the string, else double-quoted on one line."""
    assert scalar(value) == written
    assert read(edit(b"---\na: 1\n---\n", [("k", value)], "x.md"), "x.md").text("k") == value


def test_quoted_is_always_quoted() -> None:
    """Files of ours hold double-quoted strings."""
    assert quoted("open") == '"open"'


WORD = st.text(string.ascii_lowercase, min_size=1, max_size=6)
VALUE = st.one_of(
    WORD,
    WORD.map(lambda w: f"'{w}: # ''x'"),
    WORD.map(lambda w: f'"{w} é決"  # note'),
    st.sampled_from(["10:00", "0010", "2026-04-22", "[a, b]", "", "|\n  one\n\n  two", "\n  - a\n  - b: c", ">-\n  x"]),
)
LINES = st.lists(
    st.tuples(st.one_of(WORD, st.just("status")), VALUE, st.sampled_from(["", "# c\n", "\n"])),
    max_size=5,
    unique_by=lambda line: line[0],
)
BODY = st.text("ab-#\n\r \u2028é", max_size=30)


@settings(max_examples=80, deadline=None)
@given(LINES, BODY, st.booleans(), st.booleans(), st.sampled_from(["hardening", "a b", "no"]))
def test_every_other_line_is_byte_equal(
    lines: list[tuple[str, str, str]], body: str, bom: bool, crlf: bool, value: str
) -> None:
    """Whatever the front matter and the body: the lines left after taking out the changed keys' are the same bytes."""
    lines = [(key, "decided # c" if key == "status" else text, after) for key, text, after in lines]
    block = "".join(f"{key}: {text}\n{after}" for key, text, after in lines)
    text = f"---\n{block}---\n".replace("\n", "\r\n" if crlf else "\n") + body
    raw = (b"\xef\xbb\xbf" if bom else b"") + text.encode()
    after = edit(raw, [("status", value), ("source_debate", "debate/round-01")], "x.md")
    keys = (b"status:", b"source_debate:")
    kept = [[line for line in data.split(b"\n") if not line.startswith(keys)] for data in (raw, after)]
    assert kept[0] == kept[1]
    assert read(after, "x.md").fields == {
        **read(raw, "x.md").fields, "status": value, "source_debate": "debate/round-01",
    }  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(st.text(st.sampled_from("-- \n\r\t:ab'\"|>[]{}#&*!?%@`,\u2028\x000"), max_size=40), st.booleans())
def test_anything_is_read_or_refused(text: str, fenced: bool) -> None:
    """No input ends in anything but a value or a Refused with a line."""
    raw = (f"---\n{text}\n---\n" if fenced else text).encode()
    try:
        edit(raw, [("status", "x")], "x.md")
    except Refused as error:
        assert error.path == "x.md"
        assert error.line is not None
