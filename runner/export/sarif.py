"""`debate export sarif`: SARIF 2.1.0, one run. Every claim is a result; what was not done is a notification.

A rejected claim is a suppressed result with the defender's reason. Incomplete: `executionSuccessful` is false.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from runner import __version__
from runner.export.findings import FINGERPRINT
from runner.export.model import Edit, Finding, Findings
from runner.export.words import cut, encodable, line, shown, uri
from runner.values import KINDS

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BASE = "%SRCROOT%"
_WHAT = {
    "contradiction": "Two passages cannot both be true", "unsupported": "A statement that nothing supports",
    "ambiguity": "A passage that can be read in more than one way", "omission": "Something needed is missing",
    "broken-reference": "A reference that leads nowhere", "risk": "A risk that is not dealt with",
    "other": "Another objection",
}  # fmt: skip
_NOTES = {
    "reviewer": "A reviewer gave no usable answer", "coverage": "Part of the document was not read",
    "verdict": "A claim has no usable verdict", "synthesis": "There is no synthesis",
    "seat": "A seat of the debate gave no usable answer", "file": "A file was not read, or not in full",
    "artifact": "An artifact was not reviewed", "warning": "A warning of the review", "fake": "No model was asked",
}  # fmt: skip


def write(found: Sequence[Findings]) -> str:
    """One SARIF log with one run."""
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(found)]}
    return encodable(json.dumps(log, ensure_ascii=False, indent=1)) + "\n"


def _run(found: Sequence[Findings]) -> dict[str, Any]:
    kinds = _kinds(found)
    results = sorted(((x, f) for f in found for x in f.findings), key=lambda pair: pair[0].rank)
    invocation: dict[str, Any] = {
        "executionSuccessful": all(f.complete for f in found),
        "toolExecutionNotifications": list(_notifications(found)),
    }
    return {
        "tool": {"driver": _driver(kinds)},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {_BASE: {"description": {"text": "The project's folder"}}},
        "results": [_result(x, f, kinds) for x, f in results],
    }


def _kinds(found: Sequence[Findings]) -> list[str]:
    """The same rules in the same order every time; others, of briefs, only where they occur."""
    more = {x.kind for f in found for x in f.findings} - set(KINDS)
    return [*KINDS, *sorted(more)]


def _driver(kinds: Sequence[str]) -> dict[str, Any]:
    return {
        "name": "debate-runner", "version": __version__, "semanticVersion": __version__,
        "rules": [_descriptor(kind, _WHAT.get(kind, f"A concern about {kind.replace('-', ' ')}")) for kind in kinds],
        "notifications": [_descriptor(what, text) for what, text in _NOTES.items()],
    }  # fmt: skip


def _descriptor(name: str, text: str) -> dict[str, Any]:
    return {"id": f"debate/{line(name, 100)}", "shortDescription": {"text": line(text)}}


# ---- results -------------------------------------------------------------------------------------------------------


def _result(x: Finding, f: Findings, kinds: Sequence[str]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": f"debate/{line(x.kind, 100)}",
        "ruleIndex": kinds.index(x.kind),
        "level": x.level,
        "message": {"text": _message(x)},
        "locations": [{"physicalLocation": _place(x)}],
        "partialFingerprints": {FINGERPRINT: x.fingerprint},
        "properties": _properties(x, f),
    }
    if x.holding == "rejected":
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": line(x.reason)}]
    fix = _fix(x, f)
    return result | ({"fixes": [fix]} if fix else {})


def _message(x: Finding) -> str:
    where = {"unanchored": " [its quote is not in the document]", "ambiguous": " [its quote occurs more than once]"}
    verdict = "" if x.verdict == "unjudged" else f" {x.verdict or 'No verdict'}" + _confidence(x) + f": {x.reason}"
    return line(f"{x.problem or x.kind}{where.get(x.anchor, '')}{verdict}")


def _confidence(x: Finding) -> str:
    return "" if x.confidence is None else f" ({x.confidence:.2f})"


def _location(path: str) -> dict[str, Any]:
    return {"uri": uri(path), "uriBaseId": _BASE}


def _place(x: Finding) -> dict[str, Any]:
    """Without a place: the first line."""
    region: dict[str, Any] = {"startLine": 1}
    if x.lines is not None:
        region = {"startLine": x.lines[0], "endLine": x.lines[1]}
    if x.lines is not None and x.columns is not None:
        region |= {"startColumn": x.columns[0], "endColumn": x.columns[1]}
    snippet = {"snippet": {"text": cut(shown(x.quote))}} if x.quote else {}
    return {"artifactLocation": _location(x.file), "region": region | snippet}


def _properties(x: Finding, f: Findings) -> dict[str, Any]:
    return {
        "id": x.id, "round": f.round, "cluster": x.cluster, "severity": x.severity, "raisedBy": shown(x.raised_by),
        "anchor": x.anchor, "verdict": x.verdict, "holding": x.holding, "cause": x.cause, "confidence": x.confidence,
        "labelOrdersAgree": x.agree, "probabilities": dict(x.probabilities),
    }  # fmt: skip


def _fix(x: Finding, f: Findings) -> dict[str, Any] | None:
    """Of a patch that applies to the file as it is."""
    if x.edit is None or x.edit.by_hand or f.body is None or x.edit.start is None or x.edit.end is None:
        return None
    replacement = {
        "deletedRegion": _region(f, x.edit, f.body),
        "insertedContent": {"text": encodable(x.edit.new)},
    }
    change = {"artifactLocation": _location(x.file), "replacements": [replacement]}
    return {"description": {"text": f"Patch {x.edit.id}"}, "artifactChanges": [change]}


def _region(f: Findings, edit: Edit, body: bytes) -> dict[str, int]:
    start, end = (_point(body, at or 0) for at in (edit.start, edit.end))
    first = f.first_line
    return {
        "startLine": first + start[0], "startColumn": start[1], "endLine": first + end[0], "endColumn": end[1],
    }  # fmt: skip


def _point(body: bytes, at: int) -> tuple[int, int]:
    """Line from 0, column from 1."""
    above = body[:at]
    return above.count(b"\n"), len(above[above.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1


# ---- notifications -------------------------------------------------------------------------------------------------


def _notifications(found: Sequence[Findings]) -> Iterator[dict[str, Any]]:
    for f in found:
        if f.fake:
            yield _notification(f, "fake", "warning", "FAKE ENGINE: no model read this; every word is made up")
        for gap in f.gaps:
            yield _notification(f, gap.what, "warning" if f.complete else "error", gap.text)
        if f.status == "skipped":
            yield _notification(f, "artifact", "note", f"skipped: {f.why}")
        for text in f.warnings:
            yield _notification(f, "warning", "warning", text)


def _notification(f: Findings, what: str, level: str, text: str) -> dict[str, Any]:
    place = [] if not f.file else [{"physicalLocation": {"artifactLocation": _location(f.file)}}]
    return {"descriptor": {"id": f"debate/{what}"}, "level": level, "message": {"text": line(text)}, "locations": place}
