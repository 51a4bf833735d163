"""Issues from one round to the next, and many rounds in a row."""

from __future__ import annotations

import pytest
from helpers import (
    FOLDER,
    LEAF,
    THREAD,
    abort,
    close,
    load,
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

from runner.brain.index import read
from runner.errors import Incomplete
from runner.rounds import seed


@pytest.mark.parametrize("path", [LEAF, FOLDER, THREAD])
def test_carried_on(root, script, path):
    """The next round's brief shows the issues, they become its first claims with a verdict each, the seed goes."""
    open_(root, path)
    close(root, path, revisit=("C-04",))
    history = place_of(root, path).history
    text = (history / "next-round-seed.md").read_text()
    opened = open_(root, path)
    assert not (history / "next-round-seed.md").exists()
    brief = (opened.place.folder / "feedback-in.md").read_text()
    assert brief.endswith("## Carried forward\n\n" + seed.body_of(text))
    assert [(c.id, c.raised_by, c.problem, c.quote) for c in opened.result.claims[:2]] == [
        ("C-01", "carry-forward", "Doubt about has.", "Nobody has measured whether it is enough."),
        ("C-02", "carry-forward", "Doubt about old.", "The old version stays for a week."),
    ]
    assert [c.raised_by for c in opened.result.claims[2:]] == ["red-team"] * 2 + ["fresh-eyes-reader"] * 2
    assert [v.claim for v in opened.result.verdicts] == [f"C-{n:02d}" for n in range(1, 7)]
    assert opened.result.verdicts[0].cause == "measured"


def test_quotes_are_sought_again(root, script):
    """In the body as it is now: moved, it has new lines; gone, the claim stays without a place."""
    open_(root)
    close(root, revisit=("C-04",))
    replace(root / LEAF, "# tree/area/limits.md\n", "# tree/area/limits.md\n\nA new paragraph.\n")
    replace(root / LEAF, "stays for a week", "stays for a month")
    first, second = open_(root).result.claims[:2]
    body = load(root).body
    assert body[first.start : first.end] == b"Nobody has measured whether it is enough."
    assert first.anchor == "exact"
    assert (
        (root / LEAF)
        .read_bytes()
        .split(b"\n")[first.lines[0] - 1]
        .endswith(b"Nobody has measured whether it is enough.")
    )
    assert (second.anchor, second.lines, second.start) == ("unanchored", None, None)


def test_entry_of_a_person(root, script):
    """An entry that no record knows is read as it stands; a heading in code is none."""
    text = """---
id: x
---

# Mine

## major: Who pays?

> The limit is the same
> for all shops.

> The old version stays for a week.

## nit: A week is long.

> The old version stays for a week.

DEFER · line 3

```replace
The old version stays for a day.
```

````
## nit: No entry.
```
## nit: No entry.
````
## round-07/C-01 blocker: Lost.

> Nobody has measured whether it is enough.

~~~delete
~~~
## OI-01: of the pack's
"""
    write((root / FOLDER).parent / "debate/next-round-seed.md", text.encode())
    claims = open_(root, FOLDER).inputs.review.carried
    assert [(c.severity, c.problem, c.quote, c.action, c.replacement, c.anchor) for c in claims] == [
        ("major", "Who pays?", "The limit is the same\nfor all shops.", "none", "", claims[0].anchor),
        (
            "nit",
            "A week is long.",
            "The old version stays for a week.",
            "replace",
            "The old version stays for a day.",
            "exact",
        ),
        ("blocker", "Lost.", "Nobody has measured whether it is enough.", "delete", "", "exact"),
        ("minor", "OI-01: of the pack's", "", "none", "", "unanchored"),
    ]
    assert {(c.raised_by, c.kind) for c in claims} == {("carry-forward", "other")}


def test_long_entry(root, script):
    """What a person writes at length is cut to what a reviewer may say, so that the prompts still fit."""
    text = f"## nit: {'p' * 500}\n> The limit is the same for all shops.{'q' * 500}\n```replace\n{'r' * 500}\n```\n"
    write((root / FOLDER).parent / "debate/next-round-seed.md", text.encode())
    (claim,) = open_(root, FOLDER).inputs.review.carried
    assert (len(claim.problem), len(claim.quote), len(claim.replacement)) == (240, 200, 240)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", False),
        ("No open issues.\n", False),
        ("## x", True),
        ("# x\n### y\n##z\n ## w\n", False),
        ("---\n## a: b\n---\n", False),
        ("\ufeff---\n## a: b\n---\n", False),
        ("---\nno front matter\n## x\n", True),
        ("\r\n## x\r\n", True),
        ("```\n## x\n```\n", False),
        ("```\n## x\n~~~\n```\n## y\n", True),
        ("~~~~\n## x\n~~~\n## y\n", False),
    ],
)
def test_holds_entries(text, holds):
    """A `## ` heading at the beginning of a line, after the front matter and outside code."""
    assert seed.holds_entries(text) is holds


@pytest.mark.parametrize("path", [LEAF, THREAD])
def test_abort_restores_the_seed(root, script, path):
    """An interrupted round has not consumed it; abort leaves it as it was; the next open consumes it."""
    open_(root, path)
    close(root, path)
    before = tree(root, local=True)
    with pytest.raises(Incomplete):
        open_(root, path, profile(root, "ill", faults={"reviewer/red-team*": "timeout"}))
    abort(root, path)
    assert tree(root, local=True) == before
    assert open_(root, path).result.claims[0].raised_by == "carry-forward"


def test_resume_keeps_the_carried_claims(root, script):
    """They come from what was stored, not from the seed as it is then; a changed seed waits for the next round."""
    open_(root)
    close(root)
    path = place_of(root).history / "next-round-seed.md"
    with pytest.raises(Incomplete):
        open_(root, name=profile(root, "ill", faults={"reviewer/red-team*": "timeout"}))
    path.write_bytes(b"## nit: Another.\n")
    assert resume(root).result.claims[0].problem == "Doubt about has."
    assert path.read_bytes() == b"## nit: Another.\n"


@pytest.mark.parametrize("path", [LEAF, THREAD])
def test_ten_rounds(root, script, path):
    """Each continues the last; the index has ten closed rows, the artifact its old status and the newest pointer."""
    raw = (root / path).read_bytes()
    statuses = ["applied", "partial", "rejected"]
    for n in range(1, 11):
        opened = open_(root, path)
        assert (opened.place.number, state(root, path)) == (n, "open")
        close(root, path, statuses[n % 3])
    index = read((opened.place.history / "index.md").read_bytes(), "index.md")
    assert [row.cells["Round"] for row in index.rows.values()] == [f"round-{n:02d}" for n in range(1, 11)]
    assert [row.cells["Patches"] for row in index.rows.values()] == [statuses[n % 3] for n in range(1, 11)]
    home = opened.place.folder.relative_to((root / path).parent)
    old, new = (
        (b"status: decided\n", f"status: decided\nsource_debate: {home}\n".encode())
        if path == LEAF
        else (b'"refining"\n', f'"refining"\nlast_debate_round: {home}\n'.encode())
    )
    assert (root / path).read_bytes() == raw.replace(old, new)
    assert len({record(opened.place)["artifact"]["sha256_body"]}) == 1
