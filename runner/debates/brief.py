"""A brief from its inputs to its file: the run folder beside it, the debate, the record; resume and abort.

A reply is redacted before anyone sees or records it, so journal, record, brief and screen are free of credentials, also
after a resume.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from runner import store
from runner.brain.root import kind, read_bytes, shown
from runner.debates import brief_page, conduct, folder, secrets
from runner.debates.brief_inputs import SCHEMA, Inputs, load
from runner.debates.brief_page import About
from runner.debates.folder import RunFolder
from runner.errors import Incomplete, Refused
from runner.journal import Journal
from runner.protocols.brief import Result, Steps, debate
from runner.publish import sha256
from runner.settings import Settings, check_same, engine_kind, settings
from runner.values import Ask, Reply


@dataclass(frozen=True, slots=True)
class Done:
    """A brief that was written. block: what stdout gets. exhausted: keys without a usable answer."""

    place: RunFolder
    inputs: Inputs
    result: Result
    record: Mapping[str, Any]
    block: str

    @property
    def not_read(self) -> tuple[str, ...]:
        """Files of which something was not read, though it was there."""
        return tuple(
            f"{s.file}: {s.problem}" for s in self.inputs.coverage if s.problem not in ("", "missing", "empty")
        )


# ---- the run folder ------------------------------------------------------------------------------------------------


def check_free(place: RunFolder) -> None:
    """Refused when an earlier run of this brief is not done."""
    found = folder.state(place)
    if found not in ("none", "done"):
        what = {"interrupted": "was interrupted", "partial": "is partial", "aborting": "is being aborted"}[found]
        where = shown(place.run)
        step = f"debate abort {where}" if found == "aborting" else f"debate resume {where}, or debate abort {where}"
        raise Refused(f"the last brief of this task {what}", path=where, hint=step, code=found)


def _claim(place: RunFolder) -> None:
    """Make the folder; one of a brief that is done moves to `.run-<stem>~<n>`. Two who try: one is Refused."""
    store.make_folder(place.folder)
    if place.run.is_dir():
        with place.lock():
            check_free(place)
            if folder.state(place) == "done":
                store.disk.replace(place.run, _older(place, len(_earlier_runs(place)) + 1))
    if not place.run.is_dir():
        store.claim(place.run)


def _older(place: RunFolder, n: int) -> Path:
    return place.run.with_name(f"{place.run.name}~{n}")


def _earlier_runs(place: RunFolder) -> list[Path]:
    found = (_older(place, n) for n in range(1, 10_000))
    out = []
    for path in found:
        if not path.is_dir():
            break
        out.append(path)
    return out


def write(
    place: RunFolder, inputs: Inputs, s: Settings, clock: conduct.Clock, observe: conduct.Observe | None = None
) -> Done:
    """Claim the run folder, store what the brief is made of, and debate. Raises what ended it."""
    _claim(place)
    with place.lock():
        check_free(place)
        target = place.folder / Path(inputs.path).name
        if (read_bytes(target) if kind(target) != "missing" else None) != inputs.earlier_bytes:
            raise Refused("the earlier brief changed while this one was prepared", path=shown(target), hint="run again")
        folder.store_inputs(place, SCHEMA, inputs)
        return _conduct(place, inputs, s, clock, observe)


def resume(
    place: RunFolder, inputs: Inputs, s: Settings, clock: conduct.Clock, observe: conduct.Observe | None = None
) -> Done:
    """Finish an interrupted brief, or ask again what gave no usable answer."""
    with place.lock():
        found = folder.state(place)
        if found not in ("interrupted", "partial"):
            hint = "`debate abort` finishes that" if found == "aborting" else "`debate brief` starts the next round"
            raise Refused(f"nothing to resume: this brief is {found}", path=shown(place.run), hint=hint, code=found)
        return _conduct(place, inputs, s, clock, observe)


def abort(place: RunFolder) -> tuple[str, ...]:
    """Take an unfinished brief back; the earlier one and its run folder are as they were."""

    def before() -> Mapping[str, bytes]:
        if not place.inputs.exists():
            return {}
        inputs = load(place)
        old = inputs.earlier_bytes
        return {} if old is None else {Path(inputs.path).name: old}

    moved = folder.abort(place, before)
    runs = _earlier_runs(place)
    if runs and not place.run.exists():
        store.disk.replace(runs[-1], place.run)
    return moved


def resume_settings(
    place: RunFolder, inputs: Inputs, profile: str | None, model: str | None, wait_s: float | None
) -> Settings:
    """The settings to resume with: as at the start, unless they are named anew. Another model is Integrity."""
    workspace = (place.folder.resolve() / Path(inputs.path).name).parents[len(Path(inputs.path).parts) - 1]
    anew = profile is not None or model is not None
    kind_of = None if anew else engine_kind(inputs.engine)
    s = settings(profile or inputs.profile, model or inputs.model, workspace, engine=kind_of, wait_s=wait_s)
    check_same(s, inputs.engine, inputs.models, "brief", str(place.run))
    return s


# ---- the debate ----------------------------------------------------------------------------------------------------


class _RedactedJournal(Journal):
    """Records no reply as it came."""

    def __init__(self, clock: conduct.Clock, door: Callable[[Reply], Reply]) -> None:
        super().__init__(clock)
        self._door = door

    def add(self, flow: str, digest: str, reply: Reply) -> None:
        super().add(flow, digest, self._door(reply))


def _redacted(steps: Steps, door: Callable[[Reply], Reply]) -> Generator[Ask, tuple[Reply, ...], Result]:
    """The flow, which sees of every reply what the journal holds, now and on resume."""
    ask = next(steps)
    while True:
        replies = yield ask
        try:
            ask = steps.send(tuple(map(door, replies)))
        except StopIteration as end:
            result: Result = end.value
            return result


def _door(inputs: Inputs) -> Callable[[Reply], Reply]:
    shown_texts = tuple(f.text for f in inputs.brief.files)
    names = tuple(f.name for f in inputs.brief.files)
    return lambda r: replace(r, text=secrets.redact_reply(r.text, inputs.known, (*shown_texts, *names)))


def _conduct(
    place: RunFolder, inputs: Inputs, s: Settings, clock: conduct.Clock, observe: conduct.Observe | None
) -> Done:
    folder.sweep(place)
    door, flow, name = _door(inputs), inputs.flow, Path(inputs.path).name
    journal = _RedactedJournal(clock, door)
    journal.open(flow, place.journal, {"version": inputs.version, "flow": flow})
    old = inputs.earlier_bytes
    files = folder.Files(place, journal, flow, replaces={} if old is None else {name: sha256(old)})
    passes = folder.next_pass(journal, flow)
    try:
        steps = _redacted(debate(inputs.brief, passes), door)
        result: Result = conduct.run(flow, steps, s, journal, files.publish, observe)
    except Incomplete as error:
        journal.note(flow, {"end": error.reason, "exhausted": list(error.exhausted)})
        journal.sync()
        error.path = shown(place.run)
        raise
    journal.note(
        flow, {"end": "partial" if result.exhausted else "done", "exhausted": list(result.exhausted)}, once=True
    )
    journal.sync()
    about = _about(inputs, tuple(journal.replies(flow).values()))
    files.write(name, _redact_bytes(brief_page.page(about, result, inputs.opened_at, old), inputs.known))
    record = secrets.redact_values(_record(inputs, result, about, journal, files), inputs.known)
    files.record(SCHEMA, record)
    return Done(place, inputs, result, record, secrets.redact(brief_page.block(about, result), inputs.known))


def _redact_bytes(data: bytes, known: tuple[str, ...]) -> bytes:
    """Everything else stays as it is, bytes that are no text included."""
    return secrets.redact(data.decode("utf-8", "surrogateescape"), known).encode("utf-8", "surrogateescape")


def _about(inputs: Inputs, replies: tuple[Reply, ...]) -> About:
    names = list(dict.fromkeys(m["name"] for m in inputs.models.values()))
    return About(
        task=inputs.task,
        path=inputs.path,
        lite=inputs.lite,
        max_rounds=inputs.brief.rounds,
        critics=tuple(c.name for c in inputs.brief.critics),
        notes=inputs.notes,
        models=", ".join(names) or "default",
        tokens=(sum(r.tokens_in for r in replies), sum(r.tokens_out for r in replies)),
        fake=inputs.fake,
    )


def _record(inputs: Inputs, result: Result, about: About, journal: Journal, files: folder.Files) -> dict[str, Any]:
    charters = {c.name: hashlib.sha256(c.charter.encode()).hexdigest() for c in inputs.brief.critics}
    critics = [
        {"name": c, "charter_sha256": charters[c], "failed": [x.cause for x in result.of(c) if x.cause]}
        for c in about.critics
    ]
    merged = result.merged
    return {
        "complete": not result.exhausted,
        "task": inputs.task,
        "path": inputs.path,
        "lite": inputs.lite,
        "version": inputs.version,
        "opened_at": inputs.opened_at,
        "guard": {"met": not inputs.unmet, "overridden": list(inputs.unmet)},
        "rounds": result.rounds,
        "max_rounds": inputs.brief.rounds,
        "nothing_left": result.agreed,
        "critics": critics,
        "concerns": [c.to_json() for c in result.concerns],
        "consensus": "" if merged is None else merged.consensus,
        "action_items": [] if merged is None else list(merged.action_items),
        "dissent": [] if merged is None else list(merged.dissent),
        "synthesizer_failed": result.cause,
        "missing": list(result.exhausted),
        "notes": list(inputs.notes),
        "coverage": [asdict(c) for c in inputs.coverage],
        "engine": inputs.engine,
        "models": [{"role": role, **facts} for role, facts in inputs.models.items()],
        "calls": [r.facts() for r in journal.replies(inputs.flow).values()],
        "tokens": {"in": about.tokens[0], "out": about.tokens[1]},
        "warnings": list(inputs.warnings),
        "files": [{"path": p, "sha256": h} for p, h in files.sha256().items()],
    }
