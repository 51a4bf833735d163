"""Opening a round, second half, and resuming it: claim the folder, review, write, and flip the front matter last.

What is synced, in order: undo/ and inputs/ before the first request; each reply before anyone acts on it; every file
of the round and record.json before the index row; then the row, the seed's deletion, and the flip. Only after the
flip is the round open.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner import render, store
from runner.brain import front_matter, history, index
from runner.brain.artifact import Artifact, load
from runner.brain.root import kind, read_bytes, shown
from runner.errors import Incomplete, Integrity, Refused
from runner.journal import Journal
from runner.protocols.round import Result, review
from runner.rounds import inputs as stored
from runner.rounds import record, scaffold, seed
from runner.rounds.folder import FAKE, IGNORED, Files, Round, sha256, sweep
from runner.rounds.inputs import Inputs
from runner.rounds.plan import Plan, check_no_round, check_status
from runner.values import Ask, Join, Publish

NO_ENGINE = "none"  # the engine's name in scaffold mode

Steps = Generator[Ask | Publish | Join, Any, "Opened"]


@dataclass(frozen=True, slots=True)
class Opened:
    """An open round. result.exhausted is not empty when part of it is missing (exit 4, partial)."""

    place: Round
    inputs: Inputs
    result: Result
    files: tuple[str, ...]


def open_round(plan: Plan, journal: Journal, files: Files) -> Steps:
    """The flow of a new round. Holds the lock of the history folder from before the claim to the end."""
    place = Round(plan.history, plan.number, plan.inputs.path)
    made = missing_folders(plan.history)
    store.make_folder(plan.history)
    with store.Lock(plan.history):
        try:
            _still(plan)
            _claim(place, plan, made)
        finally:
            if not place.folder.exists():
                remove_empty(plan.artifact.directory, made)
        return (yield from _conduct(place, plan.inputs, plan.artifact, journal, files))


def resume_round(
    place: Round, inputs: Inputs, artifact: Artifact, journal: Journal, files: Files,
    *, min_reviewers: int | None = None,
) -> Steps:  # fmt: skip
    """The flow of an interrupted round, or of an open one whose failed requests are asked again."""
    with store.Lock(place.history):
        now = load(artifact.root, artifact.path, None)
        _check_resumable(place, now, inputs.scratch)
        check_body(inputs, now)
        if min_reviewers is not None:
            least = min(min_reviewers, len(inputs.review.reviewers))
            inputs = replace(inputs, review=replace(inputs.review, min_reviewers=least))
            stored.save(place.run, inputs)  # a later resume of the open round must not fall below it again
        return (yield from _conduct(place, inputs, artifact, journal, files))


def _check_resumable(place: Round, artifact: Artifact, scratch: bool) -> None:
    """Only the highest round goes on, and only while it is interrupted or open."""
    found = history.state(artifact, place.history, scratch=scratch)
    if found.number != place.number or found.state not in ("interrupted", "open"):
        where = shown(artifact.path)
        state = found.state if found.number == place.number else "not the latest round"
        hint = {"closing": f"`debate close {where}` finishes that", "aborting": f"`debate abort {where}` finishes that"}
        raise Refused(f"{place.name} is {state}", path=where, hint=hint.get(state), code=state)


def check_body(inputs: Inputs, artifact: Artifact) -> None:
    """Raise Integrity when the artifact's body is not the one that the round is about."""
    if sha256(artifact.body) != inputs.body:
        where = shown(artifact.path)
        raise Integrity(
            "the artifact's body has changed since the round was opened", path=where,
            hint=f"restore it, or give the round up: debate abort {where} (close it, when it is open)",
        )  # fmt: skip


def _still(plan: Plan) -> None:
    """Under the lock: is everything as it was when it was checked?"""
    now, scratch = load(plan.artifact.root, plan.artifact.path, None), plan.inputs.scratch
    if not scratch:
        check_status(now)
    same = now.raw == plan.artifact.raw and seed.read(plan.history) == plan.inputs.seed
    if check_no_round(now, plan.history, scratch=scratch) != plan.number or not same:
        raise Refused("the artifact changed while the round was being prepared", path=shown(now.path), hint="run again")


# ---- the claim -----------------------------------------------------------------------------------------------------


def missing_folders(folder: Path) -> list[Path]:
    """Folders that opening will make, outermost first."""
    return [f for f in (*reversed(folder.parents), folder) if not f.exists()]


def remove_empty(directory: Path, made: list[Path]) -> None:
    """Take back folders that we made and that hold nothing."""
    for folder in reversed(made):
        if directory in folder.parents and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _claim(place: Round, plan: Plan, made: list[Path]) -> None:
    sweep(place, plan.artifact)
    store.claim(place.folder)
    store.make_folder(place.run / "undo")
    store.write_atomic(place.run / ".gitignore", ("\n".join(IGNORED) + "\n").encode())
    for name in ("index.md", seed.NAME):
        if kind(place.history / name) != "missing":
            store.write_atomic(place.run / "undo" / f"{name}.bytes", read_bytes(place.history / name))
    inside = [] if plan.inputs.scratch else made  # what lies outside the brain is not abort's
    relative = [str(f.relative_to(plan.artifact.directory)) for f in inside]
    store.write_atomic(place.run / "undo" / "made.json", (json.dumps(relative) + "\n").encode())
    stored.save(place.run, plan.inputs)


# ---- the round -----------------------------------------------------------------------------------------------------


def _conduct(place: Round, inputs: Inputs, artifact: Artifact, journal: Journal, files: Files) -> Steps:
    flow = place.flow
    sweep(place, artifact)
    journal.open(flow, place.journal, {"version": inputs.version, "flow": flow})
    files.register(place, FAKE if inputs.fake else "")
    passes = journal.passes(flow)
    if journal.exhausted(flow):
        passes += 1
        journal.note(flow, {"pass": passes})
    _briefs(place, inputs, files)
    if inputs.scaffold:
        inputs = _scaffolded(place, inputs, journal, files)
    try:
        result = yield from review(inputs.review, passes)
    except Incomplete as error:
        journal.note(flow, {"end": error.reason, "exhausted": list(error.exhausted)})
        journal.sync()
        error.path = shown(place.folder)
        raise
    end = "partial" if result.exhausted else "done"
    journal.note(flow, {"end": end, "exhausted": list(result.exhausted)}, once=True)
    journal.sync()
    names = _write_record(place, inputs, result, journal, files)
    files.settle(flow)
    if inputs.scratch:
        return Opened(place, inputs, result, names)
    _write_row(place, inputs, result, journal)
    if inputs.seed is not None and seed.read(place.history) == inputs.seed:
        store.remove(place.history / seed.NAME)  # one that was edited meanwhile waits for the next round
    flip(inputs, artifact)
    return Opened(place, inputs, result, names)


def _scaffolded(place: Round, inputs: Inputs, journal: Journal, files: Files) -> Inputs:
    """Take what people wrote, keep it with the inputs, and stop here while there is no engine and something is missing.

    Once the defender was asked, what was taken stands: its prompts were made of it.
    """
    if not any(key.startswith("defender/") for key in journal.replies(place.flow)):
        by_hand = inputs.engine == NO_ENGINE
        inputs = replace(inputs, review=scaffold.take(place, inputs.review, by_hand))
        stored.save(place.run, inputs)
    if inputs.engine == NO_ENGINE:
        scaffold.open_prompts(place, inputs.review, files)
        scaffold.check(place, inputs.review, files)
    return inputs


def _briefs(place: Round, inputs: Inputs, files: Files) -> None:
    """Steps 5 to 7: personas.yaml, feedback-in.md and, for a delta review, baseline.md."""
    r = inputs.review
    roster = render.personas_yaml(inputs.number, r.scope, inputs.mode, inputs.personas, inputs.skipped)
    if inputs.fake:
        roster += b'engine: "fake"\n'
    files.write(place.flow, "personas.yaml", roster)
    carried = None if inputs.seed is None else seed.body_of(inputs.seed)
    people = [p.name for p in r.reviewers]
    template = r.file_templates["feedback-in.md"]
    brief = render.feedback_in(r.about, r.scope, inputs.mode, people, r.feedback, carried, template)
    files.publish(place.flow, brief)
    if inputs.baseline is not None:  # step 7; close overwrites it with the text as it then stands
        files.write(place.flow, "baseline.md", inputs.baseline.encode())


def _write_record(place: Round, inputs: Inputs, result: Result, journal: Journal, files: Files) -> tuple[str, ...]:
    """record.json, then transcript.md, which names its sha256."""
    lines = journal.lines(place.flow)
    ours = {line["file"] for line in lines if "file" in line and not line["file"].startswith((".run/", "../"))}
    paths = sorted(p for p in ours if kind(place.folder / p) == "file")
    shas = {p: sha256(read_bytes(place.folder / p)) for p in paths if p != "transcript.md"}
    data = record.record(inputs, result, shas)
    files.write(place.flow, ".run/record.json", data)
    files.publish(place.flow, record.transcript(inputs, result, journal.lines(place.flow), sha256(data)))
    return tuple(sorted({*paths, "transcript.md"}))


def row(place: Round, inputs: Inputs, result: Result) -> Mapping[str, str]:
    """The round's row in debate/index.md while it is open."""
    failed = [t.persona for t in result.tryouts if t.status == "failed"]
    counts = render.verdict_summary(result.verdicts) or "no claims"
    return {
        "Round": place.name,
        "Opened": inputs.opened_at,
        "Scope": inputs.review.scope,
        "Mode": inputs.mode,
        "Reviewers": ", ".join(p.name for p in inputs.review.reviewers),
        "Failed": ", ".join(failed),
        "Verdicts": f"{counts} (fake engine)" if inputs.fake else counts,
        "Status": "open",
        "Patches": "",
        "Closed": "",
        "Close commit": "(pending)",
    }


def _write_row(place: Round, inputs: Inputs, result: Result, journal: Journal) -> None:
    """Step 16. The journal knows the sha256 first, for abort."""
    path = place.history / "index.md"
    old = None if kind(path) == "missing" else read_bytes(path)
    about = inputs.review.about
    template = None if inputs.index_template is None else render.index_template(inputs.index_template, about)
    new = index.set_row(
        old, row(place, inputs, result), path=shown(path), index_id=f"{about.round_id.rpartition('-round-')[0]}-debate",
        created_at=inputs.opened_at, title=about.title, template=template,
    )  # fmt: skip
    if new != old:
        journal.note(place.flow, {"file": "../index.md", "sha256": sha256(new)}, once=True)
        journal.sync()
        store.write_atomic(path, new)


def flip(inputs: Inputs, artifact: Artifact) -> None:
    """Step 17, last of all: the front matter, on the file as it stands now. Its body must be the reviewed one."""
    now = load(artifact.root, artifact.path, None)
    check_body(inputs, now)
    new = front_matter.edit(now.raw, inputs.changes, shown(artifact.path))
    if new != now.raw:
        store.write_atomic(artifact.path, new)
