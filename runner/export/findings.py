"""From a record (round/1, ask/1, brief/1) to findings; fingerprints; and what an earlier export knew already."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner import claims
from runner.errors import Integrity, Refused, UsageError
from runner.export.model import Edit, Finding, Findings, Gap, as_claim
from runner.export.words import line
from runner.values import LABELS, SEVERITIES

BULK = "bulk/1"
FINGERPRINT = "debateClaim/v1"  # its name in SARIF; a change of the rule is another version


def of_record(
    record: Mapping[str, Any], *, path: str = "", prefix: str = "", front: bytes = b"", body: bytes | None = None
) -> Findings:
    """What a record says. path: where an ask lies (its record does not say). prefix: the folder that the record's paths
    count from, as the project sees it (`project-brain/`). front, body: the artifact's file as it is now; None: it is
    not there. Raises Integrity for a record that is not what this program writes, Refused for an unknown schema.
    """
    readers = {"round/1": _round, "ask/1": _ask, "brief/1": _brief}
    schema = str(record.get("schema")) if isinstance(record, Mapping) else "none"
    if schema not in readers:
        raise Refused(f"not a record that can be exported (schema {line(schema, 40)})", path=path or None)
    try:
        return readers[schema](record, path, prefix, front, body)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        what = f"the record is damaged ({type(error).__name__}: {line(str(error), 80)})"
        raise Integrity(what, path=path or None, hint="restore it from a copy") from None


def of_bulk(row: Mapping[str, Any], prefix: str = "", front: bytes = b"", body: bytes | None = None) -> Findings:
    """One artifact of a bulk/1 report. A row that failed is not complete; one that was skipped says why."""
    try:
        path, status, why = str(row["path"]), row["status"], str(row.get("why") or "")
        record = row.get("record")
        if status not in ("done", "partial", "resumed", "skipped", "failed"):
            raise ValueError(f"status {status}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Integrity(f"the report is damaged ({line(str(error), 80)})") from None
    failed = status in ("failed", "partial")
    if record is None and status not in ("skipped", "failed"):
        status, why, failed = "failed", why or "its record is missing", True
    gaps: tuple[Gap, ...] = (Gap("artifact", why or "it was not reviewed"),) if failed else ()
    if record is None:
        return Findings("", path, prefix + path, path, not failed, status, why, gaps=gaps)
    found = of_record(record, path=path, prefix=prefix, front=front, body=body)
    more = () if status == "partial" and found.gaps else gaps
    return replace(found, status=status, why=why, complete=found.complete and not failed, gaps=more + found.gaps)


# ---- a round -------------------------------------------------------------------------------------------------------


def _round(record: Mapping[str, Any], path: str, prefix: str, front: bytes, body: bytes | None) -> Findings:
    artifact = record["artifact"]
    same = body is not None and hashlib.sha256(body).hexdigest() == artifact["sha256_body"]
    found = tuple(_claims(record, prefix, front, body, same))
    gaps = tuple(_round_gaps(record))
    complete = record["complete"] is True and not gaps
    return Findings(
        schema="round/1", path=str(artifact["path"]), file=prefix + artifact["path"],
        title=str(artifact.get("title") or artifact["path"]), complete=complete,
        status="done" if complete else "partial", why="" if complete else "; ".join(g.text for g in gaps),
        round=int(record["round"]), at=str(record["opened_at"]), fake=bool(record.get("fake")),
        engine=str(record.get("engine") or ""), seconds=_seconds(record), findings=_fingerprinted(found), gaps=gaps,
        warnings=_texts(record["warnings"]), body=body if same else None, first_line=front.count(b"\n") + 1,
        record=record,
    )  # fmt: skip


def _claims(record: Mapping[str, Any], prefix: str, front: bytes, body: bytes | None, same: bool) -> Iterator[Finding]:
    verdicts = {v["claim"]: v for v in record["verdicts"]}
    patches = {p["claim"]: p for p in record["patches"]}
    for c in record["claims"]:
        finding = _finding(c, str(record["artifact"]["path"]), prefix, str(c["raised_by"]))
        finding = replace(
            finding, id=str(c["id"]), cluster=str(c["cluster"] or c["id"]), start=_int(c["start"]), end=_int(c["end"])
        )
        if c["id"] in verdicts:
            finding = _judged(finding, verdicts[c["id"]])
        if c["id"] in patches:
            finding = replace(finding, edit=_edit(patches[c["id"]], finding, body if same else None))
        yield finding if body is None else _placed(finding, front, body, same)


def _finding(c: Mapping[str, Any], path: str, prefix: str, raised_by: str) -> Finding:
    if c["severity"] not in SEVERITIES or c["anchor"] not in ("exact", "ambiguous", "unanchored"):
        raise ValueError(f"severity {c['severity']}, anchor {c['anchor']}")
    lines = None if c["lines"] is None else (int(c["lines"][0]), int(c["lines"][1]))
    return Finding(
        id="", path=path, file=prefix + path, raised_by=raised_by, kind=str(c["kind"]), severity=c["severity"],
        quote=str(c["quote"]), problem=str(c["problem"]), cluster="", fingerprint="", anchor=c["anchor"],
        lines=lines if lines and 1 <= lines[0] <= lines[1] else None,
    )  # fmt: skip


def _judged(finding: Finding, v: Mapping[str, Any]) -> Finding:
    if v["verdict"] not in LABELS:
        raise ValueError(f"verdict {v['verdict']}")
    confidence = None if v["confidence"] is None else float(v["confidence"])
    if confidence is not None and not 0 <= confidence <= 1:  # NaN too, which no minimum would catch
        raise ValueError(f"confidence {confidence}")
    chances = {str(k): float(p) for k, p in v["probabilities"].items()}
    return replace(
        finding, verdict=v["verdict"], cause=str(v["cause"]), reason=str(v["reason"]), confidence=confidence,
        agree=v["agree"], probabilities=chances,
    )  # fmt: skip


def _edit(p: Mapping[str, Any], finding: Finding, body: bytes | None) -> Edit:
    start, end = _int(p["start"]), _int(p["end"])
    old = finding.quote if (start, end) == (finding.start, finding.end) else None
    if body is not None and start is not None and end is not None:
        old = body[start:end].decode("utf-8", "replace")
    flags = _texts(p["flags"])
    return Edit(str(p["id"]), str(p["replacement"]), start, end, old, str(p["by_hand"]), flags)


def _placed(finding: Finding, front: bytes, body: bytes, same: bool) -> Finding:
    """With the lines and columns of the file as it is now. In a body that was changed the quote is sought again."""
    start, end, first = finding.start, finding.end, front.count(b"\n") + 1
    if not same:
        again = claims.anchor(as_claim(finding.quote, finding.problem), body, first)
        start, end = again.start, again.end
    if start is None or end is None or not 0 <= start < end <= len(body):
        return finding
    lines = (first + body.count(b"\n", 0, start), first + body.count(b"\n", 0, end - 1))
    return replace(finding, lines=lines, columns=(column(body, start), column(body, end)))


def column(body: bytes, at: int) -> int:
    """1-based, in code points."""
    return len(body[body.rfind(b"\n", 0, at) + 1 : at].decode("utf-8", "replace")) + 1


def _round_gaps(record: Mapping[str, Any]) -> Iterator[Gap]:
    told = set()
    for p in record["personas"]:
        if p["status"] != "done":
            told.add(f"reviewer/{p['name']}")
            yield Gap("reviewer", f"reviewer {p['name']} gave no usable answer ({p['cause'] or 'no cause noted'})")
    for w in record["coverage"]["not_shown"]:
        if f"reviewer/{w['persona']}" not in told:
            yield Gap("coverage", f"{w['persona']} did not read bytes {w['start']} to {w['end']} of the body")
        told.add(f"reviewer/{w['persona']}")
    for v in record["verdicts"]:
        if v["cause"] == "engine":
            told.add(f"defender/{v['claim']}")
            yield Gap("verdict", f"no usable verdict on {v['claim']}")
    yield from _other_gaps(record["exhausted"], told)


def _other_gaps(keys: Iterable[str], told: Collection[str]) -> Iterator[Gap]:
    """What gave no usable answer and is not named above."""
    for key in keys:
        parts = str(key).split("/")
        known = f"{parts[0]}/{parts[-1]}" in told or "/".join(parts[:2]) in told or _of_claim(parts, told)
        if not known:
            what = {"synthesizer": "synthesis", "defender": "verdict"}.get(parts[0], "reviewer")
            yield Gap(what, f"no usable answer to {key}")


def _of_claim(parts: Sequence[str], told: Collection[str]) -> bool:
    return parts[0] == "defender" and any(f"defender/{p}" in told for p in parts[1:])


# ---- ask and brief -------------------------------------------------------------------------------------------------


def _ask(record: Mapping[str, Any], path: str, prefix: str, _front: bytes, _body: bytes | None) -> Findings:
    seats = [
        Gap("seat", f"{seat['name']} gave no usable answer in round {turn['round']} ({turn['cause']})")
        for seat in record["seats"]
        for turn in seat["rounds"]
        if turn["status"] != "done"
    ]
    gaps = [*seats, *([] if record["synthesis"] else [Gap("synthesis", "there is no synthesis")])]
    gaps += [] if gaps or record["complete"] else [Gap("seat", f"no usable answer to {k}") for k in record["exhausted"]]
    return _debated(record, "ask/1", path, prefix, str(record["question"]), str(record["asked_at"]), (), gaps)


def _brief(record: Mapping[str, Any], path: str, prefix: str, _front: bytes, _body: bytes | None) -> Findings:
    found, firsts = [], dict[tuple[str, str, str], str]()
    for n, c in enumerate(record["concerns"], 1):
        base = _finding(c, str(c["file"]), prefix, str(c["critic"]))
        first = firsts.setdefault((base.path, base.kind, base.quote), f"K-{n:02d}")  # a later round may say it again
        found.append(replace(base, id=f"K-{n:02d}", cluster=first, verdict="unjudged"))
    gaps = [
        Gap("reviewer", f"critic {c['name']} gave no usable answer ({cause})")
        for c in record["critics"]
        for cause in c["failed"]
    ]
    gaps += [Gap("synthesis", f"no merged brief ({c})")] if (c := record["synthesizer_failed"]) else []
    unread = [s for s in record["coverage"] if s["problem"] not in ("", "empty", "missing")]
    gaps += [Gap("file", f"{s['file']}: {s['problem']}") for s in unread]
    gaps += [] if gaps else [Gap("reviewer", f"no usable answer to {key}") for key in record["missing"]]
    where = str(record["path"])
    return _debated(record, "brief/1", where, prefix, str(record["task"]), str(record["opened_at"]), found, gaps)


def _debated(
    record: Mapping[str, Any], schema: str, path: str, prefix: str, title: str, at: str, found: Sequence[Finding],
    gaps: Sequence[Gap],
) -> Findings:  # fmt: skip
    complete = record["complete"] is True and not gaps
    return Findings(
        schema=schema, path=path, file=prefix + path, title=title, complete=complete,
        status="done" if complete else "partial", why="" if complete else "; ".join(g.text for g in gaps), at=at,
        fake=bool(record.get("fake")), engine=str(record.get("engine") or ""), seconds=_seconds(record),
        findings=_fingerprinted(found), gaps=tuple(gaps), warnings=_texts(record["warnings"]), record=record,
    )  # fmt: skip


# ---- values of a record --------------------------------------------------------------------------------------------


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


def _texts(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(str(v) for v in values)


def _seconds(record: Mapping[str, Any]) -> float:
    return round(sum(int(c["ms"]) for c in record["calls"]) / 1000, 3)


# ---- the same finding again ----------------------------------------------------------------------------------------


def fingerprint(path: str, kind: str, quote: str, problem: str) -> str:
    """sha256 (32 hex digits) over path, kind and the quote without its line breaks; the problem only where there is no
    quote: a model words the same problem differently every time. Lines play no part, so a moved passage is the same.
    """
    words = " ".join((quote or problem).split()).casefold()
    parts = json.dumps([path, kind, bool(quote.strip()), words]).encode()
    return hashlib.sha256(parts).hexdigest()[:32]


def _fingerprinted(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Equal ones are counted: `…:1`, `…:2`."""
    seen: Counter[str] = Counter()
    out = []
    for finding in found:
        base = fingerprint(finding.path, finding.kind, finding.quote, finding.problem)
        seen[base] += 1
        out.append(replace(finding, fingerprint=f"{base}:{seen[base]}"))
    return tuple(out)


def known(text: str, path: str) -> frozenset[str]:
    """The fingerprints in an earlier export (json, sarif or codequality). UsageError when it is none."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(
            "not JSON", path=path, hint="--known takes an earlier export: json, sarif or codequality"
        ) from None
    try:
        return frozenset(str(f) for f in _prints(data))
    except (KeyError, TypeError, AttributeError):
        hint = "--known takes what `debate export json`, `sarif` or `codequality` wrote"
        raise UsageError("holds no fingerprints of ours", path=path, hint=hint) from None


def _prints(data: Any) -> Iterator[Any]:
    if isinstance(data, list):
        yield from (x["fingerprint"] for x in data)
    elif "runs" in data:
        yield from (r["partialFingerprints"][FINGERPRINT] for run in data["runs"] for r in run["results"])
    else:
        yield from (f["fingerprint"] for a in data["artifacts"] for f in a["findings"])


def without(found: Findings, prints: Collection[str]) -> Findings:
    """Only what is new: a cluster goes when any of its findings was known. Gaps stay."""
    old = {c[0].cluster for c in found.clusters() if any(f.fingerprint in prints for f in c)}
    left = tuple(f for f in found.findings if f.cluster not in old)
    return replace(found, findings=left, left_out=found.left_out + len(found.findings) - len(left))
