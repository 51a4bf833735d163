"""debate open and resume."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner.cli import common, gating, planning
from runner.cli.common import out, warn
from runner.errors import EXIT_DONE, EXIT_INCOMPLETE, Refused, UsageError

if TYPE_CHECKING:
    from runner.brain.artifact import Artifact
    from runner.rounds.conduct import Opened
    from runner.runs import Settings
    from runner.values import Claim


@dataclass(frozen=True, slots=True)
class OpenArgs:
    """The options of `open`, as given."""

    personas: tuple[str, ...] = ()
    persona: tuple[str, ...] = ()
    reviewers: int | None = None
    feedback: str | None = None
    synthesizer: bool | None = None
    review_mode: str = "full"
    min_reviewers: int | None = None
    profile: str | None = None
    model: str | None = None
    engine: str | None = None
    claim: str | None = None
    seed: int | None = None
    allow_dirty: bool = False
    wait_s: float | None = None
    fail_on: str = "none"
    known: Path | None = None
    dry_run: bool = False
    no_input: bool = False
    json: bool = False
    quiet: bool = False
    verbose: int = 0


def open_(
    path: common.PathArg = None,
    personas: common.Personas = None,
    persona: common.Persona = None,
    reviewers: common.Reviewers = None,
    feedback: common.Feedback = None,
    synthesizer: common.Synthesizer = None,
    review_mode: common.ReviewMode = "full",
    min_reviewers: common.MinReviewers = None,
    profile: common.ProfileOpt = None,
    model: common.ModelOpt = None,
    engine: common.EngineOpt = None,
    claim: common.ClaimOpt = None,
    seed: common.Seed = None,
    allow_dirty: common.AllowDirty = False,
    wait_s: common.WaitS = None,
    fail_on: common.FailOn = "none",
    known: common.Known = None,
    dry_run: common.DryRun = False,
    no_input: common.NoInput = False,
    scope: common.Scope = None,
    brain: common.Brain = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
    verbose: common.Verbose = 0,
) -> int:
    """Open a review round: reviewers, defender, patches."""
    args = OpenArgs(
        common.words(personas), tuple(persona or ()), reviewers, feedback, synthesizer, review_mode, min_reviewers,
        profile, model, engine, claim, seed, allow_dirty, wait_s, fail_on, known, dry_run, no_input, as_json,
        quiet, verbose,
    )  # fmt: skip
    return open_artifact(common.find(path, brain, scope), args)


def open_artifact(artifact: Artifact, args: OpenArgs) -> int:
    """Open a round on the artifact, or show the plan of it."""
    flags = asdict(args) | {"known": None if args.known is None else str(args.known)}
    with common.audited("open", artifact, flags, args.dry_run) as notes:
        code = notes["exit"] = _open(artifact, args, notes)
    return code


def _open(artifact: Artifact, args: OpenArgs, notes: dict[str, object]) -> int:
    from runner import runs
    from runner.brain import history
    from runner.rounds.plan import Options, check_no_round, check_status

    if args.review_mode not in ("full", "delta"):
        raise UsageError(f"--review-mode must be full or delta, not {args.review_mode!r}")
    gate = gating.wanted(args.fail_on, args.known)
    check_status(artifact)  # before anything is asked
    check_no_round(artifact, history.history_folder(artifact))
    settings = runs.settings(
        args.profile,
        args.model,
        artifact.root.parent,
        seed=args.seed,
        engine=args.engine,
        plan_only=args.dry_run,
        wait_s=args.wait_s,
    )
    args = _completed(artifact, args, settings)
    options = Options(
        personas=args.personas,
        ad_hoc=args.persona,
        reviewers=args.reviewers,
        review_mode=args.review_mode,
        feedback=args.feedback or "",
        synthesizer=args.synthesizer,
        min_reviewers=args.min_reviewers,
        allow_dirty=args.allow_dirty,
        dry_run=args.dry_run,
        claims=own_claims(args.claim),
    )
    if args.dry_run:
        return planning.show_open(artifact, options, settings)
    planned = runs.open_plan(artifact, options, settings)
    for line in planned.inputs.warnings:
        warn(line)
    with common.watch(args.quiet) as watch:
        opened = runs.open_round(planned, settings, watch.observe)
    notes |= {"round_number": opened.place.number, "incomplete": list(opened.result.exhausted)}
    code = report_opened(opened, artifact, watch.times, args.json, args.verbose)
    return gating.code(gate, [opened.place.record], code)


def own_claims(given: str | None) -> tuple[Claim, ...]:
    """Claims of --claim @file (or -, or the text itself)."""
    if given is None:
        return ()
    from runner.rounds.handmade import claims

    return claims(common.text_of("--claim", given), given.removeprefix("@"))


def _completed(artifact: Artifact, args: OpenArgs, settings: Settings) -> OpenArgs:
    """Personas and feedback as given, else asked for on a terminal, else one message that names all that is missing."""
    from runner.brain.personas import roster
    from runner.cli import questions

    feedback = common.text_of("--feedback", args.feedback) or settings.profile.feedback or ""
    args = replace(args, feedback=feedback)
    no_personas, no_feedback = not args.personas and not args.persona, not feedback.strip()
    if not no_personas and not no_feedback:
        return args
    listed = roster(artifact.root)
    if not questions.interactive(args.no_input):
        _refuse_missing(listed, no_personas, no_feedback)
    if no_personas and listed:
        args = replace(args, personas=tuple(questions.personas(listed, _charters(artifact, listed))))
    elif no_personas:
        args = replace(args, persona=(questions.persona(),))
    return replace(args, feedback=questions.feedback()) if no_feedback else args


def _refuse_missing(listed: Sequence[str], no_personas: bool, no_feedback: bool) -> None:
    own = '--persona "name:charter"'
    missing, how = [], []
    if no_personas:
        missing.append("personas")
        how.append(f"--personas with names of § 10.2 ({', '.join(listed)}), or {own}" if listed else own)
    if no_feedback:
        missing.append("feedback")
        how.append('--feedback "what should this round address?" (or @file, or -)')
    if missing == ["personas"] and not listed:
        raise Refused("No personas available: the project has no § 10.2 roster", hint=f"edit § 10.2, or pass {own}")
    raise Refused(f"missing: {' and '.join(missing)}", hint="; ".join(how), code="missing")


def _charters(artifact: Artifact, names: Sequence[str]) -> dict[str, str]:
    from runner import config
    from runner.brain.personas import resolve

    found = resolve(artifact.root, names, (), len(names), config.bundled("prompts") / "personas")
    return {p.name: p.charter or "" for p in found.personas}


def report_opened(opened: Opened, artifact: Artifact, times: dict[str, float], as_json: bool, verbose: int) -> int:
    """Print what `open` or `resume` came to; 4 when part of it is missing."""
    from runner.cli import report

    if not opened.result.patches:
        warn(f"warning: {report.NO_PATCHES}")
    if as_json:
        common.out_json(report.opened_json(opened, artifact, times))
    else:
        word = report.verbosity(artifact.root, verbose)
        lines = [report.opened_terse(opened, artifact)]
        if word != "terse":
            lines = report.opened_normal(opened, artifact, times, sys.stdout.isatty())
        if word == "verbose":
            lines[-1:] = [*report.opened_verbose(opened, artifact), "", "Done."]
        for line in lines:
            out(line)
    if opened.result.exhausted:
        missing = ", ".join(opened.result.exhausted)
        warn(f"debate: incomplete (partial): no usable answer to {missing}")
        warn(f"hint: debate resume {os.path.relpath(artifact.path)} --only-failed")
        return EXIT_INCOMPLETE
    return EXIT_DONE


def resume(
    path: common.PathArg = None,
    only_failed: Annotated[
        bool, typer.Option("--only-failed", help="On an open round: ask what failed once more.")
    ] = False,
    min_reviewers: Annotated[int | None, typer.Option("--min-reviewers", help="Go on with fewer.")] = None,
    profile: common.ProfileOpt = None,
    model: common.ModelOpt = None,
    wait_s: common.WaitS = None,
    fail_on: common.FailOn = "none",
    known: common.Known = None,
    scope: common.Scope = None,
    brain: common.Brain = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
    verbose: common.Verbose = 0,
) -> int:
    """Go on with an interrupted round, close, ask or brief; nothing that was answered is asked again."""
    debate = common.debate_at(path)
    if debate is not None:
        module, place = debate
        return int(module.resume_folder(place, profile, model, wait_s, as_json, quiet))
    artifact = common.find(path, brain, scope)
    flags = {"only_failed": only_failed, "min_reviewers": min_reviewers, "profile": profile, "model": model}
    with common.audited("resume", artifact, flags) as notes:
        gate = gating.wanted(fail_on, known)
        code = notes["exit"] = _resume(
            artifact, only_failed, min_reviewers, profile, model, wait_s, gate, as_json, quiet, verbose
        )
    return code


def _resume(
    artifact: Artifact, only_failed: bool, min_reviewers: int | None, profile: str | None, model: str | None,
    wait_s: float | None, gate: gating.Wanted, as_json: bool, quiet: bool, verbose: int,
) -> int:  # fmt: skip
    from runner import runs
    from runner.cli.closing import CloseArgs, close_artifact
    from runner.rounds import close as closing

    place, state = closing.current(artifact)
    if state == "closing":
        return close_artifact(artifact, CloseArgs(json=as_json, verbose=verbose))
    if state not in ("interrupted", "open") or (state == "open" and not only_failed):
        hints = {
            "open": "`--only-failed` asks again what failed; `debate close` finishes the round",
            "closed": "`debate open` opens the next round",
            "aborting": "`debate abort` finishes the abort",
        }
        where = os.path.relpath(artifact.path)
        raise Refused(f"nothing to resume: {place.name} is {state}", path=where, hint=hints[state])
    settings = runs.resume_settings(place, profile, model, artifact.root.parent, wait_s)
    with common.watch(quiet) as watch:
        opened = runs.resume_round(artifact, place, settings, watch.observe, min_reviewers=min_reviewers)
    code = report_opened(opened, artifact, watch.times, as_json, verbose)
    return gating.code(gate, [opened.place.record], code)
