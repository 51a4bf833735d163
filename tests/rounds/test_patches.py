"""debate patches: shown against the file as it stands, applied all or nothing, never on a changed body."""

from __future__ import annotations

import json

import pytest
from faults import FaultyDisk, Killed
from helpers import LEAF, close, load, make, open_, place_of, record, replace

from runner import claims, store
from runner.errors import Integrity, Refused
from runner.rounds import patches
from runner.values import Claim

FIRST = "Nobody has measured whether it is enough."
SECOND = "Most failures are noticed quickly."
WIDE = "The limit is the same for all shops. Nobody has measured whether it is enough."


def own(quote, action, text=""):
    """A claim of a person."""
    return Claim("", "human", quote, "other", f"About {quote[:12]}.", "major", action, text)


@pytest.fixture
def opened(root, script, monkeypatch):
    """A round in which every claim of a person is conceded, and nothing else is raised."""
    from runner.protocols import defender

    def conceded(claim, reason, *_):
        return defender.Verdict(claim, "CONCEDE", "measured", reason, 0.9, True, "choices")

    monkeypatch.setattr(defender, "verdict_of", conceded)

    def go(*given):
        open_(root, claims=given, ad_hoc=(), personas=("red-team",))
        return place_of(root)

    return go


def states(root, place):
    """id -> state, of the claims of a person."""
    mine = {c["id"] for c in record(place)["claims"] if c["raised_by"] == "human"}
    return {s.patch.id: s.state for s in patches.show(place, load(root)) if s.claim.id in mine}


def test_apply_one_then_the_other(root, opened):
    """Offsets of what is left move with what was applied; the front matter keeps every byte."""
    place = opened(own(FIRST, "replace", "We measured it."), own(SECOND, "replace", "Failures are seen late or never."))
    head = load(root).raw[: load(root).front.body_start]
    assert states(root, place) == {"P-01": "open", "P-02": "open"}
    assert patches.apply(place, load(root), ["P-02"]) == ("P-02",)
    assert patches.apply(place, load(root), ["P-01"]) == ("P-01",)
    raw = (root / LEAF).read_bytes()
    assert raw.startswith(head) and b"We measured it." in raw and b"Failures are seen late or never." in raw
    assert FIRST.encode() not in raw and SECOND.encode() not in raw
    assert states(root, place) == {"P-01": "applied", "P-02": "applied"}
    lines = [json.loads(x) for x in (place.run / "applied.jsonl").read_text().splitlines()]
    assert [x["patches"] for x in lines] == [["P-02"], ["P-01"]]


def test_diffs_are_against_the_file_as_it_stands(root, opened):
    """After one is applied, the other's diff applies to what is there."""
    place = opened(own(FIRST, "replace", "We measured\nit twice."), own(SECOND, "delete"))
    patches.apply(place, load(root), ["P-01"])
    (left,) = [s for s in patches.show(place, load(root)) if s.state == "open" and s.claim.raised_by == "human"]
    artifact = load(root)
    assert b"-A failed start is reported to the team. Most failures are noticed quickly.\n" in left.diff
    patches.apply(place, artifact, [left.patch.id])
    assert b"A failed start is reported to the team. \n" in (root / LEAF).read_bytes()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [(["P-09"], "there is no P-09"), (["P-01", "P-09"], "there is no P-09"), (["all", "P-01"], "there is no all")],
)
def test_all_or_nothing(root, opened, wanted, message):
    """One wrong id, and nothing is applied."""
    place = opened(own(FIRST, "replace", "We measured it."))
    before = (root / LEAF).read_bytes()
    with pytest.raises(Refused, match=message):
        patches.apply(place, load(root), wanted)
    assert (root / LEAF).read_bytes() == before and not (place.run / "applied.jsonl").exists()


def test_overlapping_patches_are_refused_together_and_one_after_the_other(root, opened):
    """Both named; each alone applies, and then the other does not fit any more."""
    place = opened(own(FIRST, "replace", "We measured it."), own(WIDE, "replace", "Limits differ."))
    with pytest.raises(Refused, match="P-01 and P-02"):
        patches.apply(place, load(root), ["P-01", "P-02"])
    patches.apply(place, load(root), ["P-01"])
    with pytest.raises(Refused, match="P-02 overlaps a patch that is applied"):
        patches.apply(place, load(root), ["P-02"])


def test_the_same_edit_under_two_ids_is_one(root, opened):
    """Applied once, both are applied."""
    place = opened(own(FIRST, "replace", "We measured it."), own(FIRST, "replace", "We measured it."))
    assert patches.apply(place, load(root), ["P-01"]) == ("P-01",)
    assert states(root, place) == {"P-01": "applied", "P-02": "applied"}


def test_a_changed_body_is_exit_5(root, opened):
    """Whoever changed it; the front matter may change."""
    place = opened(own(FIRST, "replace", "We measured it."))
    replace(root / LEAF, "# one of two", "# one of three")
    assert states(root, place) == {"P-01": "open"}
    replace(root / LEAF, "two seconds", "nine seconds")
    with pytest.raises(Integrity, match="the body was changed since the round") as caught:
        patches.apply(place, load(root), ["P-01"])
    assert caught.value.exit_code == 5
    assert [s.diff for s in patches.show(place, load(root))] == [b""] * len(patches.show(place, load(root)))


def test_killed_at_any_operation(tmp_path, opened, root, monkeypatch):
    """The file holds the old body or the new one, and the next call knows which."""
    place = opened(own(FIRST, "replace", "We measured it."))
    before, quick = (root / LEAF).read_bytes(), store.disk
    counting = FaultyDisk(0)
    monkeypatch.setattr(store, "disk", counting)
    patches.apply(place, load(root), ["P-01"])
    after = (root / LEAF).read_bytes()
    for n in range(1, counting.done + 1):
        (root / LEAF).write_bytes(before)
        (place.run / "applied.jsonl").unlink(missing_ok=True)
        monkeypatch.setattr(store, "disk", FaultyDisk(n))
        with pytest.raises(Killed):
            patches.apply(place, load(root), ["P-01"])
        monkeypatch.setattr(store, "disk", quick)
        now = (root / LEAF).read_bytes()
        assert now in (before, after)
        if now == before:
            patches.apply(place, load(root), ["P-01"])
        assert (root / LEAF).read_bytes() == after
        assert states(root, place) == {"P-01": "applied"}


@pytest.mark.parametrize(
    ("status", "do", "expected"),
    [
        ("applied", [], ["patches are said to be applied, but the body is as it was reviewed"]),
        ("partial", [], ["patches are said to be partly applied, but the body is as it was reviewed"]),
        ("rejected", [], []),
        ("rejected", ["P-01"], ["patches are said to be rejected, but the body has changed since the review"]),
        ("partial", ["P-01"], []),
    ],
)
def test_close_doubts_what_does_not_fit_the_file(root, opened, status, do, expected):
    """A warning, never a refusal."""
    place = opened(own(FIRST, "replace", "We measured it."), own(SECOND, "delete"))
    if do:
        patches.apply(place, load(root), do)
    assert patches.doubts(place, load(root), status) == expected


def test_a_round_of_the_packs_has_no_patches_to_apply(root, opened):
    """Exit 1, saying what is missing."""
    place = opened(own(FIRST, "replace", "We measured it."))
    place.record.unlink()
    with pytest.raises(Refused, match=r"this round has no record \(.run/record.json\)"):
        patches.show(place, load(root))


def test_patches_of_a_crlf_leaf(tmp_path, script):
    """Line ends of the place go in."""
    root = make(tmp_path / "crlf")
    (root / LEAF).write_bytes((root / LEAF).read_bytes().replace(b"\n", b"\r\n"))
    open_(root, claims=(own(FIRST, "replace", "One.\nTwo."),))
    place = place_of(root)
    found = [s for s in patches.show(place, load(root)) if s.claim.raised_by == "human" and not s.patch.by_hand]
    for s in found:
        assert b"One.\r\n" in claims.apply(load(root).body, [s.patch])
    close(root, LEAF, "rejected")
