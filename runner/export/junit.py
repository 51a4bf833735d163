"""`debate export junit`: a suite per artifact; reviewers and claims are its cases.

failure: a claim that the gate counts (without a gate: a conceded one). skipped: deferred, and whoever was not asked.
error: what was not done. A suite is never empty, so "nothing was found" and "nothing was read" differ.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence

from runner.export.model import Finding, Findings
from runner.export.words import line, path_line, shown


def _conceded(finding: Finding) -> bool:
    return finding.holding == "conceded"


def write(found: Sequence[Findings], fails: Callable[[Finding], bool] = _conceded) -> str:
    """One XML document. fails: does this finding count as a failure?"""
    root = ET.Element("testsuites", {"name": "debate-runner"})
    for f in found:
        root.append(_suite(f, fails))
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    root.set("time", f"{sum(f.seconds for f in found):.3f}")
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(f: Findings, fails: Callable[[Finding], bool]) -> ET.Element:
    suite = ET.Element("testsuite", {"name": path_line(f.file or f.title)})
    cases = [*_people(f), *(_gap(f, n) for n in range(len(f.gaps))), *(_claim(f, x, fails) for x in f.findings)]
    if f.status == "skipped":
        cases.append(_case(f, "review", "skipped", f.why))
    if f.fake:
        cases.append(_case(f, "engine", "skipped", "FAKE ENGINE: no model read this; every word is made up"))
    suite.extend(cases or [_case(f, "review")])
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    suite.set("tests", str(len(cases) or 1))
    for key, tag in counted.items():
        suite.set(key, str(sum(case.find(tag) is not None for case in cases)))
    suite.set("time", f"{f.seconds:.3f}")
    if f.at:
        suite.set("timestamp", line(f.at.removesuffix("Z")))
    return suite


def _people(f: Findings) -> list[ET.Element]:
    """Who read it: those that answered pass, those that were skipped are skipped; the rest is a gap."""
    asked = f.record.get("personas") or f.record.get("critics") or []
    done = [p["name"] for p in asked if p.get("status", "done") == "done" and not p.get("failed")]
    skipped = f.record.get("skipped") or []
    return [_case(f, f"reviewer {n}") for n in done] + [
        _case(f, f"reviewer {n}", "skipped", "skipped this round") for n in skipped
    ]


def _gap(f: Findings, n: int) -> ET.Element:
    gap = f.gaps[n]
    return _case(f, f"{gap.what} {n + 1}", "skipped" if f.complete else "error", gap.text)


def _case(f: Findings, name: str, tag: str = "", message: str = "", text: str = "") -> ET.Element:
    case = ET.Element("testcase", {"classname": path_line(f.path or f.title), "name": line(name, 200)})
    if tag:
        told = ET.SubElement(case, tag, {"message": line(message)})
        if tag != "skipped":
            told.set("type", line(name.split(" ")[0]))
        told.text = shown(text) or None
    return case


def _claim(f: Findings, x: Finding, fails: Callable[[Finding], bool]) -> ET.Element:
    name = f"{x.id} {x.severity} {x.kind}: {x.problem}"
    tag = "failure" if fails(x) else "skipped" if x.holding == "deferred" else ""
    case = _case(f, name, tag, x.problem, _told(x) if tag == "failure" else "")
    case.set("file", path_line(x.file))
    if x.lines is not None:
        case.set("line", str(x.lines[0]))
    if (told := case.find("failure")) is not None:
        told.set("type", x.severity)
    return case


def _told(x: Finding) -> str:
    where = x.file if x.lines is None else f"{x.file}:{x.lines[0]}"
    sure = "" if x.confidence is None else f" ({x.confidence:.2f})"
    verdict = "" if x.verdict == "unjudged" else f"\n{x.verdict}{sure}: {x.reason}"
    return f"{where}\n> {x.quote}\n{x.problem}\nraised by {x.raised_by}{verdict}\n"
