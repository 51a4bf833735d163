"""The plan of a dry run: numbered as the specification's process steps. Nothing is written, no engine is loaded.

Git's data is not read either (the specification forbids it in a dry run), so precondition 7 is named as not checked.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner import render
from runner.brain.artifact import Artifact
from runner.protocols import round as protocol
from runner.rounds import seed
from runner.rounds.folder import Round
from runner.rounds.plan import Plan
from runner.values import Request

NOT_CHECKED = "not checked in a dry run: working tree"


def open_lines(plan: Plan, facts: Sequence[str], commit: str, tokens_known: bool) -> list[str]:
    """facts: what the caller found out beside the plan (registry, model file, verify), one line each."""
    inputs, r = plan.inputs, plan.inputs.review
    where = f"{plan.history.relative_to(plan.artifact.directory).as_posix()}/{r.about.round}"
    requests = [protocol.reviewer_request(r, None, i) for i in range(len(r.reviewers))]
    claims = len(r.reviewers) * r.max_claims + len(r.carried)
    lines = [
        f"1. Resolve inputs: artifact {inputs.path}, scope {r.scope}, mode open",
        f"   personas: {', '.join(p.name for p in r.reviewers)}"
        + (f" (skipped this round: {', '.join(inputs.skipped)})" if inputs.skipped else ""),
        f"   review mode: {inputs.mode}" + ("" if inputs.mode == inputs.mode_requested else " (delta was asked for)"),
        f"   feedback: {render.flat(r.feedback)}",
        "2. Validate preconditions: all that a dry run checks hold",
        *(f"   {fact}" for fact in (*facts, NOT_CHECKED)),
        f"3. Compute round_number: {inputs.number}",
        f"4. Create round directory: {where}/",
        f"5. Write {where}/personas.yaml:",
        *_indented(render.personas_yaml(inputs.number, r.scope, inputs.mode, inputs.personas, inputs.skipped).decode()),
        f"6. Write {where}/feedback-in.md: {inputs.mode} review, reviewers: {len(r.reviewers)}",
        *(["   consume and delete next-round-seed.md"] if inputs.seed is not None else []),
        f"7. Capture baseline: {'write ' + where + '/baseline.md' if inputs.mode == 'delta' else 'no (full review)'}",
        "8. Build per-reviewer context: " + (", ".join(n for n, _ in r.context) or "the artifact alone"),
        "8a. Scan persona charters: " + (f"{len(inputs.warnings)} warnings" if inputs.warnings else "no warnings"),
        *(f"   {w}" for w in inputs.warnings),
        "9. Wrap persona charters in the envelope; the prompts are shown below",
        "10. Ask the reviewers in parallel (not in a dry run):",
        *(f"   {q.key}: {_tokens(plan, q, tokens_known)}" for q in requests),
        f"11. Ask the defender: up to {claims} claims, {_asked(r, claims)} requests",
        f"12. Synthesizer: {'yes' if r.synthesizer else 'no'}",
        f"13. Write {where}/proposed-patches.md",
        f"14. Write {where}/open-issues.md",
        f"15. Write {where}/transcript.md",
        "16. Append a row to debate/index.md",
        "17. Flip frontmatter: " + "; ".join(f"{k}: {v}" for k, v in inputs.changes),
        f"18. Report; suggested commit: {commit}",
    ]
    for q in requests:
        lines += ["", f"=== prompt of {q.key} ==="]
        lines += [line for m in q.messages for line in (f"[{m.role}]", *m.text.splitlines())]
    return lines


def _tokens(plan: Plan, request: Request, known: bool) -> str:
    size = len("".join(m.text for m in request.messages).encode())
    if not known:
        return f"tokens unknown, {size} bytes, at most {request.max_tokens} tokens of reply"
    total = plan.tokens[request.key]
    return f"{total - request.max_tokens} tokens of prompt, at most {request.max_tokens} of reply"


def _asked(r: protocol.Review, claims: int) -> str:
    per_claim = 4 if r.measures else 2  # a reason, two label orders, an amended proposal
    return f"at most {claims * per_claim + (2 if r.measures else 0)}"


def _indented(text: str) -> list[str]:
    return [f"   {line}" for line in text.splitlines()]


def close_lines(place: Round, artifact: Artifact, patches_status: str, facts: Sequence[str], commit: str) -> list[str]:
    """What close would do."""
    issues = place.folder / "open-issues.md"
    entries = issues.exists() and seed.holds_entries(issues.read_text(encoding="utf-8", errors="replace"))
    carried = entries and patches_status != "rejected"
    if artifact.scope == "leaf":
        before = artifact.front.text("pre_hardening_status")
        flip = f"status: hardening → {before}; pre_hardening_status removed"
    else:
        flip = "none (thread)"
    status = "abandoned" if patches_status == "rejected" else "closed"
    return [
        f"1. Resolve inputs: artifact {artifact.relative}, scope {artifact.scope}, mode close",
        f"   patches_status: {patches_status}",
        "2. Validate preconditions: all that a dry run checks hold",
        *(f"   {fact}" for fact in (*facts, NOT_CHECKED)),
        f"3. Read round artifacts: {place.name}",
        f"4. Close the round in debate/index.md: {status}, patches {patches_status}",
        f"5. Forward open-issues.md: {'write debate/' + seed.NAME if carried else 'nothing to carry forward'}",
        f"6. Flip frontmatter: {flip}",
        f"7. Persist baseline: {place.name}/baseline.md",
        f"8. Report; suggested commit: {commit}",
    ]
