"""debate close, abort and status."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from runner.cli import common, planning
from runner.cli.common import out, out_json, warn
from runner.errors import EXIT_DONE, UsageError, worst

if TYPE_CHECKING:
    from runner.brain.artifact import Artifact
    from runner.rounds.folder import Round


@dataclass(frozen=True, slots=True)
class CloseArgs:
    """The options of `close`, as given."""

    patches_status: str | None = None
    revisit: tuple[str, ...] = ()
    yes: bool = False
    dry_run: bool = False
    no_input: bool = False
    json: bool = False
    verbose: int = 0


def close(
    path: common.PathArg = None,
    patches_status: common.PatchesStatus = None,
    revisit: common.Revisit = None,
    yes: common.Yes = False,
    every: Annotated[
        bool, typer.Option("--all", help="Every open round in the brain, or below PATH; needs --patches-status.")
    ] = False,
    dry_run: common.DryRun = False,
    no_input: common.NoInput = False,
    scope: common.Scope = None,
    brain: common.Brain = None,
    as_json: common.Json = False,
    verbose: common.Verbose = 0,
) -> int:
    """Close the round: record what came of the patches, restore the status, carry open issues forward."""
    if every:
        return _close_all(path, patches_status, revisit, yes, dry_run, brain, as_json)
    args = CloseArgs(patches_status, common.words(revisit), yes, dry_run, no_input, as_json, verbose)
    return close_artifact(common.find(path, brain, scope), args)


def _close_all(
    path: str | None, patches_status: str | None, revisit: str | None, yes: bool, dry_run: bool, brain: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Each open round on its own: one that cannot be closed is named, and the others are closed."""
    from pathlib import Path

    from runner.brain import root as roots
    from runner.bulk import close as bulk

    if patches_status is None or revisit is not None:
        hint = "--patches-status applied|partial|rejected for all of them; --revisit is for one round at a time"
        raise UsageError("--all needs --patches-status and takes no --revisit", hint=hint)
    root = roots.find_root(path, brain, Path.cwd())
    if dry_run:
        listed = [relative for relative, _ in bulk.open_rounds(root, path, Path.cwd())]
        for relative in listed:
            out(relative)
        out(f"{len(listed)} rounds would be closed as {patches_status}")
        return EXIT_DONE
    with common.audited_bulk("close", root, []) as notes:
        rows = bulk.close_all(root, path, Path.cwd(), patches_status, common.now, force=yes)
        code = notes["exit"] = worst([row.exit for row in rows])
    if as_json:
        out_json({"schema": "close-all/1", "ok": code == 0, "rounds": [row.to_json() for row in rows]})
        return code
    for row in rows:
        out(f"{'closed' if not row.why else 'left'}  {row.path} {row.round}" + (f": {row.why}" if row.why else ""))
    out(f"{sum(not r.why for r in rows)} closed" if rows else "nothing to do")
    return code


def close_artifact(artifact: Artifact, args: CloseArgs) -> int:
    """Close the artifact's open round, or show the plan of it."""
    with common.audited("close", artifact, asdict(args), args.dry_run) as notes:
        code = notes["exit"] = _close(artifact, args, notes)
    return code


def _close(artifact: Artifact, args: CloseArgs, notes: dict[str, object]) -> int:
    from runner.cli import questions, report
    from runner.rounds import close as closing

    status = args.patches_status
    if status is None and questions.interactive(args.no_input):
        closing.check(artifact, "applied")  # before anything is asked
        status = questions.patches_status()
    place = closing.check(artifact, status)
    closing.check_revisit(place, args.revisit)
    if args.dry_run:
        return planning.show_close(place, artifact, str(status))
    _confirm(place, artifact, str(status), args)
    closed = closing.close(place, artifact, status, common.now(), args.revisit)
    notes |= {"round_number": place.number, "patches_status": closed.patches_status, "seed": closed.seeded}
    if args.json:
        out_json(report.closed_json(closed, artifact))
    elif report.verbosity(artifact.root, args.verbose) == "terse":
        out(report.closed_terse(closed, artifact))
    else:
        for line in report.closed_normal(closed, artifact):
            out(line)
    return EXIT_DONE


def _confirm(place: Round, artifact: Artifact, status: str, args: CloseArgs) -> None:
    """Warn when the file does not fit what we were told; `applied` on a dirty tree asks first."""
    from runner.brain import worktree
    from runner.brain.root import shown
    from runner.cli import questions
    from runner.errors import Refused
    from runner.rounds import patches

    if place.record.exists():
        for line in patches.doubts(place, artifact, status):
            warn(f"warning: {line}")
    dirty = worktree.changes(artifact, place.history)
    if not dirty:
        return
    listed = ", ".join(dirty[:8]) + (f" and {len(dirty) - 8} more" if len(dirty) > 8 else "")
    warn(f"warning: uncommitted changes: {listed}")
    if status != "applied" or args.yes:
        return
    if questions.interactive(args.no_input) and questions.confirm("Close all the same?"):
        return
    raise Refused(
        "uncommitted changes", path=shown(artifact.path), hint="commit them first, or give --yes", code="dirty"
    )


def abort(
    path: common.PathArg = None,
    scope: common.Scope = None,
    brain: common.Brain = None,
    as_json: common.Json = False,
) -> int:
    """Take an interrupted round, close, ask or brief back: the tree is as it was before."""
    debate = common.debate_at(path)
    if debate is not None:
        module, place = debate
        return int(module.abort_folder(place, as_json))
    artifact = common.find(path, brain, scope)
    with common.audited("abort", artifact, {}):
        return _abort(artifact, as_json)


def _abort(artifact: Artifact, as_json: bool) -> int:
    from runner import runs

    place, moved, taken_back = runs.abort_round(artifact)
    what = f"close of {place.name}" if taken_back == "close" else place.name
    if as_json:
        out_json({"schema": "abort/1", "ok": True, "aborted": what, "moved": list(moved)})
        return EXIT_DONE
    out(f"Aborted {what} on {artifact.root.name}/{artifact.relative}. Done.")
    for name in moved:
        warn(f"not ours, moved to {os.path.relpath(place.history / name)}")
    return EXIT_DONE


def status(
    path: common.PathArg = None,
    scope: common.Scope = None,
    brain: common.Brain = None,
    as_json: common.Json = False,
) -> int:
    """Say where the artifact's rounds stand and what to do next."""
    from runner.brain import history
    from runner.brain.root import kind

    artifact = common.find(path, brain, scope)
    folder = history.history_folder(artifact)
    found = history.state(artifact, folder) if kind(folder) != "missing" else history.RoundState(None, "none")
    here = os.path.relpath(artifact.path)
    steps = {
        "none": f"debate open {here}",
        "closed": f"debate open {here}",
        "open": f"debate close {here} --patches-status applied|partial|rejected",
        "interrupted": f"debate resume {here}, or debate abort {here}",
        "closing": f"debate close {here}",
        "aborting": f"debate abort {here}",
    }
    name = None if found.number is None else history.round_name(found.number)
    if as_json:
        out_json({
            "schema": "status/1", "ok": True, "artifact_path": artifact.relative, "scope": artifact.scope,
            "status": artifact.status, "maturity": artifact.maturity, "round": name, "state": found.state,
            "next": steps[found.state],
        })  # fmt: skip
        return EXIT_DONE
    about = f"{artifact.root.name}/{artifact.relative}: {artifact.scope}, {artifact.status or 'no status'}"
    out(common.one_line(about))
    out(f"  round  {name or 'none yet'}" + (f" ({found.state})" if name else ""))
    out(f"  next   {steps[found.state]}")
    return EXIT_DONE
