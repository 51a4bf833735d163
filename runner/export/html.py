"""`debate export html`: one file with everything in it, that asks nothing of anybody.

The data is JSON in a script element; beyond DATA_PLAIN bytes it is deflated, so that 500 artifacts stay a file one can
mail. The page's policy admits the one script and the one style that are in it, by their sha256, and no request at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from runner import __version__
from runner.export.model import Edit, Finding, Findings
from runner.export.words import cut, shown
from runner.values import LABELS

DATA_PLAIN = 1_000_000
CONTEXT_LINES, CONTEXT_MAX = 3, 400  # of the text before, and after, a quote
TEXT_MAX = 4000
_ASSETS = Path(__file__).parent / "report"


def write(found: Sequence[Findings]) -> str:
    """The report. Foreign text is data: the page shows it as text, whatever it looks like."""
    data = {"version": __version__, "items": [_item(f) for f in found]}
    text = json.dumps(_clean(data), ensure_ascii=False, separators=(",", ":"))
    packed = len(text.encode()) > DATA_PLAIN
    if packed:
        text = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    script = "\n".join(_asset(path.name) for path in sorted(_ASSETS.glob("*.js")))
    style = _asset("report.css")
    page = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    return page.from_string(_asset("report.html.j2")).render(
        title=_title(found), script=script, style=style, script_hash=_hash(script), style_hash=_hash(style),
        data=text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"),
        packed="deflate" if packed else "",
    )  # fmt: skip


def _asset(name: str) -> str:
    """Without carriage returns, which a browser drops before it takes the sha256."""
    return (_ASSETS / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _title(found: Sequence[Findings]) -> str:
    if len(found) == 1:
        return f"Review: {cut(shown(' '.join(found[0].title.split())), 120)}"
    return f"Review of {len(found)} documents"


def _clean(value: Any) -> Any:
    """Every text with what hides in it shown."""
    if isinstance(value, str):
        return cut(shown(value), TEXT_MAX)
    if isinstance(value, Mapping):
        return {str(key): _clean(inner) for key, inner in value.items()}
    return [_clean(inner) for inner in value] if isinstance(value, list | tuple) else value


# ---- one record ----------------------------------------------------------------------------------------------------


def _item(f: Findings) -> dict[str, Any]:
    return {
        "path": f.path, "title": f.title, "schema": f.schema, "round": f.round, "status": f.status, "why": f.why,
        "complete": f.complete, "fake": f.fake, "at": f.at, "seconds": f.seconds, "left": f.left_out,
        "changed": f.schema == "round/1" and f.body is None,
        "gaps": [[g.what, g.text] for g in f.gaps], "warnings": f.warnings,
        "findings": [_finding(x, f) for x in f.findings], "run": _run(f), **_debate(f),
    }  # fmt: skip


def _finding(x: Finding, f: Findings) -> dict[str, Any]:
    body = f.body
    place = None if body is None or x.start is None or x.end is None else context(body, x.start, x.end)
    return {
        "id": x.id, "fp": x.fingerprint, "by": x.raised_by, "kind": x.kind, "sev": x.severity, "quote": x.quote,
        "problem": x.problem, "cluster": x.cluster, "verdict": x.verdict, "hold": x.holding, "cause": x.cause,
        "reason": x.reason, "conf": x.confidence, "agree": x.agree, "lines": x.lines, "anchor": x.anchor,
        "p": [round(x.probabilities.get(label, 0.0), 4) for label in LABELS] if x.probabilities else None,
        "file": x.path if x.path != f.path else None, "ctx": place, "edit": _edit(x.edit, x, body),
    }  # fmt: skip


def context(body: bytes, start: int, end: int) -> tuple[str, str]:
    """What stands before and after these bytes: the rest of their lines, and CONTEXT_LINES more on either side."""
    before = body[:start].decode("utf-8", "replace").replace("\r\n", "\n")
    after = body[end:].decode("utf-8", "replace").replace("\r\n", "\n")
    above = "\n".join(before.split("\n")[-CONTEXT_LINES - 1 :]).lstrip("\n")
    below = "\n".join(after.split("\n")[: CONTEXT_LINES + 1]).rstrip("\n")
    return ("…" if len(above) > CONTEXT_MAX else "") + above[-CONTEXT_MAX:], cut(below, CONTEXT_MAX)


def _edit(edit: Edit | None, x: Finding, body: bytes | None) -> dict[str, Any] | None:
    """ctx only where the edit takes other bytes than the quote."""
    if edit is None:
        return None
    out: dict[str, Any] = {"id": edit.id, "new": edit.new, "hand": edit.by_hand, "flags": edit.flags}
    if edit.old is not None and edit.old != x.quote:
        out["old"] = edit.old
        if body is not None and edit.start is not None and edit.end is not None:
            out["ctx"] = context(body, edit.start, edit.end)
    return out


# ---- how it was run ------------------------------------------------------------------------------------------------


def _run(f: Findings) -> dict[str, Any]:
    r = f.record
    keys = ("mode", "scope", "version", "sampling", "margin", "skipped", "diagnostics", "synthesis", "rounds", "notes")
    people = r.get("personas") or r.get("critics") or []
    return {key: r[key] for key in keys if r.get(key) is not None and f.schema != "ask/1"} | {
        "engine": f.engine,
        "personas": [_persona(p) for p in people if isinstance(p, Mapping)],
        "models": [_model(m) for m in r.get("models", ())],
        "steps": list(_steps(r.get("calls", ()))),
        "coverage": _coverage(f),
    }


def _persona(p: Mapping[str, Any]) -> dict[str, Any]:
    failed = bool(p.get("failed")) or p.get("status", "done") != "done"
    return {
        "name": p.get("name"), "failed": failed, "cause": p.get("cause") or ", ".join(p.get("failed") or ()),
        "source": p.get("source", ""), "observations": p.get("observations", ()),
        "questions": p.get("open_questions", ()),
    }  # fmt: skip


def _model(m: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("role", "name", "quantisation", "sha256", "manifest_sha256")
    return {key: str(m[key]) for key in keys if m.get(key)}


def _steps(calls: Sequence[Mapping[str, Any]]) -> Iterator[list[Any]]:
    """[step, calls, ms, tokens in, of them shared, tokens out] for each part of the round, in order of appearance."""
    rows: dict[str, list[Any]] = {}
    for call in calls:
        name = "/".join(str(call["key"]).split("~")[0].split("/")[:2])
        name = "defender" if name.startswith("defender") else name
        row = rows.setdefault(name, [name, 0, 0, 0, 0, 0])
        facts = (1, call["ms"], call["tokens_in"], call["tokens_cached"], call["tokens_out"])
        row[1:] = [a + int(b) for a, b in zip(row[1:], facts, strict=True)]
    yield from rows.values()


def _coverage(f: Findings) -> dict[str, Any] | None:
    """bytes of the body, and which of them each persona read; for a brief, what of each file was shown."""
    c = f.record.get("coverage")
    if f.schema == "round/1" and isinstance(c, Mapping):
        who = [[p["name"], [[w["start"], w["end"]] for w in p["windows"]]] for p in c.get("personas", ())]
        return {"bytes": c.get("bytes"), "personas": who, "context": c.get("context", ())}
    if f.schema == "brief/1" and isinstance(c, list):
        return {"files": [[s.get("file"), s.get("bytes"), s.get("shown_bytes"), s.get("problem", "")] for s in c]}
    return None


def _debate(f: Findings) -> dict[str, Any]:
    keys = {
        "ask/1": ("question", "format", "why", "seats", "ended", "synthesis"),
        "brief/1": ("consensus", "action_items", "dissent", "nothing_left"),
    }.get(f.schema, ())
    return {"debate": {key: f.record.get(key) for key in keys}} if keys else {}
