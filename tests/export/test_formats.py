"""Every format: valid by its own rules, whatever a claim says, and never clean when something is missing."""

from __future__ import annotations

import importlib
import json
import os
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
import sarif_shape
from export_samples import (
    BODY,
    FRONT,
    HOSTILE,
    ask,
    brief,
    bulk_row,
    claim,
    empty,
    example,
    hostile,
    of,
    patch,
    record,
    verdict,
)  # fmt: skip

from runner.export import annotations, findings, junit, markdown, sarif
from runner.export import json as as_json

WRITERS = {
    "json": as_json.write, "sarif": sarif.write, "junit": junit.write, "annotations": annotations.write,
    "codequality": annotations.codequality, "markdown": markdown.write,
}  # fmt: skip
SOURCES = {
    "example": lambda: [example()],
    "placed": lambda: [of(record(), prefix="brain/", front=FRONT, body=BODY)],
    "hostile": lambda: [of(hostile())],
    "empty": lambda: [of(empty())],
    "nothing": list,
    "ask": lambda: [of(ask())],
    "brief": lambda: [of(brief())],
    "bulk": lambda: [findings.of_bulk(bulk_row()), findings.of_bulk(bulk_row(path="y", status="failed", record=None))],
    "long": lambda: [of(record(claims=[claim(quote="x" * 10_000, problem="y" * 10_000)]))],
}


@pytest.mark.parametrize("source", SOURCES)
def test_sarif_is_valid(source):
    """Every log has the standard's fields and types, repeated rules and no results included."""
    log = json.loads(sarif.write(SOURCES[source]()))
    assert [*sarif_shape.faults(log), *sarif_shape.relations(log)] == []


@pytest.mark.skipif("SARIF_SCHEMA" not in os.environ, reason="SARIF_SCHEMA names no copy of the standard's schema")
@pytest.mark.parametrize("source", SOURCES)
def test_sarif_against_the_schema(source):
    """The standard's own JSON schema agrees."""
    validators = importlib.import_module("jsonschema.validators")
    schema = json.loads(Path(os.environ["SARIF_SCHEMA"]).read_bytes())
    log = json.loads(sarif.write(SOURCES[source]()))
    assert [e.message for e in validators.validator_for(schema)(schema).iter_errors(log)] == []


def test_the_shape_finds():
    """The check itself: a line 0, an absolute path, a rule listed twice, a field nobody knows."""
    log = json.loads(sarif.write([of(record())]))
    run = log["runs"][0]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    place["region"]["startLine"] = 0
    place["artifactLocation"]["uri"] = "/tree/../x y"
    run["tool"]["driver"]["rules"] *= 2
    run["results"][0]["colour"] = "red"
    assert len([*sarif_shape.faults(log), *sarif_shape.relations(log)]) == 4


def test_sarif_result():
    """One claim as a result: rule, level, place in code points, fingerprint, patch."""
    (result,) = json.loads(sarif.write([of(record(), prefix="my brain/", front=FRONT, body=BODY)]))["runs"][0][
        "results"
    ]
    assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("debate/contradiction", 0, "error")
    assert result["message"]["text"] == "Ten or nine? CONCEDE (0.70): It is so."
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "my%20brain/tree/a%20b%3A%E6%B1%BA%E7%AD%96.md"
    assert place["region"] == {
        "startLine": 8, "endLine": 8, "startColumn": 25, "endColumn": 49,
        "snippet": {"text": "A box holds nine things."},
    }  # fmt: skip
    (change,) = result["fixes"][0]["artifactChanges"][0]["replacements"]
    assert change["deletedRegion"] == {"startLine": 8, "startColumn": 25, "endLine": 8, "endColumn": 49}
    assert change["insertedContent"] == {"text": "It holds ten."}


def test_sarif_unanchored_and_rejected():
    """A claim without a place is on line 1 and says so; a rejected one is suppressed with the reason."""
    lost = claim(start=None, end=None, lines=None, anchor="unanchored")
    data = record(claims=[lost], verdicts=[verdict(verdict="REJECT", reason="Not so.")], patches=[])
    (result,) = json.loads(sarif.write([of(data)]))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 1
    assert "its quote is not in the document" in result["message"]["text"]
    assert result["suppressions"] == [{"kind": "external", "status": "accepted", "justification": "Not so."}]


def test_sarif_incomplete():
    """What was not read is an error notification, and the invocation did not succeed."""
    data = empty(coverage={"not_shown": [{"persona": "p", "start": 0, "end": 9}]})
    (invocation,) = json.loads(sarif.write([of(data)]))["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    (note,) = invocation["toolExecutionNotifications"]
    assert (note["descriptor"]["id"], note["level"]) == ("debate/coverage", "error")
    assert note["message"]["text"] == "p did not read bytes 0 to 9 of the body"


@pytest.mark.parametrize("source", SOURCES)
def test_junit_is_xml(source):
    """It parses, its counts are those of its cases, and no suite is empty."""
    text = junit.write(SOURCES[source]())
    root = ET.fromstring(text.encode())
    assert "\ufffe" not in text  # no character of XML, which this parser lets pass
    for suite in root:
        cases = suite.findall("testcase")
        assert cases
        counts = {k: len(suite.findall(f"testcase/{t}")) for k, t in
                  {"failures": "failure", "errors": "error", "skipped": "skipped"}.items()}  # fmt: skip
        assert {k: int(suite.attrib[k]) for k in ("tests", *counts)} == {"tests": len(cases)} | counts
    assert int(root.attrib["tests"]) == sum(len(suite) for suite in root)


def test_junit_cases():
    """Conceded fails, deferred is skipped, rejected passes; a gap is an error; a skipped persona is skipped."""
    claims = [claim(id=f"C-0{n}") for n in (1, 2, 3)]
    verdicts = [verdict(claim=f"C-0{n}", verdict=v) for n, v in ((1, "CONCEDE"), (2, "DEFER"), (3, "REJECT"))]
    data = record(claims=claims, verdicts=verdicts, skipped=["ops"], complete=False, exhausted=["synthesizer"])
    root = ET.fromstring(junit.write([of(data)]))
    told = {c.attrib["name"]: [e.tag for e in c] for c in root.iter("testcase")}
    assert told == {
        "reviewer red-team": [], "reviewer ops": ["skipped"], "synthesis 1": ["error"],
        "C-01 major contradiction: Ten or nine?": ["failure"], "C-02 major contradiction: Ten or nine?": ["skipped"],
        "C-03 major contradiction: Ten or nine?": [],
    }  # fmt: skip
    none = ET.fromstring(junit.write([of(data)], lambda x: False))
    assert none.attrib["failures"] == "0"


def test_nothing_found_is_not_nothing_read():
    """A round without a claim and an artifact that was not read differ in every format."""
    clean, unread = of(empty()), findings.of_bulk(bulk_row(path="tree/a b:決策.md", status="failed", record=None))
    for name, write in WRITERS.items():
        assert write([clean]) != write([unread]), name
    assert "Nothing was found." in markdown.write([clean])
    assert "Nothing was read." in markdown.write([unread])
    assert json.loads(annotations.codequality([clean])) == []
    assert [i["severity"] for i in json.loads(annotations.codequality([unread]))] == ["blocker"]


def test_annotations():
    """The command, word for word."""
    text = annotations.write([of(record(), prefix="b/", front=FRONT, body=BODY)])
    assert text == (
        "::error file=b/tree/a b%3A決策.md,line=8,endLine=8,col=25,endColumn=49,title=C-01 major%3A contradiction"
        "::Ten or nine? CONCEDE (0.70): It is so.\n"
        "::notice title=debate-runner::1 document reviewed, 1 claim\n"
    )


def test_annotations_are_ten_of_a_level():
    """A step shows ten of each level: the worst are written, and how many are left out is said."""
    claims = [claim(id=f"C-{n:02d}", severity="minor" if n < 30 else "blocker") for n in range(10, 45)]
    verdicts = [verdict(claim=c["id"]) for c in claims]
    lines = annotations.write([of(record(claims=claims, verdicts=verdicts))]).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error"] * 10 + ["::warning"] * 10 + ["::notice"]
    assert lines[-1].endswith("1 document reviewed, 35 claims; 15 more in the report than a step shows")


def test_annotations_take_a_cluster_once():
    """Claims that say the same are one annotation, a rejected one is none."""
    claims = [claim(), claim(id="C-02", cluster="C-01"), claim(id="C-03")]
    verdicts = [verdict(), verdict(claim="C-02"), verdict(claim="C-03", verdict="REJECT")]
    lines = annotations.write([of(record(claims=claims, verdicts=verdicts))]).splitlines()
    assert [line[:8] for line in lines] == ["::error ", "::notice"]


def test_no_claim_gives_a_command():
    """Every line is a command of ours: text of a document neither begins one nor ends one."""
    lines = annotations.write([of(hostile())]).splitlines()
    assert all(re.fullmatch(r"::(error|warning|notice) [^:]*::.*", line) for line in lines)
    assert not [line for line in lines if line.startswith(("::error::", "##["))]
    assert "%250A%25" in lines[0] or "%250A%25" in lines[1]
    assert all(c not in "".join(lines) for c in "\u202e\x00\x1b\ud800\r")
    for line in lines:
        for pair in line.split("::")[1].split(" ", 1)[1].split(","):
            assert "=" in pair


@pytest.mark.parametrize("name", WRITERS)
def test_hostile_text_can_be_written(name):
    """Lone surrogates, control characters and markup: the text encodes, and says nothing of its own."""
    text = WRITERS[name]([of(hostile())])
    assert "\x00" not in text.encode().decode()
    if name not in ("json",):
        assert all(c not in text for c in "\u202e\x1b")


def test_json_keeps_the_words():
    """The JSON export holds the exact text, save for what UTF-8 cannot."""
    (artifact,) = json.loads(as_json.write([of(hostile())]))["artifacts"]
    assert artifact["findings"][0]["quote"] == HOSTILE.replace("\ud800", "\ufffd")


def test_json_summary():
    """Counts of findings, verdicts and clusters; `complete` only when everything is."""
    claims = [claim(), claim(id="C-02", cluster="C-01", severity="blocker")]
    data = record(claims=claims, verdicts=[verdict(), verdict(claim="C-02", verdict="REJECT")])
    out = json.loads(as_json.write([of(data), findings.of_bulk(bulk_row(status="skipped", record=None, why="parked"))]))
    assert (out["schema"], out["complete"]) == ("export/1", True)
    assert out["summary"] | {"clusters": None} == {
        "artifacts": 2, "statuses": {"done": 1, "skipped": 1}, "findings": 2, "left_out": 0,
        "verdicts": {"conceded": 1, "deferred": 0, "rejected": 1}, "clusters": None,
    }  # fmt: skip
    assert out["summary"]["clusters"]["conceded"] == {"blocker": 0, "major": 1, "minor": 0, "nit": 0}
    assert out["summary"]["clusters"]["rejected"] == {"blocker": 1, "major": 0, "minor": 0, "nit": 0}


def test_markdown_obeys_nothing():
    """No heading, table row, HTML or fence of a claim's text becomes one of ours."""
    text = markdown.write([of(hostile())])
    fence = re.search(r"^(`{3,})", text, re.MULTILINE)
    assert fence is None
    assert not re.search(r"<(script|img|!--)", text)
    assert not [line for line in text.splitlines() if line.startswith(("::", "##["))]


def test_markdown_stays_below_the_limit():
    """A step's summary has a limit: what does not fit is counted."""
    claims = [claim(id=f"C-{n}", quote="q" * 2000, problem="p" * 2000) for n in range(400)]
    text = markdown.write([of(record(claims=claims, verdicts=[], patches=[]))])
    assert len(text.encode()) <= markdown.BYTES_MAX
    assert re.search(r"\n\d+ more findings did not fit here\.\n\Z", text)


def test_markdown_of_ask_and_brief():
    """A debate's own parts are shown, as text."""
    assert "- It is &lt;b>cheap&lt;/b>." in markdown.write([of(ask())])
    text = markdown.write([of(brief())])
    assert "## Action items\n\n- Remove eval." in text
    assert "### src/login.py K-01\n\n> eval(name)" in text


def test_codequality():
    """GitLab's fields, with a path as it is and a line."""
    (issue,) = json.loads(annotations.codequality([of(record(), prefix="b/")]))
    assert issue["location"] == {"path": "b/tree/a b:決策.md", "lines": {"begin": 8}}
    assert (issue["severity"], issue["check_name"]) == ("major", "debate/contradiction")


def test_fake_is_said():
    """A round of the fake engine says so in every format."""
    found = replace(of(empty()), fake=True)
    for name in ("sarif", "junit", "annotations", "markdown"):
        assert "FAKE ENGINE" in WRITERS[name]([found]), name
    assert json.loads(as_json.write([found]))["artifacts"][0]["fake"] is True


def test_patch_of_a_changed_body_is_no_fix():
    """A patch that does not fit any more is not offered to an editor."""
    found = of(record(patches=[patch()]), front=FRONT, body=b"Other words.\n")
    assert "fixes" not in json.loads(sarif.write([found]))["runs"][0]["results"][0]
