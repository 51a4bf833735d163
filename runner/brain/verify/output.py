"""A report as lines for people and as plain values for --json."""

from __future__ import annotations

import re
from typing import Any

from runner.brain.verify.model import Violation
from runner.brain.verify.rules import Report

# A file's name or a quoted value must not move the cursor, hide text or break the line.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def lines(report: Report) -> list[str]:
    """`file:line: [CODE] message`, sorted, then one line that counts."""
    found = sorted(report.errors + report.warnings, key=lambda v: (v.file, v.line, v.code, v.message))
    return [*map(line, found), summary(report)]


def line(violation: Violation) -> str:
    word = "warning: " if violation.warning else ""
    return printable(f"{violation.file}:{violation.line}: [{violation.code}] {word}{violation.message}")


def summary(report: Report) -> str:
    counts = _count(len(report.errors), "error"), _count(len(report.warnings), "warning")
    return f"{', '.join(counts)} ({_count(report.walked, 'file')} read)"


def to_json(report: Report) -> dict[str, Any]:
    """{errors, warnings, summary}, with the words that every JSON document of ours begins with."""
    return {
        "schema": "verify/1",
        "ok": not report.errors,
        "errors": [_json(v) for v in report.errors],
        "warnings": [_json(v) for v in report.warnings],
        "summary": {"errors": len(report.errors), "warnings": len(report.warnings), "files": report.walked},
    }


def printable(text: str) -> str:
    """The text with control characters and halves of characters spelled out."""
    return _UNPRINTABLE.sub(
        lambda c: f"\\u{ord(c.group()):04x}" if ord(c.group()) > 0xFF else repr(c.group())[1:-1], text
    )


def _json(violation: Violation) -> dict[str, Any]:
    return {
        "code": violation.code, "file": printable(violation.file), "line": violation.line,
        "message": printable(violation.message),
    }  # fmt: skip


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"
