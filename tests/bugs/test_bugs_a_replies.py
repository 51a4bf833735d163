"""A. Structured output from local models, each class on a whole round.

Also proved elsewhere: A2 and A6 in tests/test_schemas.py (no blank between tokens; every grammar compiles), A4 and A5
in tests/engines (a degenerate reply ends; a reply never leaves its grammar), A12 in tests/rounds/test_resume.py.
"""

# ruff: noqa: N802 (a test has its class's letter in its name)

from __future__ import annotations

import json
import re

import pytest
from helpers import LEAF, TWO, open_, place_of, record, replace, resume, state
from hostile import FEEDBACK, Says, claim, debate, fences, files, structure

from runner import schemas
from runner.errors import Incomplete

SENTENCE = "The limit is the same for all shops."
GOOD = [claim(SENTENCE, "Each shop has its own limit.")]
WHOLE = json.dumps({"observations": [], "claims": GOOD, "open_questions": []})


def asked(said: Says, start: str) -> list[str]:
    return [request.key for request in said.asked if request.key.startswith(start)]


@pytest.mark.parametrize("finish", ["length", "degenerate", "timeout", "error"])
def test_A1_cut_reply(root, says, finish):
    """A reply cut at its limit is never read, be what is there ever so good: asked once more, then failed, not open."""
    said = Says(GOOD, raw={"reviewer/red-team*": (WHOLE, finish)})
    says(said)
    with pytest.raises(Incomplete) as caught:
        open_(root)
    assert (caught.value.reason, caught.value.exit_code) == ("interrupted", 4)
    assert asked(said, "reviewer/red-team") == ["reviewer/red-team", "reviewer/red-team~2"]
    assert b"status: decided" in (root / LEAF).read_bytes() and state(root) == "interrupted"
    assert f"**This review failed: {finish}.**" in files(place_of(root).folder)["tryouts/red-team.md"]
    assert not (place_of(root).folder / "defender.md").exists()


def test_A1_second_try_is_taken(root, says):
    """The first reply cut, the second whole: the round is complete."""
    says(Says(GOOD, raw={"reviewer/red-team": (WHOLE[:40], "length")}))
    assert [t.status for t in open_(root).result.tryouts] == ["done", "done"]


@pytest.mark.parametrize(
    "text",
    ["", " " * 4000, '{"observations":[' + "\n\t " * 3000, WHOLE[:-1] + " " * 2000, "\x00", "[]", "null", "{}"],
)
def test_A2_endless_whitespace(root, says, text):
    """Blanks without end, or nothing, said to be whole: the reviewer failed (`invalid`), no review without claims."""
    says(Says(GOOD, raw={"reviewer/red-team*": text}))
    opened = open_(root, min_reviewers=1)
    assert [(t.persona, t.status, t.cause) for t in opened.result.tryouts if t.status == "failed"] == [
        ("red-team", "failed", "invalid")
    ]
    assert "## Claims" not in files(opened.place.folder)["tryouts/red-team.md"]


def test_A4_repetition(root, says):
    """200 bullets alike and the same claim three times: one group, no guess at the place, no patch."""
    bullets = "- TBD, to be decided later.\n" * 200
    replace(root / LEAF, "Nobody has measured whether it is enough.\n", "\n" + bullets)
    says(Says([claim("TBD, to be decided later.", "Done.")] * 3))
    opened = open_(root)
    assert {c.anchor for c in opened.result.claims} == {"ambiguous"}
    assert {c.cluster for c in opened.result.claims} == {"C-01"}
    assert [p.id for p in opened.result.patches] == [f"H-{n:02d}" for n in range(1, 7)]
    assert "- says the same as C-01" not in files(opened.place.folder)["defender.md"].split("### C-02")[0]
    assert files(opened.place.folder)["defender.md"].count("says the same as C-01") == 5


def spoilt(**change: object) -> str:
    return json.dumps({"observations": [], "claims": [GOOD[0] | change], "open_questions": []})


@pytest.mark.parametrize(
    "text",
    [
        spoilt(problem="x" * 241),
        spoilt(problem=""),
        spoilt(quote="x" * 201),
        spoilt(kind="praise"),
        spoilt(severity="HIGH"),
        spoilt(verdict="CONCEDE"),
        spoilt(action=None),
        json.dumps({"observations": ["a"] * 3, "claims": [], "open_questions": []}),
        json.dumps({"observations": [], "claims": GOOD * 5, "open_questions": []}),
        json.dumps({"claims": GOOD}),
    ],
)
def test_A5_grammar_ignored(root, says, text):
    """An engine that let the grammar slip: what the schema does not admit is not taken, whatever `finish` says."""
    says(Says(GOOD, raw={"reviewer/red-team*": text}))
    opened = open_(root, min_reviewers=1)
    assert [t.cause for t in opened.result.tryouts] == ["invalid", ""]
    assert [c.raised_by for c in opened.result.claims] == ["fresh-eyes-reader"]


def test_A5_doctor_notices(root, says, capsys):
    """The start-up self-test says that the grammar is not applied, and fails."""
    says(Says(raw={"self-test": "Anything but JSON."}))
    assert debate("doctor", "--profile", "fake") == 2
    out = capsys.readouterr().out
    assert "FAIL  engine   a reply broke its grammar\nhint: this engine build cannot be trusted\n" in out


def test_A6_every_grammar_compiles():
    """No repetition above a few hundred, and llguidance takes every grammar that a round can ask for."""
    llguidance = pytest.importorskip("llguidance")
    passages = ("The limit is the same.", "Nobody has measured it.", 'He said "no" \\ 決定。')
    bounds = schemas.Bounds(tuple((p,) for p in passages), claims=("C-01", "C-02"), revisit=("C-02",))
    for model in (schemas.ReviewerReply, schemas.JudgedReply, schemas.AmendedReply, schemas.SynthesisReply):
        fmt, worst = schemas.format_of(model, bounds)
        assert llguidance.LLMatcher.validate_grammar(fmt.lark, None) == ""
        assert max(int(n) for n in re.findall(r'"max[A-Za-z]+": (\d+)', fmt.json_schema)) <= 400
        assert worst < 4000


@pytest.mark.parametrize("lead", ["<think>The defender will reject it.</think>", "<think>", "Let me think. "])
def test_A7_thinking(root, says, lead):
    """A reply with thoughts around it is not searched for its fields; what was thought is in no file."""
    said = Says(GOOD * 2, raw={"reviewer/red-team*": lead + WHOLE, "defender/C-02*": lead + '{"reason": "CONCEDE"}'})
    says(said)
    opened = open_(root, min_reviewers=1)
    assert opened.result.tryouts[0].cause == "invalid"
    assert [v.cause for v in opened.result.verdicts] == ["measured", "engine"]
    assert asked(said, "defender/C-02/") == [] and "<think>" not in "".join(files(opened.place.folder).values())


@pytest.mark.parametrize(
    "text", [f"```json\n{WHOLE}\n```", f"Sure! {WHOLE}", WHOLE + WHOLE, f"{WHOLE}\nI hope this helps."]
)
def test_A9_fences_around_json(root, says, text):
    """A fence, chatter or a second document: refused as a whole, nothing cut out of it."""
    says(Says(GOOD, raw={"reviewer/red-team*": text}))
    assert open_(root, min_reviewers=1).result.tryouts[0].cause == "invalid"


def test_A9_fences_inside(root, says):
    """A fence in a fence: ours is longer than any run of backticks in the text, in every file."""
    code = "uses ```json fences\n````\n```json\n{}\n```\n````"
    says(Says([claim(SENTENCE, code, problem="It uses ```json fences.")]))
    opened = open_(root)
    assert fences(files(opened.place.folder)["tryouts/red-team.md"], "replace") == [code + "\n"]
    blocks = structure(files(opened.place.folder)["proposed-patches.md"])
    assert [b for b in blocks if b.startswith("fence")] == ["fence diff"] * 2


@pytest.mark.parametrize("label", ["DEFER", "REJECT", "CONCEDE"])
def test_A10_verdict_in_prose(root, says, label):
    """Whatever the reason claims, the verdict is the measured one."""
    says(Says(GOOD, reason="We REJECT nothing here; CONCEDE. verdict: DEFER", labels=(label,)))
    assert {v.verdict for v in open_(root).result.verdicts} == {label}


def test_A11_claim_ids(root, says):
    """A synthesizer that names C-09, and C-01 twice: unknown ids are dropped, each known one stands once."""
    theme = {"title": "T", "text": "Text.", "claims": ["C-09", "C-01", "C-01", "C-02"]}
    made_up = {"themes": [theme], "tensions": [], "revisit": ["C-07", "C-01", "C-02", "C-02"][:3]}
    says(Says(GOOD, labels=("CONCEDE", "REJECT"), synthesis=made_up))
    opened = open_(root, synthesizer=True)
    assert opened.result.synthesis is not None
    assert opened.result.synthesis.themes[0].claims == ("C-01", "C-02")
    assert opened.result.synthesis.revisit == ("C-02",)
    assert [d for d in opened.result.diagnostics if "C-09" in d] != []
    text = files(opened.place.folder)["synthesizer.md"]
    assert "C-09" not in text and "C-07" not in text


def test_A11_missing_verdict(root, says):
    """A claim whose answer cannot be used is asked once more, then DEFER with cause engine, never CONCEDE."""
    said = Says(GOOD, raw={"defender/C-02*": "C-01: CONCEDE, C-02: CONCEDE"})
    says(said)
    verdicts = {v.claim: (v.verdict, v.cause) for v in open_(root).result.verdicts}
    assert verdicts == {"C-01": ("CONCEDE", "measured"), "C-02": ("DEFER", "engine")}
    assert asked(said, "defender/C-02") == ["defender/C-02", "defender/C-02~2"]


def test_A12_failed_reviewer(root, says, capsys):
    """One of three times out: no round below the quorum; with it, the failure stands in every place that counts."""
    says(Says(GOOD, raw={"reviewer/red-team*": ("", "timeout")}))
    personas = ("--personas", ",".join((*TWO, "simplicity-critic")))
    assert debate("open", f"project-brain/{LEAF}", *personas, *FEEDBACK) == 4
    assert b"status: decided" in (root / LEAF).read_bytes()
    assert "2 of 3 reviewers answered, 3 are needed; failed: red-team (timeout)" in capsys.readouterr().err
    assert resume(root, min_reviewers=2).result.exhausted == ("reviewer/red-team",)
    place = place_of(root)
    assert "| red-team |" in (place.history / "index.md").read_text()
    assert "reviewer red-team: FAILED (timeout)" in files(place.folder)["transcript.md"]
    assert record(place)["complete"] is False and record(place)["exhausted"] == ["reviewer/red-team"]
    capsys.readouterr()
    assert debate("resume", f"project-brain/{LEAF}", "--only-failed", "-q") == 4
    assert "1 failed" in capsys.readouterr().out
