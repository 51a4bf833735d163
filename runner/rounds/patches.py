"""debate patches: show a round's patches against the file as it stands, and apply some of them, all or nothing.

`.run/applied.jsonl` (committed) has one line per application, written before the artifact: the ids and the sha256 of
the body it will leave. The body is equal to the last line's (applied), to the one before (that last one never got
through), or someone else changed it, and then nothing is applied.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner import claims, store
from runner.brain.artifact import Artifact
from runner.brain.root import kind, read_bytes, shown
from runner.errors import Integrity, Refused
from runner.rounds.folder import Round, load_record, sha256
from runner.values import Claim, Patch, Verdict


@dataclass(frozen=True, slots=True)
class Shown:
    """A patch with what it is about. state: open, applied, superseded (it overlaps an applied one), by hand.

    diff: against the file as it stands; empty unless the patch is open and the body is one that we know.
    """

    patch: Patch
    claim: Claim
    verdict: Verdict
    state: str
    diff: bytes


@dataclass(frozen=True, slots=True)
class _State:
    patches: tuple[Patch, ...]
    claims: dict[str, Claim]
    verdicts: dict[str, Verdict]
    applied: tuple[str, ...]
    known: bool  # the body is the reviewed one, or what our own applications made of it


def show(place: Round, artifact: Artifact) -> tuple[Shown, ...]:
    """All patches of the round, in order."""
    s = _state(place, artifact)
    return tuple(
        Shown(p, s.claims[p.claim], s.verdicts[p.claim], _word(s, p), _open_diff(s, p, artifact)) for p in s.patches
    )


def doubts(place: Round, artifact: Artifact, status: str) -> list[str]:
    """For close: what speaks against this patches_status, as far as the file shows."""
    s = _state(place, artifact)
    untouched = s.known and not s.applied
    left = [p.id for p in s.patches if _word(s, p) == "open"] if s.known else []
    if status == "applied" and s.patches and untouched:
        return ["patches are said to be applied, but the body is as it was reviewed"]
    if status == "applied" and left:
        return [f"patches are said to be applied, but these are not: {', '.join(left)}"]
    if status == "partial" and untouched:
        return ["patches are said to be partly applied, but the body is as it was reviewed"]
    if status == "rejected" and not untouched:
        return ["patches are said to be rejected, but the body has changed since the review"]
    return []


def _word(s: _State, p: Patch) -> str:
    """The same edit under two ids is one edit: with one applied, so is the other."""
    if p.by_hand:
        return "by hand"
    done = [d for d in s.patches if d.id in s.applied]
    if any(_edit(p) == _edit(d) for d in done):
        return "applied"
    return "superseded" if any(claims.overlap(p, d) for d in done) else "open"


def _edit(p: Patch) -> tuple[int | None, int | None, str]:
    return p.start, p.end, p.replacement


def _open_diff(s: _State, p: Patch, artifact: Artifact) -> bytes:
    if _word(s, p) != "open" or not s.known:
        return b""
    front = artifact.raw[: artifact.front.body_start]
    new = claims.apply(artifact.body, [_shifted(p, s)])
    return claims.diff(artifact.raw, front + new, f"{artifact.root.name}/{artifact.relative}")


def apply(place: Round, artifact: Artifact, wanted: Sequence[str]) -> tuple[str, ...]:
    """Apply the patches with these ids (`all`: every open one). Refused for an unknown, applied or by-hand id, and for
    patches that overlap; Integrity when the body was changed by anyone else. Returns the ids applied."""
    with store.Lock(place.history):
        s = _state(place, artifact)
        ids = _chosen(s, wanted, place)
        if not s.known:
            raise Integrity(
                "the body was changed since the round, so its patches do not fit any more", path=shown(artifact.path),
                hint="apply what you accept by hand, from proposed-patches.md",
            )  # fmt: skip
        chosen = [p for p in s.patches if p.id in ids]
        body = claims.apply(artifact.body, [_shifted(p, s) for p in chosen])
        path = _log(place)
        if path.exists() and path.stat().st_size != (whole := len(_whole(path))):
            store.cut(path, whole)
        line = {"patches": ids, "sha256": sha256(body)}
        store.append(path, (json.dumps(line) + "\n").encode())
        store.write_atomic(artifact.path, artifact.raw[: artifact.front.body_start] + body)
    return tuple(ids)


def _chosen(s: _State, wanted: Sequence[str], place: Round) -> list[str]:
    words = {p.id: _word(s, p) for p in s.patches}
    if list(wanted) == ["all"]:
        ids = [i for i, word in words.items() if word == "open"]
        if not ids:
            raise Refused("no patch of this round is open", path=shown(place.folder))
        return ids
    for i in wanted:
        if words.get(i) != "open":
            listed = ", ".join(k for k, word in words.items() if word == "open") or "none"
            what = f"{i} is {words[i]}" if i in words else f"there is no {i}"
            if words.get(i) == "superseded":
                what = f"{i} overlaps a patch that is applied"
            raise Refused(what, path=shown(place.folder), hint=f"open patches: {listed}")
    return list(dict.fromkeys(wanted))


def _shifted(p: Patch, s: _State) -> Patch:
    """The patch at its place in the body as the applied ones left it."""
    assert p.start is not None and p.end is not None
    moved = 0
    for start, end, text in {_edit(d) for d in s.patches if d.id in s.applied}:
        if start is not None and end is not None and end <= p.start:
            moved += len(text.encode()) - (end - start)
    return replace(p, start=p.start + moved, end=p.end + moved)


# ---- what was applied ----------------------------------------------------------------------------------------------


def _log(place: Round) -> Path:
    return place.run / "applied.jsonl"


def _state(place: Round, artifact: Artifact) -> _State:
    record = load_record(place)
    if record is None:
        raise Refused(
            "this round has no record (.run/record.json): it was not made by debate-runner", path=shown(place.folder),
            hint="apply its patches by hand",
        )  # fmt: skip
    now = sha256(artifact.body)
    lines = _lines(place)
    if lines and lines[-1]["sha256"] != now:
        before = lines[-2]["sha256"] if len(lines) > 1 else record["artifact"]["sha256_body"]
        if before == now:  # the last application was noted and never got through
            lines = lines[:-1]
    expected = lines[-1]["sha256"] if lines else record["artifact"]["sha256_body"]
    return _State(
        patches=tuple(Patch(**(p | {"flags": tuple(p["flags"])})) for p in record["patches"]),
        claims={c["id"]: Claim.from_json(c) for c in record["claims"]},
        verdicts={v["claim"]: Verdict.from_json(v) for v in record["verdicts"]},
        applied=tuple(i for line in lines for i in line["patches"]),
        known=expected == now,
    )


def _whole(path: Path) -> bytes:
    """Without a last line that a kill tore: nothing was applied for it."""
    raw = read_bytes(path)
    return raw[: raw.rfind(b"\n") + 1]


def _lines(place: Round) -> list[dict[str, Any]]:
    path = _log(place)
    if kind(path) == "missing":
        return []
    found = []
    for number, text in enumerate(_whole(path).splitlines(), 1):
        try:
            line = json.loads(text)
            found.append({"patches": [str(i) for i in line["patches"]], "sha256": str(line["sha256"])})
        except (ValueError, TypeError, KeyError):
            raise Integrity("this line cannot be read", path=shown(path), line=number) from None
    return found
