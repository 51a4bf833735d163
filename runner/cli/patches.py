"""debate patches: look at a round's patches and apply some of them."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from runner.cli.common import Brain, Json, PathArg, Scope, find, out, warn
from runner.errors import EXIT_DONE

if TYPE_CHECKING:
    from runner.rounds.patches import Shown

_COLOURS = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}


def patches(
    path: PathArg = None,
    apply: Annotated[str | None, typer.Option("--apply", help="P-01,P-03 or all: apply them, all or nothing.")] = None,
    scope: Scope = None,
    brain: Brain = None,
    as_json: Json = False,
) -> int:
    """Show the round's patches as diffs; --apply applies some, all or nothing."""
    from runner.rounds import close as closing
    from runner.rounds import patches as rounds

    artifact = find(path, brain, scope)
    place, _ = closing.current(artifact)
    if apply is not None:
        done = rounds.apply(place, artifact, [w.strip() for w in apply.split(",") if w.strip()])
        if as_json:
            out(
                json.dumps({"schema": "apply/1", "ok": True, "artifact_path": artifact.relative, "applied": list(done)})
            )
            return EXIT_DONE
        out(f"Applied {', '.join(done)} to {artifact.root.name}/{artifact.relative}. Done.")
        return EXIT_DONE
    shown = rounds.show(place, artifact)
    if as_json:
        rows = [_row(s) for s in shown]
        data = {"schema": "patches/1", "ok": True, "artifact_path": artifact.relative, "round": place.name}
        out(json.dumps(data | {"patches": rows}, ensure_ascii=False))
        return EXIT_DONE
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for s in shown:
        _print(s, colour)
    if not shown:
        out(f"{place.name} has no patches.")
    if any(s.state == "open" and not s.diff for s in shown):
        warn(f"{os.path.relpath(artifact.path)} was changed since the round: its open patches do not fit any more")
    return EXIT_DONE


def _row(s: Shown) -> dict[str, object]:
    return {
        "id": s.patch.id, "claim": s.claim.id, "state": s.state, "severity": s.claim.severity,
        "problem": s.claim.problem,
        "verdict": s.verdict.verdict, "confidence": s.verdict.confidence, "by_hand": s.patch.by_hand,
        "flags": list(s.patch.flags), "diff": s.diff.decode("utf-8", "replace"),
    }  # fmt: skip


def _print(s: Shown, colour: bool) -> None:
    from runner.render import visible

    facts = [s.state, f"{s.verdict.verdict} on {s.claim.id}", *s.patch.flags]
    name = f"\x1b[1m{s.patch.id}\x1b[0m" if colour else s.patch.id
    out(f"{name}  {s.claim.severity}: {visible(s.claim.problem)}")
    out("      " + " · ".join(facts) + (f" · {s.patch.by_hand}" if s.patch.by_hand else ""))
    for line in s.diff.decode("utf-8", "replace").split("\n")[:-1]:
        line = visible(line.removesuffix("\r"))
        start = _COLOURS.get(line[:1], "") if colour and not line.startswith(("---", "+++")) else ""
        out(f"{start}{line}\x1b[0m" if start else line)
    out()
