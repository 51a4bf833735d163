"""What a brief is made of: read, redacted, fitted to the context, and stored before its first request.

Every text that is not ours is redacted when it is read: so prompts are as free of credentials as everything that is
made of the replies, and a quote still stands in the text it is taken from. The one exception is an earlier brief as it
lay there, kept for an abort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner import __version__, config, guard
from runner.brain.root import kind, read_bytes
from runner.debates import brief_page, folder, handoff, secrets
from runner.debates.brief_fit import BYTES_PER_TOKEN, beginning, fit, shares
from runner.debates.folder import RunFolder
from runner.errors import Refused
from runner.protocols.brief import CRITICS, Brief, Critic, Source
from runner.protocols.review import Traits
from runner.publish import sha256
from runner.settings import Settings, engine_name, model_facts
from runner.values import Sampling

if TYPE_CHECKING:
    from runner.engines.base import Tokenizer

SCHEMA = "brief/1"
ROUNDS, LITE_ROUNDS = 2, 1


@dataclass(frozen=True, slots=True)
class Options:
    task: str
    workspace: Path
    session: Path
    lite: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """One file of FILES. sha256: of what was shown of it. problem: why it was not read, or not in full."""

    file: str
    bytes: int
    shown_bytes: int
    sha256: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Inputs:
    """path: of the brief, from the workspace. unmet: what --force overrode. debate_round: in the session before.

    known: fingerprints of credentials, see `secrets`. earlier: the brief that lay there, byte for byte (as text with
    surrogates); None when there was none. profile, model: as named at the start.
    """

    version: str
    opened_at: str
    task: str
    path: str
    lite: bool
    unmet: tuple[str, ...]
    debate_round: int
    brief: Brief
    coverage: tuple[Shown, ...]
    notes: tuple[str, ...]
    known: tuple[str, ...]
    earlier: str | None
    warnings: tuple[str, ...]
    engine: str
    fake: bool
    models: Mapping[str, Mapping[str, str]]
    profile: str | None = None
    model: str | None = None

    @property
    def flow(self) -> str:
        return f"{self.path}@brief"

    @property
    def earlier_bytes(self) -> bytes | None:
        return None if self.earlier is None else self.earlier.encode("utf-8", "surrogateescape")


# ---- plan ----------------------------------------------------------------------------------------------------------


def plan(o: Options, s: Settings, tokenizer: Tokenizer | None, opened_at: str) -> tuple[RunFolder, Inputs]:
    """Check everything and read it; nothing is written and no engine is loaded."""
    if s.none:
        raise Refused("a brief needs an engine", hint="pip install 'debate-runner[llama]', or --engine names another")
    session = handoff.read_session(o.session)
    handoff.check_guard(session, o.session, o.force)
    given = handoff.read_handoff(o.workspace, o.task)
    taken = (o.session.resolve(), o.workspace / ".ai" / "handoffs" / f"{o.task}.md")
    where = handoff.brief_place(o.workspace, o.task, given, taken)
    place = RunFolder(where.parent, where.parent / f".run-{where.stem}")
    earlier = read_bytes(where) if kind(where) != "missing" else None
    limits = [s.profile.context_tokens, *(m.manifest.context_tokens or 1 << 30 for m in s.models.values())]
    limit = min([*limits, *([] if tokenizer is None else [tokenizer.context_tokens])])
    path = where.relative_to(o.workspace).as_posix()
    inputs = _inputs(o, s, given, session, earlier, path, limit, opened_at)
    return place, _fitted(inputs, tokenizer, limit)


def _inputs(
    o: Options, s: Settings, given: handoff.Handoff, session: handoff.Session, earlier: bytes | None, path: str,
    limit: int, opened_at: str,
) -> Inputs:  # fmt: skip
    room = limit * BYTES_PER_TOKEN
    listed = handoff.read_listed(o.workspace, given.files, room)
    readable = [f for f in listed if f.text is not None and f.text.strip()]
    if not readable:
        why = "; ".join(f"{f.name}: {f.problem}" for f in listed)
        raise Refused(f"none of FILES can be read: {secrets.redact(why)}", hint=f"they are sought in {o.workspace}")
    given_chars = shares([len(f.text or "") for f in readable], room)
    texts = [(f.name, beginning(f.text or "", _fits(n))) for f, n in zip(readable, given_chars, strict=True)]
    old = "" if earlier is None else earlier.decode("utf-8", "replace")[:room]
    known = secrets.fingerprints([*texts, ("", given.findings), ("", old)])
    files = tuple(
        Source(name, secrets.redact(text, known, name), f.text != text or f.bytes > len((f.text or "").encode()) + 3)
        for (name, text), f in zip(texts, readable, strict=True)
    )
    charters = config.texts("prompts/brief", "*.md", o.workspace)
    roles = {role: Traits(s.samplings[role], s.free_text(role), s.scores) for role in s.models if role != "default"}
    brief = Brief(
        files=files,
        findings=secrets.redact(given.findings, known),
        earlier=secrets.redact(brief_page.gist(old), known),
        critics=tuple(Critic(c, _charter(charters, c), _role(roles, c, "critics")) for c in CRITICS),
        templates={
            k.removesuffix(".md.j2"): v for k, v in config.texts("prompts/brief", "*.md.j2", o.workspace).items()
        },
        rounds=LITE_ROUNDS if o.lite else ROUNDS,
        max_concerns=s.profile.claims,
        synthesizer_role=_role(roles, "synthesizer"),
        traits=Traits(s.sampling, s.free_text(), s.scores),
        roles=roles,
        deadline_s=s.profile.deadline_s,
    )
    return Inputs(
        version=__version__,
        opened_at=opened_at,
        task=o.task,
        path=path,
        lite=o.lite,
        unmet=session.unmet if o.force else (),
        debate_round=session.debate_round,
        brief=brief,
        coverage=tuple(Shown(f.name, f.bytes, 0, "", f.problem) for f in listed),
        notes=_notes(given, session.unmet if o.force else ()),
        known=known,
        earlier=None if earlier is None else earlier.decode("utf-8", "surrogateescape"),
        warnings=(),
        engine=engine_name(s),
        fake=s.fake,
        models=model_facts(s),
        profile=s.named[0],
        model=s.named[1],
    )


def _fits(most: int) -> Callable[[str], bool]:
    return lambda text: len(text) <= most


def _role(roles: Mapping[str, object], *names: str) -> str:
    return next((n for n in names if n in roles), "default")


def _charter(charters: Mapping[str, str], critic: str) -> str:
    try:
        return charters[f"{critic}.md"]
    except KeyError:
        raise Refused(f"the charter of {critic} is missing", hint="look in prompts/brief/") from None


def _notes(given: handoff.Handoff, unmet: tuple[str, ...]) -> tuple[str, ...]:
    notes = [f"The guard was overridden with --force: {'; '.join(unmet)}."] if unmet else []
    if not given.findings:
        notes.append("The handoff holds no findings of the reviewer.")
    elif given.total_words > handoff.FINDINGS_WORDS:
        notes.append(f"Of the reviewer's findings the first {handoff.FINDINGS_WORDS} of {given.total_words} words "
                     "were shown.")  # fmt: skip
    return tuple(notes)


def _warnings(b: Brief) -> list[str]:
    found = [line for c in b.critics for line in guard.lint_charter(c.name, c.charter)]
    for f in b.files:
        hits = [h for h in guard.scan_document(f.text) if not h.what.startswith("HTML comment")]
        found += [f"{f.name}:{h.line}: {h.what}" for h in hits[:5]]
        found += [f"{f.name}: and {len(hits) - 5} more of the kind"] if len(hits) > 5 else []
    return found


def _fitted(inputs: Inputs, tokenizer: Tokenizer | None, limit: int) -> Inputs:
    """With what fits, and how much of each file that is."""
    if inputs.brief.max_concerns < 1:
        raise Refused("a critic may raise no concern: the profile says claims: 0", hint="claims: 1 to 4")
    brief = fit(inputs.brief, tokenizer, limit)
    by_name = {f.name: f for f in brief.files}
    coverage = []
    for c in inputs.coverage:
        source = by_name.get(c.file)
        if source is not None:
            data = source.text.encode()
            why = f"{len(data)} of {c.bytes} bytes" if source.cut else ""
            c = replace(c, shown_bytes=len(data), sha256=sha256(data), problem=why)
        elif not c.problem:
            c = replace(c, problem="no room for it in the model's context")
        coverage.append(c)
    notes = [
        f"{'Shown in part' if c.shown_bytes else 'Not read'}: {c.file} ({c.problem})." for c in coverage if c.problem
    ]
    if brief.earlier != inputs.brief.earlier:
        notes.append("Only the beginning of the earlier brief was shown to the critics.")
    warnings = tuple(_warnings(brief))
    return replace(inputs, brief=brief, coverage=tuple(coverage), notes=(*inputs.notes, *notes), warnings=warnings)


# ---- stored ---------------------------------------------------------------------------------------------------------


def load(place: RunFolder) -> Inputs:
    """The stored inputs. Refused when there are none, Integrity when they are damaged."""
    data = folder.load_inputs(place, SCHEMA)
    try:
        tuples = {k: tuple(data[k]) for k in ("unmet", "notes", "known", "warnings")}
        coverage = tuple(Shown(**c) for c in data["coverage"])
        return Inputs(**(data | tuples | {"coverage": coverage, "brief": _brief(data["brief"])}))
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise folder.damaged(place, type(error).__name__) from None


def _brief(data: Mapping[str, Any]) -> Brief:
    made = {
        "files": tuple(Source(**f) for f in data["files"]),
        "critics": tuple(Critic(**c) for c in data["critics"]),
        "traits": _traits(data["traits"]),
        "roles": {role: _traits(t) for role, t in data["roles"].items()},
    }
    return Brief(**(dict(data) | made))


def _traits(data: Mapping[str, Any]) -> Traits:
    return Traits(**(dict(data) | {"sampling": Sampling(**data["sampling"])}))
