"""Scaffold mode: a round without an engine, from prompts to a closed round, and every way to write it wrong."""

from __future__ import annotations

import json

import pytest
from helpers import LEAF, THREAD, close, load, place_of, record, settings, state, write

from runner import runs
from runner.errors import Incomplete, Refused
from runner.rounds import handmade, inputs
from runner.rounds.plan import Options

QUOTE = "Nobody has measured whether it is enough."
TRYOUT = f"""# My review

## Observations

- The limits are said twice.

## Claims

### major: Nobody knows the load.

> {QUOTE}

```replace
We measured the load in May.
```

### nit: The second sentence is long.

> A request may take two seconds. After that the caller gets an error and tries again at once.

## Open questions

- Who measures?
"""


def open_none(root, path=LEAF, **options):
    """Open without an engine."""
    s = runs.settings(None, None, root.parent, engine="none")
    wished = {"personas": ("red-team", "fresh-eyes-reader"), "feedback": "Complete?"} | options
    return runs.open_round(runs.open_plan(load(root, path), Options(**wished), s), s)


def resume(root, path=LEAF, profile=None):
    """Resume with what the round was opened with, or with a profile."""
    place = place_of(root, path)
    s = runs.resume_settings(place, profile, None, root.parent)
    return runs.resume_round(load(root, path), place, s)


def scaffolded(action):
    """The error that ends a scaffolded step."""
    with pytest.raises(Incomplete) as caught:
        action()
    assert (caught.value.reason, caught.value.exit_code) == ("scaffolded", 4)
    return str(caught.value)


@pytest.mark.parametrize("path", [LEAF, THREAD])
def test_by_hand_from_the_first_prompt_to_the_closed_round(root, path):
    """Prompts, tryouts, a prompt for the defender, verdicts, patches, close."""
    message = scaffolded(lambda: open_none(root, path))
    assert "tryouts missing: red-team, fresh-eyes-reader" in message
    place = place_of(root, path)
    names = sorted(p.name for p in place.folder.rglob("*") if p.is_file() and ".run" not in p.parts)
    assert names == ["feedback-in.md", "fresh-eyes-reader.prompt.md", "personas.yaml", "red-team.prompt.md"]
    prompt = (place.folder / "tryouts/red-team.prompt.md").read_text()
    assert "--- BEGIN PERSONA CHARTER (advisory) ---" in prompt and QUOTE in prompt
    assert state(root, path) == "interrupted"
    write(place.folder / "tryouts/red-team.md", TRYOUT.encode())
    assert "tryouts missing: fresh-eyes-reader" in scaffolded(lambda: resume(root, path))
    reply = {"observations": [], "claims": [], "open_questions": ["Why?"]}
    write(place.folder / "tryouts/fresh-eyes-reader.json", json.dumps(reply).encode())
    assert "2 claims wait for verdicts" in scaffolded(lambda: resume(root, path))
    assert "### C-02" in (place.folder / "defender.prompt.md").read_text()
    own = b"# Mine\n\n### C-01: CONCEDE\n\nTrue.\n\n### C-02: REJECT\n\nIt is fine.\n"
    write(place.folder / "defender.md", own)
    opened = resume(root, path)
    assert (place.folder / "defender.md").read_bytes() == own
    assert (place.folder / "tryouts/red-team.md").read_text() == TRYOUT
    data = record(place)
    assert [(v["verdict"], v["cause"], v["confidence"]) for v in data["verdicts"]] == [
        ("CONCEDE", "human", None), ("REJECT", "human", None),
    ]  # fmt: skip
    assert [p["id"] for p in data["patches"]] == ["P-01"] and data["calls"] == []
    assert (
        "+The limit is the same for all shops. We measured the load in May."
        in (place.folder / "proposed-patches.md").read_text()
    )
    assert opened.result.exhausted == () and state(root, path) == "open"
    assert close(root, path, "rejected").patches_status == "rejected"


def test_verdicts_json_and_our_own_defender_file(root):
    """With verdicts.json the program writes defender.md."""
    scaffolded(lambda: open_none(root, personas=("red-team",)))
    place = place_of(root)
    write(place.folder / "tryouts/red-team.md", TRYOUT.encode())
    scaffolded(lambda: resume(root))
    amended = {"action": "replace", "replacement": "Measure it."}
    rows = [
        {"claim": "C-01", "verdict": "CONCEDE-IN-PART", "reason": "Partly.", "amended": amended},
        {"claim": "C-02", "verdict": "DEFER"},
    ]
    write(place.folder / "verdicts.json", json.dumps(rows).encode())
    resume(root)
    assert "### C-01: CONCEDE-IN-PART" in (place.folder / "defender.md").read_text()
    assert "## round-01/C-02 nit: The second sentence is long." in (place.folder / "open-issues.md").read_text()


def test_an_engine_may_take_over(root, engines):
    """Hand-written tryouts stand; the missing ones and the verdicts are the engine's."""
    scaffolded(lambda: open_none(root))
    place = place_of(root)
    write(place.folder / "tryouts/red-team.md", TRYOUT.encode())
    opened = resume(root, profile="fake")
    keys = [key for _, key in engines.all[-1].submitted] if hasattr(engines, "all") else []
    assert not any(k.startswith("reviewer/red-team") for k in keys)
    data = record(place)
    assert data["engine"] == "fake" and data["claims"][0]["problem"] == "Nobody knows the load."
    assert opened.result.tryouts[1].status == "done" and len(data["verdicts"]) == len(data["claims"])
    stored = inputs.load(place.run)
    assert stored is not None and stored.review.given[0].persona == "red-team"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("## Claims\n\n### huge: x\n", 3, "not a claim"),
        ("## Claims\n\n### major x\n", 3, "not a claim"),
        ("## Claims\n\n### major: x\n\n```replace\nabc\n", 5, "this fenced block is not closed"),
        ("## Claims\n\n### major: x\n\n```python\nabc\n```\n", 5, "a proposal is a block `replace` with text"),
        ("## Claims\n\n### major: x\n\n```replace\na\n```\n```delete\n```\n", 8, "more than one proposal"),
        ("## Thoughts\n\n- a\n", 1, "unknown section 'thoughts'"),
    ],
)
def test_an_unreadable_tryout_is_refused_with_file_and_line(root, text, line, message):
    """And nothing else changes."""
    scaffolded(lambda: open_none(root, personas=("red-team",)))
    place = place_of(root)
    write(place.folder / "tryouts/red-team.md", text.encode())
    before = {p: p.read_bytes() for p in place.folder.rglob("*.md")}
    with pytest.raises(Refused, match=message) as caught:
        resume(root)
    assert caught.value.line == line and str(caught.value.path).endswith("tryouts/red-team.md")
    assert {p: p.read_bytes() for p in place.folder.rglob("*.md")} == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("### C-01: MAYBE\n", "'MAYBE' is no verdict"),
        ("### C-09: DEFER\n", "there is no claim C-09"),
        ("### C-01: DEFER\n\n### C-01: DEFER\n", "two verdicts on C-01"),
        ("### C-01: DEFER\n", "no verdict on C-02"),
        ("### Claim one: DEFER\n", "not a verdict"),
    ],
)
def test_unreadable_verdicts(text, message):
    """Every claim exactly once, with one of the four words."""
    with pytest.raises(Refused, match=message):
        handmade.verdicts(text, ["C-01", "C-02"], "defender.md")


@pytest.mark.parametrize("text", ["{", "[1]", '[{"claim": "C-01"}]', "{}", '"x"'])
def test_unreadable_verdicts_json(text):
    """One clean refusal."""
    with pytest.raises(Refused):
        handmade.verdicts_json(text, ["C-01"], "verdicts.json")


def test_own_claims_hold_entries_only():
    """--claim @file: kind from the first word below, quote, proposal; anything else is refused."""
    text = "### major: Too vague.\n\n> a quote\n> of two lines\n\nrisk, I think\n\n```delete\n```\n"
    (claim,) = handmade.claims(text, "mine.md")
    assert (claim.raised_by, claim.quote, claim.kind) == ("human", "a quote\nof two lines", "risk")
    assert (claim.severity, claim.action, claim.problem) == ("major", "delete", "Too vague.")
    for bad, line in (("## Claims\n### major: x\n", 1), ("just text\n", None)):
        with pytest.raises(Refused) as caught:
            handmade.claims(bad, "mine.md")
        assert caught.value.line == line


def test_no_engine_installed_is_scaffold_mode(root, monkeypatch):
    """The default profile without its packages."""
    monkeypatch.setattr("runner.settings._installed", lambda *_: False)
    assert runs.settings(None, None, root.parent).none
    assert not settings(root, "fake").none
