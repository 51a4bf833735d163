"""Documents to bytes and back, and the builders of every file of a round. Pure.

Foreign text (a model's, the document's) may hold anything and never changes the structure of a file:
headings and prose take it as one escaped line (`flat`), quotes stand in `> ` blocks (`quoted`), proposals and diffs in
fences longer than any run of backticks in them (`fenced`). Only the user's brief and the carried seed are verbatim.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from runner.errors import Refused
from runner.values import LABELS, Amended, Claim, Document, Patch, Synthesis, Tryout, Verdict

# ---- front matter --------------------------------------------------------------------------------------------------

# JSON lets these stand; some YAML reader takes them for a line end or refuses them.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_LONE = re.compile("[\ud800-\udfff]")
_FIELD = re.compile(r'([a-z_]+): (?:(0|-?[1-9][0-9]{0,17})|(".*"))')


def render(document: Document) -> bytes:
    """UTF-8: front matter (if any) with strings double-quoted on one line and plain integers, a blank line, the body.

    Ends with exactly one line feed. A lone surrogate becomes U+FFFD.
    """
    lines = [f"{key}: {_scalar(value)}" for key, value in document.front_matter]
    head = "\n".join(["---", *lines, "---", "", ""]) if lines else ""
    blank = "" if lines or not document.body.startswith("---") else "\n"  # no front matter by accident
    return (_LONE.sub("\ufffd", head + blank + document.body).rstrip("\n") + "\n").encode()


def parse(data: bytes, path: str = "") -> Document:
    """What `render` wrote, as a Document; Refused, with path and line, when the front matter is not in our form."""
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        raise Refused("not UTF-8 text", path=path, line=data.count(b"\n", 0, e.start) + 1) from None
    if not text.startswith("---\n"):
        return Document(path, text)
    head, closer, body = text[4:].partition("\n---\n")
    if not closer:
        raise Refused("the front matter has no closing `---` line", path=path, line=1)
    fields = tuple(_field(line, path, n) for n, line in enumerate(head.split("\n"), 2))
    return Document(path, body.removeprefix("\n"), fields)


def _scalar(value: str | int) -> str:
    if isinstance(value, int):
        return str(int(value))
    text = json.dumps(_LONE.sub("\ufffd", value), ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def _field(line: str, path: str, number: int) -> tuple[str, str | int]:
    found = _FIELD.fullmatch(line)
    with suppress(ValueError):
        if found is not None:
            return found[1], json.loads(found[2] or found[3])
    hint = 'write `key: "value"` or `key: 12`, one per line'
    raise Refused("not a front-matter line of ours", path=path, line=number, hint=hint)


def personas_yaml(
    number: int, scope: str, review_mode: str, personas: Sequence[Mapping[str, str]], skipped: Sequence[str] = ()
) -> bytes:
    """personas.yaml. personas: name, source, and charter_path or charter_inline, written in their order."""
    lines = [f"round: {number}", f"scope: {_scalar(scope)}", f"review_mode: {_scalar(review_mode)}", "personas:"]
    for persona in personas:
        fields = [f"{key}: {_scalar(value)}" for key, value in persona.items()]
        lines += [("    " if n else "  - ") + field for n, field in enumerate(fields)]
    if skipped:
        lines += ["skipped:", *(f"  - name: {_scalar(name)}" for name in skipped)]
    return ("\n".join(lines) + "\n").encode()


# ---- foreign text --------------------------------------------------------------------------------------------------

# Control characters, line ends other than \n, invisible and direction-changing characters, lone surrogates.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_INLINE = re.compile(r"[\\`*\[\]|~]|_(?![^\W_])|(?<![^\W_])_|&(?=#|\w+;)|#(?=#*$)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_FIRST = re.compile(r"^(?=[=>#]|[-+](?:[ -]|$))|^(\d+)(?=[.)](?: |$))")


def visible(text: str) -> str:
    """The text with each character that hides or ends a line behind the reader's back shown as ⟨U+XXXX⟩."""
    return _HIDDEN.sub(lambda m: f"⟨U+{ord(m[0]):04X}⟩", text.replace("\r\n", "\n"))


def flat(text: str) -> str:
    """Foreign prose as one line of markdown that shows exactly these words: no markup, no HTML, no second line."""
    line = _TAG.sub("&lt;", _INLINE.sub(r"\\\g<0>", visible(" ".join(text.split()))))
    return _FIRST.sub(r"\1\\", line) or "(no text)"


def quoted(text: str) -> str:
    """A passage of the document as a `> ` block. Its markdown stands as it is; HTML in it is shown, not obeyed."""
    lines = _TAG.sub("&lt;", visible(text).strip("\n")).split("\n")
    return "\n".join(f"> {line}".rstrip() for line in lines) if text else ""


def fenced(text: str, info: str) -> str:
    """A fenced block that nothing inside can close."""
    mark = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{mark}{info}\n{text}{end}{mark}"


def _bullets(texts: Iterable[str], none: str) -> str:
    return "\n".join(f"- {flat(t)}" for t in texts) or none


def _join(*blocks: str) -> str:
    return "\n\n".join(block for block in blocks if block)


# ---- templates of a brain, and ours in prompts/files/ --------------------------------------------------------------

_NAME = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
NAMES: tuple[str, ...] = (
    "ARTIFACT_TITLE", "ARTIFACT_KIND", "ROUND_NUMBER", "ROUND_ID", "CREATED_AT", "REVIEW_MODE", "PERSONA_LIST",
    "FEEDBACK_BODY", "CARRY_FORWARD", "PATCHES", "ISSUES", "ENTRIES",
)  # fmt: skip
_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(?:.*\n)*?---[ \t]*(?:(?:\r?\n)+|\Z)")
_NEEDS: dict[str, tuple[tuple[str, ...], ...]] = {"feedback-in.md": (("FEEDBACK_BODY",), ("CARRY_FORWARD",))}
_NEEDS |= {"proposed-patches.md": (("PATCHES", "ENTRIES"),), "open-issues.md": (("ISSUES", "ENTRIES"),)}


def template_warnings(name: str, template: str) -> tuple[str, ...]:
    """What is odd about an output template (a file name of `assets/debate-templates/`); for the user, when loaded."""
    text = _body_of(template)
    out = [f"{name}: unknown placeholder {{{{{n}}}}} becomes empty" for n in _NAME.findall(text) if n not in NAMES]
    out += [f"{name}: no {{{{{n}}}}}; its text is added at the end" for n in _missing(name, text)]
    out += [f"{name}: its front matter is left out"] if _FRONT.match(template) else []
    return tuple(dict.fromkeys(out))


def _missing(name: str, text: str) -> list[str]:
    """Placeholders without which a file would lose what it is for."""
    return [names[0] for names in _NEEDS.get(name, ()) if not set(names) & set(_NAME.findall(text))]


def _body_of(template: str) -> str:
    return _FRONT.sub("", template).replace("\r\n", "\n")


def _fill(name: str, template: str, values: Mapping[str, str]) -> str:
    """One pass over the template only: nothing that was put in is looked at again."""
    text = _body_of(template).rstrip("\n")
    text += "".join(f"\n\n{{{{{n}}}}}" for n in _missing(name, text))
    return _NAME.sub(lambda m: values.get(m[1], ""), text) + "\n"


# ---- the files of a round ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class About:
    """Of one round: the artifact's title, the number from 1, `round_id` (unique in the brain), and `opened_at`."""

    title: str
    number: int
    round_id: str
    created_at: str

    @property
    def round(self) -> str:
        return f"round-{self.number:02d}"

    def line(self, *more: str) -> str:
        return " · ".join([flat(self.title), self.round, *(m for m in more if m)])


def tryout(t: Tryout, about: About) -> Document:
    """tryouts/<persona>.md, in the form that is also read when a person writes it. Failed is said plainly."""
    placed = [c for c in t.claims if c.anchor != "unanchored"]
    loose = [c for c in t.claims if c.anchor == "unanchored"]
    path, title = f"tryouts/{t.persona}.md", f"# Review by {flat(t.persona)}"
    if t.status == "failed":
        text = f"**This review failed: {flat(t.cause)}.** It says nothing about the document, good or bad."
        return Document(path, _join(title, about.line("failed"), text))
    apart = f"{len(loose)} without a place in the document" if loose else ""
    blocks = [title, about.line(_count(len(t.claims), "claim"), apart)]
    blocks += [f"**This reviewer did not read part of it: {flat(t.cause)}.**"] if t.cause else []
    blocks += ["## Observations", _bullets(t.observations, "None.")]
    blocks += ["## Claims", *(map(_raised, placed) if placed else ["None with a place." if loose else "None."])]
    blocks += ["## Claims without a place in the document", *map(_raised, loose)] if loose else []
    blocks += ["## Open questions", _bullets(t.open_questions, "None.")]
    return Document(path, _join(*blocks))


def _raised(claim: Claim) -> str:
    facts = [claim.id, claim.kind, _place(claim), "no edit proposed" if claim.action == "none" else ""]
    title, where = f"### {claim.severity}: {flat(claim.problem)}", " · ".join(f for f in facts if f)
    return _join(title, quoted(claim.quote), where, _proposal(Amended(claim.action, claim.replacement)))


def defender(
    claims: Sequence[Claim], verdicts: Sequence[Verdict], about: About, diagnostics: Sequence[str] = (), note: str = ""
) -> Document:
    """defender.md: every claim with its verdict, how sure it is and why. note: on the engine, one line."""
    by_claim = {v.claim: v for v in verdicts}
    blocks = ["# Verdicts of the defender", about.line(_count(len(claims), "claim"), verdict_summary(verdicts))]
    blocks += [flat(note) if note else "", *(["## Diagnostics", _bullets(diagnostics, "")] if diagnostics else [])]
    second = [c for c in claims if c.id in by_claim and _doubtful(by_claim[c.id])]
    looks = [f"- {c.id} ({_sure(by_claim[c.id])}): {flat(c.problem)}" for c in second]
    blocks += ["## REJECTs worth a second look", "\n".join(looks)] if looks else []
    blocks += ["## Verdicts", *([_judged(c, by_claim.get(c.id)) for c in claims] or ["No claims were raised."])]
    return Document("defender.md", _join(*blocks))


def verdict_summary(verdicts: Sequence[Verdict]) -> str:
    """For example `4 CONCEDE, 1 DEFER`; labels that nobody got are left out."""
    counts = Counter(v.verdict for v in verdicts)
    return ", ".join(f"{counts[label]} {label}" for label in LABELS if counts[label])


def _doubtful(v: Verdict) -> bool:
    return v.verdict == "REJECT" and (v.agree is False or (v.confidence is not None and v.confidence < 0.5))


def _sure(v: Verdict) -> str:
    confidence = "not measured" if v.confidence is None else f"{v.confidence:.2f}"
    orders = {True: ", both label orders agreed", False: ", the two label orders disagreed", None: ""}[v.agree]
    return f"confidence {confidence}, cause {v.cause}{orders}"


def _judged(claim: Claim, verdict: Verdict | None) -> str:
    same = f"says the same as {claim.cluster}" if claim.cluster not in ("", claim.id) else ""
    facts = [claim.severity, claim.kind, _place(claim), f"raised by {flat(claim.raised_by)}", same]
    rows = [f"**Problem:** {flat(claim.problem)}", " · ".join(f for f in facts if f)]
    if verdict is not None:
        rows += [_sure(verdict).capitalize(), f"**Reason:** {flat(verdict.reason)}"]
    blocks = [f"### {claim.id}: {'no verdict' if verdict is None else verdict.verdict}"]
    blocks += [quoted(claim.quote), "\n".join(f"- {row}" for row in rows)]
    if verdict is not None and verdict.amended is not None:
        blocks += ["Amended proposal:", _proposal(verdict.amended) or "No edit."]
    return _join(*blocks)


def synthesizer(s: Synthesis, claims: Sequence[Claim], about: About) -> Document:
    """synthesizer.md: themes, tensions, and the REJECTed claims it would look at again."""
    problems = {c.id: c.problem for c in claims}
    blocks = ["# Synthesis", about.line(_count(len(s.themes), "theme"), _count(len(claims), "claim")), "## Themes"]
    for theme in s.themes:
        blocks += [f"### {flat(theme.title)}", flat(theme.text)]
        blocks += ["Claims: " + ", ".join(map(flat, theme.claims))] if theme.claims else []
    blocks += [] if s.themes else ["None."]
    again = _bullets((f"{i}: {problems.get(i, '')}" for i in s.revisit), "None.")
    blocks += ["## Tensions", _bullets(s.tensions, "None."), "## REJECTs to revisit", again]
    return Document("synthesizer.md", _join(*blocks))


def feedback_in(
    about: About, kind: str, review_mode: str, personas: Sequence[str], feedback: str, seed: str | None, template: str
) -> Document:
    """feedback-in.md. kind: leaf or thread. feedback and seed (next-round-seed.md's content) stand verbatim."""
    values = {"ARTIFACT_KIND": kind, "REVIEW_MODE": review_mode, "PERSONA_LIST": _bullets(personas, "None.")}
    values |= _values(about) | {"FEEDBACK_BODY": feedback, "CARRY_FORWARD": seed or "None — fresh round"}
    return Document("feedback-in.md", _fill("feedback-in.md", template, values))


def proposed_patches(
    claims: Sequence[Claim], verdicts: Sequence[Verdict], patches: Sequence[Patch], about: About, template: str
) -> Document:
    """proposed-patches.md: `## P-nn` with a diff or `## H-nn` with the reason, each with its reviewer and verdict."""
    by_claim = {c.id: (c, v) for c in claims for v in verdicts if v.claim == c.id}
    text = "\n\n".join(_patch(p, *by_claim[p.claim]) for p in patches) or "No patches: no claim was conceded."
    return _indexed("proposed-patches", "PATCHES", text, about, template)


def _patch(patch: Patch, claim: Claim, verdict: Verdict) -> str:
    facts = [f"Raised by {flat(claim.raised_by)}", f"{verdict.verdict}, {_sure(verdict)}", _place(claim), *patch.flags]
    blocks = [f"## {patch.id} {claim.id} {claim.severity}: {flat(claim.problem)}", " · ".join(facts)]
    if not patch.by_hand:
        text = patch.diff.decode("utf-8", "replace")
        hidden = sorted({visible(c).strip("⟨⟩") for c in _HIDDEN.findall(patch.replacement) if c != "\r"})
        note = f"The new text holds characters that cannot be seen: {', '.join(hidden)}." if hidden else ""
        return _join(*blocks, note, fenced(text, "diff"))
    proposal = verdict.amended if verdict.verdict == "CONCEDE-IN-PART" else Amended(claim.action, claim.replacement)
    blocks += [f"By hand: {patch.by_hand}.", quoted(claim.quote), f"Reason: {flat(verdict.reason)}"]
    return _join(*blocks, _proposal(proposal) or "No edit was proposed.")


def open_issues(
    claims: Sequence[Claim], verdicts: Sequence[Verdict], revisit: Sequence[str], about: About, template: str
) -> Document:
    """open-issues.md: an entry for each DEFER and for each REJECT in `revisit` (claim ids); none: no `## ` line."""
    stays = {v.claim: v for v in verdicts if v.verdict == "DEFER" or (v.verdict == "REJECT" and v.claim in revisit)}
    text = "\n\n".join(issue(c, stays[c.id], about) for c in claims if c.id in stays) or "No open issues."
    return _indexed("open-issues", "ISSUES", text, about, template)


def issue(claim: Claim, verdict: Verdict, about: About) -> str:
    """One entry of open-issues.md, without a line end; for close, which adds the REJECTs a person flags."""
    return _join(
        f"## {about.round}/{claim.id} {claim.severity}: {flat(claim.problem)}",
        quoted(claim.quote),
        f"{verdict.verdict} · {_place(claim)} · {_sure(verdict)}",
        f"Reason: {flat(verdict.reason)}",
    )


def transcript(lines: Sequence[tuple[str, str]], about: About) -> Document:
    """transcript.md: one line per event, (at, event)."""
    events = _bullets((f"{at} {event}" for at, event in lines), "")
    return Document("transcript.md", _join("# Transcript", about.line(), events))


def _indexed(kind: str, name: str, text: str, about: About, template: str) -> Document:
    """With the front matter that the brain's validator asks of this file."""
    fields = (("id", f"{about.round_id}-{kind}"), ("kind", kind), ("created_at", about.created_at))
    values = _values(about) | {name: text, "ENTRIES": text}
    return Document(f"{kind}.md", _fill(f"{kind}.md", template, values), fields)


def index_template(template: str, about: About) -> str:
    """The brain's template of index.md, filled in. What differs by round stays empty: the rows are ours to write."""
    return _fill("index.md", template, {"ARTIFACT_TITLE": flat(about.title), "CREATED_AT": about.created_at})


def _values(about: About) -> dict[str, str]:
    who = {"ARTIFACT_TITLE": flat(about.title), "ROUND_NUMBER": f"{about.number:02d}"}
    return who | {"ROUND_ID": about.round_id, "CREATED_AT": about.created_at}


def _proposal(proposal: Amended | None) -> str:
    action, text = ("none", "") if proposal is None else (proposal.action, visible(proposal.replacement))
    return "" if action == "none" else fenced(text if action == "replace" else "", action)


def _place(claim: Claim) -> str:
    if claim.lines is None:
        return "the quote occurs more than once" if claim.anchor == "ambiguous" else "no place in the document"
    first, last = claim.lines
    return f"line {first}" if first == last else f"lines {first}–{last}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
