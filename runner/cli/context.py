"""debate context: the texts behind an artifact's soft links, in one document."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runner.cli import common
from runner.cli.common import out, out_json, warn
from runner.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    from runner.brain.artifact import Artifact
    from runner.brain.context import Context, LinkReport
    from runner.brain.context_folder import Stale


def context(
    path: common.PathArg = None,
    consumer: Annotated[str, typer.Option("--consumer", help="reviewer, author, brief or full.")] = "author",
    roles: Annotated[str | None, typer.Option("--roles", help="Only these, comma-separated; default: all.")] = None,
    ceiling: Annotated[
        int | None,
        typer.Option("--ceiling", "--max-tokens", help="Tokens at most; default: the consumer's (full: none)."),
    ] = None,
    persist: Annotated[bool, typer.Option("--persist", help="Write into .context/ beside the artifact.")] = False,
    out_folder: Annotated[
        str | None, typer.Option("--out", help="Write into this new folder, in the brain or our cache.")
    ] = None,
    detect_stale: Annotated[
        bool, typer.Option("--detect-stale", help="Only list links that fail or whose text has changed.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print where each link leads; write nothing.")] = False,
    brain: common.Brain = None,
    verbose: common.Verbose = 0,
    as_json: common.Json = False,
) -> int:
    """Gather what an artifact's soft links lead to (materialize-context). Fetches nothing, changes no file."""
    from runner.brain import context_folder

    artifact = _load(path, brain)
    found = _materialize(artifact, consumer, roles, ceiling)
    folder = context_folder.target(artifact, found, Path.cwd() / out_folder if out_folder else None, persist)
    if not as_json:
        for warning in found.warnings:
            warn(f"warning: {warning}")
    if persist and not out_folder and not dry_run:
        warn(f"warning: {_shown(folder)} may hold private text of other projects; keep .context/ out of commits")
    if context_folder.in_the_way(artifact, folder) and not dry_run:
        warn(f"warning: `debate verify` will read {_shown(folder)} as part of the brain")
    if dry_run:
        return _plan(found, folder, as_json)
    if detect_stale:
        return _stale(artifact, found, folder, as_json)
    return _write(artifact, found, folder, verbose, as_json)


def _load(path: str | None, brain: str | None) -> Artifact:
    from runner.brain import context, root

    return context.load(root.find_root(path, brain, Path.cwd()), Path(path or "."))


def _materialize(artifact: Artifact, consumer: str, roles: str | None, ceiling: int | None) -> Context:
    from runner.brain.budgets import CONSUMERS
    from runner.brain.context import materialize
    from runner.brain.links import ROLES

    name = next((known for known in CONSUMERS if known == consumer), None)
    if name is None:
        raise UsageError(f"--consumer must be one of {', '.join(CONSUMERS)}, not {consumer!r}")
    asked = None if roles is None else common.words(roles)
    unknown = [role for role in asked or () if role not in ROLES]
    if unknown or asked == ():
        raise UsageError(f"--roles takes some of {', '.join(ROLES)}, not {', '.join(unknown) or 'nothing'}")
    if ceiling is not None and ceiling < 1:
        raise UsageError(f"--ceiling={ceiling}: give 1 or more tokens")
    return materialize(artifact, name, asked, ceiling, _tokens, common.now())


def _tokens(text: str) -> int:
    """No model is opened for this: bytes / 4, as wherever the tokenizer is unknown."""
    return len(text.encode()) // 4


def _write(artifact: Artifact, found: Context, folder: Path, verbose: int, as_json: bool) -> int:
    from runner.brain.context import write
    from runner.cli.report import verbosity

    document, sidecar = write(found, folder)
    if as_json:
        out_json(_json(found) | {"context_path": str(document), "context_json_path": str(sidecar)})
        return EXIT_DONE
    if verbosity(artifact.root, verbose) == "terse":
        out(f"{_counts(found)}; wrote {_shown(document)}. Done.")
        return EXIT_DONE
    for line in (_counts(found), f"  written  {_shown(document)}", f"           {_shown(sidecar)}"):
        out(line)
    for link in found.links:
        out(f"  {_line(link)}")
    out("Done.")
    return EXIT_DONE


def _plan(found: Context, folder: Path, as_json: bool) -> int:
    from runner.brain.budgets import rule

    if as_json:
        out_json(_json(found) | {"dry_run": True, "folder": str(folder)})
        return EXIT_DONE
    for link in found.links:
        out(_line(link) if link.status != "resolved" else _planned(link, rule(found.consumer, link.role)))
    most = "no ceiling" if found.ceiling is None else f"ceiling {found.ceiling}"
    out(f"In all about {found.tokens} tokens, {most}; would write {_shown(folder)}. Dry run: nothing was written.")
    return EXIT_DONE


def _stale(artifact: Artifact, found: Context, folder: Path, as_json: bool) -> int:
    from runner.brain import context_folder
    from runner.brain.links import shown

    stale: tuple[Stale, ...] = context_folder.stale(artifact, found)
    written = context_folder.write_stale(stale, found, folder)
    if as_json:
        out_json({
            "schema": "context-stale/1", "ok": True, "artifact_path": found.artifact,
            "stale_refs": [asdict(s) for s in stale], "stale_path": str(written),
        })  # fmt: skip
        return EXIT_DONE
    for s in stale:
        out(f"{shown(s.uri)} | {s.role or 'no role'} | {s.reason}")
    out(f"{len(stale)} of {_number(len(found.links), 'link')} stale; wrote {_shown(written)}. Done.")
    return EXIT_DONE


def _json(found: Context) -> dict[str, Any]:
    counts = {f"refs_{name}": n for name, n in _numbers(found).items()}
    forward = {"artifact_path": found.artifact, "token_estimate": found.tokens, **counts}
    return {"schema": "context/1", "ok": True, **forward, **found.to_json()}


def _numbers(found: Context) -> dict[str, int]:
    status = [link.status for link in found.links]
    trimmed = sum(1 for link in found.links if link.trim)
    counts = {name: status.count(name) for name in ("resolved", "unresolved", "skipped")}
    return {"total": len(status), **counts, "trimmed": trimmed}


def _counts(found: Context) -> str:
    n = _numbers(found)
    extra = "".join(f", {n[what]} {what}" for what in ("unresolved", "skipped", "trimmed") if n[what])
    return f"Resolved {n['resolved']} of {_number(n['total'], 'soft link')}{extra}, about {found.tokens} tokens"


def _line(link: LinkReport) -> str:
    from runner.brain.links import shown

    why = link.reason + (f" ({link.detail})" if link.detail else "")
    trim = f"; {link.trim}" if link.trim else ""
    return f"{shown(link.uri)} ({link.role or 'no role'}): {link.status}{f', {why}' if why else ''}{trim}"


def _planned(link: LinkReport, budget: str) -> str:
    from runner.brain.links import shown

    trim = f"; {link.trim}" if link.trim not in ("", budget) else ""
    name = f"{shown(link.uri)} ({link.role or 'no role'})"
    return f"{name} -> {shown(link.target)}, budget: {budget}, about {link.tokens} tokens{trim}"


def _number(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"


def _shown(path: Path) -> str:
    import os

    return os.path.relpath(path)
