"""What a bulk run came to, as one JSON document (schema `bulk/1`); and the documents of several shards joined."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner import store
from runner.bulk.harden import Row
from runner.errors import RunnerError, UsageError
from runner.settings import Settings, engine_name

SCHEMA = "bulk/1"


def head(s: Settings, wall_s: float, counts: Mapping[str, int], exit_code: int) -> dict[str, Any]:
    """Everything but the artifacts."""
    return {
        "schema": SCHEMA,
        "ok": exit_code == 0,
        "exit": exit_code,
        "counts": dict(counts),
        "wall_s": round(wall_s, 1),
        "settings": {
            "profile": s.source, "engine": engine_name(s),
            "models": {role: m.manifest.name for role, m in s.models.items()},
        },
    }  # fmt: skip


def counts(rows: Sequence[Row]) -> dict[str, int]:
    """How many artifacts came to what; the sum is all of them."""
    found = {"done": 0, "partial": 0, "failed": 0, "skipped": 0}
    for row in rows:
        found[row.status] += 1
    return found


def row_json(root: Path, row: Row) -> dict[str, Any]:
    """A row without its record."""
    return {
        "path": row.path, "status": row.status, "why": row.why, "resumed": row.resumed, "exit": row.exit,
        "round": None if row.round is None else _relative(root, row.round), "claims": row.claims,
        "conceded": row.conceded,
    }  # fmt: skip


def _relative(root: Path, folder: Path) -> str:
    return folder.relative_to(root).as_posix() if root in folder.parents else str(folder)


def write(path: Path, root: Path, rows: Sequence[Row], first: Mapping[str, Any]) -> None:
    """The whole report, each artifact with its record, written one after the other: no more than one is in memory."""
    parts = _parts(root, rows, first)
    try:
        store.make_folder(path.resolve().parent)
        temp = path.with_name(f".{path.name}.debate-tmp")
        with temp.open("w", encoding="utf-8", errors="surrogatepass") as f:
            f.writelines(parts)
        temp.replace(path)
    except OSError as error:
        raise RunnerError(f"the report cannot be written: {error.strerror}", path=str(path), code="disk") from None


def _parts(root: Path, rows: Sequence[Row], first: Mapping[str, Any]) -> Iterator[str]:
    yield json.dumps(dict(first) | {"brain": root.name}, ensure_ascii=False)[:-1] + ', "artifacts": ['
    for i, row in enumerate(rows):
        line = row_json(root, row) | {"record": _record(row)}
        yield (",\n" if i else "\n") + json.dumps(line, ensure_ascii=False)
    yield "\n]}\n"


def _record(row: Row) -> dict[str, Any] | None:
    """As it is on disk; None when the round has none (it failed)."""
    path = None if row.round is None else row.round / ".run" / "record.json"
    if path is None or not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def merge(paths: Sequence[Path]) -> dict[str, Any]:
    """Several reports as one, artifacts ordered by path. UsageError when one is none, or an artifact is in two."""
    if not paths:
        raise UsageError("name the reports to join", hint="debate report merge shard-*.json --out all.json")
    reports = [_load(path) for path in paths]
    artifacts: dict[str, Any] = {}
    for path, report in zip(paths, reports, strict=True):
        for one in report["artifacts"]:
            if one["path"] in artifacts:
                raise UsageError(f"{one['path']} is in two of these reports", path=str(path), hint="are they shards?")
            artifacts[one["path"]] = one
    codes = [r["exit"] for r in reports]
    total = {k: sum(r["counts"][k] for r in reports) for k in ("done", "partial", "failed", "skipped")}
    from runner.errors import worst

    return {
        "schema": SCHEMA, "ok": worst(codes) == 0, "exit": worst(codes), "counts": total,
        "wall_s": max(r["wall_s"] for r in reports), "settings": reports[0]["settings"],
        "brain": reports[0].get("brain", ""), "artifacts": [artifacts[p] for p in sorted(artifacts)],
    }  # fmt: skip


def _load(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", path=str(path)) from None
    except ValueError:
        raise UsageError("this is no JSON", path=str(path), hint="was its run cut off? run that shard again") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or not isinstance(found.get("artifacts"), list):
        raise UsageError("this is no report of `debate harden`", path=str(path))
    return found
