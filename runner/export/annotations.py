"""`debate export annotations`: GitHub's workflow commands, on stdout of a step, worst first.

A step shows 10 of each level, so 10 of each are written, and one more line says what is not among them. A finding that
was rejected is none; a cluster is one. `codequality` is GitLab's report of the same findings.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from runner.export.model import Finding, Findings
from runner.export.words import encodable, line, path_line, plural

SHOWN = 10  # of each level, in a step
_WORD = {"error": "error", "warning": "warning", "note": "notice"}
_GITLAB = {"blocker": "blocker", "major": "major", "minor": "minor", "nit": "info"}


def write(found: Sequence[Findings]) -> str:
    """Lines of workflow commands; no foreign text can begin one, or end it."""
    commands = [*_gaps(found), *(_finding(x) for x in _open(found))]
    out, left = [], 0
    for level in ("error", "warning", "notice"):
        most = SHOWN - 1 if level == "notice" else SHOWN
        of_level = [c for c in commands if c.startswith(f"::{level} ")]
        out += of_level[:most]
        left += len(of_level[most:])
    out.append(_command("notice", _summary(found, left), title="debate-runner"))
    return "".join(f"{command}\n" for command in out)


def _open(found: Sequence[Findings]) -> list[Finding]:
    """Of every cluster its worst finding, without those that were rejected; worst first."""
    firsts = [min(c, key=lambda x: x.rank) for f in found for c in f.clusters()]
    return sorted((x for x in firsts if x.holding != "rejected"), key=lambda x: x.rank)


def _gaps(found: Sequence[Findings]) -> list[str]:
    out = []
    for f in found:
        level = "warning" if f.complete else "error"
        out += [_command(level, gap.text, file=f.file, title="debate: incomplete") for gap in f.gaps]
        if f.fake:
            text = "FAKE ENGINE: no model read this; every word is made up"
            out.append(_command("warning", text, file=f.file, title="debate: fake"))
    return out


def _finding(x: Finding) -> str:
    lines = {} if x.lines is None else {"line": str(x.lines[0]), "endLine": str(x.lines[1])}
    if x.lines is not None and x.columns is not None and x.lines[0] == x.lines[1]:
        lines |= {"col": str(x.columns[0]), "endColumn": str(x.columns[1])}
    sure = "" if x.confidence is None else f" ({x.confidence:.2f})"
    verdict = "" if x.verdict == "unjudged" else f" {x.verdict}{sure}: {x.reason}"
    return _command(
        _WORD[x.level], f"{x.problem}{verdict}", file=x.file, **lines, title=line(f"{x.id} {x.severity}: {x.kind}")
    )


def _summary(found: Sequence[Findings], left: int) -> str:
    done = [f for f in found if f.reviewed]
    text = f"{plural(len(done), 'document')} reviewed, {plural(sum(len(f.findings) for f in found), 'claim')}"
    broken = sum(not f.complete for f in found)
    text += f", {broken} INCOMPLETE" if broken else ""
    known = sum(f.left_out for f in found)
    text += f", {known} known before and left out" if known else ""
    return text + (f"; {left} more in the report than a step shows" if left else "")


def _command(level: str, message: str, **properties: str) -> str:
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items() if value)
    return f"::{level} {given}::{_data(line(message))}"


def _data(text: str) -> str:
    return encodable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(path_line(text)).replace(":", "%3A").replace(",", "%2C")


def codequality(found: Sequence[Findings]) -> str:
    """GitLab's Code Quality report: findings that were not rejected, and gaps as blockers, so it is never clean."""
    gaps = [_issue(f"incomplete: {g.text}", "debate/incomplete", f"{f.path}#{n}", "blocker", f.file, 1)
            for f in found if not f.complete for n, g in enumerate(f.gaps)]  # fmt: skip
    rows = [
        _issue(x.problem, f"debate/{x.kind}", x.fingerprint, _GITLAB[x.severity], x.file, x.lines[0] if x.lines else 1)
        for x in _open(found)
    ]
    return encodable(json.dumps(gaps + rows, ensure_ascii=False, indent=1)) + "\n"


def _issue(text: str, check: str, fingerprint: str, severity: str, path: str, begin: int) -> dict[str, object]:
    return {
        "description": line(text), "check_name": line(check), "fingerprint": line(fingerprint), "severity": severity,
        "location": {"path": path_line(path), "lines": {"begin": begin}},
    }  # fmt: skip
