"""D. Patches and E. Findings, each class on a whole round.

Also proved elsewhere: D1 to D5 for any bytes in tests/test_claims.py (git itself takes every diff), D3 in
tests/rounds/test_patches.py, E4 and E6 with exact numbers in tests/protocols/test_round.py, E5 in
tests/rounds/test_resume.py.
"""

# ruff: noqa: N802 (a test has its class's letter in its name)

from __future__ import annotations

import math

import pytest
from helpers import LEAF, THREE, load, open_, place_of, record, replace, resume
from hostile import Says, claim, debate, fences, files, patched

from runner.errors import Incomplete, Integrity, Refused
from runner.rounds import patches
from runner.values import LABELS

SENTENCE = "The limit is the same for all shops."
PATH = f"project-brain/{LEAF}"


def test_D1_old_text_not_there(root, says):
    """The document has U+2019 and a no-break space, the model quotes ASCII: no place, never a patch near it."""
    replace(root / LEAF, "Nobody has", "It\u2019s not\u00a0known. Nobody has")
    said = Says([claim("It's not known.", "It is known."), claim("It\u2019s not\u00a0known.", "It is known.")])
    says(said)
    opened = open_(root)
    assert [c.anchor for c in opened.result.claims] == ["unanchored", "exact"] * 2
    assert [p.id for p in opened.result.patches] == ["H-01", "P-01", "H-02", "P-02"]
    text = files(opened.place.folder)["proposed-patches.md"]
    assert text.count("By hand: the quote is not in the document.") == 2
    assert "## Claims without a place in the document" in files(opened.place.folder)["tryouts/red-team.md"]


def test_D2_old_text_twice(root, says):
    """A sentence that stands in two sections: left to a person unless the claim names the section."""
    replace(root / LEAF, "Most failures are noticed quickly.", f"Most failures are noticed quickly. {SENTENCE}")
    says(Says([claim(SENTENCE, "No."), claim(SENTENCE, "No.", problem="Under Going back it is not so.")]))
    opened = open_(root)
    assert [c.anchor for c in opened.result.claims] == ["ambiguous", "exact"] * 2
    assert [c.lines for c in opened.result.claims][1] == (18, 18)
    assert files(opened.place.folder)["proposed-patches.md"].count("the quote occurs more than once") >= 2


def test_D3_overlap_and_order(root, says, capsys):
    """Two patches that share five characters are never applied together; nothing is written, both are named."""
    says(Says({"red-team": [
        claim("Nobody has measured whether it", "It was measured whether it"),
        claim("er it is enough.", "er it is too much."),
        claim("A failed start is reported to the team.", ""),
    ]}))  # fmt: skip
    open_(root)
    before = (root / LEAF).read_bytes()
    assert debate("patches", PATH, "--apply", "P-03,P-01,P-02") == 1
    assert "these patches change the same text: P-01 and P-02" in capsys.readouterr().err
    assert (root / LEAF).read_bytes() == before
    assert debate("patches", PATH, "--apply", "P-03,P-02") == 0
    after = (root / LEAF).read_bytes()
    assert b"whether it is too much." in after and b"A failed start" not in after
    with pytest.raises(Refused, match="P-01 overlaps a patch that is applied"):
        patches.apply(place_of(root), load(root), ["P-01"])


def test_D3_stale_base(root, says):
    """The body was edited after the round: no patch is applied, be its text still there."""
    says(Says([claim(SENTENCE, "Each shop has its own.")]))
    open_(root)
    replace(root / LEAF, "Most failures", "Some failures")
    before = (root / LEAF).read_bytes()
    with pytest.raises(Integrity, match="the body was changed since the round"):
        patches.apply(place_of(root), load(root), ["P-01"])
    assert (root / LEAF).read_bytes() == before


@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
@pytest.mark.parametrize("end", [True, False])
def test_D5_diffs_are_ours(root, says, eol, end):
    """Counts, line numbers and bytes of each diff as it stands in proposed-patches.md are right: the diff makes of the
    file what --apply makes of it; with CRLF and without a last line end, too."""
    raw = (root / LEAF).read_bytes().replace(b"\n", eol)
    (root / LEAF).write_bytes(raw if end else raw.removesuffix(eol))
    said = [
        claim(SENTENCE, "One.\nTwo.\n\nThree."),
        claim("Most failures are noticed quickly.", "All of them."),
        claim("The old version stays for a week.", ""),
    ]
    says(Says({"red-team": said}))
    opened = open_(root)
    base = (root / LEAF).read_bytes()
    diffs = fences(files(opened.place.folder)["proposed-patches.md"], "diff")
    assert len(diffs) == 3
    for number, diff in enumerate(diffs, 1):
        (root / LEAF).write_bytes(base)
        (opened.place.run / "applied.jsonl").unlink(missing_ok=True)
        patches.apply(opened.place, load(root), [f"P-{number:02d}"])
        assert (root / LEAF).read_bytes() == patched(base, diff.encode())
        after = (root / LEAF).read_bytes()
        assert after.count(b"\r\n") == (after.count(b"\n") if eol == b"\r\n" else 0)


# ---- E -------------------------------------------------------------------------------------------------------------


def test_E1_quotes_and_lines(root, says):
    """Lines are counted by us, in the file as it stands after the flip; a quote that is not there is kept apart."""
    says(Says([claim(SENTENCE, "No.", problem="On line 2489 it is wrong."), claim("A sentence of its own making.")]))
    opened = open_(root)
    exact, loose = opened.result.claims[:2]
    lines = (root / LEAF).read_text().split("\n")
    assert exact.lines is not None and SENTENCE in lines[exact.lines[0] - 1]
    assert (loose.anchor, loose.lines) == ("unanchored", None)
    assert [p.claim for p in opened.result.patches if p.id.startswith("P")] == ["C-01", "C-03"]


@pytest.mark.parametrize(
    ("label", "word"), [("CONCEDE", "conceded every claim"), ("REJECT", "rejected every claim"), ("DEFER", "")]
)
def test_E3_consensus(root, says, label, word):
    """Reviewers are blind to each other, the defender sees no names, and unanimity is said."""
    said = Says({name: [claim(SENTENCE, problem=f"Seen by number {n}.")] for n, name in enumerate(THREE)})
    said.labels = (label,)
    says(said)
    opened = open_(root, personas=THREE)
    for request in said.asked:
        text = "".join(m.text for m in request.messages)
        own = request.key.removeprefix("reviewer/")
        assert request.key.startswith("defender") or "Seen by number" not in text
        assert [name for name in THREE if name in text and name != own] == []
    assert (word in "".join(opened.result.diagnostics)) and bool(opened.result.diagnostics) is bool(word)
    assert ("## Diagnostics" in files(opened.place.folder)["defender.md"]) is bool(word)


def test_E4_position(root, says):
    """A defender that takes whatever label comes first: the two orders disagree, and it is DEFER, not a verdict."""

    def first(request):
        at = request.key.endswith("order-1")
        return tuple(math.log(0.85 if (i == 0) is at and i in (0, 3) else 0.05) for i in range(4))

    says(Says([claim(SENTENCE, "No.")], scores=lambda q: first(q) if "order" in q.key else (math.log(0.25),) * 4))
    opened = open_(root)
    assert {(v.verdict, v.cause, v.agree) for v in opened.result.verdicts} == {("DEFER", "close", False)}
    assert "In 2 of 2 verdicts the two label orders disagreed." in opened.result.diagnostics
    assert opened.result.patches == ()


def test_E5_replay_not_regeneration(root, says):
    """Resumed with a model that would say something else now: what was answered stands, word for word."""
    fails = {"defender/C-0*": ("", "timeout")}
    says(Says([claim(SENTENCE, "The first draw.", problem="Then.")], raw=fails))
    with pytest.raises(Incomplete):
        open_(root)
    said = Says([claim(SENTENCE, "The second draw.", problem="Now.")])
    says(said)
    opened = resume(root)
    assert {c.problem for c in opened.result.claims} == {"Then."}
    assert [q.key for q in said.asked if not q.key.startswith("defender/C-")] == []


def test_E6_probability(root, says):
    """The labels share their first word; confidence is that of the whole label, corrected; raw values are kept."""
    says(Says([claim(SENTENCE, "No.")], labels=("CONCEDE-IN-PART",)))
    opened = open_(root)
    verdict = record(opened.place)["verdicts"][0]
    assert verdict["method"] == "choices" and set(verdict["probabilities"]) == set(LABELS)
    assert sum(verdict["probabilities"].values()) == pytest.approx(1)
    assert verdict["confidence"] == pytest.approx(0.85) == verdict["probabilities"]["CONCEDE-IN-PART"]
    assert [row["order"] for row in verdict["raw"]] == [list(LABELS), list(LABELS[::-1])]
    assert [len(row["scores"]) for row in verdict["raw"]] == [4, 4]
