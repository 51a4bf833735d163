"""record.json (schema round/1) and transcript.md of a round: what close, patches and export need, and the log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from runner import render
from runner.protocols.round import Result
from runner.rounds.inputs import Inputs
from runner.values import Document, Patch, Reply, Tryout


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
        "coverage": _coverage(inputs, result),
        "models": [
            {"role": role} | dict(facts) | {"engine": inputs.engine, "version": inputs.version}
            for role, facts in inputs.models.items()
        ],
        "engine": inputs.engine,
        "sampling": {"temperature": review.sampling.temperature, "seed": review.sampling.seed},
        "margin": review.margin,
        "floor": review.floor,
        "calls": [r.facts() for r in result.replies],
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


def _coverage(inputs: Inputs, result: Result) -> dict[str, Any]:
    """Which bytes of the body each persona was shown, and what of it nobody was."""
    review = inputs.review
    unseen = set(result.unseen)
    seen = {p.name: [w for w in review.shown if (p.name, w) not in unseen] for p in review.reviewers}
    return {
        "bytes": len(review.body.encode()),
        "personas": [
            {"name": name, "windows": [_window(review.body, w) for w in spans]} for name, spans in seen.items()
        ],
        "context": [name for name, _ in review.context],
        "not_shown": [{"persona": name} | _window(review.body, w) for name, w in result.unseen],
    }


def _window(body: str, span: tuple[int, int]) -> dict[str, Any]:
    """In bytes, with the sha256 of exactly that text."""
    start, text = len(body[: span[0]].encode()), body[span[0] : span[1]].encode()
    return {"start": start, "end": start + len(text), "sha256": hashlib.sha256(text).hexdigest()}


def transcript(inputs: Inputs, result: Result, lines: Sequence[Mapping[str, Any]], record_sha256: str) -> Document:
    """One line per event. Times are the journal's; the order is the protocol's, so a resumed round reads the same."""
    at = {line["key"]: str(line["at"]) for line in lines if "key" in line}
    last = max((str(line["at"]) for line in lines if "key" in line), default=inputs.opened_at)
    before = [(inputs.opened_at, event) for event in _before(inputs)]
    reviewed = [_reviewed(t, result.replies, at, last) for t in result.tryouts]
    after = [(last, event) for event in _after(inputs, result, record_sha256)]
    return render.transcript([*before, *reviewed, *after], inputs.review.about)


def _before(inputs: Inputs) -> list[str]:
    review = inputs.review
    delta = []
    if inputs.baseline is not None:
        sha = hashlib.sha256(inputs.baseline.encode()).hexdigest()
        delta = [f"delta review: baseline sha256 {sha}, artifact sha256 {inputs.before}"]
    return [
        f"opened {review.about.round} on {inputs.path}: scope={review.scope}, mode={inputs.mode}",
        f"engine: {inputs.engine}" + (" (FAKE: no model read the document)" if inputs.fake else ""),
        *(f"model {role}: {m.get('name', '')} {m.get('sha256', '')}" for role, m in inputs.models.items()),
        f"personas: {', '.join(p.name for p in review.reviewers)}",
        *(f"skipped this round: {name}" for name in inputs.skipped),
        *delta,
        *(f"note: {n}" for n in inputs.notes),
        *(f"warning: {w}" for w in inputs.warnings),
        *(f"asked reviewer {p.name}" for p in review.reviewers),
    ]


def _reviewed(t: Tryout, replies: Sequence[Reply], at: Mapping[str, str], last: str) -> tuple[str, str]:
    own = [r for r in replies if r.key.split("~")[0].split("/")[:2] == ["reviewer", t.persona]]
    what = f"{len(t.claims)} claims" if t.status == "done" else f"FAILED ({t.cause})"
    what += f"; NOT ALL OF IT ({t.cause})" if t.status == "done" and t.cause else ""
    tokens_in, cached, out = (sum(getattr(r, f"tokens_{w}") for r in own) for w in ("in", "cached", "out"))
    when = max((at[r.key] for r in own if r.key in at), default=last)
    return when, f"reviewer {t.persona}: {what}; {tokens_in} tokens in, {cached} shared, {out} out"


def _after(inputs: Inputs, result: Result, record_sha256: str) -> list[str]:
    review = inputs.review
    counts = render.verdict_summary(result.verdicts)
    size = len(review.body.encode())
    whole = f"{size} of {size} bytes of the body shown to every reviewer"
    if len(review.shown) > 1:
        whole += f", in {len(review.shown)} windows"
    unseen = [f"{name} did not read characters {a} to {b} of the body" for name, (a, b) in result.unseen]
    synthesis = "done" if result.synthesis else "NO RESULT" if result.claims else "no claims"
    return [
        f"defender judged {len(result.verdicts)} of {len(result.claims)} claims: {counts}"
        if result.claims
        else "defender: no claims to judge",
        *([f"synthesizer: {synthesis}"] if review.synthesizer else []),
        *(f"diagnostic: {d}" for d in result.diagnostics),
        *(f"coverage: {line}" for line in unseen or [whole]),
        f"record.json sha256 {record_sha256}",
        *([f"INCOMPLETE: no usable answer to {', '.join(result.exhausted)}"] if result.exhausted else []),
    ]
