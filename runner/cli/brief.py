"""debate brief: two critics on the files of a handoff, and the page that the next agent reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runner.cli import common
from runner.cli.common import out, warn
from runner.errors import EXIT_DONE, EXIT_INCOMPLETE

if TYPE_CHECKING:
    from runner.debates.brief import Done
    from runner.debates.folder import RunFolder


def brief(
    task_id: Annotated[str, typer.Argument(metavar="TASK_ID", help="The task of .ai/handoffs/TASK_ID.md.")],
    lite: Annotated[
        bool, typer.Option("--lite", help="One round, and a summary instead of the critics' texts.")
    ] = False,
    session: Annotated[
        str | None, typer.Option("--session", help="The session file; default: .ai/context/session.md.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Debate although the session does not call for it.")] = False,
    workspace: Annotated[
        str | None, typer.Option("--workspace", help="The folder that holds .ai/; default: found from here.")
    ] = None,
    profile: common.ProfileOpt = None,
    model: common.ModelOpt = None,
    engine: common.EngineOpt = None,
    seed: common.Seed = None,
    wait_s: common.WaitS = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> int:
    """Debate a change that was rejected twice: two critics read its files, and their concerns become a brief."""
    from runner import settings as settings_of
    from runner.debates import brief as briefs
    from runner.debates import brief_inputs, handoff, secrets

    task = handoff.check_task(task_id)
    root = handoff.find_workspace(workspace, Path.cwd())
    where = root / ".ai" / "context" / "session.md" if session is None else Path.cwd() / session
    options = brief_inputs.Options(task, root, where, lite, force)
    handoff.check_guard(handoff.read_session(where), where, force)  # before a model is looked for
    s = settings_of.settings(profile, model, root, seed=seed, engine=engine, wait_s=wait_s)
    tokenizer = settings_of.open_tokenizer(s)
    try:
        place, inputs = brief_inputs.plan(options, s, tokenizer, common.now())
    finally:
        close = getattr(tokenizer, "close", None)
        if close is not None:
            close()
    for line in (*inputs.warnings, *inputs.notes):
        warn(f"warning: {secrets.redact(line, inputs.known)}")
    briefs.check_free(place)
    with common.watch(quiet) as watch:
        done = briefs.write(place, inputs, s, common.now, watch.observe)
    return _report(done, as_json)


def resume_folder(
    place: RunFolder, profile: str | None, model: str | None, wait_s: float | None, as_json: bool, quiet: bool
) -> int:
    """`debate resume` on the run folder of a brief, or on its file."""
    from runner.debates import brief as briefs
    from runner.debates import brief_inputs

    inputs = brief_inputs.load(place)
    s = briefs.resume_settings(place, inputs, profile, model, wait_s)
    with common.watch(quiet) as watch:
        done = briefs.resume(place, inputs, s, common.now, watch.observe)
    return _report(done, as_json)


def abort_folder(place: RunFolder, as_json: bool) -> int:
    """`debate abort` on the run folder of a brief, or on its file."""
    from runner.debates import brief as briefs

    moved = briefs.abort(place)
    name = place.run.name.removeprefix(".run-")
    if as_json:
        common.out_json({"schema": "abort/1", "ok": True, "aborted": f"brief {name}", "moved": list(moved)})
        return EXIT_DONE
    out(f"Aborted the brief {name}. Done.")
    for path in moved:
        warn(f"not ours, moved to {path}")
    return EXIT_DONE


def _report(done: Done, as_json: bool) -> int:
    """Print what a brief came to; 4 when a critic, the synthesizer or a part of the files is missing."""
    missing, unread = done.result.exhausted, done.not_read
    code = EXIT_INCOMPLETE if missing or unread else EXIT_DONE
    sets = {"debate_round": done.inputs.debate_round + 1, "debate_used": True, "NEXT_AGENT": "bug-fix"}
    if as_json:
        common.out_json(
            {"schema": "brief/1", "ok": code == EXIT_DONE, "exit": code, **done.record, "set": _set(sets, missing)}
        )
    else:
        out(done.block.rstrip("\n"))
    if missing:
        warn(f"debate: incomplete (partial): no usable answer to {', '.join(missing)}")
        warn(f"hint: debate resume {os.path.relpath(done.place.run)}")
    if unread:
        warn(f"debate: incomplete (partial): not read in full: {'; '.join(unread)}")
    for name, value in _set(sets, missing).items():
        warn(f"the coordinator sets {name}: {json.dumps(value) if not isinstance(value, str) else value}")
    return code


def _set(sets: dict[str, Any], missing: tuple[str, ...]) -> dict[str, Any]:
    """Nothing while a resume can still complete the brief."""
    return {} if missing else sets
