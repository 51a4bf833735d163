"""`debate ask`: what a debate is made of, the flow with its folder around it, its files and its record."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from runner import __version__, config, store
from runner.brain.root import kind, read_bytes, shown
from runner.debates import conduct, folder, question
from runner.debates.conduct import Clock, Observe
from runner.debates.folder import Files, RunFolder
from runner.errors import Incomplete, Refused, RunnerError, UsageError
from runner.journal import Journal
from runner.protocols import ask as protocol
from runner.protocols import ask_files, ask_seats
from runner.protocols.ask import Debate, Result
from runner.protocols.ask_said import Heard
from runner.protocols.ask_seats import FORMATS, Form, Seat
from runner.protocols.review import Traits
from runner.settings import Settings, check_same, engine_name, model_facts, open_tokenizer, with_models
from runner.values import Ask, Document, Join, Publish, Sampling

SCHEMA, FLOW = "ask/1", "ask"
Told = Callable[[Document], None]
Steps = Generator[Ask | Publish | Join, Any, "Done"]
ONE_MODEL = "one model fills every seat: a one-model panel agrees with itself"


@dataclass(frozen=True, slots=True)
class Options:
    """As given. context: of --context-file; fields: of --decision and so on; models: by name, they go round the seats.
    out: the folder, or None for `debates/<date>-<slug>`. assumed: what an unclear question was taken for."""

    question: str
    form: str | None = None
    agents: int | None = None
    rounds: int = 1
    models: tuple[str, ...] = ()
    context: str = ""
    fields: Mapping[str, str] | None = None
    timeout_s: float = 120.0
    out: Path | None = None
    seed: int | None = None
    assumed: str = ""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Stored before the first request; resume uses only this. models: role -> what the record says of its model.
    read: name, words shown, words in all, why not, of files that the question names. named: profile, model, models and
    seed as given."""

    version: str
    asked_at: str
    debate: Debate
    rounds: int
    engine: str
    fake: bool
    models: Mapping[str, Mapping[str, str]]
    read: tuple[tuple[str, int, int, str], ...]
    warnings: tuple[str, ...]
    named: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    inputs: Inputs
    settings: Settings
    out: Path


@dataclass(frozen=True, slots=True)
class Done:
    """files: of the folder, sorted. result.synthesis is None when nobody answered, or it failed itself."""

    place: RunFolder
    inputs: Inputs
    result: Result
    files: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return self.result.synthesis is not None and not self.result.exhausted


# ---- before the first request --------------------------------------------------------------------------------------


def plan(o: Options, s: Settings, root: Path | None, project: Path, cwd: Path, clock: Clock) -> Plan:
    """Check everything; nothing is written and no engine is loaded. Refused, with numbers, for what cannot be."""
    text = question.check_question(o.question)
    found, why = ask_seats.detect(text)
    form, why = (found, why) if o.form is None else (_form(o.form), "as asked for")
    names = ask_seats.seats(form, o.agents)
    if o.rounds < 1:
        raise UsageError(f"--rounds must be 1 or more, not {o.rounds}")
    if s.none:
        raise Refused("there is no engine to debate with", hint="make setup, or --engine server")
    s = _seated(o, s, names, project)
    about = question.context(text, o.fields or {}, o.context, root, project, cwd)
    warnings = _warnings(s, names)
    read = tuple((f.name, *f.words, f.why) for f in about.found)
    debate = Debate(
        question=text, form=form, why=why,
        seats=tuple(replace(x, role=_role(s, x.name)) for x in ask_seats.positions(form, text, names)),
        context=about.text, leaning=about.leaning, rounds=o.rounds, templates=_templates(project),
        notes=(*([o.assumed] if o.assumed else []), *(f"Read: {f.line}" for f in about.found),
               *(f"Warning: {w}" for w in warnings)),
        models={n: s.models[_role(s, n)].manifest.name for n in names} if s.models else {},
        free_text=s.free_text(), sampling=s.sampling,
        roles={r: Traits(s.samplings[r], s.free_text(r), s.scores) for r in s.models if r != "default"},
        deadline_s=o.timeout_s,
    )  # fmt: skip
    _check_fits(debate, s)
    named = {"profile": s.named[0], "model": s.named[1], "models": list(o.models), "seed": o.seed}
    inputs = Inputs(
        __version__, clock(), debate, o.rounds, engine_name(s), s.fake, model_facts(s), read, warnings, named
    )
    return Plan(inputs, s, o.out or cwd / "debates" / f"{inputs.asked_at[:10]}-{slug(text)}")


def _form(word: str) -> Form:
    found = next((form for form in FORMATS if form == word), None)
    if found is None:
        raise UsageError(f"--format must be {', '.join(FORMATS)}, not {word!r}", hint=config.meant(word, FORMATS))
    return found


def _seated(o: Options, s: Settings, names: Sequence[str], project: Path) -> Settings:
    """The settings with --models round the seats; the first of them also writes the synthesis."""
    if not o.models:
        return s
    if s.named[1] is not None:
        raise UsageError("--model and --models both name the models", hint="give one of them")
    seats = {name: o.models[i % len(o.models)] for i, name in enumerate(names)}
    return with_models(s, {"default": o.models[0], **seats}, project, o.seed)


def _role(s: Settings, name: str) -> str:
    return name if name in s.models else "default"


def _warnings(s: Settings, names: Sequence[str]) -> tuple[str, ...]:
    filled = {x.manifest.files[0].sha256 if (x := s.models.get(_role(s, name))) else "" for name in names}
    return (ONE_MODEL,) if len(filled) == 1 else ()


def _templates(project: Path) -> dict[str, str]:
    return {k.removesuffix(".md.j2"): v for k, v in config.texts("prompts/ask", "*.md.j2", project).items()}


def _check_fits(d: Debate, s: Settings) -> None:
    """Renders every seat's prompt, so a faulty template is told now; and counts what the first round takes."""
    asked = [protocol.first_request(d, seat).request for seat in d.seats]
    tokenizer = open_tokenizer(s)
    if tokenizer is None:
        return
    try:
        most = max(tokenizer.count(r.messages) + r.max_tokens for r in asked)
        room = min(tokenizer.context_tokens, s.profile.context_tokens)
    finally:
        getattr(tokenizer, "close", lambda: None)()
    if most > room:
        raise Refused(f"the question takes {most} tokens with its reply, the model's context holds {room}")


def slug(text: str) -> str:
    """The question's first words, fit for a folder's name."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    out = ""
    for word in words:
        if len(out) + len(word) > 40:
            break
        out += ("-" if out else "") + word
    return out or "question"


# ---- the run -------------------------------------------------------------------------------------------------------


def start(planned: Plan, clock: Clock, observe: Observe | None = None, told: Told | None = None) -> Done:
    """Claim the folder and debate."""
    journal = Journal(clock)
    publishing = _Publishing(told)
    steps = _start(planned, journal, publishing)
    done: Done = conduct.run(FLOW, steps, planned.settings, journal, publishing, observe)
    return done


def _start(planned: Plan, journal: Journal, publishing: _Publishing) -> Steps:
    place = folder.claim(planned.out)
    with place.lock():
        folder.store_inputs(place, SCHEMA, planned.inputs)
        return (yield from _debate(place, planned.inputs, journal, publishing))


def resume(
    place: RunFolder,
    inputs: Inputs,
    s: Settings,
    clock: Clock,
    observe: Observe | None = None,
    told: Told | None = None,
) -> Done:
    """Finish an interrupted debate, or ask a partial one's failed seats again. Same inputs, same prompts."""
    check_same(s, inputs.engine, inputs.models, "ask", str(place.folder))
    journal = Journal(clock)
    publishing = _Publishing(told)
    done: Done = conduct.run(FLOW, _resume(place, inputs, journal, publishing), s, journal, publishing, observe)
    return done


def _resume(place: RunFolder, inputs: Inputs, journal: Journal, publishing: _Publishing) -> Steps:
    with place.lock():
        found = folder.state(place)
        if found not in ("interrupted", "partial"):
            hint = "`debate abort` finishes the abort" if found == "aborting" else None
            raise Refused(f"nothing to resume: this debate is {found}", path=shown(place.folder), hint=hint)
        return (yield from _debate(place, inputs, journal, publishing))


class _Publishing:
    """Writes what the flow publishes, once the folder is claimed; remembers the paths of this run."""

    def __init__(self, told: Told | None) -> None:
        self.files: Files | None = None
        self.paths: set[str] = set()
        self._told = told

    def __call__(self, flow: str, document: Document) -> None:
        assert self.files is not None
        self.files.publish(flow, document)
        self.paths.add(document.path)
        if self._told is not None:
            self._told(document)


def _debate(place: RunFolder, inputs: Inputs, journal: Journal, publishing: _Publishing) -> Steps:
    folder.sweep(place)
    journal.open(FLOW, place.journal, {"version": inputs.version, "flow": FLOW})
    files = publishing.files = Files(place, journal, FLOW, folder.FAKE if inputs.fake else "")
    passes = folder.next_pass(journal, FLOW)
    try:
        result = yield from protocol.ask(inputs.debate, passes)
    except RunnerError as error:
        error.path = error.path or shown(place.folder)
        raise
    end = "partial" if result.exhausted else "done"
    journal.note(FLOW, {"end": end, "exhausted": list(result.exhausted)}, once=True)
    _remove_stale(place, files, publishing.paths)
    done = Done(place, inputs, result, tuple(files.sha256()))
    files.record(SCHEMA, record(done, files.sha256(), _calls(journal)))
    return done


def _calls(journal: Journal) -> list[dict[str, Any]]:
    """Every call, every try; by key, for the order in which replies came says nothing."""
    return [r.facts() for _, r in sorted(journal.replies(FLOW).items())]


def _remove_stale(place: RunFolder, files: Files, current: set[str]) -> None:
    """Of an earlier pass: the gap of a seat that has answered meanwhile, a round that is not held any more."""
    for path, _ in files.sha256().items():
        if path not in current:
            store.remove(place.folder / path)


def stored(place: RunFolder) -> Inputs:
    """What the run was started with. Refused or Integrity when that is not to be had."""
    data = folder.load_inputs(place, SCHEMA)
    try:
        return Inputs(**(data | {
            "debate": _debate_of(data["debate"]),
            "read": tuple((str(n), int(a), int(b), str(w)) for n, a, b, w in data["read"]),
            "warnings": tuple(data["warnings"]),
        }))  # fmt: skip
    except (TypeError, KeyError, ValueError) as error:
        raise folder.damaged(place, type(error).__name__) from None


def _debate_of(data: dict[str, Any]) -> Debate:
    return Debate(**(data | {
        "seats": tuple(Seat(**(x | {"leads": tuple(x["leads"])})) for x in data["seats"]),
        "notes": tuple(data["notes"]),
        "sampling": Sampling(**data["sampling"]),
        "roles": {r: Traits(**(t | {"sampling": Sampling(**t["sampling"])})) for r, t in data["roles"].items()},
    }))  # fmt: skip


# ---- the record ----------------------------------------------------------------------------------------------------


def record(done: Done, files: Mapping[str, str], calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """record.json (ask/1): what was asked, of whom, what came of it, and what each file's sha256 is."""
    d, result = done.inputs.debate, done.result
    return {
        "complete": done.complete, "version": done.inputs.version, "asked_at": done.inputs.asked_at,
        "fake": done.inputs.fake, "question": d.question, "format": d.form, "why": d.why, "rounds_asked": d.rounds,
        "context": d.context, "read": [list(x) for x in done.inputs.read], "warnings": list(done.inputs.warnings),
        "engine": done.inputs.engine, "models": [{"role": r} | dict(f) for r, f in done.inputs.models.items()],
        "seats": [_seat(d, seat, result) for seat in d.seats],
        "novelty": [asdict(n) for n in result.novelty], "ended": result.ended,
        "synthesis": None if result.synthesis is None else asdict(result.synthesis),
        "gaps": ask_files.gaps(d, result), "exhausted": list(result.exhausted), "calls": [dict(c) for c in calls],
        "files": [{"path": p, "sha256": x} for p, x in files.items()],
    }  # fmt: skip


def _seat(d: Debate, seat: Seat, result: Result) -> dict[str, Any]:
    turns = [h for h in result.heard if h.seat.name == seat.name]
    return {
        "name": seat.name, "given": seat.given, "role": seat.role, "model": d.models.get(seat.name),
        "rounds": [_turn(h) for h in turns],
    }  # fmt: skip


def _turn(h: Heard) -> dict[str, Any]:
    return {
        "round": h.round, "status": "done" if h.said else "failed", "cause": h.gap.cause if h.gap else "",
        "position": h.said.position if h.said else "",
        "arguments": [a.text for a in h.said.arguments] if h.said else [],
    }  # fmt: skip


def readable(place: RunFolder) -> str:
    """synthesis.md as text, or nothing."""
    path = place.folder / "synthesis.md"
    return read_bytes(path).decode("utf-8", "replace") if kind(path) == "file" else ""


def incomplete(done: Done) -> Incomplete | None:
    """What is missing, for the user; None when nothing is."""
    if done.complete:
        return None
    where = shown(done.place.folder)
    missing = [*(f"{g.seat} ({g.why})" for g in done.result.gaps)]
    missing += [] if done.result.synthesis else ["the synthesis"]
    return Incomplete(
        f"incomplete (partial): no usable answer of {', '.join(missing)}", reason="partial",
        hint=f"debate resume {where} asks again", exhausted=done.result.exhausted,
    )  # fmt: skip
