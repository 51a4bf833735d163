"""The audit log: opt-in, one line per invocation, secrets masked, never in the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.brain import audit


def record(**flags: object) -> dict[str, object]:
    """A line with these flags."""
    return audit.line(
        "open", ts="2026-01-02T03:04:05Z", version="1", exit_code=0, artifacts=["tree/a.md"], flags=flags,
        details={"round_number": 1},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("config", "expected"),
    [("audit_log: true\n", True), ("audit_log: yes please\n", False), ("audit_log: false\n", False), ("- a\n", False),
     ("a: [\n", False), ("", False)],
)  # fmt: skip
def test_opt_in(tmp_path: Path, config: str, expected: bool) -> None:
    """Only a plain true; an unreadable configuration is no."""
    (tmp_path / "config.yaml").write_text(config)
    assert audit.enabled(tmp_path) is expected


def test_off_without_a_configuration(tmp_path: Path) -> None:
    """The file is optional."""
    assert audit.enabled(tmp_path) is False


def test_fields_and_masked_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field of the record; what was not given is left out."""
    monkeypatch.setattr(audit.getpass, "getuser", lambda: "mara")
    line = record(feedback="use token=abc123 here", api_key="x", personas=["a", "sk-abcdefghijkl"], brain=None)
    assert line == {
        "schema_version": 1, "ts": "2026-01-02T03:04:05Z", "skill": "multi-agent-debate", "skill_version": "1",
        "op": "open", "actor": "mara", "dry_run": False, "exit": 0, "artifacts": ["tree/a.md"], "commit": None,
        "flags": {"feedback": "use *** here", "api_key": "***", "personas": ["a", "***"]},
        "details": {"round_number": 1},
    }  # fmt: skip


def test_lines_are_appended(tmp_path: Path) -> None:
    """One JSON line each."""
    audit.write(tmp_path, record(a=1))
    audit.write(tmp_path, record(a=2))
    lines = (tmp_path / audit.NAME).read_text().splitlines()
    assert [json.loads(x)["flags"] for x in lines] == [{"a": 1}, {"a": 2}]


def test_a_failed_write_is_no_failure(tmp_path: Path) -> None:
    """A folder in its place, a folder that is gone."""
    (tmp_path / audit.NAME).mkdir()
    audit.write(tmp_path, record())
    audit.write(tmp_path / "gone", record())
