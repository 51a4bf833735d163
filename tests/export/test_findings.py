"""Records become findings; fingerprints; what an earlier export knew."""

from __future__ import annotations

import json

import pytest
from export_samples import BODY, FRONT, QUOTE, ask, brief, bulk_row, claim, empty, of, patch, record, verdict

from runner.errors import Integrity, Refused, UsageError
from runner.export import annotations, findings, sarif
from runner.export import json as as_json


def test_a_claim_with_its_verdict_and_patch():
    """Everything about a claim is together, its place in the file as it is now."""
    (x,) = of(record(), prefix="brain/", front=FRONT, body=BODY).findings
    assert (x.id, x.file, x.holding, x.confidence, x.level) == (
        "C-01",
        "brain/tree/a b:決策.md",
        "conceded",
        0.7,
        "error",
    )
    assert (x.lines, x.columns) == ((8, 8), (25, 49))
    assert x.edit is not None and (x.edit.id, x.edit.old, x.edit.new) == ("P-01", QUOTE, "It holds ten.")


def test_lines_follow_the_file():
    """Text before the quote moves it: front matter that grew, a body that was changed."""
    (taller,) = of(record(), front=FRONT + b"\n\n", body=BODY).findings
    (changed,) = of(record(), front=FRONT, body=b"\nNew.\n" + BODY).findings
    assert (taller.lines, changed.lines, changed.columns) == ((10, 10), (10, 10), (25, 49))


def test_a_changed_body_is_not_shown():
    """What was reviewed is not there any more, so nothing is shown in its context; a gone quote keeps its old line."""
    found = of(record(), front=FRONT, body=b"Other words.\n")
    assert found.body is None
    assert (found.findings[0].lines, found.findings[0].columns) == ((8, 8), None)


@pytest.mark.parametrize(
    ("label", "severity", "level"),
    [("CONCEDE", "blocker", "error"), ("CONCEDE-IN-PART", "major", "error"), ("CONCEDE", "minor", "warning"),
     ("CONCEDE", "nit", "note"), ("DEFER", "blocker", "warning"), ("DEFER", "major", "warning"),
     ("DEFER", "minor", "note"), ("REJECT", "blocker", "note")],
)  # fmt: skip
def test_level(label, severity, level):
    """Severity and verdict decide how loud other programs are."""
    (x,) = of(record(claims=[claim(severity=severity)], verdicts=[verdict(verdict=label)])).findings
    assert x.level == level


@pytest.mark.parametrize(
    ("changed", "gap"),
    [
        ({"personas": [{"name": "p", "status": "failed", "cause": "timeout"}]},
         "reviewer p gave no usable answer (timeout)"),
        ({"coverage": {"not_shown": [{"persona": "p", "start": 3, "end": 9}]}},
         "p did not read bytes 3 to 9 of the body"),
        ({"verdicts": [verdict(cause="engine", verdict="DEFER")]}, "no usable verdict on C-01"),
        ({"exhausted": ["synthesizer"], "complete": False}, "no usable answer to synthesizer"),
    ],
)  # fmt: skip
def test_gaps(changed, gap):
    """What was not done makes a round incomplete, whatever the record calls itself."""
    found = of(record(**changed))
    assert ([g.text for g in found.gaps], found.complete, found.status) == ([gap], False, "partial")


def test_one_failure_is_one_gap():
    """A reviewer that failed is named once, though the record says it in three places."""
    failed = {"name": "p", "status": "failed", "cause": "timeout"}
    data = record(
        personas=[failed], complete=False, exhausted=["reviewer/p/1", "defender/p2/C-01"],
        coverage={"not_shown": [{"persona": "p", "start": 0, "end": 9}]}, verdicts=[verdict(cause="engine")],
    )  # fmt: skip
    assert [g.what for g in of(data).gaps] == ["reviewer", "verdict"]


@pytest.mark.parametrize(
    "broken",
    [
        {"claims": [claim(severity="dreadful")]}, {"claims": [claim(anchor=None)]}, {"claims": "none"},
        {"claims": [claim(lines=[1])]}, {"verdicts": [verdict(verdict="MAYBE")]}, {"artifact": None},
        {"verdicts": [verdict(confidence=float("nan"))]}, {"verdicts": [verdict(confidence=2)]}, {"calls": [{}]},
        {"personas": [{}]}, {"coverage": []}, {"patches": [{"claim": "C-01"}]},
    ],
)  # fmt: skip
def test_damaged_record(broken):
    """A record that is not as this program writes it is an integrity error, never a clean report."""
    with pytest.raises(Integrity, match="the record is damaged"):
        of(record(**broken), path="x/record.json")


def test_unknown_schema():
    """A record of something else is refused by its name."""
    with pytest.raises(Refused, match=r"not a record that can be exported \(schema round/9\)"):
        of({"schema": "round/9"})


def test_ask():
    """An ask has no findings; a seat that failed is a gap."""
    whole = of(ask(), path="debates/x")
    seats = ask()["seats"]
    seats[0]["rounds"][0] |= {"status": "failed", "cause": "timeout"}
    part = of(ask(seats=seats, complete=False, synthesis=None))
    assert (whole.findings, whole.complete, whole.title, whole.file) == ((), True, "Shall we?", "debates/x")
    assert [g.text for g in part.gaps] == [
        "advocate gave no usable answer in round 1 (timeout)", "there is no synthesis"
    ]  # fmt: skip


def test_brief():
    """A brief's concern stands as it was raised: nobody judges it."""
    coverage = [{"file": "a", "problem": "missing"}, {"file": "b", "problem": "not in full"}]
    found = of(brief(coverage=coverage), prefix="work/")
    (x,) = found.findings
    assert (x.id, x.file, x.lines, x.holding, x.level) == ("K-01", "work/src/login.py", (3, 3), "conceded", "error")
    assert ([g.text for g in found.gaps], found.complete) == (["b: not in full"], False)


def test_brief_says_it_twice():
    """A concern that a later round raises again is one cluster."""
    (concern,) = brief()["concerns"]
    found = of(brief(concerns=[concern, concern | {"round": 2, "problem": "Still so."}, concern | {"kind": "auth"}]))
    assert [x.cluster for x in found.findings] == ["K-01", "K-01", "K-03"]


@pytest.mark.parametrize(
    ("row", "complete", "gaps"),
    [
        (bulk_row(), True, []),
        (bulk_row(status="skipped", why="parked", record=None), True, []),
        (bulk_row(status="failed", why="no", record=None), False, ["no"]),
        (bulk_row(status="failed", record=None), False, ["it was not reviewed"]),
        (bulk_row(record=None), False, ["its record is missing"]),
        (bulk_row(status="partial", why="half"), False, ["half"]),
    ],
)
def test_bulk_row(row, complete, gaps):
    """A row without a review never looks reviewed."""
    found = findings.of_bulk(row)
    assert (found.complete, [g.text for g in found.gaps]) == (complete, gaps)
    assert found.reviewed == (row["record"] is not None)


def test_bulk_row_damaged():
    """A row that is none of ours is an integrity error."""
    with pytest.raises(Integrity, match="the report is damaged"):
        findings.of_bulk({"path": "x", "status": "fine"})


# ---- fingerprints --------------------------------------------------------------------------------------------------


def test_fingerprint_survives_lines_and_words():
    """Moved, wrapped anew and described in other words it is the same; another quote, kind or file is not."""
    base = findings.fingerprint("a.md", "risk", "One two", "p")
    assert base == findings.fingerprint("a.md", "risk", "one\n Two", "said otherwise")
    others = [("b.md", "risk", "One two"), ("a.md", "other", "One two"), ("a.md", "risk", "One three")]
    assert base not in {findings.fingerprint(*o, "p") for o in others}
    assert findings.fingerprint("a.md", "risk", "", "p") != findings.fingerprint("a.md", "risk", "", "q")


def test_equal_fingerprints_are_counted():
    """Two findings of one kind on one quote have fingerprints of their own."""
    two = [claim(), claim(id="C-02", problem="Again.")]
    a, b = (x.fingerprint for x in of(record(claims=two)).findings)
    assert (a[-2:], b[-2:], a[:-2] == b[:-2]) == (":1", ":2", True)


@pytest.mark.parametrize("write", [as_json.write, sarif.write, annotations.codequality])
def test_known(write):
    """What an earlier export of these formats holds is left out, its whole cluster with it; gaps stay."""
    before = of(record())
    now = of(record(
        claims=[claim(), claim(id="C-02", cluster="C-01", kind="risk"), claim(id="C-03", kind="omission")],
        warnings=["w"],
    ))  # fmt: skip
    left = findings.without(now, findings.known(write([before]), "old"))
    assert ([x.id for x in left.findings], left.left_out, left.warnings) == (["C-03"], 2, ("w",))


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ("[" * 100_000, "not JSON"), ("{}", "holds no fingerprints of ours"),
     ("7", "holds no fingerprints of ours"), ('{"runs": [{"results": [{}]}]}', "holds no fingerprints of ours")],
)  # fmt: skip
def test_known_unreadable(text, message):
    """A --known that cannot be used is an error: it must never hide, or show, everything."""
    with pytest.raises(UsageError, match=message):
        findings.known(text, "old.json")


def test_known_of_another_tool():
    """Another program's SARIF without a result knows nothing, which is no error."""
    assert findings.known(json.dumps({"runs": [{"results": []}]}), "x") == frozenset()


def test_patch_by_hand_keeps_its_reason():
    """H-nn has no place and says why."""
    data = record(patches=[patch(id="H-01", start=None, end=None, by_hand="no edit was proposed")])
    edit = of(data, body=BODY).findings[0].edit
    assert edit is not None and (edit.id, edit.old, edit.by_hand) == ("H-01", None, "no edit was proposed")


def test_empty_round():
    """A round that found nothing is complete and has nothing."""
    found = of(empty())
    assert (found.complete, found.findings, found.gaps, found.reviewed) == (True, (), (), True)
