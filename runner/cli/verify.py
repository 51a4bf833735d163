"""debate verify: is the brain in order? And its two index files, made anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runner.cli import common
from runner.cli.common import out, out_json, warn
from runner.errors import EXIT_DONE, EXIT_REFUSED, Refused, UsageError


def verify(
    thread: Annotated[str | None, typer.Option("--thread", help="Check one thread only, by its slug.")] = None,
    path: Annotated[str | None, typer.Option("--path", help="Check what lies below this path of the brain.")] = None,
    warnings_as_errors: Annotated[bool, typer.Option("--warnings-as-errors", help="Warnings fail too.")] = False,
    rebuild_index: Annotated[
        bool, typer.Option("--rebuild-index", help="Write thread-index.md and current-state.md anew.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --rebuild-index: show a diff, write nothing.")
    ] = False,
    brain: common.Brain = None,
    as_json: common.Json = False,
) -> int:
    """Check the brain's rules (V-01 to V-22, N-01 to N-04). Exit 0: none broken, 1: some, 2: could not run."""
    if rebuild_index and (thread or path):
        raise UsageError("--rebuild-index takes the whole brain: no --thread, no --path")
    if dry_run and not rebuild_index:
        raise UsageError("--dry-run goes with --rebuild-index; a check never writes")
    root = _root(brain)
    if rebuild_index:
        return _rebuild(root, dry_run, as_json)
    return _check(root, thread, path, warnings_as_errors, as_json)


def _root(brain: str | None) -> Path:
    """No brain is a run that could not be, exit 2; exit 1 says that rules are broken."""
    from runner.brain.root import find_root

    try:
        return find_root(None, brain, Path.cwd())
    except Refused as error:
        raise UsageError(error.message, path=error.path, hint=error.hint) from None


def _check(root: Path, thread: str | None, path: str | None, strict: bool, as_json: bool) -> int:
    from runner.brain.verify import check, output

    report = check(root, thread=thread, path=path)
    failed = bool(report.errors) or (strict and bool(report.warnings))
    if as_json:
        out_json(output.to_json(report) | {"ok": not failed})
    else:
        for line in output.lines(report):
            out(line)
    return EXIT_REFUSED if failed else EXIT_DONE


def _rebuild(root: Path, dry_run: bool, as_json: bool) -> int:
    from runner import store
    from runner.brain.verify import Unsound, diff, output, rebuild

    try:
        changes = rebuild(root)
    except Unsound as error:
        if as_json:
            raise
        for violation in error.violations[1:]:
            warn(output.line(violation))
        raise
    changed = {path: new for path, (old, new) in changes.items() if old != new}
    if not dry_run:
        for path, new in changed.items():
            store.write_atomic(path, new)
    shown = diff(changes)
    if as_json:
        names = [path.name for path in changed]
        out_json({"schema": "verify-rebuild/1", "ok": True, "dry_run": dry_run, "changed": names, "diff": shown})
    elif dry_run:
        out(shown.removesuffix("\n") or "no changes")
    else:
        for path in changes:
            out(f"{path.name}: {'written' if path in changed else 'no change'}")
    return EXIT_DONE
