"""What a record says, as every format sees it: findings, and what keeps the review from being whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from runner.values import SEVERITIES, Anchor, Claim, Severity

Holding = Literal["conceded", "deferred", "rejected"]
HOLDINGS: tuple[Holding, ...] = ("conceded", "deferred", "rejected")
Status = Literal["done", "partial", "resumed", "skipped", "failed"]
Level = Literal["error", "warning", "note"]
# Nobody judges a brief's concern, so it stands as it was raised; a claim whose verdict is missing is still open.
_HOLDING: dict[str, Holding] = {
    "CONCEDE": "conceded", "CONCEDE-IN-PART": "conceded", "DEFER": "deferred", "REJECT": "rejected", "": "deferred",
    "unjudged": "conceded",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Edit:
    """The patch of a finding. old: what it takes away; None when that cannot be told. by_hand: why it has no diff.

    start, end: bytes of the body as reviewed; None without a place.
    """

    id: str
    new: str
    start: int | None = None
    end: int | None = None
    old: str | None = None
    by_hand: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim, or one concern of a brief.

    path: of the document, in the words of the record. file: the same from the project's folder, for other programs.
    start, end: bytes of the body as reviewed. lines, columns: first and last, 1-based (columns in code points, the last
    exclusive), in the file as it is now where that can be told, else as recorded. verdict: empty, or `unjudged`.
    probabilities: of the four labels. fingerprint: the same for the same quote and kind, whatever line it moves to.
    """

    id: str
    path: str
    file: str
    raised_by: str
    kind: str
    severity: Severity
    quote: str
    problem: str
    cluster: str
    fingerprint: str
    anchor: Anchor = "unanchored"
    start: int | None = None
    end: int | None = None
    lines: tuple[int, int] | None = None
    columns: tuple[int, int] | None = None
    verdict: str = ""
    cause: str = ""
    reason: str = ""
    confidence: float | None = None
    agree: bool | None = None
    probabilities: Mapping[str, float] = field(default_factory=dict)
    edit: Edit | None = None

    @property
    def holding(self) -> Holding:
        """What the verdict comes to; CONCEDE-IN-PART counts as conceded."""
        return _HOLDING[self.verdict]

    @property
    def level(self) -> Level:
        """How loud other programs are to be about it: by severity, and a step lower when it was deferred."""
        if self.holding == "rejected":
            return "note"
        step = SEVERITIES.index(self.severity) + (self.holding == "deferred")
        return (
            "error" if step == 0 or (step == 1 and self.holding == "conceded") else "warning" if step <= 2 else "note"
        )

    @property
    def rank(self) -> tuple[int, int, str, str]:
        """Worst first: conceded before deferred before rejected, then by severity."""
        return HOLDINGS.index(self.holding), SEVERITIES.index(self.severity), self.path, self.id


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that was not done. what: reviewer, coverage, verdict, synthesis, seat, file or artifact."""

    what: str
    text: str


@dataclass(frozen=True, slots=True)
class Findings:
    """One record. schema: round/1, ask/1 or brief/1; empty for an artifact of a bulk run that has no record.

    path: the artifact from the brain's root, the brief, or the ask's folder; file: the same from the project's folder.
    complete: everything was reviewed and answered. why: of a status other than done. seconds: of all calls together.
    body: the text that was reviewed, when the file still holds it; first_line: of the file on which it begins.
    left_out: findings that were known before. record: as read, for what only a report shows.
    """

    schema: str
    path: str
    file: str
    title: str
    complete: bool
    status: Status = "done"
    why: str = ""
    round: int | None = None
    at: str = ""
    fake: bool = False
    engine: str = ""
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    gaps: tuple[Gap, ...] = ()
    warnings: tuple[str, ...] = ()
    body: bytes | None = None
    first_line: int = 1
    left_out: int = 0
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reviewed(self) -> bool:
        """Is there anything that the findings, or their absence, come from?"""
        return self.schema != ""

    def clusters(self) -> Iterator[tuple[Finding, ...]]:
        """Findings that say the same about the same place, together."""
        groups: dict[str, list[Finding]] = {}
        for finding in self.findings:
            groups.setdefault(finding.cluster, []).append(finding)
        yield from (tuple(group) for group in groups.values())


def as_claim(quote: str, problem: str) -> Claim:
    """A claim to seek the place of."""
    return Claim("", "", quote, "other", problem, "nit", "none")
