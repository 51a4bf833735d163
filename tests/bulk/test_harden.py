"""Rounds on many artifacts: what becomes of each, and that running again is the resume."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from faults import FaultyDisk, Killed
from helpers import clock, close, open_, profile, replace, tree, write
from many import leaf

from runner import runs, store
from runner.bulk import harden as module
from runner.bulk.harden import Bulk, Row, harden
from runner.bulk.select import Selection, select
from runner.engines.fake import FakeEngine
from runner.errors import RunnerError
from runner.rounds.plan import Options

LIMITS, OTHER = "tree/area/limits.md", "tree/area/other.md"
OPTIONS = Options(personas=("red-team",), feedback="Ready?", allow_dirty=True)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[FakeEngine]:
    """Every engine that is opened."""
    made: list[FakeEngine] = []

    def opened(s: runs.Settings) -> FakeEngine:
        from runner.engines.fake import options_of

        made.append(FakeEngine(options_of(s.profile.fake)))
        return made[-1]

    monkeypatch.setattr("runner.settings.open_engine", opened)
    return made


def run(root: Path, name: str = "fake", wanted: Selection | None = None, **bulk: object) -> dict[str, Row]:
    options = bulk.pop("options", OPTIONS)
    found = select(root, wanted or Selection(), root.parent)
    rows = harden(root, found, Bulk(options, **bulk), runs.settings(name, None, root.parent), clock=clock)
    assert [r.path for r in rows] == [f.path for f in found]
    return {row.path: row for row in rows}


def statuses(rows: dict[str, Row]) -> Counter[str]:
    return Counter(r.status for r in rows.values())


def test_all_on_one_engine(root, engines):
    """Each artifact gets its round and flips; one engine answered them all."""
    rows = run(root)
    assert statuses(rows) == {"done": 5}
    assert len(engines) == 1
    assert {flow for flow, _ in engines[0].submitted} == {f"{p}@round-01" for p in rows}
    for path in rows:
        text = (root / path).read_text()
        assert "hardening" in text or "last_debate_round" in text


def test_running_again_asks_nothing(root, engines):
    """Open rounds about the same body are done, by their record; no engine is opened."""
    first = run(root)
    before = tree(root)
    again = run(root)
    assert len(engines) == 1
    assert tree(root) == before
    assert {p: (r.claims, r.conceded) for p, r in again.items()} == {
        p: (r.claims, r.conceded) for p, r in first.items()
    }
    assert all(r.resumed for r in again.values())


def test_the_order_of_the_rounds_changes_nothing(root, engines, tmp_path):
    """Together or one by one, alone or eight at a time: the same files."""
    from helpers import copy

    apart = copy(root, tmp_path / "apart")
    run(root)
    for path in [f.path for f in select(apart, Selection(), apart.parent)]:
        open_(apart, path, personas=("red-team",), feedback="Ready?", allow_dirty=True)
    assert tree(apart) == tree(root)


def test_a_body_that_changed(root, engines):
    """Skipped, with what to do; it counts as nothing unless --strict."""
    run(root)
    replace(root / LIMITS, "two seconds", "three seconds")
    rows = run(root)
    assert rows[LIMITS] == Row(LIMITS, "skipped", "body changed, close first")
    assert run(root, strict=True)[LIMITS].exit == 1


def test_an_interrupted_round_is_resumed(root, engines):
    """What was answered is not asked again; what failed every try is asked anew."""
    broken = profile(root, "broken", faults={"reviewer/red-team*": "timeout"})
    rows = run(root, broken, Selection((LIMITS,)))
    assert (rows[LIMITS].status, rows[LIMITS].exit) == ("failed", 4)
    assert rows[LIMITS].why.startswith("interrupted: 0 of 1 reviewers answered")
    rows = run(root, wanted=Selection((LIMITS,)))
    assert (rows[LIMITS].status, rows[LIMITS].resumed) == ("done", True)
    assert [key for _, key in engines[1].submitted if key.startswith("reviewer")] == ["reviewer/red-team~3"]


def test_partial_stays_partial(root, engines):
    """An open round with a failed part counts as incomplete each time."""
    half = profile(root, "half", faults={"reviewer/ops-readiness*": "timeout"})
    options = Options(("red-team", "ops-readiness"), feedback="x", allow_dirty=True, min_reviewers=1)
    for _ in range(2):
        rows = run(root, half, Selection((LIMITS,)), options=options)
        assert (rows[LIMITS].status, rows[LIMITS].exit) == ("partial", 4)
        assert rows[LIMITS].why == "no usable answer to reviewer/ops-readiness"


def test_not_eligible(root, engines):
    """Another status, a node: skipped with the reason, and no engine is opened for them."""
    leaf(root, "tree/area/draft.md", "draft")
    rows = run(root, wanted=Selection(("tree/area/draft.md", "tree/area/NODE.md")))
    assert [(r.status, r.exit) for r in rows.values()] == [("skipped", 0)] * 2
    assert rows["tree/area/draft.md"].why == "the leaf's status is draft; a round opens on decided or specified"
    assert not engines
    strict = run(root, wanted=Selection(("tree/area/draft.md",)), strict=True)
    assert strict["tree/area/draft.md"].exit == 1


def test_one_bad_artifact_never_stops_the_rest(root, engines):
    """One that cannot be read, one whose history is unclear, one whose reviewer fails: rows, and the others go on."""
    write(root / "tree/area/bad.md", b"---\nid: [\n---\n")
    write(root / "tree/area/debate/limits/round-x/.keep", b"")
    some = profile(root, "some", faults={"7": "timeout", "8": "timeout"})
    rows = run(root, some)
    assert (rows["tree/area/bad.md"].status, rows["tree/area/bad.md"].exit) == ("failed", 1)
    assert rows[LIMITS].status == "failed"
    assert "not a round: round-x" in rows[LIMITS].why
    assert statuses(rows)["done"] + statuses(rows)["partial"] + statuses(rows)["failed"] == 6
    assert statuses(rows)["done"] >= 2


def test_fail_fast(root, engines):
    """Nothing new begins after a failure; what was not begun says so."""
    replace(root / "threads/webhooks/thread.md", 'status: "active"', "status: [")
    rows = run(root, fail_fast=True)
    assert [r.status for r in rows.values()] == ["failed", *["skipped"] * 4]
    assert {r.why for r in list(rows.values())[1:]} == {"not begun: --fail-fast"}
    assert not engines


def answered(root: Path) -> set[tuple[str, str]]:
    """(round's folder, key) of every reply that is on disk."""
    return {
        (p.parents[1].relative_to(root).as_posix(), json.loads(line)["key"])
        for p in root.rglob("journal.jsonl")
        for line in p.read_text().splitlines()
        if '"reply"' in line and line.endswith("}")
    }


def asked(engines: list[FakeEngine], rows: dict[str, Row], root: Path) -> set[tuple[str, str]]:
    """(round's folder, key) of every request that these engines were given."""
    folder_of = {f"{p}@{r.round.name}": r.round.relative_to(root).as_posix() for p, r in rows.items()}
    return {(folder_of[flow], key) for engine in engines for flow, key in engine.submitted}


def test_an_engine_that_dies(root, engines):
    """The run ends; the next one asks only what was not answered."""
    dying = profile(root, "dying", faults={"9": "crash"})
    with pytest.raises(RunnerError, match="crashed"):
        run(root, dying)
    known = answered(root)
    assert len(known) >= 4
    rows = run(root)
    assert statuses(rows) == {"done": 5}
    assert not asked(engines[1:], rows, root) & known


def test_scratch(root, engines, tmp_path):
    """Rounds go to the folder, of any status; the brain keeps every byte; again is done; a new body is skipped."""
    leaf(root, "tree/area/draft.md", "draft")
    before, scratch = tree(root), tmp_path / "scratch"
    rows = run(root, scratch=scratch)
    assert tree(root) == before
    assert statuses(rows) == {"done": 6}
    place = scratch / "tree/area/draft/round-01"
    assert rows["tree/area/draft.md"].round == place
    assert json.loads((place / ".run/record.json").read_text())["artifact"]["path"] == "tree/area/draft.md"
    assert not list(scratch.rglob("index.md"))
    assert all(r.resumed for r in run(root, scratch=scratch).values())
    replace(root / LIMITS, "two seconds", "three seconds")
    assert run(root, scratch=scratch)[LIMITS].why == "body changed, close first"


def test_what_follows_a_close(root, engines):
    """A closed round is followed by the next."""
    run(root, wanted=Selection((LIMITS,)))
    close(root, LIMITS, "rejected")
    rows = run(root, wanted=Selection((LIMITS,)))
    assert rows[LIMITS].round.name == "round-02"


@pytest.mark.parametrize("nth", range(20, 400, 43))
def test_killed_and_resumed(root, engines, monkeypatch, tmp_path, nth):
    """Killed at any disk operation: the next run ends with the same files as one that was never killed, and no request
    that was answered on disk is asked again."""
    from helpers import copy

    whole = copy(root, tmp_path / "whole")
    run(whole)
    monkeypatch.setattr(store, "disk", FaultyDisk(nth))
    with pytest.raises(Killed):
        run(root)
    monkeypatch.setattr(store, "disk", FaultyDisk(0))
    known = answered(root)
    rows = run(root)
    while any(r.status == "failed" for r in rows.values()):  # stopped before its inputs were stored: abort, as told
        for r in rows.values():
            if r.status == "failed":
                assert "inputs were stored" in r.why
                runs.abort_round(module.artifacts.load(root, root / r.path, None))
        rows = run(root)
    assert statuses(rows) == {"done": 5}
    assert tree(root) == tree(whole)
    assert not asked(engines[2:], rows, root) & known


def test_a_round_opened_without_an_engine_goes_on_with_one(root, engines):
    """Scaffolded first, exit 4; with an engine the same round is finished by it."""
    found = select(root, Selection((LIMITS,)), root.parent)
    none = runs.settings("fake", None, root.parent, engine="none")
    (row,) = harden(root, found, Bulk(OPTIONS), none, clock=clock)
    assert (row.status, row.exit, row.why.split(":")[0]) == ("failed", 4, "scaffolded")
    row = run(root, wanted=Selection((LIMITS,)))[LIMITS]
    assert (row.status, row.resumed, row.round.name) == ("done", True, "round-01")
