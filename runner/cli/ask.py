"""debate ask, and resume and abort of its folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner.cli import common
from runner.cli.common import out, out_json, warn
from runner.errors import EXIT_DONE, Refused, UsageError

if TYPE_CHECKING:
    from runner.debates.ask import Done
    from runner.debates.folder import RunFolder
    from runner.values import Document

QuestionArg = Annotated[str, typer.Argument(metavar="QUESTION", help="What to debate; - reads it from stdin.")]
Format = Annotated[
    str | None, typer.Option("--format", help="dialectic, redteam or council; default: from the question.")
]
Agents = Annotated[int | None, typer.Option("--agents", help="Seats, 2 or 3; default: the format's own number.")]
Rounds = Annotated[int, typer.Option("--rounds", help="At most; it ends earlier when a round adds nothing.")]
Models = Annotated[str | None, typer.Option("--models", help="Comma-separated, by name; they go round the seats.")]
ContextFile = Annotated[str | None, typer.Option("--context-file", help="What every seat is told; up to 200 words.")]
Decision = Annotated[str | None, typer.Option("--decision", help="One sentence framing the choice.")]
Constraints = Annotated[str | None, typer.Option("--constraints", help="Timeline, budget, dependencies, blockers.")]
Stakes = Annotated[str | None, typer.Option("--stakes", help="What is at risk if the wrong choice is made.")]
Leaning = Annotated[str | None, typer.Option("--leaning", help="Your own position; every seat challenges it.")]
TimeoutS = Annotated[float, typer.Option("--timeout-s", help="Seconds for one answer of a seat.")]
Out = Annotated[str | None, typer.Option("--out", help="The folder; default: debates/<date>-<slug>.")]


def ask(
    question: QuestionArg,
    format_: Format = None,
    agents: Agents = None,
    rounds: Rounds = 1,
    models: Models = None,
    context_file: ContextFile = None,
    decision: Decision = None,
    constraints: Constraints = None,
    stakes: Stakes = None,
    leaning: Leaning = None,
    timeout_s: TimeoutS = 120.0,
    out_: Out = None,
    profile: common.ProfileOpt = None,
    model: common.ModelOpt = None,
    engine: common.EngineOpt = None,
    seed: common.Seed = None,
    wait_s: common.WaitS = None,
    brain: common.Brain = None,
    no_input: common.NoInput = False,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> int:
    """Debate a question: seats that argue, rounds of rebuttal, a synthesis that names what they disagree on."""
    from runner import settings
    from runner.debates import ask as asking

    if timeout_s <= 0:
        raise UsageError(f"--timeout-s must be more than 0, not {timeout_s}")
    fields = {"decision": decision, "constraints": constraints, "stakes": stakes, "leaning": leaning}
    given = {name: text for name, text in fields.items() if text is not None}
    if context_file is not None and given:
        raise UsageError(f"--context-file and --{next(iter(given))} both give the context", hint="give one of them")
    root, project = _project(brain)
    text, assumed = _clear(sys.stdin.read() if question == "-" else question, no_input)
    options = asking.Options(
        text, format_, agents, rounds, common.words(models), _read(context_file), given, timeout_s,
        None if out_ is None else Path(out_), seed, assumed,
    )  # fmt: skip
    loaded = settings.settings(profile, model, project, seed=seed, engine=engine, wait_s=wait_s)
    planned = asking.plan(options, loaded, root, project, Path.cwd(), common.now)
    _announce(planned, quiet)
    with common.watch(quiet) as watch:
        done = asking.start(planned, common.now, watch.observe, _told(quiet))
    return _report(done, as_json)


def _project(brain: str | None) -> tuple[Path | None, Path]:
    """The brain (if there is one here, or the one named) and the folder that the question's paths may lie in."""
    from runner.brain import links
    from runner.brain.root import canonical, find_root

    try:
        root = find_root(None, brain, Path.cwd())
    except Refused:
        if brain is not None:
            raise
        return None, canonical(Path.cwd())
    return root, links.project(root)


def _read(path: str | None) -> str:
    from runner.brain.root import decode, read_bytes

    return "" if path is None else decode(read_bytes(Path(path)), path)


def _clear(text: str, no_input: bool) -> tuple[str, str]:
    """The question, asked back once on a terminal when it is too short to be clear; and what is assumed elsewhere."""
    from runner.cli import questions
    from runner.debates.question import check_question, vague

    question = check_question(text)
    if not vague(question):
        return question, ""
    if questions.interactive(no_input):
        more = questions.clarified(question)
        return (f"{question.rstrip('?!. ')}: {more}" if more.strip() else question), ""
    assumed = f"Assumed: the question is whether this is a good idea: {question}"
    warn(f"note: the question is short. {assumed}")
    return question, assumed


def _announce(planned: object, quiet: bool) -> None:
    from runner.debates.ask import Plan

    assert isinstance(planned, Plan)
    d = planned.inputs.debate
    if not quiet:
        warn(f"format: {d.form} ({d.why}); seats: {', '.join(s.name for s in d.seats)}")
        for name, shown, words, why in planned.inputs.read:
            warn(f"read: {name}: " + (f"not read ({why})" if why else f"{shown} of {words} words"))
    for line in planned.inputs.warnings:
        warn(f"warning: {line}")


def _told(quiet: bool) -> Callable[[Document], None] | None:
    """Each seat's position as soon as it has spoken."""
    if quiet:
        return None

    def told(document: Document) -> None:
        stem, _, kind = document.path.rpartition(".")
        if kind == "gap":
            warn(f"{stem}: no usable answer ({document.body})")
        if kind == "output":
            warn(f"{stem}: {_position(document.body)}")

    return told


def _position(body: str) -> str:
    lines = [line for line in body.split("\n") if line]
    at = next((i for i, line in enumerate(lines) if line in ("## Position", "## Revised position")), -1)
    return lines[at + 1]


def _report(done: Done, as_json: bool) -> int:
    """What came of it: on a terminal the synthesis as it reads; 4 when something is missing."""
    from runner.debates import ask as asking
    from runner.protocols.ask_files import novelty_lines

    missing = asking.incomplete(done)
    if as_json:
        out_json(_json(done))
    else:
        for line in novelty_lines(done.result.novelty):
            out(common.one_line(line))
        out(common.one_line(f"Ended: {done.result.ended}."))
        _synthesis(asking.readable(done.place) if done.result.synthesis else "")
        d = done.inputs.debate
        place = os.path.relpath(done.place.folder)
        fake = " FAKE ENGINE: no model read it." if done.inputs.fake else ""
        out(common.one_line(f"Debated in {place} ({d.form}, {len(d.seats)} seats, {_rounds(done)}).{fake} Done."))
    if missing is None:
        return EXIT_DONE
    warn(f"debate: {missing.message}")
    warn(f"hint: {missing.hint}")
    return missing.exit_code


def _rounds(done: Done) -> str:
    n = len(done.result.novelty)
    return f"{n} round{'' if n == 1 else 's'}"


def _synthesis(text: str) -> None:
    """Rendered on a terminal only; elsewhere the file is there to be read."""
    if not text or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(markup=False, highlight=False, emoji=False).print(Markdown(text, hyperlinks=False))


def _json(done: Done) -> dict[str, object]:
    from runner.debates import folder

    record = folder.load_record(done.place) or {}
    return {"schema": "ask/1", "ok": done.complete, "folder": str(done.place.folder.resolve())} | record


# ---- resume and abort ----------------------------------------------------------------------------------------------


def resume_folder(
    place: RunFolder, profile: str | None, model: str | None, wait_s: float | None, as_json: bool, quiet: bool
) -> int:
    """Go on with an interrupted debate, or ask the failed seats of a partial one again."""
    from runner import settings
    from runner.brain.root import shown
    from runner.debates import ask as asking
    from runner.debates import folder
    from runner.settings import engine_kind, with_models

    found = folder.state(place)
    if found in ("done", "aborting"):
        hint = "debate ask starts another" if found == "done" else f"debate abort {shown(place.folder)} finishes that"
        raise Refused(f"nothing to resume: this debate is {found}", path=shown(place.folder), hint=hint)
    inputs = asking.stored(place)
    _, project = _project(None)
    named = inputs.named
    kind = engine_kind(inputs.engine) if profile is None and model is None else None
    loaded = settings.settings(
        profile or named["profile"], model or named["model"], project, seed=named["seed"], engine=kind, wait_s=wait_s
    )
    if named["models"] and model is None:
        seats = [s.name for s in inputs.debate.seats]
        given = {name: named["models"][i % len(named["models"])] for i, name in enumerate(seats)}
        loaded = with_models(loaded, {"default": named["models"][0], **given}, project, named["seed"])
    with common.watch(quiet) as watch:
        done = asking.resume(place, inputs, loaded, common.now, watch.observe, _told(quiet))
    return _report(done, as_json)


def abort_folder(place: RunFolder, as_json: bool) -> int:
    """Take a debate back that is not done: its folder goes, what others put there is moved aside."""
    from runner.debates import folder

    where = os.path.relpath(place.folder)
    moved = folder.abort(place)
    if as_json:
        out_json({"schema": "abort/1", "ok": True, "aborted": where, "moved": list(moved)})
        return EXIT_DONE
    out(common.one_line(f"Aborted the debate in {where}. Done."))
    for name in moved:
        warn(f"not ours, moved to {name}")
    return EXIT_DONE
