"""The harbour: thirty leaves in many languages and scripts, all reviewed in one run."""

from __future__ import annotations

import json
import shutil
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers import clock, tree

from runner import runs
from runner.brain import artifact as artifacts
from runner.brain.verify import check, rebuild
from runner.bulk.harden import Bulk, Row, harden
from runner.bulk.select import Selection, select
from runner.rounds.plan import Options

HARBOUR = Path(__file__).parents[1] / "brains" / "harbour"
OPTIONS = Options(personas=("red-team", "seafarer"), feedback="Ready?", allow_dirty=True)
SCRIPTS = {"ARABIC", "CJK", "CYRILLIC", "GREEK", "HEBREW", "HIRAGANA", "LATIN"}
CRLF, BARE = "tree/billing/invoice-run.md", "tree/berths/mooring-lines.md"
NUMBERS = "tree/berths/berth-numbers.md"


@pytest.fixture
def harbour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the brain; its project is the working directory."""
    root = Path(shutil.copytree(HARBOUR, tmp_path / "harbour")) / "project-brain"
    monkeypatch.chdir(root.parent)
    return root


def run(root: Path, *patterns: str) -> dict[str, Row]:
    found = select(root, Selection(patterns), root.parent)
    rows = harden(root, found, Bulk(OPTIONS), runs.settings("fake", None, root.parent), clock=clock)
    return {row.path: row for row in rows}


def claims(row: Row) -> list[dict[str, Any]]:
    assert row.round is not None
    found: list[dict[str, Any]] = json.loads((row.round / ".run/record.json").read_bytes())["claims"]
    return found


def body(root: Path, path: str) -> bytes:
    return artifacts.load(root, root / path, None).body


def codes(root: Path) -> list[tuple[str, str]]:
    report = check(root)
    return [(v.file, v.code) for v in report.errors + report.warnings]


def test_in_order(harbour):
    """No error and no warning, and the two index files are what a rebuild writes."""
    assert codes(harbour) == []
    assert [(path.name, old == new) for path, (old, new) in rebuild(harbour).items()] == [
        ("thread-index.md", True), ("current-state.md", True),
    ]  # fmt: skip


def test_all_in_one_run(harbour):
    """24 leaves and a thread are done, the others skipped for their status; the brain is in order after it."""
    bodies = {path: body(harbour, path) for path in (f.path for f in select(harbour, Selection(), harbour))}
    rows = run(harbour)
    assert Counter(r.status for r in rows.values()) == {"done": 25, "skipped": 7}
    assert sum(path.startswith("tree/") for path in rows) == 30
    assert all("'s status is " in r.why for r in rows.values() if r.status == "skipped")
    assert {path: body(harbour, path) for path in rows} == bodies
    assert codes(harbour) == []


def test_every_quote_is_in_its_document(harbour):
    """Byte for byte, where the claim says; every script of the brain is quoted."""
    done = {path: claims(row) for path, row in run(harbour).items() if row.status == "done"}
    assert all(done.values())
    for path, found in done.items():
        text = body(harbour, path)
        assert [text[c["start"] : c["end"]].decode() for c in found] == [c["quote"] for c in found]
    letters = {x for found in done.values() for c in found for x in c["quote"] if x.isalpha()}
    assert {unicodedata.name(x).split()[0] for x in letters} >= SCRIPTS


def test_line_ends_stay(harbour):
    """CRLF in one leaf and a last line without an end in another, before and after a round."""
    run(harbour, CRLF, BARE)
    crlf, bare = ((harbour / path).read_bytes() for path in (CRLF, BARE))
    assert b"hardening" in crlf
    assert b"hardening" in bare
    assert crlf.count(b"\n") == crlf.count(b"\r\n")
    assert crlf.endswith(b"\r\n")
    assert b"\r" not in bare
    assert not bare.endswith(b"\n")


def test_a_byte_order_mark(harbour):
    """The validator refuses it, a round does not, and it stays."""
    path = harbour / NUMBERS
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert (NUMBERS, "V-06") in codes(harbour)
    assert run(harbour, NUMBERS)[NUMBERS].status == "done"
    assert path.read_bytes().startswith(b"\xef\xbb\xbf---\n")


def test_a_name_with_blanks(harbour):
    """The validator refuses it, a round does not; the round's folder has the name of the leaf."""
    blanks = "tree/berths/berth numbers.md"
    (harbour / NUMBERS).rename(harbour / blanks)
    assert (blanks, "V-21") in codes(harbour)
    row = run(harbour, blanks)[blanks]
    assert (row.status, row.round) == ("done", harbour / "tree/berths/debate/berth numbers/round-01")


def test_without_writing(harbour, tmp_path):
    """A review into a scratch folder leaves every byte of the brain as it was."""
    before = tree(harbour)
    found = select(harbour, Selection(), harbour)
    settings = runs.settings("fake", None, harbour.parent)
    rows = harden(harbour, found, Bulk(OPTIONS, scratch=tmp_path / "out"), settings, clock=clock)
    assert Counter(r.status for r in rows) == {"done": 32}
    assert tree(harbour) == before


def test_no_clock_in_a_prompt(harbour, tmp_path):
    """The same files tomorrow are the same prompts: every request of every leaf, those with linked documents too."""

    def digests(name: str, at: str) -> dict[str, str]:
        found = select(harbour, Selection(), harbour)
        settings = runs.settings("fake", None, harbour.parent)
        rows = harden(harbour, found, Bulk(OPTIONS, scratch=tmp_path / name), settings, clock=lambda: at)
        said = {}
        for row in rows:
            assert row.round is not None
            lines = (row.round / ".run/journal.jsonl").read_text().splitlines()
            said |= {f"{row.path} {d['key']}": d["digest"] for d in map(json.loads, lines) if "digest" in d}
        return said

    today = digests("today", "2026-01-02T03:04:05Z")
    assert len(today) > 32 * 5
    assert digests("tomorrow", "2026-01-03T13:14:15Z") == today
    stored = [json.loads(p.read_bytes()) for p in (tmp_path / "today").rglob("inputs.json")]
    assert any(name == "linked documents" for inputs in stored for name, _ in inputs["review"]["context"])
