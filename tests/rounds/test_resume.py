"""What a failed reviewer, defender or synthesizer leaves, and how resume goes on from there."""

from __future__ import annotations

import dataclasses

import pytest
import scripted
from helpers import (
    LEAF,
    THREAD,
    THREE,
    TWO,
    Engines,
    abort,
    answered,
    changed,
    close,
    copy,
    lines,
    load,
    make,
    open_,
    place_of,
    profile,
    record,
    replace,
    resume,
    state,
    tree,
    write,
)

from runner import runs
from runner.brain.index import read
from runner.engines import fake
from runner.errors import Incomplete, Integrity, RunnerError
from runner.rounds import inputs
from runner.rounds.folder import Round
from runner.rounds.plan import Options

NOTE = "**FAKE ENGINE: no model read this document; every word of this round is made up.**\n\n"
EYES = "reviewer/fresh-eyes-reader"


def ill(engines: Engines, **faults: str) -> None:
    """Let every engine from now on fail at these keys; none: all healthy."""
    engines.faults = faults


def row(place: Round) -> dict[str, str]:
    found = read((place.history / "index.md").read_bytes(), "index.md")
    return dict(found.rows[place.number].cells)


def verdicts(place: Round) -> list[tuple[str, str, str]]:
    return [(v["claim"], v["verdict"], v["cause"]) for v in record(place)["verdicts"]]


# ---- reviewers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["timeout", "degenerate", "length", "error"])
@pytest.mark.parametrize("path", [LEAF, THREAD])
def test_reviewer_fails(root, script, engines, path, fault):
    """All resolved reviewers are needed by default: no row, no flip, the tryouts stay, exit 4 `interrupted`."""
    raw = (root / path).read_bytes()
    ill(engines, **{f"{EYES}*": fault})
    with pytest.raises(Incomplete) as caught:
        open_(root, path)
    error, place = caught.value, place_of(root, path)
    assert (error.exit_code, error.reason, error.exhausted) == (4, "interrupted", (EYES,))
    assert error.message == f"1 of 2 reviewers answered, 2 are needed; failed: fresh-eyes-reader ({fault})"
    assert error.hint == "`debate resume` asks them again; `debate resume --min-reviewers N` goes on with fewer"
    assert error.path == str(place.folder)
    assert (root / path).read_bytes() == raw
    assert sorted(p.name for p in place.history.iterdir()) == ["round-01"]
    assert sorted(p.name for p in place.folder.iterdir()) == [".run", "feedback-in.md", "personas.yaml", "tryouts"]
    title = load(root, path).title
    assert (place.folder / "tryouts/fresh-eyes-reader.md").read_text() == (
        NOTE + f"# Review by fresh-eyes-reader\n\n{title} · round-01 · failed\n\n"
        f"**This review failed: {fault}.** It says nothing about the document, good or bad.\n"
    )
    assert "## Claims\n\n### blocker" in (place.folder / "tryouts/red-team.md").read_text()
    assert [key for key in engines.asked if key.startswith("defender/C")] == []
    assert lines(place)[-1]["end"] == "interrupted"
    assert state(root, path) == "interrupted"


def test_resume_asks_the_failed_again(root, script, engines):
    """Pass 2 asks only what failed, as `~3`; the late claims come after the highest id and are judged on their own."""
    ill(engines, **{f"{EYES}*": "timeout"})
    with pytest.raises(Incomplete):
        open_(root)
    known = answered(place_of(root))
    assert sorted(known) == ["defender/prior-1", "defender/prior-2", EYES, f"{EYES}~2", "reviewer/red-team"]
    ill(engines)
    opened = resume(root)
    assert engines.asked[0] == f"{EYES}~3"
    assert set(engines.asked) & set(known) == set()
    assert {key for key in engines.asked if key.count("/") < 3 and "order" not in key and "amended" not in key} == {
        f"{EYES}~3", "defender/C-01", "defender/C-02", "defender/p2/C-03", "defender/p2/C-04",
    }  # fmt: skip
    assert opened.result.exhausted == ()
    assert state(root) == "open"


@pytest.mark.parametrize("path", [LEAF, THREAD])
def test_partial(root, script, engines, path):
    """With enough reviewers the round opens; who failed is named in the row, the transcript, the tryout, the record."""
    ill(engines, **{f"{EYES}*": "timeout"})
    opened = open_(root, path, personas=THREE, min_reviewers=2)
    place = opened.place
    assert opened.result.exhausted == (EYES,)
    assert state(root, path) == "open"
    assert (row(place)["Failed"], row(place)["Status"]) == ("fresh-eyes-reader", "open")
    assert row(place)["Reviewers"] == "red-team, fresh-eyes-reader, simplicity-critic"
    transcript = (place.folder / "transcript.md").read_text()
    assert "reviewer fresh-eyes-reader: FAILED (timeout); 10 tokens in, 0 shared, " in transcript
    assert transcript.endswith(f" INCOMPLETE: no usable answer to {EYES}\n")
    found = record(place)
    assert (found["complete"], found["exhausted"]) == (False, [EYES])
    assert [(p["name"], p["status"], p["cause"]) for p in found["personas"]] == [
        ("red-team", "done", ""), ("fresh-eyes-reader", "failed", "timeout"), ("simplicity-critic", "done", ""),
    ]  # fmt: skip
    assert [c["raised_by"] for c in found["claims"]] == ["red-team"] * 2 + ["simplicity-critic"] * 2


@pytest.mark.parametrize("path", [LEAF, THREAD])
def test_resume_of_a_partial_round(root, script, engines, path):
    """Only the failed reviewer is asked; no earlier id, verdict or patch changes; the row is brought up to date."""
    ill(engines, **{f"{EYES}*": "timeout"})
    place = open_(root, path, personas=THREE, min_reviewers=2).place
    before, raw = record(place), (root / path).read_bytes()
    ill(engines)
    opened = resume(root, path)
    after = record(place)
    assert sorted(engines.asked) == sorted([
        f"{EYES}~3", "defender/p2/C-05", "defender/p2/C-05/order-1", "defender/p2/C-05/order-2",
        "defender/p2/C-06", "defender/p2/C-06/order-1", "defender/p2/C-06/order-2", "defender/p2/C-06/amended",
    ])  # fmt: skip
    assert opened.result.exhausted == ()
    for key in ("claims", "verdicts", "patches"):
        assert after[key][: len(before[key])] == before[key]
    assert [c["id"] for c in after["claims"]] == [f"C-{n:02d}" for n in range(1, 7)]
    assert [c["raised_by"] for c in after["claims"][4:]] == ["fresh-eyes-reader"] * 2
    assert [p["id"] for p in before["patches"]] == ["P-01", "P-02"]
    assert [p["id"] for p in after["patches"]] == ["P-01", "P-02", "H-01", "P-03"]
    assert (row(place)["Failed"], after["complete"], after["exhausted"]) == ("", True, [])
    assert row(place)["Verdicts"] == "2 CONCEDE, 2 CONCEDE-IN-PART, 1 DEFER, 1 REJECT (fake engine)"
    assert (root / path).read_bytes() == raw
    assert resume(root, path).result == opened.result  # once complete, there is nothing left to ask
    assert engines.asked == []


def test_replies_that_cannot_be_read(root, engines, monkeypatch):
    """Well-ended replies that are no JSON are failures as well: named `invalid`, and asked again by resume."""

    def answer(request):
        reply = scripted.answer(request)
        return dataclasses.replace(reply, text="{") if request.key.startswith(EYES) else reply

    monkeypatch.setattr(fake, "answer", answer)
    opened = open_(root, THREAD, min_reviewers=1)
    assert (opened.result.exhausted, opened.result.tryouts[1].cause) == ((EYES,), "invalid")
    monkeypatch.setattr(fake, "answer", scripted.answer)
    assert resume(root, THREAD).result.exhausted == ()
    assert engines.asked[0] == f"{EYES}~3"


def test_fails_in_every_pass(root, script, engines):
    """Each resume gives two more tries."""
    ill(engines, **{f"{EYES}*": "timeout"})
    for n in (1, 3, 5):
        with pytest.raises(Incomplete):
            open_(root) if n == 1 else resume(root)
        tries = [EYES if i == 1 else f"{EYES}~{i}" for i in (n, n + 1)]
        assert [key for key in engines.asked if key.startswith(EYES)] == tries
    ill(engines)
    assert [c.raised_by for c in resume(root).result.claims] == ["red-team"] * 2 + ["fresh-eyes-reader"] * 2
    assert "defender/p4/C-03" in engines.asked


def test_resume_with_fewer_reviewers(root, script, engines):
    """--min-reviewers lets an interrupted round open without the failed one, now and at any later resume."""
    ill(engines, **{f"{EYES}*": "timeout"})
    with pytest.raises(Incomplete):
        open_(root)
    assert resume(root, min_reviewers=1).result.exhausted == (EYES,)
    assert (state(root), row(place_of(root))["Failed"]) == ("open", "fresh-eyes-reader")
    assert resume(root).result.exhausted == (EYES,)
    ill(engines)
    assert resume(root).result.exhausted == ()
    assert row(place_of(root))["Failed"] == ""


# ---- defender, synthesizer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["defender/C-01", "defender/C-01/order-2"])
@pytest.mark.parametrize("fault", ["timeout", "degenerate", "length"])
def test_defender_fails_for_one_claim(root, script, engines, key, fault):
    """The claim is deferred, cause engine; the round is partial; resume gives the claim its verdict."""
    ill(engines, **{key: fault, f"{key}~*": fault})
    opened = open_(root)
    place = opened.place
    assert opened.result.exhausted == (key,)
    assert verdicts(place)[0] == ("C-01", "DEFER", "engine")
    assert [v[2] for v in verdicts(place)[1:]] == ["measured"] * 3
    assert record(place)["verdicts"][0]["reason"] == f"The defender gave no usable verdict ({fault})."
    assert record(place)["verdicts"][0]["confidence"] is None
    assert f"INCOMPLETE: no usable answer to {key}\n" in (place.folder / "transcript.md").read_text()
    assert state(root) == "open"
    before = verdicts(place)
    ill(engines)
    assert resume(root).result.exhausted == ()
    assert engines.asked[0] == f"{key}~3"
    assert verdicts(place) == [("C-01", "CONCEDE", "measured"), *before[1:]]


def test_defender_fails_for_all_claims(root, script, engines):
    """Claims and not one verdict: interrupted, no row, no flip, the tryouts stay; resume finishes."""
    before = tree(root)
    ill(engines, **{"defender/C-*": "timeout"})
    with pytest.raises(Incomplete) as caught:
        open_(root)
    assert (caught.value.exit_code, caught.value.reason) == (4, "interrupted")
    assert caught.value.message == "the defender gave no verdict on any claim"
    place = place_of(root)
    assert (root / LEAF).read_bytes() == before[LEAF]
    assert sorted(p.name for p in place.folder.iterdir()) == [".run", "feedback-in.md", "personas.yaml", "tryouts"]
    ill(engines)
    assert resume(root).result.exhausted == ()
    assert [v[1] for v in verdicts(place)] == ["CONCEDE", "CONCEDE-IN-PART", "DEFER", "REJECT"]
    assert [key for key in engines.asked if key.startswith("reviewer")] == []


@pytest.mark.parametrize("key", ["defender/prior-2", "defender/C-02/amended", "synthesizer"])
def test_other_failures_are_partial(root, script, engines, key):
    """The round opens without what is missing and says what that is; resume fills it in."""
    ill(engines, **{f"{key}*": "timeout"})
    assert open_(root, synthesizer=True).result.exhausted == (key,)
    assert state(root) == "open"
    ill(engines)
    assert resume(root).result.exhausted == ()
    assert f"{key}~3" in engines.asked
    assert (place_of(root).folder / "synthesizer.md").exists()


def test_no_claims(root):
    """Zero claims are a valid round."""
    opened = open_(root, name=profile(root, "quiet", claims=0))
    assert (opened.result.claims, opened.result.exhausted) == ((), ())
    assert (state(root), row(opened.place)["Verdicts"]) == ("open", "no claims (fake engine)")
    assert "defender: no claims to judge" in (opened.place.folder / "transcript.md").read_text()
    assert close(root).seeded is False


def test_engine_that_cannot_score(root, script):
    """The reply's own verdict stands; nothing becomes DEFER for it."""
    opened = open_(root, name=profile(root, "plain", scores=False))
    assert [(v.verdict, v.cause, v.confidence, v.method) for v in opened.result.verdicts] == [
        ("CONCEDE", "reply", None, "none"), ("CONCEDE-IN-PART", "reply", None, "none"),
        ("DEFER", "reply", None, "none"), ("REJECT", "reply", None, "none"),
    ]  # fmt: skip


def test_engine_dies(root, tmp_path, engines):
    """An engine that dies ends the command; resume asks the rest and makes the files of an undisturbed round."""
    whole = copy(root, tmp_path / "whole")
    open_(whole)
    total = len(engines.asked)
    for n in range(1, total, 4):
        one = copy(root, tmp_path / f"n{n}")
        engines.faults = {str(n): "crash"}
        with pytest.raises(RunnerError, match="the fake engine crashed at"):
            open_(one)
        known = answered(place_of(one))
        engines.faults = {}
        resume(one)
        assert set(engines.asked) & set(known) == set()
        assert changed(tree(whole), tree(one)) == []


# ---- what changed meanwhile ----------------------------------------------------------------------------------------


@pytest.fixture
def interrupted(root, script, engines):
    """A round whose second reviewer failed, with a healthy engine from now on."""
    ill(engines, **{f"{EYES}*": "timeout"})
    with pytest.raises(Incomplete):
        open_(root)
    ill(engines)
    return root


def test_body_changed(interrupted):
    """Another body is another review: exit 5, naming abort; nothing is written."""
    replace(interrupted / LEAF, "two seconds", "three seconds")
    before = tree(interrupted.parent, local=True)
    with pytest.raises(Integrity) as caught:
        resume(interrupted)
    path = interrupted / LEAF
    assert (caught.value.exit_code, str(caught.value)) == (
        5,
        f"{path}: the artifact's body has changed since the round was opened\n"
        f"hint: restore it, or give the round up: debate abort {path} (close it, when it is open)",
    )
    assert tree(interrupted.parent, local=True) == before
    replace(interrupted / LEAF, "three seconds", "two seconds")
    assert resume(interrupted).result.exhausted == ()


def test_body_changed_during_the_round(root, script, monkeypatch):
    """Edited while the reviewers read: no flip, exit 5; the round is interrupted, and abort keeps the edit."""
    before = tree(root)

    def editing(s):
        engine = Engines()(s)
        submit = engine.submit

        def edit(flow, request):
            if request.key == "defender/C-01":
                replace(root / LEAF, "Most failures", "Some failures")
            submit(flow, request)

        engine.submit = edit
        return engine

    monkeypatch.setattr("runner.settings.open_engine", editing)
    with pytest.raises(Integrity) as caught:
        open_(root)
    assert caught.value.message == "the artifact's body has changed since the round was opened"
    assert (state(root), b"hardening" in (root / LEAF).read_bytes()) == ("interrupted", False)
    assert abort(root) == ()
    assert changed(before, tree(root)) == [LEAF]
    assert b"Some failures" in (root / LEAF).read_bytes()


def test_front_matter_changed(interrupted):
    """What someone else wrote into the front matter stays; only the flip's keys are set."""
    replace(interrupted / LEAF, 'title: "Limits"\n', "title: Limits of use\n# a note\nowner: mara\n")
    resume(interrupted)
    head = (interrupted / LEAF).read_text().split("---\n")[1]
    assert head == (
        'id: "limits"  # one of two\ntitle: Limits of use\n# a note\nowner: mara\nstatus: hardening\n'
        'source_debate: debate/limits/round-01\npre_hardening_status: decided\ndomain: "area"\n'
    )


def test_file_changed_by_hand(interrupted):
    """A file of the round that someone edited is never overwritten: exit 5; moved away, the round goes on."""
    place = place_of(interrupted)
    path = place.folder / "tryouts/fresh-eyes-reader.md"
    path.write_bytes(b"mine\n")
    with pytest.raises(Integrity) as caught:
        resume(interrupted)
    assert str(caught.value) == (
        f"{path}: this file was changed by hand while the round runs\nhint: move it away, then run `debate resume`"
    )
    assert path.read_bytes() == b"mine\n"
    assert not (place.history / "index.md").exists()
    path.rename(path.with_suffix(".mine"))
    resume(interrupted)
    assert "## Claims" in path.read_text()
    assert path.with_suffix(".mine").read_bytes() == b"mine\n"
    assert ".mine" not in str(record(place)["files"])


def test_file_deleted_by_hand(interrupted):
    """A file of the round that was deleted is written again."""
    place = place_of(interrupted)
    (place.folder / "personas.yaml").unlink()
    resume(interrupted)
    assert (place.folder / "personas.yaml").exists()


def test_settings_changed(interrupted):
    """Charters, conventions and templates edited since change nothing: resume uses what was stored."""
    write(interrupted / "assets/persona-charters/red-team.md", b"Something else.\n")
    replace(interrupted / "CONVENTIONS.md", "- red-team\n", "")
    write(interrupted.parent / "prompts/review/reviewer.md.j2", b"Something else.\n")
    assert resume(interrupted).result.exhausted == ()


def test_damaged_inputs(interrupted):
    """Inputs that cannot be read: exit 5, naming abort."""
    path = place_of(interrupted).run / "inputs/inputs.json"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(Integrity) as caught:
        resume(interrupted)
    assert (
        str(caught.value)
        == f"{path}: the stored inputs cannot be read (JSONDecodeError)\nhint: `debate abort` gives up"
    )


def test_inputs_read_back(root, tmp_path, script):
    """Every value that a round is made of comes back from the disk as it was."""
    root = make(tmp_path / "odd")
    write(root / "threads/webhooks/proposal.md", "Proposal \u2028 ✓\n".encode())
    write(root / "threads/webhooks/debate/next-round-seed.md", b"## nit: Old doubt.\n")
    opened = open_(root, THREAD, ad_hoc=("aa:bb: cc",), reviewers=3, feedback="é\x00\u2028 {{x}}")
    assert inputs.load(opened.place.run) == opened.inputs


def test_an_engine_named_beside_the_profile_is_taken_again(root):
    """`open --engine fake` with no profile: resume needs no flag either."""
    named = runs.settings(None, None, root.parent, engine="fake")
    faulty = dataclasses.replace(
        named, profile=named.profile.model_copy(update={"fake": {"faults": {"reviewer/*": "timeout"}}})
    )
    planned = runs.open_plan(load(root), Options(personas=TWO, feedback="Complete?"), faulty)
    with pytest.raises(Incomplete):
        runs.open_round(planned, faulty)
    again = runs.resume_settings(place_of(root), None, None, root.parent)
    assert again.fake
    assert runs.resume_round(load(root), place_of(root), again).result.exhausted == ()
