"""Any text of a model, any document: the structure of a round's files is what we made, and patches fit to the byte.

The blocks that a markdown reader sees are compared with those that follow from the record alone.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from helpers import ALONE, load, make, open_, record
from hostile import Says, claim, fences, files, front, patched, structure
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runner import render
from runner.engines import fake
from runner.rounds import patches

HEAD = b"---\nid: backups\ntitle: Backups\nstatus: 'specified' # soon\ndomain: alone\n---\n"
MARKS = st.sampled_from([
    "---", "# ", "## P-02", "```", "~~~", "> ", "- ", "| a |", "<script>", "<!--", "-->", "{{PATCHES}}", "&amp;", "\n",
    "\r\n", "\r", "\t", "\x00", "\x1b[2J", "\u2028", "\x85", "\u200b", "\u202e", "\ufeff", "\\", "`", "*", "_",
    "[x](y)", "===", "<|im_end|>", "C-01: CONCEDE", "1. ", "    ", "**", "![", "::error::", "é", "决", "🙂",
    "a word", "\ue0000\ue001",
])  # fmt: skip
TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60), st.lists(MARKS, max_size=12).map("".join)
)
SMALL = settings(
    max_examples=40, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


class Brain:
    """A tiny brain whose leaf has this body; gone afterwards."""

    def __init__(self, body: bytes) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.root = make(self.folder / "project")
        (self.root / ALONE).write_bytes(HEAD + body)

    def __enter__(self) -> Path:
        return self.root

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder)


def review(root: Path, said: Says) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake, "answer", said)
        return open_(root, ALONE, personas=("red-team",), feedback="Is it complete?", synthesizer=True)


def blocks(data: dict[str, Any]) -> dict[str, list[str]]:
    """Headings and fences of each file, as they follow from the record."""
    claims = {c["id"]: c for c in data["claims"]}
    mine = [c for c in data["claims"] if c["raised_by"] == "red-team"]
    (person,) = data["personas"]

    def raised(cs: list[dict[str, Any]], out: list[str]) -> None:
        for c in cs:
            out += [f"h3 {c['severity']}:"] + (["quote"] if c["quote"].strip("\n") else [])
            out += [f"fence {c['action']}"] if c["action"] != "none" else []

    tryout = ["h1 Review", "h2 Observations", *bullets(person["observations"]), "h2 Claims"]
    loose = [c for c in mine if c["anchor"] == "unanchored"]
    raised([c for c in mine if c not in loose], tryout)
    tryout += ["h2 Claims"] if loose else []
    raised(loose, tryout)
    tryout += ["h2 Open", *bullets(person["open_questions"])]
    defender = ["h1 Verdicts", *(["h2 Diagnostics", "bullet_list_open"] if data["diagnostics"] else [])]
    doubts = [v for v in data["verdicts"] if v["verdict"] == "REJECT" and v["confidence"] < 0.5]
    defender += ["h2 REJECTs", "bullet_list_open"] if doubts else []
    defender.append("h2 Verdicts")
    for v in data["verdicts"]:
        defender += [f"h3 {v['claim']}:", *quote(claims[v["claim"]]), "bullet_list_open"]
        defender += amended(v)
    proposed = ["h1 Proposed"]
    for p in data["patches"]:
        c = claims[p["claim"]]
        v = next(v for v in data["verdicts"] if v["claim"] == p["claim"])
        by_hand = [
            *quote(c),
            *(amended(v) if v["verdict"] != "CONCEDE" else [f"fence {c['action']}"][: c["action"] != "none"]),
        ]
        proposed += [f"h2 {p['id']}", *(by_hand if p["by_hand"] else ["fence diff"])]
    issues = ["h1 Open"]
    for v in data["verdicts"]:
        issues += [f"h2 round-01/{v['claim']}", *quote(claims[v["claim"]])] if v["verdict"] == "DEFER" else []
    made = {"tryouts/red-team.md": tryout, "defender.md": defender, "proposed-patches.md": proposed}
    return made | {"open-issues.md": issues, "transcript.md": ["h1 Transcript", "bullet_list_open"]}


def bullets(texts: list[str]) -> list[str]:
    return ["bullet_list_open"] if texts else []


def quote(c: dict[str, Any]) -> list[str]:
    return ["quote"] if c["quote"] else []


def amended(v: dict[str, Any]) -> list[str]:
    found = v["amended"]
    return [f"fence {found['action']}"] if found and found["action"] != "none" else []


def check(root: Path, opened: Any) -> None:
    """Structure of all files, and the diffs as they stand in the file against what applying does."""
    made, data = files(opened.place.folder), record(opened.place)
    for name, expected in blocks(data).items():
        assert structure(made[name]) == expected, (name, made[name])
    for name, text in made.items():
        again = render.parse(text.encode(), name)
        assert (again.front_matter == ()) is (front(text)[0] == "") and render.render(again) == text.encode()
        keys = [key for key, _ in again.front_matter]
        assert keys == (["id", "kind", "created_at"] if name in ("proposed-patches.md", "open-issues.md") else [])
    base = (root / ALONE).read_bytes()
    diffs = fences(made["proposed-patches.md"], "diff")
    applied = [p for p in data["patches"] if not p["by_hand"]]
    assert len(diffs) == len(applied)
    for patch, diff in zip(applied, diffs, strict=True):
        (root / ALONE).write_bytes(base)
        (opened.place.run / "applied.jsonl").unlink(missing_ok=True)
        body = load(root, ALONE).body
        patches.apply(opened.place, load(root, ALONE), [patch["id"]])
        start, end = patch["start"], patch["end"]
        expected = base.removesuffix(body) + body[:start] + patch["replacement"].encode() + body[end:]
        assert (root / ALONE).read_bytes() == expected == patched(base, diff.encode())


BODY = b"\n# Backups\n\nThe old version stays for a week. It is started again by hand.\n\nMost failures are noticed.\n"


@SMALL
@given(st.lists(TEXT, min_size=6, max_size=6), st.sampled_from(["CONCEDE", "CONCEDE-IN-PART", "DEFER", "REJECT"]))
@example(["---\nid: x\n---\n# X"] * 6, "CONCEDE")
@example(["`" * 20 + "\n# X\n" + "`" * 20] * 6, "CONCEDE-IN-PART")
@example(["\r\n\r\n## P-02 x\r\n<!--"] * 6, "DEFER")
def test_any_text_of_a_model(texts, label):
    """Whatever stands in problem, reason, replacement, observation, question, title: the same blocks in every file."""
    problem, reason, new, observation, amends, title = texts
    said = Says(
        [
            claim("The old version stays for a week.", new, problem=problem[:240] or "x"),
            claim("Most failures are noticed.", f"All {new}"[:240], problem=f"x {problem}"[:240]),
            claim(observation or "not there", new, problem="Somewhere."),
        ],
        observations=(observation,), questions=(title, reason[:120]), reason=reason or "x", labels=(label,),
        amended=amends,
        synthesis={"themes": [{"title": title[:80], "text": reason, "claims": ["C-01"]}], "tensions": [title],
                   "revisit": []},
    )  # fmt: skip
    with Brain(BODY) as root:
        opened = review(root, said)
        check(root, opened)
        synthesis = structure(files(opened.place.folder)["synthesizer.md"])
        assert [b.split(" ")[0] for b in synthesis] == ["h1", "h2", "h3", "h2", "bullet_list_open", "h2"]
        json.dumps(record(opened.place)).encode()


DOCUMENT = st.lists(st.one_of(MARKS, st.text(max_size=20), st.just("A sentence of some words. ")), max_size=25)


@SMALL
@given(DOCUMENT.map("".join).map(lambda t: t.encode("utf-8", "replace")), st.booleans())
@example(b"", True)
@example(b"\n---\nkind: leaf\n---\n# X\n```\nAn open fence with words\n", True)
@example(b"\r\nA line of words with\r\nanother.\r\n<script>and one more line</script>", True)
@example(b"# T\n\nNo last line end here", False)
def test_any_document(body, delete):
    """Whatever the body holds, a claim on each of its passages gives files of the same blocks, and patches that fit."""

    def claims(quotes):
        return [claim(q[:200], "" if delete else f"{q[:100]} changed", problem="It is unclear.") for q in quotes[:3]]

    theme = {"title": "T", "text": "Text.", "claims": ["C-01"]}
    said = Says(claims, synthesis={"themes": [theme], "tensions": [], "revisit": []})
    with Brain(body) as root:
        check(root, review(root, said))
