"""debate run: open or close, whichever the artifact's state asks for. `multi-agent-debate` is the same command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from runner.cli import common
from runner.cli.closing import CloseArgs, close_artifact
from runner.cli.opening import OpenArgs, open_artifact
from runner.errors import Refused, UsageError

if TYPE_CHECKING:
    from runner.brain.artifact import Artifact


def run(
    path: common.PathArg = None,
    artifact_path: Annotated[str | None, typer.Option("--artifact-path", help="The same as PATH.")] = None,
    mode: Annotated[str | None, typer.Option("--mode", help="open or close; default: from status and round.")] = None,
    open_: Annotated[bool, typer.Option("--open", help="The same as --mode open.")] = False,
    close: Annotated[bool, typer.Option("--close", help="The same as --mode close.")] = False,
    personas: common.Personas = None,
    persona: common.Persona = None,
    reviewers: common.Reviewers = None,
    feedback: common.Feedback = None,
    synthesizer: common.Synthesizer = None,
    review_mode: common.ReviewMode = "full",
    min_reviewers: common.MinReviewers = None,
    patches_status: common.PatchesStatus = None,
    revisit: common.Revisit = None,
    profile: common.ProfileOpt = None,
    model: common.ModelOpt = None,
    engine: common.EngineOpt = None,
    claim: common.ClaimOpt = None,
    seed: common.Seed = None,
    allow_dirty: common.AllowDirty = False,
    wait_s: common.WaitS = None,
    fail_on: common.FailOn = "none",
    known: common.Known = None,
    yes: common.Yes = False,
    dry_run: common.DryRun = False,
    no_input: common.NoInput = False,
    scope: common.Scope = None,
    brain: common.Brain = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
    verbose: common.Verbose = 0,
) -> int:
    """Open or close a round: scope and mode are inferred from the path, the status and the round's state."""
    if path is not None and artifact_path is not None and path != artifact_path:
        raise UsageError("PATH and --artifact-path name different artifacts")
    artifact = common.find(path or artifact_path, brain, scope)
    if _mode(artifact, mode, open_, close) == "close":
        names = common.words(revisit)
        return close_artifact(artifact, CloseArgs(patches_status, names, yes, dry_run, no_input, as_json, verbose))
    args = OpenArgs(
        common.words(personas), tuple(persona or ()), reviewers, feedback, synthesizer, review_mode, min_reviewers,
        profile, model, engine, claim, seed, allow_dirty, wait_s, fail_on, known, dry_run, no_input, as_json,
        quiet, verbose,
    )  # fmt: skip
    return open_artifact(artifact, args)


def _mode(artifact: Artifact, mode: str | None, open_: bool, close: bool) -> str:
    """What the flags say, else: an unclosed round is closed, anything else is opened."""
    asked = {*([mode] if mode else []), *(["open"] if open_ else []), *(["close"] if close else [])}
    if len(asked) > 1:
        raise UsageError(f"--mode cannot be {' and '.join(sorted(asked))} at once")
    if asked:
        (word,) = asked
        if word not in ("open", "close"):
            raise UsageError(f"--mode must be open or close, not {word!r}")
        return word
    return infer(artifact)


def infer(artifact: Artifact) -> str:
    """The specification's inference; a status that allows neither is refused with its name."""
    from runner.brain import history
    from runner.brain.root import kind, shown

    folder = history.history_folder(artifact)
    state = history.state(artifact, folder).state if kind(folder) != "missing" else "none"
    if state == "closing" or artifact.status == "hardening":
        return "close"
    if artifact.scope == "thread" and artifact.status == "active":
        return "close" if state == "open" else "open"
    if artifact.scope == "leaf" and artifact.status in ("decided", "specified"):
        return "open"
    what = artifact.status or "(none)"
    raise Refused(
        f"the {artifact.scope}'s status is {what}: there is no round to open or to close", path=shown(artifact.path),
        hint="a round opens on a decided or specified leaf, or an active thread",
    )  # fmt: skip
