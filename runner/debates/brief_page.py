"""A brief as people read it: the output block of the specification, and the file with the round before below it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from runner import render
from runner.protocols.brief import Concern, Result, Said

FAKE = "**FAKE ENGINE: no model read these files; every word here is made up.**"
PRIOR = "\n---\n\n# Prior round\n\n"


@dataclass(frozen=True, slots=True)
class About:
    """What a page says beside the result. path: of the brief, from the workspace. notes: what was not read or shown,
    and a guard that was overridden. tokens: in and out, as counted."""

    task: str
    path: str
    lite: bool
    max_rounds: int
    critics: tuple[str, ...]
    notes: tuple[str, ...]
    models: str
    tokens: tuple[int, int]
    fake: bool = False


def block(about: About, result: Result) -> str:
    """What goes to stdout: its last line is DONE."""
    note = [FAKE] if about.fake else []
    return "\n\n".join([*note, *_sections(about, result), "DONE"]) + "\n"


def page(about: About, result: Result, opened_at: str, earlier: bytes | None) -> bytes:
    """The brief's file. earlier: the one that lay there, which stays below as it is, and whose line ends ours take."""
    note = [FAKE] if about.fake else []
    head = f"# Debate brief {about.task}\n\nWritten at {opened_at}."
    text = "\n\n".join([*note, head, *_sections(about, result)]) + "\n"
    if earlier is None:
        return _bytes(text)
    if earlier.count(b"\r\n") * 2 > earlier.count(b"\n"):
        return _bytes((text + PRIOR).replace("\n", "\r\n")) + earlier
    return _bytes(text + PRIOR) + earlier


def gist(earlier: str) -> str:
    """What the critics are shown of an earlier brief: the latest round's outcome, in one that this program wrote;
    its quotes are of files that have changed. All of one that a person wrote."""
    latest = earlier.replace("\r\n", "\n").split(PRIOR)[0]
    found = re.search(r"^## (?:Consensus|Summary)\n.*(?=^## Brief Path$)", latest, re.DOTALL | re.MULTILINE)
    return (latest if found is None else found[0]).strip()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _sections(about: About, result: Result) -> list[str]:
    end = ["## Brief Path", render.visible(about.path)]
    if about.lite:
        return ["## Summary", "\n".join(f"- {line}" for line in _summary(about, result)), *end]
    critics = [part for name in about.critics for part in _critic(name, result)]
    return [
        "## Critics", *_notes(about, result), *critics, "## Consensus", _consensus(about, result), "## Action items",
        _numbered(result), "## Dissent", _dissent(result), *end, "## Usage Report", _usage(about),
    ]  # fmt: skip


def _usage(about: About) -> str:
    tokens = "unknown" if not any(about.tokens) else "{}/{}".format(*about.tokens)
    return f"Model: {render.visible(about.models)}\nClass: thinking\nTokens: {tokens}"


def _notes(about: About, result: Result) -> list[str]:
    lines = [f"- {render.flat(note)}" for note in (*about.notes, *_course(about, result))]
    return ["\n".join(lines)] if lines else []


def _course(about: About, result: Result) -> list[str]:
    """How the debate ended, when it was not by its last round."""
    if result.agreed:
        return [f"The critics stopped after round {result.rounds} of {about.max_rounds}: both say nothing is left."]
    return []


# ---- full ----------------------------------------------------------------------------------------------------------


def _critic(name: str, result: Result) -> list[str]:
    said = result.of(name)
    concerns = [c for s in said for c in s.concerns]
    gaps = [_gap(s, len(said) > 1) for s in said if s.cause]
    listed = [_concern(n, c) for n, c in enumerate(concerns, 1)]
    nothing = [] if listed or gaps else ["Nothing is left to say."]
    return [f"### {name.capitalize()}", *gaps, *listed, *nothing]


def _gap(s: Said, many: bool) -> str:
    return f"No usable answer{f' in round {s.round}' if many else ''} ({s.cause}): this critic's view is missing."


def _concern(number: int, c: Concern) -> str:
    head = f"{number}. **{c.severity}, {c.kind}**, {_place(c)}: {render.flat(c.problem)}"
    return f"{head}\n\n" + "\n".join(f"   {line}" for line in render.quoted(c.quote).split("\n"))


def _place(c: Concern) -> str:
    if c.lines is None:
        return f"{render.flat(c.file)} ({'more than one line' if c.anchor == 'ambiguous' else 'quote not found'})"
    first, last = c.lines
    return f"{render.flat(c.file)}, " + (f"line {first}" if first == last else f"lines {first}-{last}")


def _consensus(about: About, result: Result) -> str:
    if result.merged is not None:
        return render.flat(result.merged.consensus)
    if result.cause:
        return f"No usable answer from the synthesizer ({result.cause}): the concerns above are not merged."
    silent = sorted({s.critic for s in result.said if s.cause}, key=about.critics.index)
    if silent:
        return f"The critic that answered says that nothing is left; {', '.join(silent)} gave no usable answer."
    return "Both critics say that nothing is left."


def _numbered(result: Result) -> str:
    items = result.merged.action_items if result.merged else ()
    return "\n".join(f"{n}. {render.flat(t)}" for n, t in enumerate(items, 1)) or "None."


def _dissent(result: Result) -> str:
    texts = result.merged.dissent if result.merged else ()
    return "\n".join(f"- {render.flat(t)}" for t in texts) or "None."


# ---- lite ----------------------------------------------------------------------------------------------------------


def _summary(about: About, result: Result) -> Sequence[str]:
    merged = result.merged
    gaps = [f"{s.critic.capitalize()}: {_gap(s, False)}" for s in result.said if s.cause]
    actions = [f"Action: {render.flat(t)}" for t in (merged.action_items if merged else ())]
    dissent = [f"Dissent: {render.flat(t)}" for t in (merged.dissent if merged else ())]
    notes = [render.flat(note) for note in about.notes]
    return [*gaps, f"Consensus: {_consensus(about, result)}", *actions, *dissent, *notes]
