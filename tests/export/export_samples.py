"""Records to export: as this program writes them, and as broken as they come."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

from runner.export import findings
from runner.export.model import Findings

EXAMPLE = Path(__file__).parents[2] / "docs" / "example-round" / "round-01" / ".run" / "record.json"
FRONT = b'---\nid: "a"\nstatus: "hardening"\n---\n'
BODY = "\n# Böxes\n\nA box holds ten things. A box holds nine things.\n\nNobody counts them.\n".encode()
QUOTE = "A box holds nine things."
# Everything that a format must not obey, in one text.
HOSTILE = (
    "a]]>b</script><!--\n::error::boom\n##[group]%0A%\u202eevil\x00\x1b[31m\ud800 | `x` \ufffe "
    "<img src=x onerror=alert(1)>"
)


def claim(**changed: Any) -> dict[str, Any]:
    start = BODY.index(QUOTE.encode())
    base = {
        "id": "C-01", "raised_by": "red-team", "quote": QUOTE, "kind": "contradiction", "problem": "Ten or nine?",
        "severity": "major", "action": "replace", "replacement": "", "start": start, "end": start + len(QUOTE),
        "lines": [8, 8], "anchor": "exact", "cluster": "C-01",
    }  # fmt: skip
    merged = base | changed
    return merged | {"cluster": changed.get("cluster", merged["id"])}


def verdict(**changed: Any) -> dict[str, Any]:
    base = {
        "claim": "C-01", "verdict": "CONCEDE", "cause": "measured", "reason": "It is so.", "confidence": 0.7,
        "agree": True, "method": "choices", "amended": None,
        "probabilities": {"CONCEDE": 0.7, "CONCEDE-IN-PART": 0.1, "DEFER": 0.1, "REJECT": 0.1}, "raw": [],
    }  # fmt: skip
    return base | changed


def patch(**changed: Any) -> dict[str, Any]:
    start = BODY.index(QUOTE.encode())
    base = {
        "id": "P-01", "claim": "C-01", "start": start, "end": start + len(QUOTE), "replacement": "It holds ten.",
        "by_hand": "", "flags": [],
    }  # fmt: skip
    return base | changed


def record(**changed: Any) -> dict[str, Any]:
    """A round/1 record with one conceded claim."""
    sha256 = hashlib.sha256(BODY).hexdigest()
    base: dict[str, Any] = {
        "schema": "round/1",
        "artifact": {"path": "tree/a b:決策.md", "title": "Böxes", "sha256_before": "", "sha256_flipped": "",
                     "sha256_body": sha256},
        "round": 1, "opened_at": "2026-01-02T03:04:05Z", "scope": "leaf", "mode_requested": "full", "mode": "full",
        "version": "0.1.0", "fake": False, "complete": True, "exhausted": [],
        "personas": [{"name": "red-team", "source": "ad-hoc", "status": "done", "cause": "", "observations": [],
                      "open_questions": []}],
        "skipped": [], "claims": [claim()], "verdicts": [verdict()], "patches": [patch()], "synthesis": None,
        "diagnostics": [], "coverage": {"bytes": len(BODY), "personas": [], "context": [], "not_shown": []},
        "models": [], "engine": "test", "sampling": {"temperature": 0.7, "seed": 0}, "margin": 0.1, "floor": 0.05,
        "calls": [{"key": "reviewer/red-team", "tokens_in": 9, "tokens_cached": 3, "tokens_out": 4, "forced": 1,
                   "finish": "stop", "ms": 1500}],
        "warnings": [], "files": [],
    }  # fmt: skip
    return copy.deepcopy(base | changed)


def empty(**changed: Any) -> dict[str, Any]:
    """A round in which nothing was found."""
    return record(claims=[], verdicts=[], patches=[], **changed)


def hostile() -> dict[str, Any]:
    """Foreign text in every place that can hold some."""
    bad = claim(
        quote=HOSTILE, problem=HOSTILE, raised_by=HOSTILE, start=None, end=None, lines=None, anchor="unanchored"
    )
    found = record(claims=[bad], verdicts=[verdict(reason=HOSTILE)], warnings=[HOSTILE], diagnostics=[HOSTILE])
    found["patches"] = [patch(id="H-01", start=None, end=None, replacement=HOSTILE, by_hand=HOSTILE)]
    found["artifact"] |= {"title": HOSTILE, "path": "tree/a,b:\n::error::c%0A.md"}
    found["personas"][0] |= {
        "observations": [HOSTILE],
        "open_questions": [HOSTILE],
        "status": "failed",
        "cause": HOSTILE,
    }
    return found


def of(data: dict[str, Any], **options: Any) -> Findings:
    return findings.of_record(data, **options)


def example() -> Findings:
    """The real record of docs/example-round."""
    return findings.of_record(json.loads(EXAMPLE.read_bytes()), prefix="project-brain/")


def bulk_row(**changed: Any) -> dict[str, Any]:
    return {
        "path": "tree/x.md",
        "status": "done",
        "why": "",
        "round": "tree/debate/round-01",
        "record": empty(),
    } | changed


def ask(**changed: Any) -> dict[str, Any]:
    turn = {"round": 1, "status": "done", "cause": "", "position": "Yes.", "arguments": ["It is <b>cheap</b>."]}
    synthesis = {
        "strongest": [["advocate", "It is cheap.", "Money counts."]], "agreement": ["Both like it."],
        "tensions": [{"name": "cost", "seats": ["advocate", "critic"], "side_a": "cheap", "side_b": "dear"}],
        "pick": "Yes", "confidence": "low", "why": "Because.", "counter": "It may break.",
    }  # fmt: skip
    base = {
        "schema": "ask/1", "complete": True, "version": "0.1.0", "asked_at": "2026-01-02T03:04:05Z", "fake": False,
        "question": "Shall we?", "format": "open", "why": "as asked for", "rounds_asked": 1, "context": "", "read": [],
        "warnings": [], "engine": "test", "models": [],
        "seats": [{"name": "advocate", "given": "For it.", "role": "default", "model": None, "rounds": [turn]}],
        "novelty": [], "ended": "--rounds asked for 1", "synthesis": synthesis, "gaps": [], "exhausted": [],
        "calls": [], "files": [],
    }  # fmt: skip
    return copy.deepcopy(base | changed)


def brief(**changed: Any) -> dict[str, Any]:
    concern = {
        "critic": "security-critic", "round": 1, "file": "src/login.py", "quote": "eval(name)", "kind": "injection",
        "problem": "Code from outside is run.", "severity": "blocker", "lines": [3, 3], "anchor": "exact",
    }  # fmt: skip
    base = {
        "schema": "brief/1", "complete": True, "task": "T-1", "path": ".ai/briefs/T-1.md", "lite": False,
        "version": "0.1.0", "opened_at": "2026-01-02T03:04:05Z", "guard": {"met": True, "overridden": []}, "rounds": 1,
        "max_rounds": 2, "nothing_left": False,
        "critics": [{"name": "security-critic", "charter_sha256": "", "failed": []}], "concerns": [concern],
        "consensus": "Do not run it.", "action_items": ["Remove eval."], "dissent": [], "synthesizer_failed": "",
        "missing": [], "notes": [], "coverage": [], "engine": "test", "models": [], "calls": [],
        "tokens": {"in": 1, "out": 2}, "warnings": [], "files": [],
    }  # fmt: skip
    return copy.deepcopy(base | changed)
