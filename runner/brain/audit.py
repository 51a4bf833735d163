"""The audit log: one JSON line per invocation in `<brain>/.audit-log.jsonl`, when the brain's config asks for it.

A failed write never fails the run; a dry run writes none.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from runner import store
from runner.errors import RunnerError

NAME = ".audit-log.jsonl"
SKILL = "multi-agent-debate"
_SECRET_NAME = re.compile(r"(?i)token|secret|passw|api[_-]?key|credential")
_SECRET_VALUE = re.compile(
    r"(?i)\b(?:sk|pk|ghp|gho|ghs|glpat|xox[abp])[-_][\w-]{8,}|\bAKIA[0-9A-Z]{12,}|\beyJ[\w-]{8,}\.[\w-]{8,}"
    r"|(?:token|secret|passw(?:or)?d|api[_-]?key)\s*[=:]\s*\S+"
)


def enabled(root: Path) -> bool:
    """Does `<brain>/config.yaml` say `audit_log: true`?"""
    try:
        data = yaml.safe_load((root / "config.yaml").read_bytes())
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return False
    return isinstance(data, dict) and data.get("audit_log") is True


def line(
    op: str, *, ts: str, version: str, exit_code: int, artifacts: Sequence[str], flags: Mapping[str, Any],
    details: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """One record. flags: as given, None left out, what looks like a secret as `***`."""
    return {
        "schema_version": 1,
        "ts": ts,
        "skill": SKILL,
        "skill_version": version,
        "op": op,
        "actor": _actor(),
        "dry_run": False,
        "exit": exit_code,
        "artifacts": list(artifacts),
        "commit": None,
        "flags": {k: _masked(k, v) for k, v in flags.items() if v not in (None, False, (), [])},
        "details": dict(details),
    }


def _actor() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def _masked(name: str, value: Any) -> Any:
    if _SECRET_NAME.search(name):
        return "***"
    if isinstance(value, (list, tuple)):
        return [_masked(name, v) for v in value]
    return _SECRET_VALUE.sub("***", value) if isinstance(value, str) else value


def write(root: Path, record: Mapping[str, Any]) -> None:
    """Append it; best effort."""
    with contextlib.suppress(RunnerError, OSError, ValueError):
        store.append(root / NAME, (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "replace"))
