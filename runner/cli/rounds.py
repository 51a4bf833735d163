"""debate open, resume, abort, close, status."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runner.errors import EXIT_DONE, EXIT_INCOMPLETE, Refused, UsageError

if TYPE_CHECKING:
    from runner.brain.artifact import Artifact
    from runner.cli.progress import Watch
    from runner.rounds.conduct import Opened
    from runner.rounds.plan import Options

PathArg = Annotated[str | None, typer.Argument(metavar="[PATH]", help="The leaf or thread; default: the one here.")]
Brain = Annotated[str | None, typer.Option("--brain", help="The brain root; default: found from here.")]
Scope = Annotated[str | None, typer.Option("--scope", help="leaf or thread; default: from the path.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Verbose = Annotated[int, typer.Option("--verbose", "-v", count=True, help="Say more; twice: everything.")]
ProfileOpt = Annotated[str | None, typer.Option("--profile", help="Run profile, by name or path; default: cpu.")]
ModelOpt = Annotated[str | None, typer.Option("--model", help="A model by name, or the path of a .gguf file.")]


def add_to(app: typer.Typer) -> None:
    for command in (open_, resume, abort, close, status):
        app.command(command.__name__.strip("_"))(command)


def out(line: str = "") -> None:
    """A line of the result, foreign text in it as it is."""
    print(line)  # noqa: T201


def warn(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201


def _print_json(data: dict[str, Any]) -> None:
    out(json.dumps(data, ensure_ascii=False))


def _feedback(text: str | None) -> str:
    """TEXT, @file, or - for standard input."""
    if text == "-":
        return sys.stdin.read()
    if text is not None and text.startswith("@"):
        try:
            return Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, ValueError) as e:
            reason = e.strerror if isinstance(e, OSError) else "not UTF-8"
            raise UsageError(f"--feedback: cannot be read: {reason}", path=text[1:]) from None
    return text or ""


def find(path: str | None, brain: str | None, scope: str | None) -> Artifact:
    """The artifact that the user named, or the one that the working directory is in."""
    from runner.brain import artifact, root

    if scope not in (None, "leaf", "thread"):
        raise UsageError(f"--scope must be leaf or thread, not {scope!r}")
    found = root.find_root(path, brain, Path.cwd())
    return artifact.load(found, Path(path or "."), scope)


def _watch(quiet: bool) -> Watch:
    from runner.cli.progress import Watch

    tty = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return Watch(live=tty and not quiet, lines=not quiet)


def open_(
    path: PathArg = None,
    personas: Annotated[str | None, typer.Option("--personas", help="Names from § 10.2, comma-separated.")] = None,
    persona: Annotated[
        list[str] | None, typer.Option("--persona", help='An own one: "name:charter". Repeatable.')
    ] = None,
    reviewers: Annotated[int | None, typer.Option("--reviewers", help="How many; default: 3 or fewer.")] = None,
    feedback: Annotated[str | None, typer.Option("--feedback", help="TEXT, @file or -: what to address.")] = None,
    synthesizer: Annotated[
        bool | None, typer.Option("--synthesizer/--no-synthesizer", help="Default: with 4 reviewers or more.")
    ] = None,
    review_mode: Annotated[str, typer.Option("--review-mode", help="full or delta.")] = "full",
    min_reviewers: Annotated[int | None, typer.Option("--min-reviewers", help="Default: all of them.")] = None,
    profile: ProfileOpt = None,
    model: ModelOpt = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Another draw of the same review.")] = None,
    scope: Scope = None,
    brain: Brain = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> int:
    """Open a review round: reviewers, defender, patches."""
    from runner import runs
    from runner.rounds.plan import Options

    if review_mode not in ("full", "delta"):
        raise UsageError(f"--review-mode must be full or delta, not {review_mode!r}")
    artifact = find(path, brain, scope)
    settings = runs.settings(profile, model, artifact.root.parent, seed=seed)
    options = Options(
        personas=_names(personas),
        ad_hoc=tuple(persona or ()),
        reviewers=reviewers,
        review_mode=review_mode,
        feedback=_feedback(feedback) or settings.profile.feedback or "",
        synthesizer=synthesizer,
        min_reviewers=min_reviewers,
    )
    _check_given(artifact, options)
    planned = runs.open_plan(artifact, options, settings)
    for line in planned.inputs.warnings:
        warn(line)
    with _watch(quiet) as watch:
        opened = runs.open_round(planned, settings, watch.observe)
    return _report(opened, artifact, watch.times, as_json, verbose)


def _names(personas: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (personas or "").split(",") if name.strip())


def _check_given(artifact: Artifact, options: Options) -> None:
    """Say at once all that is missing."""
    from runner.brain.personas import roster

    missing = []
    if not options.personas and not options.ad_hoc:
        listed = ", ".join(roster(artifact.root))
        own = '--persona "name:charter"'
        missing.append(
            f"personas: --personas with names of § 10.2 ({listed}), or {own}" if listed else f"personas: {own}"
        )
    if not options.feedback.strip():
        missing.append('feedback: --feedback "what should this round address?" (or @file, or -)')
    if len(missing) > 1:
        raise Refused("personas and feedback are missing", hint="; ".join(missing))
    if missing and not options.ad_hoc and not options.personas and roster(artifact.root):
        raise Refused("no personas were given", hint=missing[0])


def _report(opened: Opened, artifact: Artifact, times: dict[str, float], as_json: bool, verbose: int) -> int:
    from runner.cli import report

    if as_json:
        _print_json(report.opened_json(opened, artifact, times))
    else:
        word = report.verbosity(artifact.root, verbose)
        lines = [report.opened_terse(opened, artifact)]
        if word != "terse":
            lines = report.opened_normal(opened, artifact, times, sys.stdout.isatty())
        if word == "verbose":
            lines[-1:] = [*report.opened_verbose(opened), "", "Done."]
        for line in lines:
            out(line)
    if opened.result.exhausted:
        missing = ", ".join(opened.result.exhausted)
        warn(f"debate: incomplete (partial): no usable answer to {missing}")
        warn(f"hint: debate resume {os.path.relpath(artifact.path)} --only-failed")
        return EXIT_INCOMPLETE
    return EXIT_DONE


def resume(
    path: PathArg = None,
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="On an open round: ask what failed once more.")
    ] = False,
    min_reviewers: Annotated[int | None, typer.Option("--min-reviewers", help="Go on with fewer.")] = None,
    profile: ProfileOpt = None,
    model: ModelOpt = None,
    scope: Scope = None,
    brain: Brain = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> int:
    """Go on with a round (or a close) that was interrupted; nothing that was answered is asked again."""
    from runner import runs
    from runner.rounds import close as closing

    artifact = find(path, brain, scope)
    place, state = closing.current(artifact)
    if state == "closing":
        return _close(artifact, None, (), as_json, verbose)
    if state not in ("interrupted", "open") or (state == "open" and not only_failed):
        hints = {
            "open": "`--only-failed` asks again what failed; `debate close` finishes the round",
            "closed": "`debate open` opens the next round",
            "aborting": "`debate abort` finishes the abort",
        }
        raise Refused(
            f"nothing to resume: {place.name} is {state}", path=os.path.relpath(artifact.path), hint=hints[state]
        )
    settings = runs.resume_settings(place, profile, model, artifact.root.parent)
    with _watch(quiet) as watch:
        opened = runs.resume_round(artifact, place, settings, watch.observe, min_reviewers=min_reviewers)
    return _report(opened, artifact, watch.times, as_json, verbose)


def abort(path: PathArg = None, scope: Scope = None, brain: Brain = None, as_json: Json = False) -> int:
    """Take an interrupted round (or close) back: the tree is as it was before."""
    from runner.rounds import abort as aborting
    from runner.rounds import close as closing

    artifact = find(path, brain, scope)
    place, state = closing.current(artifact)
    moved: tuple[str, ...] = ()
    if state == "closing":
        closing.undo(place, artifact)
        what = "close of " + place.name
    else:
        moved = aborting.abort(place, artifact, state)
        what = place.name
    if as_json:
        _print_json({"schema": "abort/1", "ok": True, "aborted": what, "moved": list(moved)})
        return EXIT_DONE
    out(f"Aborted the {what} on {artifact.root.name}/{artifact.relative}. Done.")
    for name in moved:
        warn(f"not ours, moved to {os.path.relpath(place.history / name)}")
    return EXIT_DONE


def close(
    path: PathArg = None,
    patches_status: Annotated[
        str | None, typer.Option("--patches-status", help="applied, partial or rejected.")
    ] = None,
    revisit: Annotated[
        str | None, typer.Option("--revisit", help="REJECTed claims to carry forward: C-03,C-07.")
    ] = None,
    scope: Scope = None,
    brain: Brain = None,
    as_json: Json = False,
    verbose: Verbose = 0,
) -> int:
    """Close the round: record what came of the patches, restore the status, carry open issues forward."""
    artifact = find(path, brain, scope)
    names = tuple(name.strip() for name in (revisit or "").split(",") if name.strip())
    return _close(artifact, patches_status, names, as_json, verbose)


def _close(
    artifact: Artifact, patches_status: str | None, revisit: tuple[str, ...], as_json: bool, verbose: int
) -> int:
    from datetime import UTC, datetime

    from runner.cli import report
    from runner.rounds import close as closing

    place = closing.check(artifact, patches_status)
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    closed = closing.close(place, artifact, patches_status, at, revisit)
    if as_json:
        _print_json(report.closed_json(closed, artifact))
    elif report.verbosity(artifact.root, verbose) == "terse":
        out(report.closed_terse(closed, artifact))
    else:
        for line in report.closed_normal(closed, artifact):
            out(line)
    return EXIT_DONE


def status(path: PathArg = None, scope: Scope = None, brain: Brain = None, as_json: Json = False) -> int:
    """Say where the artifact's rounds stand and what to do next."""
    from runner.brain import history
    from runner.brain.root import kind

    artifact = find(path, brain, scope)
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
        _print_json({
            "schema": "status/1", "ok": True, "artifact_path": artifact.relative, "scope": artifact.scope,
            "status": artifact.status, "maturity": artifact.maturity, "round": name, "state": found.state,
            "next": steps[found.state],
        })  # fmt: skip
        return EXIT_DONE
    out(f"{artifact.root.name}/{artifact.relative}: {artifact.scope}, {artifact.status or 'no status'}")
    out(f"  round  {name or 'none yet'}" + (f" ({found.state})" if name else ""))
    out(f"  next   {steps[found.state]}")
    return EXIT_DONE
