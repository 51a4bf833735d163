"""Opening a round, first half: resolve what was asked for and check every precondition. Reads; writes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner import claims, guard, render
from runner.brain import front_matter, history, index, personas, worktree
from runner.brain.artifact import Artifact
from runner.brain.context import materialize
from runner.brain.root import kind, read_bytes, shown
from runner.errors import Refused
from runner.protocols import round as protocol
from runner.protocols.review import Traits
from runner.rounds import baseline, seed, templates
from runner.rounds.fit import CONTEXT_CEILING, fit, shortened, tokens_of
from runner.rounds.inputs import Inputs
from runner.values import Claim, Sampling

if TYPE_CHECKING:
    from runner.engines.base import Tokenizer


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for. reviewers, synthesizer, min_reviewers: None takes the specification's default.

    dry_run: git data is not read. claims: of a person, without ids and places. scratch: the history folder of a round
    that does not touch the brain, on an artifact of any status.
    """

    personas: tuple[str, ...] = ()
    ad_hoc: tuple[str, ...] = ()
    reviewers: int | None = None
    review_mode: str = "full"
    feedback: str = ""
    synthesizer: bool | None = None
    min_reviewers: int | None = None
    allow_dirty: bool = False
    dry_run: bool = False
    claims: tuple[Claim, ...] = ()
    scratch: Path | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """What the run brings: the profile's settings, our templates, the model's facts. See protocol Review and Inputs.

    engine: its identity; `none` in scaffold mode. profile, model: as the user named them.

    roles: that have a model of their own: a persona's name, `reviewers`, `defender`, `synthesizer`; else `default`.
    warnings: about the run itself.
    context_tokens: the most a prompt and its reply may take together.
    """

    version: str
    opened_at: str
    prompts: Mapping[str, str]
    files: Mapping[str, str]
    charters: Path
    max_claims: int
    free_text: bool
    sampling: Sampling
    margin: float
    floor: float
    deadline_s: float | None
    roles: Mapping[str, Traits]
    models: Mapping[str, Mapping[str, str]]
    engine: str
    scores: bool
    fake: bool
    profile: str | None
    model: str | None
    tokenizer: Tokenizer | None
    context_tokens: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    artifact: Artifact
    history: Path
    inputs: Inputs
    tokens: Mapping[str, int]  # at worst, of each reviewer and the defender; empty when there is no tokenizer

    @property
    def number(self) -> int:
        return self.inputs.number


def plan(artifact: Artifact, options: Options, setup: Setup) -> Plan:
    """Everything that is decided before anything is written. Raises Refused where a precondition does not hold."""
    scratch = options.scratch is not None
    if not scratch:
        check_status(artifact)
    folder = options.scratch or history.history_folder(artifact)
    number = check_no_round(artifact, folder, scratch=scratch)
    if not options.feedback.strip():
        raise Refused(
            "feedback is empty", hint='say what this round should address: --feedback "…" or --feedback @file'
        )
    _check_text(options)
    clean = None if options.dry_run or scratch else check_clean(artifact, folder, options.allow_dirty)
    chosen = personas.resolve(artifact.root, options.personas, options.ad_hoc, options.reviewers, setup.charters)
    warnings = [*setup.warnings, *chosen.warnings]
    for persona in chosen.personas:
        warnings += guard.lint_charter(persona.name, persona.charter or "")
    mode = baseline.mode(options.review_mode, folder, number, artifact)
    warnings += [mode.note] if mode.note else []
    changes = () if scratch else flip(artifact, folder, number)
    flipped = front_matter.edit(artifact.raw, changes, shown(artifact.path))
    above = flipped[: len(flipped) - len(artifact.body)].count(b"\n")  # lines are the file's, as in all claims
    found = guard.scan_document(artifact.body.decode())
    warnings += [f"{artifact.relative}:{above + f.line}: {f.what}" for f in found]
    own = templates.load(artifact, dict(setup.files), mode.word)
    seed_text = seed.read(folder)
    texts = [*artifact.companions, *([artifact.impl_spec] if artifact.impl_spec else [])]
    context, context_warnings = shortened(texts, setup.tokenizer, setup.context_tokens)
    linked, link_warnings = _linked(artifact, setup)
    context += linked
    context_warnings += link_warnings
    review = _review(artifact, options, setup, chosen, number, flipped, own, seed_text, folder, mode, context)
    if not scratch:
        check_index(folder, review.about, own.index)
    review, fit_warnings, tokens = fit(review, setup.tokenizer, setup.context_tokens)
    inputs = Inputs(
        version=setup.version,
        opened_at=setup.opened_at,
        path=artifact.relative,
        number=number,
        review=review,
        mode_requested=options.review_mode,
        mode=mode.word,
        baseline=None if mode.baseline is None else mode.baseline.decode(),
        personas=tuple(_row(p) for p in chosen.personas),
        charter_sha256={p.name: p.charter_sha256 for p in chosen.personas},
        skipped=chosen.skipped,
        changes=changes,
        before=_sha256(artifact.raw),
        flipped=_sha256(flipped),
        body=_sha256(artifact.body),
        seed=seed_text,
        index_template=own.index,
        models=setup.models,
        engine=setup.engine,
        fake=setup.fake,
        warnings=(*warnings, *own.warnings, *context_warnings, *fit_warnings),
        notes=(clean,) if clean else (),
        scaffold=setup.engine == "none",
        profile=setup.profile,
        model=setup.model,
        scratch=scratch,
    )
    return Plan(artifact, folder, inputs, tokens)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---- preconditions -------------------------------------------------------------------------------------------------


def check_status(artifact: Artifact) -> None:
    """Open wants a leaf that is decided or specified, a thread that is active."""
    status, where = artifact.status or "(none)", shown(artifact.path)
    if artifact.scope == "leaf" and status not in ("decided", "specified"):
        hint = "finish its round with `debate close`" if status == "hardening" else "review it once it is decided"
        raise Refused(f"the leaf's status is {status}; a round opens on decided or specified", path=where, hint=hint)
    if artifact.scope == "thread" and status != "active":
        hints = {
            "parked": "unpark it first (restore-thread)",
            "in-review": "wait for its promotion to resolve (finalize-promotion or discard-promotion)",
            "archived": "an archived thread is not reviewed any more",
        }
        message = f"the thread's status is {status}; a round opens on an active thread"
        raise Refused(message, path=where, hint=hints.get(status))


def check_no_round(artifact: Artifact, folder: Path, *, scratch: bool = False) -> int:
    """The number of the next round. Refused while an earlier one is not closed."""
    known = kind(folder) != "missing"
    last = history.state(artifact, folder, scratch=scratch) if known else history.RoundState(None, "none")
    if last.state in ("none", "closed"):
        return history.next_round(folder) if known else 1
    assert last.number is not None
    name, where = history.round_name(last.number), shown(artifact.path)
    does = {
        "open": ("is open", f"close it first: debate close {where} --patches-status applied|partial|rejected"),
        "interrupted": ("was interrupted", f"`debate resume {where}` finishes it, `debate abort {where}` removes it"),
        "closing": ("is half closed", f"`debate close {where}` finishes that"),
        "aborting": ("is half aborted", f"`debate abort {where}` finishes that"),
    }
    what, hint = does[last.state]
    raise Refused(f"{name} {what}", path=shown(folder / name), hint=hint, code=last.state)


def check_index(folder: Path, about: render.About, template: str | None) -> None:
    """Refused when index.md, or the brain's template of it, cannot take the round's row: said before the review."""
    path = folder / "index.md"
    index.set_row(
        None if kind(path) == "missing" else read_bytes(path),
        {"Round": about.round} | dict.fromkeys(index.COLUMNS[1:], ""),
        path=shown(path), index_id="", created_at="", title=about.title,
        template=None if template is None else render.index_template(template, about),
    )  # fmt: skip


def _check_text(options: Options) -> None:
    """Bytes of a command line that are no UTF-8 arrive as lone surrogates, which no file can hold."""
    for name, text in (("feedback", options.feedback), *(("persona", text) for text in options.ad_hoc)):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Refused(f"{name} is not valid UTF-8: {text!r}", hint="give it as UTF-8 text") from None


def check_clean(artifact: Artifact, folder: Path, allow_dirty: bool) -> str | None:
    """Precondition 7. Refused, with the files, when something is not committed; a note when it was not checked."""
    if allow_dirty:
        return "working tree not checked (--allow-dirty)"
    found = worktree.changes(artifact, folder)
    if found is None:
        return "working tree not checked: the brain is in no git work tree"
    if found:
        listed = ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "")
        raise Refused(
            f"uncommitted changes: {listed}", path=shown(artifact.path), hint="commit them, or give --allow-dirty",
            code="dirty",
        )  # fmt: skip
    return None


def flip(artifact: Artifact, folder: Path, number: int) -> tuple[tuple[str, str | None], ...]:
    """The front-matter changes of step 17."""
    pointer = history.pointer(artifact, folder, number)
    if artifact.scope == "thread":
        return (("last_debate_round", pointer),)
    return (("status", "hardening"), ("source_debate", pointer), ("pre_hardening_status", artifact.status))


# ---- what the prompts are made of ----------------------------------------------------------------------------------


def _row(persona: personas.Persona) -> dict[str, str]:
    """One entry of personas.yaml."""
    row = {"name": persona.name, "source": persona.source}
    if persona.source == "ad-hoc":
        return row | {"charter_inline": persona.charter or ""}
    return row | ({"charter_path": persona.charter_path} if persona.charter_path else {})


def _review(
    artifact: Artifact, options: Options, setup: Setup, chosen: personas.Resolved, number: int, flipped: bytes,
    own: templates.Templates, seed_text: str | None, folder: Path, mode: baseline.Mode,
    context: Sequence[tuple[str, str]],
) -> protocol.Review:  # fmt: skip
    front = flipped[: len(flipped) - len(artifact.body)]
    roles = setup.roles
    people = tuple(protocol.Reviewer(p.name, p.charter, _role(roles, p.name, "reviewers")) for p in chosen.personas)
    first_line = front.count(b"\n") + 1
    carried = () if seed_text is None else seed.claims(seed_text, folder, artifact.body, first_line)
    human = (claims.anchor(c, artifact.body, first_line) for c in options.claims)
    use_synthesizer = len(people) >= 4 if options.synthesizer is None else options.synthesizer
    about = render.About(artifact.title, number, f"{artifact.slug}-{history.round_name(number)}", setup.opened_at)
    return protocol.Review(
        scope=artifact.scope,
        title=artifact.title,
        path=f"{artifact.root.name}/{artifact.relative}",
        body=artifact.body.decode(),
        front=front.decode(),
        about=about,
        feedback=options.feedback,
        reviewers=people,
        templates=setup.prompts,
        file_templates=own.files,
        tasks=own.tasks,
        context=tuple(context),
        carried=(*carried, *human),
        differences=mode.changed.differences if mode.changed else "",
        quotable=mode.changed.quotable if mode.changed else None,
        max_claims=setup.max_claims,
        free_text=setup.free_text,
        min_reviewers=len(people) if options.min_reviewers is None else min(options.min_reviewers, len(people)),
        defender_role=_role(roles, "defender"),
        synthesizer_role=_role(roles, "synthesizer"),
        synthesizer=use_synthesizer,
        scores=setup.scores,
        sampling=setup.sampling,
        roles=roles,
        margin=setup.margin,
        floor=setup.floor,
        deadline_s=setup.deadline_s,
        engine_note=f"Engine: {setup.engine}.",
    )


def _linked(artifact: Artifact, setup: Setup) -> tuple[list[tuple[str, str]], list[str]]:
    """Step 8: the artifact's soft links of roles spec and prior-decision, fenced and trimmed to their own budget.

    The text goes into prompts, so it holds no time of day: the same files are the same prompts tomorrow."""
    ceiling = min(CONTEXT_CEILING, setup.context_tokens // 4)

    def count(text: str) -> int:
        return tokens_of(text, setup.tokenizer)

    found = materialize(artifact, "reviewer", ("spec", "prior-decision"), ceiling, count, "at the opening")
    if not found.links:
        return [], []
    lost = [f"soft link {k.uri}: {k.reason}" for k in found.links if k.status == "unresolved"]
    return [("linked documents", found.text)], [*found.warnings, *lost]


def _role(roles: Mapping[str, object], *names: str) -> str:
    return next((n for n in names if n in roles), "default")
