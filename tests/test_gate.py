"""--fail-on: what it says, what trips it, and that nothing incomplete gets through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner import gate
from runner.errors import UsageError
from runner.export.model import Finding, Findings, Gap
from runner.gate import Rule


def finding(**changed):
    base = Finding(
        id="C-01", path="a.md", file="a.md", raised_by="p", kind="risk", severity="major", quote="q", problem="p",
        cluster="C-01", fingerprint="f:1", verdict="CONCEDE", confidence=0.5,
    )  # fmt: skip
    return replace(base, **changed)


def round_of(*found: Finding, **changed) -> Findings:
    return replace(Findings("round/1", "a.md", "a.md", "A", True, findings=found), **changed)


def trips(text: str, *found: Finding) -> list[str]:
    return [t.rule.text for t in gate.tripped(gate.parse(text), [round_of(*found)])]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("none", ()),
        ("major", (Rule("major", "major"),)),
        ("nit:any@0.25>12", (Rule("nit:any@0.25>12", "nit", "any", 0.25, 12),)),
        (
            "blocker, minor:deferred>3",
            (Rule("blocker", "blocker"), Rule("minor:deferred>3", "minor", "deferred", 0, 3)),
        ),
        ("major@1", (Rule("major@1", "major", "conceded", 1.0),)),
    ],
)
def test_parse(text, rules):
    """The whole grammar, and its defaults."""
    assert gate.parse(text) == rules


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "--fail-on: '' is no rule", "a rule is severity[:conceded"),
        ("major,", "--fail-on: '' is no rule", "a rule is severity[:conceded"),
        ("high", "--fail-on: 'high' is no severity", "severities: blocker, major, minor, nit"),
        ("major,none", "--fail-on: 'none' is no severity", "none stands alone"),
        ("major:accepted", "--fail-on: 'accepted' is no verdict", "verdicts: conceded, deferred, rejected, any"),
        ("major@2", "--fail-on: '2' is no confidence", "from 0 to 1"),
        ("major@1.2.3", "--fail-on: '1.2.3' is no confidence", "from 0 to 1"),
        ("major>-1", "--fail-on: 'major>-1' is no rule", "a rule is severity[:conceded"),
        ("major>2@0.5", "--fail-on: 'major>2@0.5' is no rule", "e.g. major:conceded@0.6>2"),
        ("Major", "--fail-on: 'Major' is no rule", "a rule is severity"),
    ],
)
def test_parse_refuses(text, message, hint):
    """A mistake is told, never taken for `none`."""
    with pytest.raises(UsageError) as error:
        gate.parse(text)
    assert error.value.message == message
    assert hint in (error.value.hint or "")


@pytest.mark.parametrize(
    ("text", "changed", "tripped"),
    [
        ("major", {}, True),
        ("minor", {}, True),
        ("blocker", {}, False),
        ("major", {"verdict": "CONCEDE-IN-PART"}, True),
        ("major", {"verdict": "DEFER"}, False),
        ("major", {"verdict": "REJECT"}, False),
        ("major:deferred", {"verdict": "DEFER"}, True),
        ("major:rejected", {"verdict": "REJECT"}, True),
        ("major:any", {"verdict": "REJECT"}, True),
        ("major:any", {"verdict": ""}, True),
        ("major", {"verdict": "unjudged"}, True),
        ("major@0.5", {}, True),
        ("major@0.51", {}, False),
        ("major@1", {"confidence": None}, True),
        ("major>0", {}, True),
        ("major>1", {}, False),
        ("none", {"severity": "blocker"}, False),
    ],
)
def test_one_finding(text, changed, tripped):
    """That severity or worse, that verdict, that sure; unmeasured passes every minimum."""
    assert bool(trips(text, finding(**changed))) == tripped


def test_counted_in_clusters():
    """Three findings that say the same count once; more than the count trips."""
    same = [finding(id=f"C-0{n}") for n in (1, 2, 3)]
    other = finding(id="C-04", cluster="C-04")
    assert (trips("major>1", *same), trips("major>1", *same, other)) == ([], ["major>1"])


def test_worst_severity_among_those_that_hold_the_verdict():
    """The blocker that was rejected does not make its conceded sibling one."""
    mixed = (finding(severity="blocker", verdict="REJECT"), finding(id="C-02", severity="minor"))
    assert (trips("blocker", *mixed), trips("minor", *mixed), trips("blocker:any", *mixed)) == (
        [],
        ["minor"],
        ["blocker:any"],
    )


def test_clusters_of_two_artifacts_are_two():
    """C-01 of one round and C-01 of another are not the same."""
    assert gate.tripped(gate.parse("major>1"), [round_of(finding()), round_of(finding())]) != ()


def test_message():
    """What tripped is named, a few of many."""
    (trip,) = gate.tripped(gate.parse("major"), [round_of(*(finding(id=f"C-{n}", cluster=str(n)) for n in range(7)))])
    assert str(trip) == "--fail-on major: 7 clusters, 0 allowed (a.md:C-0, a.md:C-1, a.md:C-2, a.md:C-3, a.md:C-4, …)"


def test_known_findings_do_not_count():
    """A cluster with a known finding is known."""
    found = [round_of(finding(), finding(id="C-02", fingerprint="g:1"))]
    assert gate.tripped(gate.parse("major"), found, {"g:1"}) == ()
    assert gate.tripped(gate.parse("major"), found, {"h:1"}) != ()


@pytest.mark.parametrize(
    ("text", "complete", "code"), [("none", True, 0), ("major", True, 3), ("major", False, 4), ("none", False, 4)]
)
def test_exit_code(text, complete, code):
    """Tripped is 3, incomplete is 4 whatever else is so."""
    found = [round_of(finding(), complete=complete, gaps=() if complete else (Gap("reviewer", "x"),))]
    assert gate.exit_code(gate.tripped(gate.parse(text), found), found) == code


def test_failing_without_rules():
    """Without a gate a conceded finding counts as a failure in reports that have such a word."""
    assert gate.failing((), finding()) and not gate.failing((), finding(verdict="DEFER"))
    assert not gate.failing(gate.parse("blocker"), finding())
