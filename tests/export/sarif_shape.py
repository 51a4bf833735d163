"""SARIF 2.1.0, as far as we write it: which fields an object may have, which it must have, and of what type.

Written down from the standard's text; a copy of its JSON schema can be named in SARIF_SCHEMA and is then used too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

URI = r"(?!/)(?!.*(^|/)\.\.(/|$))[A-Za-z0-9/~._!$&'()*+,;=@-]*(?:%[0-9A-F]{2}[A-Za-z0-9/~._!$&'()*+,;=@-]*)*"
MESSAGE = {"text!": str}
LOCATION = {"uri!": URI, "uriBaseId": str}
REGION = {
    "startLine": 1, "endLine": 1, "startColumn": 1, "endColumn": 1, "snippet": {"text": str},
}  # fmt: skip
PHYSICAL = {"artifactLocation!": LOCATION, "region": REGION}
LEVEL = "none|note|warning|error"
DESCRIPTOR = {"id!": str, "shortDescription": MESSAGE}
RESULT = {
    "ruleId!": str, "ruleIndex!": 0, "level!": LEVEL, "message!": MESSAGE,
    "locations!": [{"physicalLocation": PHYSICAL}], "partialFingerprints!": dict, "properties": dict,
    "suppressions": [{"kind!": "inSource|external", "status": "accepted|underReview|rejected", "justification": str}],
    "fixes": [{
        "description": MESSAGE,
        "artifactChanges!": [{
            "artifactLocation!": LOCATION,
            "replacements!": [{"deletedRegion!": REGION, "insertedContent": {"text": str}}],
        }],
    }],
}  # fmt: skip
NOTIFICATION = {
    "descriptor": {"id!": str},
    "level": LEVEL,
    "message!": MESSAGE,
    "locations": [{"physicalLocation": PHYSICAL}],
}
RUN = {
    "tool!": {"driver!": {"name!": str, "version": str, "semanticVersion": str, "rules": [DESCRIPTOR],
                          "notifications": [DESCRIPTOR]}},
    "invocations": [{"executionSuccessful!": bool, "toolExecutionNotifications": [NOTIFICATION]}],
    "columnKind": "utf16CodeUnits|unicodeCodePoints", "originalUriBaseIds": dict, "results": [RESULT],
}  # fmt: skip
LOG = {"$schema": str, "version!": "2\\.1\\.0", "runs!": [RUN]}


def faults(value: Any, shape: Any = LOG, where: str = "$") -> Iterator[str]:
    """What is wrong with a log, by its place; nothing when nothing is."""
    if isinstance(shape, dict):
        yield from _object(value, shape, where)
    elif isinstance(shape, list):
        for n, item in enumerate(value if isinstance(value, list) else [None]):
            yield from faults(item, shape[0], f"{where}[{n}]")
    elif isinstance(shape, int) and not isinstance(shape, bool):
        if type(value) is not int or value < shape:
            yield f"{where}: {value!r} is less than {shape}"
    elif isinstance(shape, str):
        import re

        if not isinstance(value, str) or not re.fullmatch(shape, value):
            yield f"{where}: {value!r} does not match {shape}"
    elif not isinstance(value, shape):
        yield f"{where}: {value!r} is no {shape.__name__}"


def _object(value: Any, shape: dict[str, Any], where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {value!r} is no object"
        return
    known = {key.rstrip("!"): inner for key, inner in shape.items()}
    yield from (f"{where}.{key}: missing" for key in shape if key.endswith("!") and key[:-1] not in value)
    for key, inner in value.items():
        if key in known:
            yield from faults(inner, known[key], f"{where}.{key}")
        else:
            yield f"{where}.{key}: unknown"


def relations(log: dict[str, Any]) -> Iterator[str]:
    """What no schema says: rules unique and matching, regions that go forward, texts that are not empty."""
    for run in log["runs"]:
        ids = [r["id"] for r in run["tool"]["driver"]["rules"]]
        if len(ids) != len(set(ids)):
            yield "rules are not unique"
        told = {n["id"] for n in run["tool"]["driver"]["notifications"]}
        for n in run["invocations"][0]["toolExecutionNotifications"]:
            if n["descriptor"]["id"] not in told:
                yield f"no notification {n['descriptor']['id']}"
        for r in run["results"]:
            if ids[r["ruleIndex"]] != r["ruleId"]:
                yield f"ruleIndex of {r['ruleId']}"
            if not r["message"]["text"] or not r["locations"]:
                yield "no message or no location"
            region = r["locations"][0]["physicalLocation"]["region"]
            if region.get("endLine", region["startLine"]) < region["startLine"]:
                yield "a region that goes backwards"
