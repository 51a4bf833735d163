"""record.json (schema round/1) and transcript.md of a round: what close, patches and export need, and the log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from runner import render
from runner.protocols.round import Result
from runner.rounds.inputs import Inputs
from runner.values import Document, Patch, Reply


def record(inputs: Inputs, result: Result, files: Mapping[str, str]) -> bytes:
    """record.json. files: path -> sha256 of the round's files, without transcript.md."""
    review = inputs.review
    status = {t.persona: t for t in result.tryouts}
    data: dict[str, Any] = {
        "schema": "round/1",
        "artifact": {
            "path": inputs.path,
            "title": review.title,
            "sha256_before": inputs.before,
            "sha256_flipped": inputs.flipped,
            "sha256_body": inputs.body,
        },
        "round": inputs.number,
        "opened_at": inputs.opened_at,
        "scope": review.scope,
        "mode_requested": inputs.mode_requested,
        "mode": inputs.mode,
        "version": inputs.version,
        "fake": inputs.fake,
        "complete": not result.exhausted,
        "exhausted": list(result.exhausted),
        "personas": [
            dict(row)
            | {
                "charter_sha256": inputs.charter_sha256[row["name"]],
                "status": status[row["name"]].status,
                "cause": status[row["name"]].cause,
                "observations": list(status[row["name"]].observations),
                "open_questions": list(status[row["name"]].open_questions),
            }
            for row in inputs.personas
        ],
        "skipped": list(inputs.skipped),
        "claims": [c.to_json() for c in result.claims],
        "verdicts": [v.to_json() for v in result.verdicts],
        "patches": [_patch(p) for p in result.patches],
        "synthesis": None if result.synthesis is None else _synthesis(result),
        "diagnostics": list(result.diagnostics),
        "coverage": _coverage(inputs),
        "models": [
            {"role": role} | dict(facts) | {"engine": inputs.engine, "version": inputs.version}
            for role, facts in inputs.models.items()
        ],
        "engine": inputs.engine,
        "sampling": {"temperature": review.sampling.temperature, "seed": review.sampling.seed},
        "margin": review.margin,
        "floor": review.floor,
        "calls": [_call(r) for r in result.replies],
        "warnings": list(inputs.warnings),
        "files": [{"path": path, "sha256": sha} for path, sha in sorted(files.items())],
    }
    return (json.dumps(data, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "surrogatepass")


def _patch(p: Patch) -> dict[str, Any]:
    return {
        "id": p.id, "claim": p.claim, "start": p.start, "end": p.end, "replacement": p.replacement,
        "by_hand": p.by_hand, "flags": list(p.flags),
    }  # fmt: skip


def _synthesis(result: Result) -> dict[str, Any]:
    assert result.synthesis is not None
    s = result.synthesis
    themes = [{"title": t.title, "text": t.text, "claims": list(t.claims)} for t in s.themes]
    return {"themes": themes, "tensions": list(s.tensions), "revisit": list(s.revisit)}


def _coverage(inputs: Inputs) -> dict[str, Any]:
    """Which bytes of the body each persona was shown: the whole of it, in one window."""
    size = len(inputs.review.body.encode())
    window = {"start": 0, "end": size, "sha256": inputs.body}
    return {
        "bytes": size,
        "personas": [{"name": p.name, "windows": [window]} for p in inputs.review.reviewers],
        "context": [name for name, _ in inputs.review.context],
        "not_shown": [],
    }


def _call(r: Reply) -> dict[str, Any]:
    return {
        "key": r.key, "tokens_in": r.tokens_in, "tokens_cached": r.tokens_cached, "tokens_out": r.tokens_out,
        "forced": r.forced, "finish": r.finish, "ms": r.ms,
    }  # fmt: skip


def transcript(inputs: Inputs, result: Result, lines: Sequence[Mapping[str, Any]], record_sha256: str) -> Document:
    """One line per event. Times are the journal's; the order is the protocol's, so a resumed round reads the same."""
    at = {line["key"]: str(line["at"]) for line in lines if "key" in line}
    last = max((str(line["at"]) for line in lines if "key" in line), default=inputs.opened_at)
    review, opened = inputs.review, inputs.opened_at
    events = [
        (opened, f"opened {review.about.round} on {inputs.path}: scope={review.scope}, mode={inputs.mode}"),
        (opened, f"engine: {inputs.engine}" + (" (FAKE: no model read the document)" if inputs.fake else "")),
        *((opened, f"model {role}: {m.get('name', '')} {m.get('sha256', '')}") for role, m in inputs.models.items()),
        (opened, f"personas: {', '.join(p.name for p in review.reviewers)}"),
        *((opened, f"skipped this round: {name}") for name in inputs.skipped),
        *((opened, f"warning: {w}") for w in inputs.warnings),
        *((opened, f"asked reviewer {p.name}") for p in review.reviewers),
    ]
    replies = {r.key.split("~")[0]: r for r in result.replies}
    for t in result.tryouts:
        reply = replies[f"reviewer/{t.persona}"]
        what = f"{len(t.claims)} claims" if t.status == "done" else f"FAILED ({t.cause})"
        cost = f"{reply.tokens_in} tokens in, {reply.tokens_cached} shared, {reply.tokens_out} out"
        events.append((at.get(reply.key, last), f"reviewer {t.persona}: {what}; {cost}"))
    if result.claims:
        counts = render.verdict_summary(result.verdicts)
        events.append((last, f"defender judged {len(result.verdicts)} of {len(result.claims)} claims: {counts}"))
    else:
        events.append((last, "defender: no claims to judge"))
    if review.synthesizer:
        events.append((last, "synthesizer: done" if result.synthesis else "synthesizer: NO RESULT"))
    events += [(last, f"diagnostic: {d}") for d in result.diagnostics]
    shown = len(review.body.encode())
    events.append((last, f"coverage: {shown} of {shown} bytes of the body shown to every reviewer"))
    events.append((last, f"record.json sha256 {record_sha256}"))
    if result.exhausted:
        events.append((last, f"INCOMPLETE: no usable answer to {', '.join(result.exhausted)}"))
    return render.transcript(events, review.about)
