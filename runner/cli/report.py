"""What the commands say: text as lists of lines, and the same as plain values for --json."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.brain.artifact import Artifact
    from runner.rounds.close import Closed
    from runner.rounds.conduct import Opened

NO_PATCHES = "proposed-patches.md is empty: no claim was conceded"
VERBOSITIES = ("terse", "normal", "verbose")
APPLY = (
    "Review proposed-patches.md and apply what you accept in a separate commit, "
    "then run multi-agent-debate --close to finish the round."
)


def verbosity(root: Path, flags: int) -> str:
    """terse, normal or verbose: PROJECT_BRAIN_VERBOSITY, else the brain's config.yaml; each -v goes one further."""
    word = os.environ.get("PROJECT_BRAIN_VERBOSITY") or _configured(root) or "terse"
    at = VERBOSITIES.index(word) if word in VERBOSITIES else 0
    return VERBOSITIES[min(at + flags, 2)]


def _configured(root: Path) -> str | None:
    import yaml

    try:
        data = yaml.safe_load((root / "config.yaml").read_bytes())
    except (OSError, ValueError, yaml.YAMLError):
        return None
    return str(data["verbosity"]) if isinstance(data, dict) and "verbosity" in data else None


def place(path: Path, tty: bool) -> str:
    """A link on a terminal, a path from the working directory elsewhere."""
    return path.resolve().as_uri() if tty else os.path.relpath(path)


def _named(artifact: Artifact) -> str:
    return f"{artifact.root.name}/{artifact.relative}"


def _counts(opened: Opened) -> str:
    from runner.render import verdict_summary

    return verdict_summary(opened.result.verdicts) or "no claims"


def _failed(opened: Opened) -> list[str]:
    return [f"{t.persona} ({t.cause})" for t in opened.result.tryouts if t.status == "failed"]


def opened_terse(opened: Opened, artifact: Artifact) -> str:
    n = len(opened.result.tryouts)
    failed = _failed(opened)
    more = f", {len(failed)} failed" if failed else ""
    who = f"{n} reviewer{'' if n == 1 else 's'}"
    return f"Opened debate {opened.place.name} on {_named(artifact)} ({who}{more}, {_counts(opened)}). Done."


def opened_normal(opened: Opened, artifact: Artifact, times: dict[str, float], tty: bool) -> list[str]:
    """The report of step 18."""
    folder = opened.place.folder
    patches = Counter(p.id[0] for p in opened.result.patches)
    lines = [
        f"Opened debate {opened.place.name} on {_named(artifact)}",
        f"  round folder   {place(folder, tty)}",
        f"  reviewers      {', '.join(p.name for p in opened.inputs.review.reviewers)}",
    ]
    if opened.inputs.fake:
        lines.insert(1, "  FAKE ENGINE: no model read this document")
    if _failed(opened):
        lines.append(f"  FAILED         {', '.join(_failed(opened))}")
    if opened.inputs.skipped:
        lines.append(f"  skipped        {', '.join(opened.inputs.skipped)}")
    lines += [
        f"  verdicts       {len(opened.result.claims)} claims: {_counts(opened)}",
        f"  patches        {patches['P']} that apply, {patches['H']} by hand",
        f"                 {place(folder / 'proposed-patches.md', tty)}",
        f"  open issues    {place(folder / 'open-issues.md', tty)}",
        f"  files          {', '.join(opened.files)}",
    ]
    if times:
        lines.append("  time           " + ", ".join(f"{what} {s:.1f} s" for what, s in times.items()))
    if opened.result.exhausted:
        lines.append(f"  INCOMPLETE     no usable answer to {', '.join(opened.result.exhausted)}")
        lines.append(f"                 debate resume {os.path.relpath(artifact.path)} --only-failed asks again")
    return [*lines, "", APPLY, "", "Suggested commit:", f"  {open_commit(opened, artifact)}", "", "Done."]


def opened_verbose(opened: Opened, artifact: Artifact) -> list[str]:
    """The templates that the brain does not have, and every call."""
    from runner.rounds import templates

    ours = [f"  {templates.FOLDER}/{name}" for name in templates.missing(artifact.root)]
    lines = ["", "Templates of ours in the place of:", *ours] if ours else []
    lines += ["", "Calls:"]
    for r in opened.result.replies:
        lines.append(
            f"  {r.key}: {r.finish}, {r.tokens_in} tokens in ({r.tokens_cached} shared), {r.tokens_out} out "
            f"({r.forced} forced), {r.ms} ms"
        )
    return lines


def commit(artifact: Artifact, subject: str) -> str:
    folder = os.path.relpath(artifact.directory)
    return f"git add {shlex.quote(folder + '/')} && git commit -m {shlex.quote(subject)}"


def open_commit(opened: Opened, artifact: Artifact) -> str:
    n = len(opened.result.tryouts)
    who = f"{n} reviewer{'' if n == 1 else 's'}"
    subject = f"debate({artifact.slug}): {opened.place.name} open — scope={artifact.scope} {who}, {_counts(opened)}"
    return commit(artifact, subject)


def opened_json(opened: Opened, artifact: Artifact, times: dict[str, float]) -> dict[str, Any]:
    result = opened.result
    return {
        "schema": "open/1",
        "ok": not result.exhausted,
        "artifact_path": artifact.relative,
        "scope": artifact.scope,
        "round_number": opened.place.number,
        "round_dir": str(opened.place.folder),
        "debate_commit": None,
        "suggested_commit": open_commit(opened, artifact),
        "personas": [{"name": t.persona, "status": t.status, "cause": t.cause} for t in result.tryouts],
        "skipped": list(opened.inputs.skipped),
        "verdict_summary": dict(Counter(v.verdict for v in result.verdicts)),
        "claims": len(result.claims),
        "patches": [p.id for p in result.patches],
        "incomplete": list(result.exhausted),
        "files": list(opened.files),
        "warnings": list(opened.inputs.warnings),
        "fake": opened.inputs.fake,
        "seconds": {k: round(v, 3) for k, v in times.items()},
    }


# ---- close ---------------------------------------------------------------------------------------------------------


def closed_terse(closed: Closed, artifact: Artifact) -> str:
    status = f"{closed.restored}" if closed.restored else "thread unchanged"
    seed = ", seed carried" if closed.seeded else ""
    what = f"patches {closed.patches_status}, {status}{seed}"
    return f"Closed debate {closed.place.name} on {_named(artifact)} ({what}). Done."


def next_step(closed: Closed, artifact: Artifact) -> str:
    """The specification's hint for what comes next."""
    if closed.patches_status == "rejected":
        return (
            "Round abandoned. Artifact is unchanged content-wise. "
            "Consider whether the personas or feedback need adjustment before retrying."
        )
    if closed.seeded:
        return "Seed written at debate/next-round-seed.md — next --open invocation will pick it up."
    if artifact.scope == "thread":
        return (
            f"Thread continues at active/{artifact.maturity}. Patches are in proposed-patches.md. "
            "Run another round with multi-agent-debate --scope=thread whenever you're ready."
        )
    return f"Leaf is {closed.restored}. Ready for derive-impl-spec (if decided) or ai-build (if specified)."


def close_commit(closed: Closed, artifact: Artifact) -> str:
    subject = f"debate({artifact.slug}): {closed.place.name} close — scope={artifact.scope} {closed.patches_status}"
    return commit(artifact, subject)


def closed_normal(closed: Closed, artifact: Artifact) -> list[str]:
    status = f"status         {closed.restored}" if closed.restored else "thread         unchanged"
    return [
        f"Closed debate {closed.place.name} on {_named(artifact)}",
        f"  patches        {closed.patches_status}",
        f"  {status}",
        f"  files          {', '.join(closed.files)}",
        "",
        next_step(closed, artifact),
        "",
        "Suggested commit:",
        f"  {close_commit(closed, artifact)}",
        "",
        "Done.",
    ]


def closed_json(closed: Closed, artifact: Artifact) -> dict[str, Any]:
    return {
        "schema": "close/1",
        "ok": True,
        "artifact_path": artifact.relative,
        "scope": artifact.scope,
        "round_number": closed.place.number,
        "patches_status": closed.patches_status,
        "restored_status": closed.restored,
        "carry_forward_seed": closed.seeded,
        "files": list(closed.files),
        "next_step": next_step(closed, artifact),
        "suggested_commit": close_commit(closed, artifact),
    }
