"""claims.py: places, groups, numbers, patches and their diffs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner import claims
from runner.errors import Refused
from runner.values import Amended, Claim, Patch, Verdict

FRONT = b'---\nid: "x"\nstatus: hardening\n---\n'
BODY = (
    "# Store\n\nWe keep sessions 30 days.\n\n## Retry\n\nWe retry 3 times.\n\n## Écriture\n\nWe retry 3 times.\nEnd.\n"
).encode()


def claim(quote: str, problem: str = "It is unclear.", **more: object) -> Claim:
    base = Claim("C-01", "red-team", quote, "ambiguity", problem, "major", "replace", "new text")
    return replace(base, **more)  # type: ignore[arg-type]


def verdict(of: str = "C-01", label: str = "CONCEDE", amended: Amended | None = None) -> Verdict:
    return Verdict(of, label, "measured", "because", amended=amended)  # type: ignore[arg-type]


def patched(body: bytes, *made: Claim, front: bytes = FRONT, path: str = "tree/a.md") -> tuple[Patch, ...]:
    placed = [claims.anchor(c, body, front.count(b"\n") + 1) for c in claims.number(made)]
    return claims.patches(placed, [verdict(c.id) for c in placed], body, front, path)


# ---- places --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quote", "problem", "expected"),
    [
        ("keep sessions 30 days", "x", ("exact", 12, 33, (7, 7))),
        ("# Store\n\nWe keep", "x", ("exact", 0, 16, (5, 7))),
        ("Écriture\n", "x", ("exact", 68, 78, (13, 13))),
        ("End.\n", "x", ("exact", 97, 102, (16, 16))),
        ("not there", "x", ("unanchored", None, None, None)),
        ("", "x", ("unanchored", None, None, None)),
        ("\ud800", "x", ("unanchored", None, None, None)),
        ("We retry 3 times.", "x", ("ambiguous", None, None, None)),
        ("We retry 3 times.", "In Écriture the count is wrong", ("exact", 79, 96, (15, 15))),
        ("We retry 3 times.", "Retry, and écriture", ("ambiguous", None, None, None)),
    ],
)
def test_anchor(quote: str, problem: str, expected: tuple[object, ...]) -> None:
    """One occurrence is exact, several are ambiguous unless the problem names one section, none is unanchored."""
    found = claims.anchor(claim(quote, problem), BODY, 5)
    assert (found.anchor, found.start, found.end, found.lines) == expected
    if found.start is not None:
        assert BODY[found.start : found.end] == quote.encode()


def test_anchor_counts_overlaps() -> None:
    """Occurrences that share bytes are several occurrences."""
    assert claims.anchor(claim("aa"), b"aaa", 1).anchor == "ambiguous"


def test_anchor_near_decides() -> None:
    """The window that was shown decides when it holds exactly one whole occurrence."""
    quote = claim("We retry 3 times.")
    assert claims.anchor(quote, BODY, 1, near=(70, len(BODY))).start == 79
    assert claims.anchor(quote, BODY, 1, near=(0, 80)).lines == (7, 7)
    assert claims.anchor(quote, BODY, 1, near=(0, len(BODY))).anchor == "ambiguous"
    assert claims.anchor(quote, BODY, 1, near=(0, 3)).anchor == "ambiguous"


def test_anchor_ignores_headings_in_code() -> None:
    """A comment in fenced code is no section."""
    body = b"## Alpha part\nhere\n```\n# beta part\n```\nhere\n"
    assert claims.anchor(claim("here", "beta part is wrong"), body, 1).anchor == "ambiguous"


def test_lines_count_line_feeds_only() -> None:
    """CRLF is one line end, a lone carriage return is none."""
    assert claims.anchor(claim("xyz"), b"a\r\nb\rc\n\r\nxyz\r\n", 1).lines == (4, 4)


def test_anchor_finds_a_quote_with_other_line_ends() -> None:
    """A quote over two lines is found in a CRLF document, and then holds the document's bytes."""
    found = claims.anchor(claim("one\ntwo"), b"zero\r\none\r\ntwo\r\n", 1)
    assert (found.quote, found.start, found.end, found.lines) == ("one\r\ntwo", 6, 14, (2, 3))


def test_near_measures_the_quote_as_it_stands() -> None:
    """A quote over two CRLF lines that sticks out of the window by one byte is not inside it."""
    body = b"a b\r\nc d\r\n\r\na b\r\nc d\r\n"
    assert claims.anchor(claim("a b\nc d"), body, 1, near=(0, 8)).start == 0
    assert claims.anchor(claim("a b\nc d"), body, 1, near=(0, 7)).anchor == "ambiguous"


def test_any_text_of_a_model_is_taken() -> None:
    """Lone surrogates in a problem or a quote raise nothing."""
    made = claims.number(
        [claim("End.", "\ud800 We retry"), claim("We retry 3 times.", "\udc80"), claim("\udcff", "\ud800")]
    )
    placed = claims.cluster([claims.anchor(c, BODY, 1) for c in made])
    assert [c.anchor for c in placed] == ["exact", "ambiguous", "unanchored"]
    assert len(claims.shuffled(placed)) == 3


def test_anchor_again_forgets_the_old_place() -> None:
    """A claim carried into a body without its quote loses its place."""
    found = claims.anchor(claim("keep sessions"), BODY, 1)
    assert claims.anchor(found, b"other\n", 1) == replace(found, start=None, end=None, lines=None, anchor="unanchored")


# ---- groups, numbers, order ----------------------------------------------------------------------------------------


def test_number() -> None:
    """Ids count in the order given, on from `after`, past two digits."""
    assert [c.id for c in claims.number([claim("a"), claim("b")])] == ["C-01", "C-02"]
    assert [c.id for c in claims.number([claim("a"), claim("b")], after=98)] == ["C-99", "C-100"]


def test_cluster() -> None:
    """Overlapping quotes with like texts are one; another place or another problem is another; nothing is dropped."""
    made = [
        claim("We keep sessions 30 days.", "The number of days is not justified."),
        claim("30 days", "Number of days not justified", raised_by="other"),
        claim("30 days", "A store may be down."),
        claim("End.", "The number of days is not justified."),
        claim("gone", "Nobody says who decides."),
        claim("gone", "who decides? nobody says"),
    ]
    placed = [claims.anchor(c, BODY, 1) for c in claims.number(made)]
    done = claims.cluster(placed)
    assert [c.cluster for c in done] == ["C-01", "C-01", "C-03", "C-04", "C-05", "C-05"]
    assert [replace(c, cluster="") for c in done] == placed


def test_cluster_is_stable_when_claims_are_added() -> None:
    """A later claim changes nothing for the earlier ones."""
    made = [claims.anchor(claim("30 days", t), BODY, 1) for t in ("too long", "days too long", "other thing", "long")]
    made = list(claims.number(made))
    assert all(claims.cluster(made)[:n] == claims.cluster(made[:n]) for n in range(5))


def test_shuffled_depends_on_content_only() -> None:
    """The same order whoever raised the claims and in whatever order; no names."""
    made = [claim(q, raised_by=f"p{n}") for n, q in enumerate("abcdefgh")]
    one = claims.shuffled(claims.number(made))
    other = claims.shuffled(claims.number([replace(c, raised_by="z") for c in reversed(made)]))
    assert [c.quote for c in one] == [c.quote for c in other] != list("abcdefgh")
    assert {c.raised_by for c in one} == {""}
    assert sorted(c.id for c in one) == [f"C-{n:02d}" for n in range(1, 9)]


# ---- patches -------------------------------------------------------------------------------------------------------


def test_patch_exact() -> None:
    """A CONCEDE becomes a diff against the whole file, with the line numbers of the file."""
    (patch,) = patched(BODY, claim("30 days", replacement="7 days"))
    diff = (
        b"--- a/tree/a.md\n+++ b/tree/a.md\n@@ -4,7 +4,7 @@\n ---\n # Store\n \n"
        b"-We keep sessions 30 days.\n+We keep sessions 7 days.\n \n ## Retry\n \n"
    )
    assert patch == Patch("P-01", "C-01", 26, 33, "7 days", diff)


def test_concede_in_part_uses_the_amended_proposal() -> None:
    """The verdict's own proposal takes the place of the claim's; DEFER, REJECT and no verdict make nothing."""
    made = claims.number([claim("30 days"), claim("End."), claim("End."), claim("End.")])
    placed = [claims.anchor(c, BODY, 5) for c in made]
    verdicts = [
        verdict("C-01", "CONCEDE-IN-PART", Amended("replace", "some days")),
        verdict("C-02", "DEFER"),
        verdict("C-03", "REJECT"),
    ]
    (patch,) = claims.patches(placed, verdicts, BODY, FRONT, "a.md")
    assert (patch.id, patch.claim, patch.replacement) == ("P-01", "C-01", "some days")


@pytest.mark.parametrize(
    ("made", "reason", "flags", "at"),
    [
        (claim("gone"), "the quote is not in the document", (), None),
        (claim("We retry 3 times."), "the quote occurs more than once in the document", (), None),
        (claim("End.", action="none"), "no edit was proposed", (), 97),
        (claim("End.", replacement="End."), "the replacement equals the quote", ("noop",), 97),
        (claim("End.", replacement="\ud800"), "the proposal holds characters that cannot be written as UTF-8", (), 97),
        (claim("Store"), "change the H1 and `title` together", (), 2),
        (claim("# Store\n", action="delete"), "change the H1 and `title` together", (), 0),
    ],
)
def test_by_hand(made: Claim, reason: str, flags: tuple[str, ...], at: int | None) -> None:
    """What cannot be a diff is left to a person, with the reason."""
    (patch,) = patched(BODY, made)
    assert (patch.id, patch.by_hand, patch.flags, patch.diff, patch.start) == ("H-01", reason, flags, b"", at)


def test_by_hand_without_amended() -> None:
    """A CONCEDE-IN-PART that never got its proposal is by hand."""
    placed = claims.anchor(claim("End."), BODY, 5)
    (patch,) = claims.patches([placed], [verdict("C-01", "CONCEDE-IN-PART")], BODY, FRONT, "a.md")
    assert (patch.id, patch.by_hand) == ("H-01", "no amended proposal was given")


def test_by_hand_when_the_place_is_not_the_quote() -> None:
    """A place that does not hold the quote is no place."""
    wrong = claim("End.", start=3, end=7, lines=(1, 1), anchor="exact")
    (patch,) = claims.patches([wrong], [verdict()], BODY, FRONT, "a.md")
    assert (patch.id, patch.by_hand, patch.start) == ("H-01", "the quote is not in the document", None)


@pytest.mark.parametrize(
    ("body", "quote", "new"),
    [
        (b"intro\n# T\n", "intro", "# Other"),  # another H1 comes first
        (b"Title\n=====\n\ntext\n", "Title", "Name"),  # underlined
        (b"```\n# no\n```\n# T\n", "```\n# no\n```", "~~~"),  # a fence that swallows the H1
        (b"# T\ntext\n", "T\nte", "T\nTe"),  # touches its line
        (b"plain\n", "plain", "# T"),  # there was none
    ],
)
def test_whatever_changes_the_first_h1_is_by_hand(body: bytes, quote: str, new: str) -> None:
    """The first H1 is the title: no diff may change which text that is."""
    (patch,) = patched(body, claim(quote, replacement=new))
    assert (patch.id, patch.by_hand) == ("H-01", "change the H1 and `title` together")


def test_a_heading_in_code_is_no_title() -> None:
    """Text in a fence before the first H1 may be changed."""
    (patch,) = patched(b"```\n# no\n```\n# T\n", claim("# no", replacement="# yes"))
    assert patch.id == "P-01"


def test_ids_count_separately_and_add_up() -> None:
    """P and H are numbered apart; together they are the conceded claims, in their order."""
    made = patched(BODY, claim("gone"), claim("30 days"), claim("Store"), claim("End."))
    assert [(p.id, p.claim) for p in made] == [("H-01", "C-01"), ("P-01", "C-02"), ("H-02", "C-03"), ("P-02", "C-04")]


def test_earlier_ids_are_kept() -> None:
    """A claim conceded in a later pass gets an id after the highest, and moves no other."""
    made = claims.number([claim("gone"), claim("30 days"), claim("End.")])
    placed = [claims.anchor(c, BODY, 5) for c in made]
    first = claims.patches(placed, [verdict("C-03")], BODY, FRONT, "a.md")
    again = claims.patches(placed, [verdict(f"C-0{n}") for n in (1, 2, 3)], BODY, FRONT, "a.md", first)
    assert [(p.id, p.claim) for p in again] == [("H-01", "C-01"), ("P-02", "C-02"), ("P-01", "C-03")]


@pytest.mark.parametrize(
    ("body", "quote", "left"),
    [
        (b"a\n\nb c\n\nd\n", "b ", b"a\n\nc\n\nd\n"),
        (b"a\n\nb\n\nd\n", "b", b"a\n\nd\n"),
        (b"a\n\nb\n\nd\n", "b\n", b"a\n\nd\n"),
        (b"a\n\nb\nc\n\nd\n", "b\nc", b"a\n\nd\n"),
        (b"a\n\nb\nc\n\nd\n", "b", b"a\n\nc\n\nd\n"),
        (b"a\r\n\r\n  b \r\n\r\nd\r\n", "b", b"a\r\n\r\nd\r\n"),
        (b"a\n\nb\n", "b", b"a\n"),
        (b"a\n\nb", "b", b"a\n"),
        (b"a\nb", "b", b"a\n"),
        (b"a\n\nb", "a", b"\nb"),
        (b"- a\n- b\n- c\n", "- b", b"- a\n- c\n"),
        (b"- a\n- b\n- c\n", "b", b"- a\n- c\n"),
        (b"1. a\r\n2) [x] b\r\n3. c\r\n", "b", b"1. a\r\n3. c\r\n"),
        (b"- a\n\n* b\n\n- c\n", "b", b"- a\n\n- c\n"),
        (b"- a\n- b\n  - c\n", "b", b"- a\n- \n  - c\n"),
        (b"- a\n- b\n  c\n- d\n", "b\n  c", b"- a\n- d\n"),
        (b"- a b c\n", "a", b"- b c\n"),
        (b"- a b\n", "b", b"- a \n"),
        (b"a. b. c.\n", "a.", b"b. c.\n"),
        (b"a. b.  c.\n", "b.", b"a. c.\n"),
        (b"(a) b\n", "a", b"() b\n"),
        (b"a b\n", " b", b"a\n"),
        (b"ab\ncd\n", "b\nc", b"ad\n"),
        (b"ab\ncd\n", "\ncd", b"ab\n"),
    ],
)
def test_delete(body: bytes, quote: str, left: bytes) -> None:
    """A deletion takes the quote; when that is all on its lines, the lines, and leaves one paragraph break; no empty
    item of a list is left, and no blanks in a row."""
    (patch,) = patched(body, claim(quote, action="delete", replacement="ignored"))
    assert claims.apply(body, [patch]) == left
    assert applied(FRONT + body, patch.diff) == FRONT + left


def test_neighbouring_deletions_do_not_overlap() -> None:
    """The last two paragraphs can be deleted together."""
    body = b"# T\n\na\n\nb\n\nc\n"
    both = patched(body, claim("b", action="delete"), claim("c", action="delete"))
    assert [p.flags for p in both] == [(), ()]
    assert claims.apply(body, both) == b"# T\n\na\n"


@pytest.mark.parametrize(
    ("body", "quote", "new", "after"),
    [
        (b"one\r\ntwo\r\n", "two", "2\n3\r\n4", b"one\r\n2\r\n3\r\n4\r\n"),
        (b"one\ntwo\n", "two", "2\r\n3", b"one\n2\n3\n"),
        (b"one\r\ntwo", "two", "2\n3", b"one\r\n2\r\n3"),
        (b"one\ntwo\r\nx\n", "two", "2\n3", b"one\n2\r\n3\r\nx\n"),
    ],
)
def test_new_lines_end_like_the_document(body: bytes, quote: str, new: str, after: bytes) -> None:
    """New line ends are those of the place they come into; other bytes stay."""
    (patch,) = patched(body, claim(quote, replacement=new))
    assert claims.apply(body, [patch]) == after


def test_overlapping_patches_are_named() -> None:
    """Each stands alone; together they are refused; the same edit twice is made once."""
    made = patched(
        BODY,
        claim("We keep sessions", replacement="Sessions stay"),
        claim("sessions 30 days", replacement="them for a week"),
        claim("sessions 30 days", replacement="them for a week"),
        claim("End.", replacement="Fin."),
    )
    assert [p.flags for p in made] == [
        ("overlaps P-02", "overlaps P-03"),
        ("overlaps P-01", "same as P-03"),
        ("overlaps P-01", "same as P-02"),
        (),
    ]
    with pytest.raises(Refused) as error:
        claims.apply(BODY, made)
    assert str(error.value) == "these patches change the same text: P-01 and P-02\nhint: apply one of each pair"
    assert b"We keep them for a week." in claims.apply(BODY, made[1:])
    assert claims.apply(BODY, made[1:]).endswith(b"Fin.\n")


def test_adjacent_patches_go_together() -> None:
    """Two edits that touch without sharing a byte are no overlap."""
    both = patched(BODY, claim("We keep", replacement="They hold"), claim(" sessions", replacement=" tokens"))
    assert [p.flags for p in both] == [(), ()]
    assert b"They hold tokens 30 days." in claims.apply(BODY, both)


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (Patch("H-01", "C-01", None, None, "", by_hand="no edit was proposed"), "no edit was proposed"),
        (Patch("P-01", "C-01", 99, 999, "x"), "it has no place in this document"),
    ],
)
def test_apply_refuses(patch: Patch, message: str) -> None:
    """What is by hand, or does not fit, is refused and named."""
    with pytest.raises(Refused) as error:
        claims.apply(BODY, [patch])
    assert str(error.value) == f"{patch.id} cannot be applied: {message}\nhint: make this change by hand"


# ---- diffs ---------------------------------------------------------------------------------------------------------


def applied(before: bytes, diff: bytes) -> bytes:
    """An applier of the tests' own: every context line must stand where the hunk says."""
    old = re.findall(rb"[^\n]*\n|[^\n]+", before)
    lines = re.findall(rb"[^\n]*\n", diff)
    assert lines[0].startswith(b"--- ") and lines[1].startswith(b"+++ ")
    out: list[bytes] = []
    at = 0
    counts, mark, below = [0, 0], b"", 0
    for line in [*lines[2:], b"@@ end"]:
        if line.startswith(b"@@"):
            assert counts == [0, 0]
            assert below == 3 or at == len(old) or not mark, "too little context for git"
            if line == b"@@ end":
                continue
            m = re.fullmatch(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n", line)
            assert m
            counts = [int(m[2] or 1), int(m[4] or 1)]
            first = int(m[1]) - (1 if counts[0] else 0)
            out += old[at:first]
            assert int(m[3]) - (1 if counts[1] else 0) == len(out)
            at = first
        elif line.startswith(b"\\"):
            assert line == b"\\ No newline at end of file\n"
            if mark in b" +":
                out[-1] = out[-1][:-1]
            if mark in b" -":
                assert not old[at - 1].endswith(b"\n")
        else:
            mark, text = line[:1], line[1:]
            below = below + 1 if mark == b" " else 0
            if mark in b" -":
                assert old[at].rstrip(b"\n") == text[:-1]
                at += 1
                counts[0] -= 1
            if mark in b" +":
                out.append(text)
                counts[1] -= 1
    return b"".join(out + old[at:])


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("tree/a.md", b"a/tree/a.md"),
        ("a b.md", b'"a/a b.md"'),
        ("决.md", b'"a/\\345\\206\\263.md"'),
        ('q"\\.md', b'"a/q\\042\\134.md"'),
    ],
)
def test_paths_are_quoted_as_git_does(path: str, shown: bytes) -> None:
    """Blanks, quotes, backslashes and other scripts stand in quotes with octal escapes."""
    (patch,) = patched(BODY, claim("End."), path=path)
    assert patch.diff.split(b"\n")[0] == b"--- " + shown


PIECES = ["a", "b", "B c", "é", "决定", "\t", " ", "\n", "\n", "\r\n", "\r", "- x", "#", "```", "\x0c", "\u2028", "😀"]
TEXT = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


@settings(max_examples=150, deadline=None)
@given(TEXT, TEXT, TEXT, TEXT, st.sampled_from(["replace", "delete"]), st.sampled_from([b"", FRONT, b"---\r\n---\r\n"]))
def test_diff_gives_the_same_bytes_as_apply(a: str, q: str, b: str, new: str, action: str, front: bytes) -> None:
    """Whatever the line ends and the script, the diff does to the file what apply does to the body."""
    body = (a + "\nQ" + q + "\n" + b).encode()
    (patch,) = patched(body, claim("Q" + q, action=action, replacement=new), front=front)
    if patch.id == "P-01":
        after = claims.apply(body, [patch])
        assert after != body
        assert applied(front + body, patch.diff) == front + after
        if action == "replace" and "\n" not in new and new:
            assert after == (a + "\n" + new + "\n" + b).encode()


@settings(max_examples=60, deadline=None)
@given(TEXT, st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9), TEXT), max_size=4))
def test_apply_together_is_apply_one_by_one_from_the_end(text: str, edits: list[tuple[int, int, str]]) -> None:
    """Patches that do not overlap give the same whatever order they are named in; others are refused."""
    body = (text + "x" * 70).encode()
    made = [Patch(f"P-{n:02d}", "C-01", s, s + size, new) for n, (s, size, new) in enumerate(edits)]
    spans = sorted({(p.start or 0, p.end or 0, p.replacement) for p in made})
    if any(x[1] > y[0] for x, y in pairwise(spans)):
        with pytest.raises(Refused):
            claims.apply(body, made)
        return
    expected, at = b"", 0
    for start, end, new in spans:
        expected, at = expected + body[at:start] + new.encode(), end
    assert claims.apply(body, made) == claims.apply(body, made[::-1]) == expected + body[at:]


GIT_CASES = [
    (BODY, "30 days", "7 days", "tree/a.md"),
    (BODY, "End.", "", "a b.md"),
    (BODY.rstrip(b"\n"), "End.", "Fin", "决定.md"),
    (BODY.rstrip(b"\n"), "We keep sessions 30 days.", "", "tree/a.md"),
    (BODY.replace(b"\n", b"\r\n"), "We keep sessions 30 days.", "one\ntwo\tthree", "tree/a.md"),
    (BODY.replace(b"\n", b"\r\n"), "## Retry", "", 'q"x.md'),
    (b"x\r\ny\nz w\r\n\tb\rc", "z w", "é\n\n", "tree/a.md"),
    (b"one", "one", "two\n", "a.md"),
    (b"a\n\nQ\nR\n\n\n\nb\nc\nd\n", "Q\nR", "", "a.md"),  # blank lines on both sides must not cost the context below
]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize(("body", "quote", "new", "path"), GIT_CASES)
def test_git_apply_gives_the_same_bytes(body: bytes, quote: str, new: str, path: str, tmp_path: Path) -> None:
    """git takes every diff as it is, and leaves the file that apply would leave."""
    (patch,) = patched(body, claim(quote, replacement=new), path=path)
    assert patch.id == "P-01"
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(FRONT + body)
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    env["GIT_CEILING_DIRECTORIES"] = str(tmp_path.parent)
    for more in (["--check"], []):
        subprocess.run(["git", "apply", *more, "-"], cwd=tmp_path, env=env, input=patch.diff, check=True)
    assert file.read_bytes() == FRONT + claims.apply(body, [patch])
