"""--fail-on: which findings make a run fail. Pure.

A gate is `none`, or rules with commas between them: `severity[:holding][@minimum][>count]`. severity: that or worse.
holding: conceded (the default; in part counts), deferred, rejected or any. minimum: confidence from 0 to 1; a finding
whose confidence was not measured passes every minimum. count: how many clusters are still allowed (default: none).
What is incomplete is no rule's business: it is exit 4 under every gate, and under none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from runner.errors import EXIT_DONE, EXIT_GATE, EXIT_INCOMPLETE, UsageError, worst
from runner.export.findings import without
from runner.export.model import HOLDINGS, Finding, Findings, Holding
from runner.values import SEVERITIES, Severity

_RULE = re.compile(r"(?P<severity>[a-z]+)(?::(?P<holding>[a-z]+))?(?:@(?P<least>[0-9.]+))?(?:>(?P<count>[0-9]{1,9}))?")
_FORM = "severity[:conceded|deferred|rejected|any][@minimum confidence][>count], e.g. major:conceded@0.6>2"


@dataclass(frozen=True, slots=True)
class Rule:
    """text: as the user wrote it."""

    text: str
    severity: Severity
    holding: Holding | Literal["any"] = "conceded"
    least: float = 0.0
    count: int = 0

    def holds(self, finding: Finding) -> bool:
        """Is it a finding of the kind that is counted, whatever its severity?"""
        sure = finding.confidence is None or finding.confidence >= self.least
        return sure and self.holding in ("any", finding.holding)

    def matches(self, finding: Finding) -> bool:
        """Is it counted?"""
        return self.holds(finding) and _step(finding) <= SEVERITIES.index(self.severity)


Gate = tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Trip:
    """A rule that more clusters match than it allows. worst: the finding that each of them is counted for."""

    rule: Rule
    worst: tuple[Finding, ...]

    def __str__(self) -> str:
        n, rule = len(self.worst), self.rule
        few = ", ".join(f"{f.path}:{f.id}" for f in self.worst[:5]) + (", …" if n > 5 else "")
        return f"--fail-on {rule.text}: {n} {'cluster' if n == 1 else 'clusters'}, {rule.count} allowed ({few})"


def _step(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def parse(text: str) -> Gate:
    """The gate that the user wrote; `none` has no rules. UsageError says which rule is wrong, and how."""
    words = [w.strip() for w in text.split(",")]
    return () if words == ["none"] else tuple(_rule(w) for w in words)


def _rule(text: str) -> Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        alone = text == "none"
        raise UsageError(f"--fail-on: {text!r} is no rule", hint="none stands alone" if alone else f"a rule is {_FORM}")
    severity = next((s for s in SEVERITIES if s == found["severity"]), None)
    if severity is None:
        what = "none stands alone" if text == "none" else f"severities: {', '.join(SEVERITIES)}"
        raise UsageError(f"--fail-on: {found['severity']!r} is no severity", hint=what)
    asked = found["holding"] or "conceded"
    holding: Holding | Literal["any"] | None = next((h for h in HOLDINGS if h == asked), None)
    if holding is None and asked != "any":
        raise UsageError(f"--fail-on: {asked!r} is no verdict", hint=f"verdicts: {', '.join(HOLDINGS)}, any")
    return Rule(text, severity, holding or "any", _least(found["least"]), int(found["count"] or 0))


def _least(text: str | None) -> float:
    try:
        least = float(text or 0)
    except ValueError:
        least = -1.0
    if not 0 <= least <= 1:
        raise UsageError(f"--fail-on: {text!r} is no confidence", hint="a minimum confidence is from 0 to 1: @0.6")
    return least


def tripped(gate: Gate, found: Sequence[Findings], known: Collection[str] = ()) -> tuple[Trip, ...]:
    """The rules that fail. known: fingerprints of findings that do not count any more."""
    new = [without(f, known) for f in found]
    trips = (Trip(rule, tuple(_counted(rule, new))) for rule in gate)
    return tuple(t for t in trips if len(t.worst) > t.rule.count)


def _counted(rule: Rule, found: Sequence[Findings]) -> Iterator[Finding]:
    """Of every cluster that the rule counts, the worst finding."""
    for cluster in (c for f in found for c in f.clusters()):
        matching = [x for x in cluster if rule.matches(x)]
        if matching:
            yield min(matching, key=lambda x: (_step(x), x.id))


def failing(gate: Gate, finding: Finding) -> bool:
    """Does this finding count for a rule? Without rules: is it conceded?"""
    return any(rule.matches(finding) for rule in gate) if gate else finding.holding == "conceded"


def exit_code(trips: Sequence[Trip], found: Sequence[Findings]) -> int:
    """0, 3 when a rule failed, 4 when anything is incomplete: no confidence and no gate makes up for that."""
    gate = EXIT_GATE if trips else EXIT_DONE
    return worst([gate, *(EXIT_INCOMPLETE for f in found if not f.complete)])
