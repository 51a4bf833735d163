"""`debate export markdown`: a summary for a step, a comment or a chat, worst first and never over a step's limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from runner.export.json import clusters
from runner.export.model import HOLDINGS, Finding, Findings
from runner.export.words import cut, encodable, plural
from runner.render import fenced, flat, quoted, visible
from runner.values import SEVERITIES

BYTES_MAX = 1_000_000  # a step's summary may take 1 MiB


def write(found: Sequence[Findings]) -> str:
    """Markdown that shows foreign text word for word, and obeys none of it."""
    blocks = [_head(found), *_gaps(found), _table(found), *(_overview(found) if len(found) > 1 else [])]
    size, left = sum(len(_bytes(b)) + 2 for b in blocks), 0
    for block in (*_debates(found), *_findings(found)):
        size += len(_bytes(block)) + 2
        if size > BYTES_MAX - 200:
            left += 1
        else:
            blocks.append(block)
    if left:
        blocks.append(f"{plural(left, 'more finding')} did not fit here.")
    return encodable("\n\n".join(b for b in blocks if b)) + "\n"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _head(found: Sequence[Findings]) -> str:
    n, read = sum(len(f.findings) for f in found), sum(f.reviewed for f in found)
    known = sum(f.left_out for f in found)
    title = f"# Review: {flat(cut(found[0].title, 200))}" if len(found) == 1 else "# Review"
    counts = f"{plural(read, 'document')} reviewed · {plural(n, 'finding')}"
    counts += f" · {known} known before and left out" if known else ""
    counts += "" if all(f.complete for f in found) else " · **INCOMPLETE**"
    fake = ["**FAKE ENGINE: no model was asked; every word is made up.**"] if any(f.fake for f in found) else []
    return "\n\n".join([title, *fake, counts])


def _gaps(found: Sequence[Findings]) -> list[str]:
    lines = [f"- {flat(f.path or f.title)}: {flat(g.text)}" for f in found for g in f.gaps]
    return ["## Not done\n\n" + "\n".join(lines)] if lines else []


def _table(found: Sequence[Findings]) -> str:
    """Clusters by severity and verdict."""
    if not any(f.findings for f in found):
        read = any(f.reviewed for f in found)
        return "Nothing was found." if read and all(f.complete for f in found) else "" if read else "Nothing was read."
    counts = clusters(found)
    rows = [f"| {s} | " + " | ".join(str(counts[h][s] or "–") for h in HOLDINGS) + " |" for s in SEVERITIES]
    return "\n".join(["| | conceded | deferred | rejected |", "|---|--:|--:|--:|", *rows])


def _overview(found: Sequence[Findings]) -> list[str]:
    rows = [
        f"| {_cell(f.path or f.title)} | {f.status if f.complete or f.status != 'done' else 'partial'} | "
        f"{sum(x.holding == 'conceded' for x in f.findings)} of {len(f.findings)} | {_cell(f.why)} |"
        for f in found[:1000]
    ]
    more = [f"\n{plural(len(found) - 1000, 'more document')}."] if len(found) > 1000 else []
    return ["\n".join(["| document | status | conceded | |", "|---|---|--:|---|", *rows, *more])]


def _cell(text: str) -> str:
    return flat(cut(text, 200)) if text else ""


def _findings(found: Sequence[Findings]) -> Iterator[str]:
    every = sorted((x for f in found for x in f.findings), key=lambda x: x.rank)
    if every:
        yield "## Findings"
    for x in every:
        yield _finding(x, len(found) > 1 or x.verdict == "unjudged")


def _finding(x: Finding, with_path: bool) -> str:
    where = (f"{x.path} " if with_path else "") + x.id
    lines = "no place in the document" if x.lines is None else _lines(x.lines)
    facts = [x.severity, flat(x.kind), lines, f"raised by {flat(x.raised_by)}"]
    facts += [f"with {x.cluster}"] if x.cluster != x.id else []
    verdict = "" if x.verdict == "unjudged" else f": {x.verdict or 'no verdict'}{_sure(x)}"
    parts = [f"### {flat(where)}{verdict}", quoted(cut(x.quote, 2000)), f"**{flat(x.problem)}**", " · ".join(facts)]
    parts += [f"Reason: {flat(x.reason)}"] if x.reason else []
    return "\n\n".join(p for p in (*parts, _edit(x)) if p)


def _sure(x: Finding) -> str:
    return "" if x.confidence is None else f" ({x.confidence:.2f})"


def _lines(lines: tuple[int, int]) -> str:
    return f"line {lines[0]}" if lines[0] == lines[1] else f"lines {lines[0]}–{lines[1]}"


def _edit(x: Finding) -> str:
    if x.edit is None:
        return ""
    if x.edit.by_hand:
        return f"{x.edit.id}, by hand: {flat(x.edit.by_hand)}"
    old = [f"-{t}" for t in visible(x.edit.old or x.quote).split("\n")]
    new = [f"+{t}" for t in visible(x.edit.new).split("\n")] if x.edit.new else []
    return f"{x.edit.id}:\n\n{fenced(cut(chr(10).join([*old, *new]), 4000), 'diff')}"


# ---- ask and brief -------------------------------------------------------------------------------------------------


def _debates(found: Sequence[Findings]) -> Iterator[str]:
    for f in found:
        yield from _ask(f.record) if f.schema == "ask/1" else _brief(f.record) if f.schema == "brief/1" else ()


def _ask(record: Any) -> Iterator[str]:
    for seat in record["seats"]:
        said = [t for t in seat["rounds"] if t["status"] == "done"]
        texts = [f"- {flat(a)}" for t in said for a in t["arguments"]]
        position = flat(said[-1]["position"]) if said and said[-1]["position"] else ""
        yield "\n\n".join(p for p in (f"## {flat(seat['name'])}", position, "\n".join(texts)) if p)
    s = record["synthesis"]
    if s:
        tensions = [f"- {flat(t['name'])}: {flat(t['side_a'])} / {flat(t['side_b'])}" for t in s["tensions"]]
        yield "\n\n".join(["## Key tensions", "\n".join(tensions) or "None."])
        yield f"## If forced to pick\n\n{flat(s['pick'])} (confidence: {flat(s['confidence'])}): {flat(s['why'])}"
        yield f"## Strongest counter\n\n{flat(s['counter'])}"


def _brief(record: Any) -> Iterator[str]:
    for title, texts in (
        ("Consensus", [record["consensus"]] if record["consensus"] else []),
        ("Action items", record["action_items"]),
        ("Dissent", record["dissent"]),
    ):
        if texts:
            yield f"## {title}\n\n" + "\n".join(f"- {flat(t)}" for t in texts)
