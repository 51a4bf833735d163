"""Opening a round, first half: resolve what was asked for and check every precondition. Reads; writes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runner import guard, render
from runner.brain import front_matter, history, personas
from runner.brain.artifact import Artifact
from runner.brain.root import kind, read_bytes, shown
from runner.errors import Refused
from runner.protocols import round as protocol
from runner.rounds import seed
from runner.rounds.inputs import Inputs
from runner.values import Sampling

if TYPE_CHECKING:
    from runner.engines.base import Tokenizer

CONTEXT_CEILING = 8000  # tokens of companions and impl-spec; a quarter of the model's context when that is less


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for. reviewers, synthesizer, min_reviewers: None takes the specification's default."""

    personas: tuple[str, ...] = ()
    ad_hoc: tuple[str, ...] = ()
    reviewers: int | None = None
    review_mode: str = "full"
    feedback: str = ""
    synthesizer: bool | None = None
    min_reviewers: int | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """What the run brings: the profile's settings, our templates, the model's facts. See protocol Review and Inputs.

    roles: of the profile, a persona's own, `reviewers`, `defender`, `synthesizer`, else `default`.
    context_tokens: the most a prompt and its reply may take together.
    """

    version: str
    opened_at: str
    prompts: Mapping[str, str]
    files: Mapping[str, str]
    charters: Path
    max_claims: int
    sampling: Sampling
    margin: float
    floor: float
    deadline_s: float | None
    roles: Mapping[str, str]
    models: Mapping[str, Mapping[str, str]]
    engine: str
    scores: bool
    fake: bool
    tokenizer: Tokenizer | None
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    artifact: Artifact
    history: Path
    inputs: Inputs
    tokens: Mapping[str, int]  # of each reviewer's prompt; empty when there is no tokenizer

    @property
    def number(self) -> int:
        return self.inputs.number


def plan(artifact: Artifact, options: Options, setup: Setup) -> Plan:
    """Everything that is decided before anything is written. Raises Refused where a precondition does not hold."""
    check_status(artifact)
    folder = history.history_folder(artifact)
    number = check_no_round(artifact, folder)
    if not options.feedback.strip():
        raise Refused(
            "feedback is empty", hint='say what this round should address: --feedback "…" or --feedback @file'
        )
    _check_text(options)
    chosen = personas.resolve(artifact.root, options.personas, options.ad_hoc, options.reviewers, setup.charters)
    warnings = [*chosen.warnings]
    for persona in chosen.personas:
        warnings += guard.lint_charter(persona.name, persona.charter or "")
    mode, note = _mode(options.review_mode, folder, number)
    warnings += note
    warnings += [f"{artifact.relative}:{f.line}: {f.what}" for f in guard.scan_document(artifact.body.decode())]
    changes = flip(artifact, folder, number)
    flipped = front_matter.edit(artifact.raw, changes, shown(artifact.path))
    files, index_template, file_warnings = _templates(artifact, setup)
    warnings += file_warnings
    seed_text = seed.read(folder)
    review = _review(artifact, options, setup, chosen, number, flipped, files, seed_text, folder)
    review, context_warnings = _context(artifact, review, setup)
    review, fit_warnings, tokens = fit(review, setup)
    inputs = Inputs(
        version=setup.version,
        opened_at=setup.opened_at,
        path=artifact.relative,
        number=number,
        review=review,
        mode_requested=options.review_mode,
        mode=mode,
        personas=tuple(_row(p) for p in chosen.personas),
        charter_sha256={p.name: p.charter_sha256 for p in chosen.personas},
        skipped=chosen.skipped,
        changes=changes,
        before=_sha256(artifact.raw),
        flipped=_sha256(flipped),
        body=_sha256(artifact.body),
        seed=seed_text,
        index_template=index_template,
        models=setup.models,
        engine=setup.engine,
        fake=setup.fake,
        warnings=(*warnings, *context_warnings, *fit_warnings),
    )
    return Plan(artifact, folder, inputs, tokens)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# ---- preconditions -------------------------------------------------------------------------------------------------


def check_status(artifact: Artifact) -> None:
    """Open wants a leaf that is decided or specified, a thread that is active."""
    status, where = artifact.status or "(none)", shown(artifact.path)
    if artifact.scope == "leaf" and status not in ("decided", "specified"):
        hint = "finish its round with `debate close`" if status == "hardening" else None
        raise Refused(f"the leaf's status is {status}; a round opens on decided or specified", path=where, hint=hint)
    if artifact.scope == "thread" and status != "active":
        hints = {
            "parked": "unpark it first (restore-thread)",
            "in-review": "wait for its promotion to resolve (finalize-promotion or discard-promotion)",
            "archived": "an archived thread is not reviewed any more",
        }
        message = f"the thread's status is {status}; a round opens on an active thread"
        raise Refused(message, path=where, hint=hints.get(status))


def check_no_round(artifact: Artifact, folder: Path) -> int:
    """The number of the next round. Refused while an earlier one is not closed."""
    last = history.state(artifact, folder) if kind(folder) != "missing" else history.RoundState(None, "none")
    if last.state in ("none", "closed"):
        return history.next_round(folder) if kind(folder) != "missing" else 1
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


def _check_text(options: Options) -> None:
    """Bytes of a command line that are no UTF-8 arrive as lone surrogates, which no file can hold."""
    for name, text in (("feedback", options.feedback), *(("persona", text) for text in options.ad_hoc)):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Refused(f"{name} is not valid UTF-8: {text!r}", hint="give it as UTF-8 text") from None


def _mode(requested: str, folder: Path, number: int) -> tuple[str, list[str]]:
    """The mode that runs. Delta wants the baseline of the round before."""
    if requested == "full":
        return "full", []
    if number == 1:
        return "full", ["delta review needs a prior closed round; this is round-01, so the review is full"]
    return "full", ["delta review is not available yet; the review is full"]


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


def _templates(artifact: Artifact, setup: Setup) -> tuple[dict[str, str], str | None, list[str]]:
    """Templates of files: the brain's own in the place of ours; the brain's template of index.md; warnings."""
    files: dict[str, str] = dict(setup.files)
    warnings: list[str] = []
    folder = artifact.root / "assets" / "debate-templates"
    for name in files:
        if kind(folder / name) == "file":
            files[name] = read_bytes(folder / name).decode("utf-8", "replace")
            warnings += render.template_warnings(name, files[name])
    index = folder / "index.md"
    text = read_bytes(index).decode("utf-8", "replace") if kind(index) == "file" else None
    warnings += [] if text is None else render.template_warnings("index.md", text)
    return files, text, warnings


def _review(
    artifact: Artifact, options: Options, setup: Setup, chosen: personas.Resolved, number: int, flipped: bytes,
    files: Mapping[str, str], seed_text: str | None, folder: Path,
) -> protocol.Review:  # fmt: skip
    front = flipped[: len(flipped) - len(artifact.body)]
    roles = setup.roles
    people = tuple(protocol.Reviewer(p.name, p.charter, _role(roles, p.name, "reviewers")) for p in chosen.personas)
    carried = () if seed_text is None else seed.claims(seed_text, folder, artifact.body, front.count(b"\n") + 1)
    use_synthesizer = len(people) >= 4 if options.synthesizer is None else options.synthesizer
    about = render.About(artifact.title, number, f"{artifact.slug}-{history.round_name(number)}", setup.opened_at)
    return protocol.Review(
        scope=artifact.scope,
        title=artifact.title,
        path=artifact.path.name,
        body=artifact.body.decode(),
        front=front.decode(),
        about=about,
        feedback=options.feedback,
        reviewers=people,
        templates=setup.prompts,
        file_templates=files,
        carried=carried,
        max_claims=setup.max_claims,
        min_reviewers=len(people) if options.min_reviewers is None else min(options.min_reviewers, len(people)),
        defender_role=_role(roles, "defender"),
        synthesizer_role=_role(roles, "synthesizer"),
        synthesizer=use_synthesizer,
        scores=setup.scores,
        sampling=setup.sampling,
        margin=setup.margin,
        floor=setup.floor,
        deadline_s=setup.deadline_s,
        engine_note=f"Engine: {setup.engine}.",
    )


def _role(roles: Mapping[str, str], *names: str) -> str:
    return next((n for n in names if n in roles), "default")


def _context(artifact: Artifact, review: protocol.Review, setup: Setup) -> tuple[protocol.Review, list[str]]:
    """Companions and impl-spec, as much of each as the budget allows; what was left out is said."""
    texts = [*artifact.companions, *([artifact.impl_spec] if artifact.impl_spec else [])]
    budget = min(CONTEXT_CEILING, setup.context_tokens // 4)
    kept, warnings = [], []
    for i, (name, text) in enumerate(texts):
        share = budget // (len(texts) - i)
        short = _cut(text, share, setup.tokenizer)
        if short != text:
            warnings.append(f"{name}: only the first {len(short.encode())} of {len(text.encode())} bytes were shown")
        budget -= _tokens(short, setup.tokenizer)
        kept.append((name, short))
    return replace(review, context=tuple(kept)), warnings


def _tokens(text: str, tokenizer: Tokenizer | None) -> int:
    return len(text.encode()) // 4 if tokenizer is None else tokenizer.count_text(text)


def _cut(text: str, budget: int, tokenizer: Tokenizer | None) -> str:
    """As many whole lines from the beginning as fit."""
    if _tokens(text, tokenizer) <= budget:
        return text
    lines = text.splitlines(keepends=True)
    low, high = 0, len(lines)
    while low < high:
        middle = (low + high + 1) // 2
        if _tokens("".join(lines[:middle]), tokenizer) <= budget:
            low = middle
        else:
            high = middle - 1
    return "".join(lines[:low])


def fit(review: protocol.Review, setup: Setup) -> tuple[protocol.Review, list[str], dict[str, int]]:
    """The review with as many claims per reviewer as the context allows. Refused, with numbers, when none fits."""
    if setup.tokenizer is None:
        return review, [], {}
    limit = setup.context_tokens
    for most in range(review.max_claims, -1, -1):
        tried = replace(review, max_claims=most)
        need = protocol.worst_tokens(tried, setup.tokenizer.count)
        if max(need.values()) <= limit and (most or not review.max_claims):
            lowered = [f"at most {most} claims per reviewer fit into the context"] if most < review.max_claims else []
            return tried, lowered, {k: n for k, n in need.items() if k.startswith("reviewer/")}
    document = setup.tokenizer.count_text(review.body)
    least = max(protocol.worst_tokens(replace(review, max_claims=1), setup.tokenizer.count).values())
    raise Refused(
        f"the document is too long: it has {document} tokens, and with prompts and replies the round needs {least}, "
        f"but the context holds {limit}; about {max(0, document - (least - limit))} tokens of document fit",
        code="context",
        hint="split the document, or use a model or profile with a longer context",
    )
