"""`debate export json` (schema export/1): every finding with its verdict, and everything that was not done."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from runner import __version__
from runner.export.model import HOLDINGS, Finding, Findings
from runner.export.words import encodable
from runner.values import SEVERITIES

SCHEMA = "export/1"


def write(found: Sequence[Findings]) -> str:
    """One JSON document."""
    data = {
        "schema": SCHEMA,
        "tool": {"name": "debate-runner", "version": __version__},
        "complete": all(f.complete for f in found),
        "summary": summary(found),
        "artifacts": [_artifact(f) for f in found],
    }
    return encodable(json.dumps(data, ensure_ascii=False, indent=1)) + "\n"


def summary(found: Sequence[Findings]) -> dict[str, Any]:
    """Counts; clusters: for each holding, by the worst severity in it among the findings that hold it."""
    every = [x for f in found for x in f.findings]
    return {
        "artifacts": len(found),
        "statuses": dict(Counter(f.status for f in found)),
        "findings": len(every),
        "left_out": sum(f.left_out for f in found),
        "verdicts": {h: sum(x.holding == h for x in every) for h in HOLDINGS},
        "clusters": clusters(found),
    }


def clusters(found: Sequence[Findings]) -> dict[str, dict[str, int]]:
    """holding -> severity -> clusters."""
    out: dict[str, dict[str, int]] = {h: dict.fromkeys(map(str, SEVERITIES), 0) for h in HOLDINGS}
    for cluster in (c for f in found for c in f.clusters()):
        for holding in HOLDINGS:
            held = [SEVERITIES.index(x.severity) for x in cluster if x.holding == holding]
            if held:
                out[holding][SEVERITIES[min(held)]] += 1
    return out


def _artifact(f: Findings) -> dict[str, Any]:
    return {
        "path": f.path, "file": f.file, "title": f.title, "schema": f.schema, "round": f.round, "status": f.status,
        "why": f.why, "complete": f.complete, "fake": f.fake, "engine": f.engine, "at": f.at, "seconds": f.seconds,
        "left_out": f.left_out, "gaps": [asdict(g) for g in f.gaps], "warnings": list(f.warnings),
        "findings": [_finding(x) for x in f.findings], **_debate(f),
    }  # fmt: skip


def _finding(x: Finding) -> dict[str, Any]:
    return {
        "id": x.id, "fingerprint": x.fingerprint, "cluster": x.cluster, "path": x.path, "file": x.file,
        "lines": None if x.lines is None else list(x.lines), "columns": None if x.columns is None else list(x.columns),
        "anchor": x.anchor, "kind": x.kind, "severity": x.severity, "level": x.level, "raised_by": x.raised_by,
        "quote": x.quote, "problem": x.problem, "verdict": x.verdict, "holding": x.holding, "cause": x.cause,
        "reason": x.reason, "confidence": x.confidence, "agree": x.agree, "probabilities": dict(x.probabilities),
        "patch": None if x.edit is None else asdict(x.edit),
    }  # fmt: skip


def _debate(f: Findings) -> dict[str, Any]:
    """What an ask or a brief has beside findings."""
    keys = {
        "ask/1": ("question", "format", "seats", "novelty", "ended", "synthesis"),
        "brief/1": ("consensus", "action_items", "dissent", "nothing_left"),
    }.get(f.schema, ())
    return {key: f.record.get(key) for key in keys}
