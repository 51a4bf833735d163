"""The values that travel between the parts. All frozen; none knows a file, a clock or an engine.

One word per thing: a *flow* yields `Ask`, `Publish` or `Join`; the scheduler answers with replies, None or results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

# ---- prompts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt. Only a trusted one may hold control tokens; foreign text never does."""

    text: str
    trusted: bool


@dataclass(frozen=True, slots=True)
class Message:
    role: Literal["system", "user", "assistant"]
    segments: tuple[Segment, ...]

    @property
    def text(self) -> str:
        return "".join(s.text for s in self.segments)


@dataclass(frozen=True, slots=True)
class Format:
    """What a reply may look like. Engines see these strings only.

    lark: grammar for llguidance. json_schema: the portable subset, for a server that takes no grammar.
    quotes: the passages of the document a quote may come from.
    """

    lark: str
    json_schema: str
    quotes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn; the names are llama.cpp's. dry_*: what continues a run of at least `dry_allowed`
    tokens copied from the prompt or the reply is lowered by dry_multiplier * dry_base ** (run - dry_allowed).
    """

    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.1  # over the tokens of the reply's own free text
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed: int = 4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """One question to the model.

    key: relative to its run, readable, stable: `reviewer/red-team`; a retry is a new request, `…~2`.
    model: a role of the profile. format or choices: at most one of the two; choices are measured, not generated.
    shared: counts of segments (over all messages, in order) after which a shareable prefix ends, ascending.
    keep: keep the sequence (prompt and reply) for a request that `continues` it. Both are hints.
    max_tokens: of the reply, forced tokens included. deadline_s: seconds from admission.
    """

    key: str
    model: str
    messages: tuple[Message, ...]
    max_tokens: int
    format: Format | None = None
    choices: tuple[str, ...] = ()
    shared: tuple[int, ...] = ()
    keep: bool = False
    continues: str | None = None
    sampling: Sampling = field(default_factory=Sampling)
    deadline_s: float | None = None

    def digest(self, manifest_sha256: str) -> str:
        """sha256 over everything that can change the reply: not the key, not the hints."""
        parts = {
            "messages": [[m.role, [[s.text, s.trusted] for s in m.segments]] for m in self.messages],
            "format": None if self.format is None else [self.format.lark, self.format.json_schema],
            "choices": list(self.choices),
            "sampling": asdict(self.sampling),
            "max_tokens": self.max_tokens,
            "manifest": manifest_sha256,
        }
        return hashlib.sha256(json.dumps(parts, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


Finish = Literal["stop", "length", "degenerate", "timeout", "error"]


@dataclass(frozen=True, slots=True)
class Reply:
    """scores: log-probability of each choice, in the request's order; empty unless choices were asked for."""

    key: str
    text: str
    finish: Finish
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    forced: int = 0
    scores: tuple[float, ...] = ()
    ms: int = 0

    def facts(self) -> dict[str, Any]:
        """The call, for a record: everything but what was said."""
        return {
            "key": self.key, "tokens_in": self.tokens_in, "tokens_cached": self.tokens_cached,
            "tokens_out": self.tokens_out, "forced": self.forced, "finish": self.finish, "ms": self.ms,
        }  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"scores": list(self.scores)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Reply:
        return cls(**(data | {"scores": tuple(data.get("scores", ()))}))


# ---- what a review is about ----------------------------------------------------------------------------------------

Kind = Literal["contradiction", "unsupported", "ambiguity", "omission", "broken-reference", "risk", "other"]
Severity = Literal["blocker", "major", "minor", "nit"]
Action = Literal["replace", "delete", "none"]
Anchor = Literal["exact", "ambiguous", "unanchored"]
Label = Literal["CONCEDE", "CONCEDE-IN-PART", "DEFER", "REJECT"]

KINDS: tuple[Kind, ...] = (
    "contradiction", "unsupported", "ambiguity", "omission", "broken-reference", "risk", "other",
)  # fmt: skip
SEVERITIES: tuple[Severity, ...] = ("blocker", "major", "minor", "nit")  # worst first
LABELS: tuple[Label, ...] = ("CONCEDE", "CONCEDE-IN-PART", "DEFER", "REJECT")


@dataclass(frozen=True, slots=True)
class Claim:
    """One objection. start, end: bytes into the body (the file after its front matter); None when unanchored.

    lines: first and last line, 1-based, in the file as it stands after the round's flip.
    cluster: id of the first claim that says the same about the same place (its own id when it is the first).
    """

    id: str
    raised_by: str
    quote: str
    kind: Kind
    problem: str
    severity: Severity
    action: Action
    replacement: str = ""
    start: int | None = None
    end: int | None = None
    lines: tuple[int, int] | None = None
    anchor: Anchor = "unanchored"
    cluster: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"lines": None if self.lines is None else list(self.lines)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Claim:
        lines = data.get("lines")
        return cls(**(data | {"lines": None if lines is None else (int(lines[0]), int(lines[1]))}))


@dataclass(frozen=True, slots=True)
class Amended:
    """What a CONCEDE-IN-PART puts in the place of the claim's own proposal."""

    action: Action
    replacement: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """cause: measured, reply (a model that cannot score), close (two labels too near), engine (no usable answer).

    confidence: corrected, averaged probability of the winning label, 0 to 1; None when it was not measured.
    raw: per label order: {"order": [...], "scores": [...], "prior": [...]} (log-probabilities).
    agree: both label orders put the same label first.
    """

    claim: str
    verdict: Label
    cause: Literal["measured", "reply", "close", "engine", "human"]
    reason: str
    confidence: float | None = None
    agree: bool | None = None
    method: Literal["choices", "none"] = "none"
    amended: Amended | None = None
    probabilities: dict[str, float] = field(default_factory=dict)
    raw: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"raw": list(self.raw)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Verdict:
        amended = data.get("amended")
        return cls(**(data | {"amended": None if amended is None else Amended(**amended), "raw": tuple(data["raw"])}))


@dataclass(frozen=True, slots=True)
class Patch:
    """A change to the body, or (id `H-nn`) a change left to a person, with the reason in `by_hand`.

    start, end: bytes of the body that `replacement` takes the place of; None for H-nn without an anchor.
    diff: unified diff against the file as it stands after the round's flip, exact bytes; empty for H-nn.
    flags: `noop`, `overlaps P-nn`, …
    """

    id: str
    claim: str
    start: int | None
    end: int | None
    replacement: str
    diff: bytes = b""
    by_hand: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tryout:
    """One reviewer's reply, as the record and `tryouts/<persona>.md` show it.

    status: done, or failed with the engine's word in `cause` (degenerate, timeout, error, length, invalid).
    """

    persona: str
    status: Literal["done", "failed"]
    observations: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    open_questions: tuple[str, ...] = ()
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Theme:
    title: str
    text: str
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Synthesis:
    themes: tuple[Theme, ...]
    tensions: tuple[str, ...]
    revisit: tuple[str, ...]  # ids of REJECTed claims


# ---- files ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Document:
    """A markdown file of a round. path: relative to the run's folder. front_matter: keys in order, plain values."""

    path: str
    body: str
    front_matter: tuple[tuple[str, str | int], ...] = ()


# ---- what a flow yields --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Requests whose replies are wanted together; sent back as a tuple of replies, in this order."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """Write this file, durably. Sent back: None."""

    document: Document


@dataclass(frozen=True, slots=True)
class Join:
    """Sub-flows that run side by side. Sent back: a tuple of their results, in this order."""

    flows: tuple[Flow, ...]


Flow = Generator[Ask | Publish | Join, Any, Any]
