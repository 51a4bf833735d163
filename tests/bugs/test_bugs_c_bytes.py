"""C. Front matter and markdown bytes, each class on a whole round: opened, closed, and the file compared byte by byte.

Also proved elsewhere: all of C in tests/brain/test_front_matter.py, C12 in tests/test_render.py and, for any text, in
tests/bugs/test_bugs_structure.py.
"""

# ruff: noqa: N802 (a test has its class's letter in its name)

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import ALONE, LEAF, close, open_, record, tree, write
from hostile import Says, claim, debate, files, front, structure

SENTENCE = "The limit is the same for all shops."
BODY = f"\n# Limits\n\n{SENTENCE} Nobody has measured whether it is enough.\n"
POINTER = "source_debate: debate/limits/round-01"
GOOD = [claim(SENTENCE, "Each shop has its own limit.")]


def around(root: Path, raw: bytes, status: bytes = b"status: decided") -> bytes:
    """Open and close a round on this leaf; while it is open only the lines of the flip differ. The file afterwards."""
    write(root / LEAF, raw)
    open_(root)
    during = (root / LEAF).read_bytes()
    eol = b"\r\n" if raw.count(b"\r\n") * 2 > raw.count(b"\n") else b"\n"
    flipped = [status.replace(b"decided", b"hardening"), POINTER.encode(), b"pre_hardening_status: decided"]
    assert sorted(set(during.split(b"\n")) - set(raw.split(b"\n"))) == sorted(
        line + eol.removesuffix(b"\n") for line in flipped
    )
    close(root, status="rejected")
    after = (root / LEAF).read_bytes()
    lines = after.split(b"\n")
    added = [line for line in lines if line.startswith(POINTER.encode())]
    assert len(added) == 1 and added[0].endswith(eol.removesuffix(b"\n"))
    assert b"\n".join(line for line in lines if line not in added) == raw
    return after


def leaf(head: str, body: str = BODY) -> bytes:
    return f"---\n{head}---\n{body}".encode()


@pytest.mark.parametrize(
    "head",
    [
        "title: Limits\n# keep\nstatus: decided  # for now\n\nowner: 'al'\n# keep, too\nid: \"limits\"\ndomain: area\n",
        "status: decided\ncreated_at: 2026-04-22T09:00:00-07:00\nwindow: 10:00\nhalf: 1:30\ncode: 0010\n"
        "at: 2026-04-22\nyes: no\nbig: 1e3\nid: limits\n",
        f"id: limits\ntitle: {'决' * 120}\nstatus: decided\nnote: >-\n  folded\n  text\ntags: [a,   b]\n",
        f"id: limits\ntitle:\n  on the next line\nstatus: decided\nlong: {'word ' * 60}\n",
    ],
    ids=["C1_order_and_comments", "C2_dates_and_numbers", "C3_long_values", "C3_wrapped"],
)
def test_C1_C2_C3_front_matter(root, says, head):
    """Keys keep their order, comments, quotes, dates and length: three lines change, and two of them go again."""
    says(Says(GOOD))
    around(root, leaf(head), next(n for n in head.encode().split(b"\n") if n.startswith(b"status")))


def test_C3_our_own_files(root, says):
    """A title of 120 characters stands unescaped on one line in the files that we write."""
    title = "决定" * 60
    write(root / LEAF, leaf(f"id: limits\ntitle: {title}\nstatus: decided\n"))
    says(Says(GOOD))
    opened = open_(root)
    assert title in files(opened.place.folder)["defender.md"]
    assert [n for n in (opened.place.folder / "personas.yaml").read_text().split("\n") if "\\u" in n] == []


def refused(root: Path, raw: bytes, capsys: pytest.CaptureFixture[str]) -> str:
    """The message of `debate open` on this leaf; nothing is written."""
    write(root / LEAF, raw)
    before = tree(root)
    code = debate("open", f"project-brain/{LEAF}", "--personas", "red-team", "--feedback", "x", "--profile", "fake")
    assert code == 1 and tree(root) == before
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    return err


def test_C5_duplicate_keys(root, capsys):
    """Two `status` lines: refused, both named."""
    err = refused(root, leaf("id: limits\nstatus: decided\ntitle: L\nstatus: draft\n"), capsys)
    assert err.startswith(f"debate: project-brain/{LEAF}:5: ") and "status" in err and "3" in err


def test_C6_rules_in_the_body(root, says):
    """A table with a rule, a `---` line and a fence of front matter in the body end nothing."""
    says(Says(GOOD))
    body = f"{BODY}\n| a | b |\n|---|---|\n| 1 | 2 |\n\n---\n\n```yaml\n---\nstatus: draft\n---\n```\n---\n"
    around(root, leaf("id: limits\nstatus: decided\n", body))


@pytest.mark.parametrize("text", ["summary: |\n  first\n  ---\n  last\n", 'summary: "a\n  ---\n  b"\n'])
def test_C6_rule_in_a_value(root, capsys, text):
    """An indented `---` in a value, which readers take differently: refused with its line."""
    err = refused(root, leaf(f"id: limits\n{text}status: decided\n"), capsys)
    assert f"project-brain/{LEAF}:" in err.splitlines()[0] and "hint: " in err


def test_C7_C8_bom_and_line_ends(root, says):
    """A BOM with CRLF, three lines of them LF: kept to the byte; what we insert ends like most lines."""
    says(Says(GOOD))
    raw = b"\xef\xbb\xbf" + leaf("id: limits\ntitle: L\nstatus: decided\nowner: al\n").replace(b"\n", b"\r\n")
    mixed = raw.replace(b"owner: al\r\n", b"owner: al\n").replace(b"# Limits\r\n\r\n", b"# Limits\n\n")
    around(root, mixed, b"status: decided\r".removesuffix(b"\r"))


@pytest.mark.parametrize(
    "head",
    [
        "id:\tlimits\nstatus: decided\n",
        "id: limits\n\tstatus: decided\n",
        "id: !python/object:os.system limits\nstatus: decided\n",
        "id: !tag limits\nstatus: decided\n",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\nstatus: decided\n",
        f"id: limits\nstatus: decided\nnote: {'x' * 70000}\n",
        "id: limits\nstatus: decided\nnote: [1, 2\n",
        "id: limits\nstatus: decided\nnote: 'open\n",
        "id: limits\nstatus: decided\nnote: \x07bell\n",
        "id: limits\nstatus: decided\nat: 2026-13-45\n",
        "id: limits\nstatus: decided\nat: 2026-02-30T09:00:00Z\n",
        "id: limits\nstatus: [decided]\n",
        "id: limits\nstatus: {a: decided}\n",
    ],
)
def test_C10_odd_yaml(root, capsys, head):
    """Tabs, tags, aliases, a 70 KB value, what YAML does not read: one refusal with file and what to do."""
    err = refused(root, leaf(head), capsys)
    assert err.startswith(f"debate: project-brain/{LEAF}") and err.count("\n") == 2 and "\nhint: " in err


@pytest.mark.parametrize("value", ["0x", "1_000", ".inf", "~x", "1:99", "2026-1-1", "0o17", "12e03"])
def test_C10_odd_scalars(root, says, value):
    """What some reader takes for a number or a date is kept as it was written."""
    says(Says(GOOD))
    around(root, leaf(f"id: limits\nstatus: decided\nat: {value}\n"))


INJECTED = "\n---\nkind: leaf\n---\n# X\n\n## P-02\n\n```\n<script>alert(1)</script>\n| a | b |\n|---|---|\n"


def test_C12_model_text(root, says):
    """A claim that holds front matter, headings, a fence, HTML and a table: no file has a block more, and close and
    patches read the record, not the markdown."""
    skeletons = []
    for path, text in ((LEAF, "It is so."), (ALONE, INJECTED)):
        says(Says(
            [claim(SENTENCE, "Each shop has its own.", problem=text)],
            observations=(text,), questions=(text,), reason=text, labels=("CONCEDE", "DEFER"),
            synthesis={"themes": [{"title": f"It {text}"[:80], "text": text, "claims": ["C-01"]}], "tensions": [text],
                       "revisit": []},
        ))  # fmt: skip
        opened = open_(root, path, synthesizer=True, feedback="Is it so?")
        made = files(opened.place.folder)
        skeletons.append({name: (len(front(t)[0].split("\n")), structure(t)) for name, t in made.items()})
        assert [p["id"] for p in record(opened.place)["patches"]] == ["P-01"]
        assert close(root, path, status="applied").seeded is True
    assert skeletons[0] == skeletons[1] and "synthesizer.md" in skeletons[0]
    index = (root / "tree/alone/debate/index.md").read_text()
    assert index.count("\n| round-") == 1 and structure(index) == ["h1 Backups:"]
    assert structure((root / "tree/alone/debate/next-round-seed.md").read_text())[:2] == ["h1 Open", "h2 round-01/C-02"]
