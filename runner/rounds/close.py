"""Closing a round. `.run/close.json` is written first; while it exists, the next command finishes that close.

Order: close.json, open-issues.md (REJECTs flagged by a person), the index row, the seed, the front matter, the
baseline; then close.json goes. Each step can be done again without harm.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import render, store
from runner.brain import front_matter, history, index
from runner.brain.artifact import Artifact, load
from runner.brain.root import kind, read_bytes, shown
from runner.errors import Integrity, Refused
from runner.rounds import seed
from runner.rounds.folder import Round, load_record, sweep
from runner.values import Claim, Verdict

STATUSES = ("applied", "partial", "rejected")


@dataclass(frozen=True, slots=True)
class Closed:
    """restored: the leaf's status; None for a thread. seeded: issues are carried forward."""

    place: Round
    patches_status: str
    restored: str | None
    seeded: bool
    files: tuple[str, ...]


def current(artifact: Artifact) -> tuple[Round, history.State]:
    """The artifact's highest round and its state. Refused when it has none."""
    folder = history.history_folder(artifact)
    found = history.state(artifact, folder) if kind(folder) != "missing" else history.RoundState(None, "none")
    if found.number is None:
        raise Refused("this artifact has no round", path=shown(artifact.path), hint="open one with `debate open`")
    return Round(folder, found.number, artifact.relative), found.state


def check(artifact: Artifact, patches_status: str | None) -> Round:
    """Close's preconditions (6). Returns the round to close; a close under way passes whatever it was told."""
    place, state = current(artifact) if _has_round(artifact) else (None, "none")
    where = shown(artifact.path)
    if place is not None and state == "closing":
        return place
    if place is not None and state in ("interrupted", "aborting"):
        hint = f"`debate resume {where}` finishes it, `debate abort {where}` removes it"
        raise Refused(f"{place.name} was interrupted and cannot be closed", path=where, hint=hint, code=state)
    if artifact.scope == "leaf" and artifact.status != "hardening":
        raise Refused(
            f"the leaf's status is {artifact.status or '(none)'}; close wants hardening", path=where,
            hint="open a round first: debate open " + where,
        )  # fmt: skip
    if place is None or state != "open":
        rows = "no round" if place is None else f"{place.name} is {state}"
        raise Refused(f"No open round: {rows} in debate/index.md", path=where, hint="open one with `debate open`")
    if kind(place.folder / "proposed-patches.md") == "missing":
        raise Refused("proposed-patches.md is missing", path=shown(place.folder), hint="restore it from a copy")
    if patches_status not in STATUSES:
        given = "is missing" if patches_status is None else f"cannot be {patches_status!r}"
        raise Refused(f"patches_status {given}", hint="--patches-status applied|partial|rejected")
    _check_restore(artifact)
    return place


def _has_round(artifact: Artifact) -> bool:
    folder = history.history_folder(artifact)
    return kind(folder) != "missing" and bool(history.rounds(folder))


def close(
    place: Round, artifact: Artifact, patches_status: str | None, closed_at: str, revisit: tuple[str, ...] = ()
) -> Closed:
    """Do it, or finish one that was interrupted (its own status and time stand)."""
    with store.Lock(place.history):
        artifact = load(artifact.root, artifact.path, None)
        if check(artifact, patches_status) != place:
            raise Refused("another round was opened meanwhile", path=shown(place.history), hint="run this again")
        sweep(place, artifact)
        path = place.run / "close.json"
        if kind(path) == "missing":
            intent = _intend(place, artifact, str(patches_status), closed_at, revisit)
            store.make_folder(place.run)
            store.write_atomic(path, (json.dumps(intent, indent=1) + "\n").encode())
        else:
            intent = _intent(place)
        for name in _ORDER:
            _carry_out(place, artifact, intent, name)
        _forget(path)
    files = tuple(_shown(place, artifact, name) for name in _ORDER if _changes(intent, name))
    return Closed(place, intent["patches_status"], intent["restored"], _changes(intent, "seed"), files)


def undo(place: Round, artifact: Artifact) -> None:
    """Take an interrupted close back: whole files where nobody else wrote since, else only what close changed."""
    with store.Lock(place.history):
        sweep(place, artifact)
        intent = _intent(place)
        for name in reversed(_ORDER):
            _take_back(place, artifact, intent, name)
        _forget(place.run / "close.json")


def _forget(path: Path) -> None:
    """The close is over. A round of the pack's had no `.run/`, and has none afterwards."""
    store.remove(path)
    with contextlib.suppress(OSError):  # not empty: it is the round's own
        path.parent.rmdir()


# ---- what close writes ---------------------------------------------------------------------------------------------

_ORDER = ("issues", "index", "seed", "artifact", "baseline")  # the specification's steps 4 to 7, after the issues


def _paths(place: Round, artifact: Artifact) -> dict[str, Path]:
    return {
        "issues": place.folder / "open-issues.md",
        "index": place.history / "index.md",
        "seed": place.history / seed.NAME,
        "artifact": artifact.path,
        "baseline": place.folder / "baseline.md",
    }


def _shown(place: Round, artifact: Artifact, name: str) -> str:
    return _paths(place, artifact)[name].relative_to(artifact.directory).as_posix()


def _bytes(path: Path) -> bytes | None:
    return None if kind(path) == "missing" else read_bytes(path)


def _intend(
    place: Round, artifact: Artifact, patches_status: str, closed_at: str, revisit: tuple[str, ...]
) -> dict[str, Any]:
    """close.json: what is to be done, and of each file the bytes before and after."""
    check_revisit(place, revisit)
    intent: dict[str, Any] = {
        "patches_status": patches_status,
        "closed_at": closed_at,
        "revisit": list(dict.fromkeys(revisit)),
        "restored": artifact.front.text("pre_hardening_status") if artifact.scope == "leaf" else None,
        "files": {},
    }
    after: dict[str, bytes | None] = {}
    for name, path in _paths(place, artifact).items():
        old = _bytes(path)
        after[name] = _new(place, artifact, intent, name, old, after)
        intent["files"][name] = {"old": _packed(old), "new": _packed(after[name])}
    return intent


def _new(
    place: Round, artifact: Artifact, intent: dict[str, Any], name: str, old: bytes | None,
    after: Mapping[str, bytes | None],
) -> bytes | None:  # fmt: skip
    """What a file is to hold. after: the files before it in _ORDER, as they will be."""
    if name == "issues":
        return None if old is None else _with_issues(place, old, intent["revisit"])
    if name == "index":
        return _closed_row(place, artifact, intent, old)
    if name == "seed":
        return _seed(intent, old, after["issues"])
    if name == "artifact" and artifact.scope == "leaf":
        assert old is not None
        changes = [("status", str(intent["restored"])), ("pre_hardening_status", None)]
        return front_matter.edit(old, changes, shown(artifact.path))
    return old if name == "artifact" else after["artifact"]


def _packed(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _unpacked(intent: dict[str, Any], name: str, which: str) -> bytes | None:
    text = intent["files"][name][which]
    return None if text is None else base64.b64decode(text)


def _changes(intent: dict[str, Any], name: str) -> bool:
    found = intent["files"][name]
    return bool(found["old"] != found["new"])


def _carry_out(place: Round, artifact: Artifact, intent: dict[str, Any], name: str) -> None:
    path = _paths(place, artifact)[name]
    now, old, new = _bytes(path), _unpacked(intent, name, "old"), _unpacked(intent, name, "new")
    if now not in (old, new) and name in ("issues", "index", "artifact"):
        new = _new(place, artifact, intent, name, now, {})  # someone wrote meanwhile: their bytes stay
    if new is not None and new != now:
        store.write_atomic(path, new)


def _take_back(place: Round, artifact: Artifact, intent: dict[str, Any], name: str) -> None:
    path = _paths(place, artifact)[name]
    now, old, new = _bytes(path), _unpacked(intent, name, "old"), _unpacked(intent, name, "new")
    if now == old or new == old:
        return
    if now == new and old is None:
        store.remove(path)
    elif now == new and old is not None:
        store.write_atomic(path, old)
    elif name == "artifact" and now is not None and artifact.scope == "leaf":
        changes = [("status", "hardening"), ("pre_hardening_status", str(intent["restored"]))]
        store.write_atomic(path, front_matter.edit(now, changes, shown(path)))
    elif name == "index" and now is not None:
        row = {"Round": place.name, "Status": "open", "Patches": "", "Closed": "", "Close commit": "(pending)"}
        store.write_atomic(path, _row(place, artifact, intent, row, now))


def _intent(place: Round) -> dict[str, Any]:
    path = place.run / "close.json"
    try:
        intent = json.loads(read_bytes(path))
        if intent["patches_status"] in STATUSES and set(intent["files"]) == set(_ORDER):
            for name in _ORDER:
                _unpacked(intent, name, "old"), _unpacked(intent, name, "new")
            return dict(intent)
    except (ValueError, KeyError, TypeError):
        pass
    raise Integrity("the interrupted close cannot be read", path=shown(path), hint="remove this file and close again")


def _check_restore(artifact: Artifact) -> None:
    value = artifact.front.text("pre_hardening_status")
    if artifact.scope == "leaf" and value not in ("decided", "specified"):
        raise Refused(
            f"pre_hardening_status is {value or 'missing'}; it must be decided or specified", path=shown(artifact.path),
            line=artifact.front.lines.get("pre_hardening_status"), hint="set it to the status before the round",
        )  # fmt: skip


def _closed_row(place: Round, artifact: Artifact, intent: dict[str, Any], old: bytes | None) -> bytes:
    """Step 4. A row that is missing (a round of the pack's) is added."""
    status = "abandoned" if intent["patches_status"] == "rejected" else "closed"
    row = {
        "Round": place.name, "Status": status, "Patches": str(intent["patches_status"]),
        "Closed": str(intent["closed_at"]), "Close commit": "(pending)",
    }  # fmt: skip
    return _row(place, artifact, intent, row, old)


def _row(place: Round, artifact: Artifact, intent: dict[str, Any], row: Mapping[str, str], old: bytes | None) -> bytes:
    return index.set_row(
        old, row, path=shown(place.history / "index.md"), index_id=f"{artifact.slug}-debate",
        created_at=str(intent["closed_at"]), title=artifact.title,
    )  # fmt: skip


def _seed(intent: dict[str, Any], old: bytes | None, issues: bytes | None) -> bytes | None:
    """Step 5: open issues are carried forward when patches were applied, in full or in part."""
    if intent["patches_status"] == "rejected" or issues is None:
        return old
    return issues if seed.holds_entries(issues.decode("utf-8", "replace")) else old


# ---- REJECTs that a person wants to see again ----------------------------------------------------------------------


def _rejects(place: Round) -> dict[str, tuple[Claim, Verdict]]:
    record = load_record(place)
    if record is None:
        raise Refused(
            "this round has no record, so --revisit cannot find its claims", path=shown(place.folder),
            hint="add the issue to open-issues.md by hand",
        )  # fmt: skip
    claims = {c["id"]: Claim.from_json(c) for c in record["claims"]}
    verdicts = [Verdict.from_json(v) for v in record["verdicts"]]
    return {v.claim: (claims[v.claim], v) for v in verdicts if v.verdict == "REJECT"}


def check_revisit(place: Round, revisit: tuple[str, ...]) -> None:
    """Refused when one of these claims was not REJECTed in this round."""
    if not revisit:
        return
    rejects = _rejects(place)
    unknown = [claim for claim in revisit if claim not in rejects]
    if unknown:
        known = ", ".join(sorted(rejects)) or "none"
        raise Refused(f"not a REJECTed claim: {', '.join(unknown)}", hint=f"REJECTed claims of {place.name}: {known}")


def _with_issues(place: Round, raw: bytes, revisit: Sequence[str]) -> bytes:
    """open-issues.md with an entry for each flagged REJECT that has none yet; every other byte stays."""
    if not revisit:
        return raw
    text = raw.decode("utf-8", "replace")
    rejects = _rejects(place)
    about = render.About("", place.number, "", "")
    missing = [i for i in revisit if f"## {place.name}/{i} " not in text]
    entries = [render.issue(*rejects[i], about) for i in missing]
    return raw.rstrip(b"\n") + b"".join(b"\n\n" + e.encode() for e in entries) + b"\n" if entries else raw
