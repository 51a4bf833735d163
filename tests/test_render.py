"""render.py: documents to bytes and back, and the files of a round."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from runner import render as r
from runner.errors import Refused
from runner.values import Amended, Claim, Document, Patch, Synthesis, Theme, Tryout, Verdict

HERE = Path(__file__).parent
FILES = HERE.parent / "prompts" / "files"
TEMPLATES = {p.name: p.read_text(encoding="utf-8") for p in sorted(FILES.glob("*.md"))}
ABOUT = r.About("Session store", 2, "session-store-round-02", "2026-03-01T09:00:00Z")

# ---- front matter: one table, written and read ---------------------------------------------------------------------

CASES = [
    (Document("a.md", "# A\n\ntext\n"), b"# A\n\ntext\n"),
    (Document("a.md", "x\n", (("id", "r-1"), ("n", 3))), b'---\nid: "r-1"\nn: 3\n---\n\nx\n'),
    (Document("a.md", "", (("id", ""),)), b'---\nid: ""\n---\n'),
    (Document("a.md", "---\nx\n", (("n", 0),)), b"---\nn: 0\n---\n\n---\nx\n"),
    (Document("a.md", "\n\nx\n", (("n", -7),)), b"---\nn: -7\n---\n\n\n\nx\n"),
    (Document("a.md", "a\r\nb\r\n"), b"a\r\nb\r\n"),
    (Document("a.md", "x\n", (("t", '---\n"\\\t'),)), b'---\nt: "---\\n\\"\\\\\\t"\n---\n\nx\n'),
    (
        Document("a.md", "x\n", (("t", "决 😀\x85\u2028\x7f"),)),
        '---\nt: "决 😀\\u0085\\u2028\\u007f"\n---\n\nx\n'.encode(),
    ),
    (Document("a.md", "x\n", (("t", "12:30"), ("k", "010"))), b'---\nt: "12:30"\nk: "010"\n---\n\nx\n'),
]


@pytest.mark.parametrize(("document", "data"), CASES)
def test_render(document: Document, data: bytes) -> None:
    """Keys in order, strings double-quoted on one line, integers plain, then the body."""
    assert r.render(document) == data


@pytest.mark.parametrize(("document", "data"), CASES)
def test_parse(document: Document, data: bytes) -> None:
    """The same table read."""
    assert r.parse(data, "a.md") == document


@pytest.mark.parametrize("document", [c[0] for c in CASES if c[0].front_matter])
def test_yaml_reads_the_same(document: Document) -> None:
    """A YAML library sees the values that were written."""
    head = r.render(document).decode().split("\n---\n")[0][4:]
    assert yaml.safe_load(head) == dict(document.front_matter)


@pytest.mark.parametrize(
    ("body", "data"),
    [("a", b"a\n"), ("a\n\n\n", b"a\n"), ("---\na\n", b"\n---\na\n"), ("\ud800", "\ufffd\n".encode())],
)
def test_render_makes_one_file_form(body: str, data: bytes) -> None:
    """One line feed at the end, no front matter by accident, always UTF-8."""
    assert r.render(Document("a.md", body)) == data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a\n\xff\n", "a.md:2: not UTF-8 text"),
        (b"---\nid: 1\n", "a.md:1: the front matter has no closing `---` line"),
        (b'---\nid: "x"\nid: x\n---\n', "a.md:3: not a front-matter line of ours"),
        (b'---\nid: "\\q"\n---\n', "a.md:2: not a front-matter line of ours"),
        (b"---\nn: 010\n---\n", "a.md:2: not a front-matter line of ours"),
    ],
)
def test_parse_refuses(data: bytes, message: str) -> None:
    """What is not in our form is refused with file and line."""
    with pytest.raises(Refused) as error:
        r.parse(data, "a.md")
    assert str(error.value).split("\n")[0] == message


NASTY = [
    "\n---\nkind: leaf\n---\n# X",
    "## P-02\n",
    "```\n# out\n````",
    "~~~",
    "<script>alert(1)</script>",
    "<!--",
    "| a | b |\n|---|---|",
    "x\r## y\r",
    "\u202eevil\u2069",
    "\x00\x07\x1b[31m",
    "\u2028# u\x85# v\x0c# w\x0b# v",
    "===",
    "---",
    "# h",
    "> q\n> ## r",
    "1. one",
    "- [ ] task",
    "    code",
    "\t# t",
    "[a]: http://x",
    "&lt;b&gt; &#60;",
    "{{PATCHES}} {{ISSUES}} {{CREATED_AT}}",
    "a_b __c__ *d* `e` \\",
    "``` ` `````",
    "\ud800",
    "plain words",
    "",
    "###",
]
TEXT = st.lists(st.sampled_from(NASTY), max_size=3).map("".join)


@settings(max_examples=80, deadline=None)
@given(TEXT, st.integers(-(10**17), 10**17))
def test_front_matter_round_trip(text: str, n: int) -> None:
    """Any text and any number come back, through our reader and through YAML."""
    text = text.replace("\ud800", "")
    document = Document("a.md", "body\n", (("a", text), ("n", n)))
    assert r.parse(r.render(document), "a.md") == document
    assert yaml.safe_load(r.render(document).decode().split("\n---\n")[0][4:]) == {"a": text, "n": n}


def test_personas_yaml() -> None:
    """The shape of step 5; charters on one line; `skipped` only when somebody was."""
    personas = [
        {"name": "red-team", "source": "conventions-10.2", "charter_path": "assets/persona-charters/red-team.md"},
        {"name": "devops-hat", "source": "ad-hoc", "charter_inline": 'Says "no":\n- deploy'},
    ]
    data = r.personas_yaml(2, "leaf", "full", personas, ["fresh-eyes-reader"])
    assert data == (
        b'round: 2\nscope: "leaf"\nreview_mode: "full"\npersonas:\n'
        b'  - name: "red-team"\n    source: "conventions-10.2"\n'
        b'    charter_path: "assets/persona-charters/red-team.md"\n'
        b'  - name: "devops-hat"\n    source: "ad-hoc"\n    charter_inline: "Says \\"no\\":\\n- deploy"\n'
        b'skipped:\n  - name: "fresh-eyes-reader"\n'
    )
    assert yaml.safe_load(data)["personas"] == personas
    assert b"skipped" not in r.personas_yaml(2, "leaf", "full", personas)


# ---- foreign text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain words, 3.5 of them (a > b) -> c: snake_case #12", None),
        ("a\n\n# b\r\n\tc", "a # b c"),
        ("# a ##", "\\# a \\#\\#"),
        ("- a", "\\- a"),
        ("-5 days", None),
        ("---", "\\---"),
        ("1. a", "1\\. a"),
        ("2026-03-01", None),
        ("> a", "\\> a"),
        ("*a* _b_ `c` [d](e) <f> |g| ~~h~~", "\\*a\\* \\_b\\_ \\`c\\` \\[d\\](e) &lt;f> \\|g\\| \\~\\~h\\~\\~"),
        ("__init__ &amp; &#60; R&D", "\\_\\_init\\_\\_ \\&amp; \\&#60; R&D"),
        ("\\<b> 1 < 2", "\\\\&lt;b> 1 < 2"),
        ("a\u202eb\x00c\ud800", "a⟨U+202E⟩b⟨U+0000⟩c⟨U+D800⟩"),
        ("a\u2028# b\x0c# c", "a # b # c"),
        (" \n", "(no text)"),
    ],
)
def test_flat(text: str, line: str | None) -> None:
    """One line that shows the words; None: as it is."""
    assert r.flat(text) == (text if line is None else line)


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("a *b*\n\n# c", "> a *b*\n>\n> # c"),
        ("a\r\nb\rc\n", "> a\n> b⟨U+000D⟩c"),
        ("\\<script>\n<!-- a < 3", "> \\&lt;script>\n> &lt;!-- a < 3"),
        ("\u202ea\x85", "> ⟨U+202E⟩a⟨U+0085⟩"),
        ("", ""),
    ],
)
def test_quoted(text: str, block: str) -> None:
    """Every line in the quote, markdown as it is, HTML and hidden characters shown."""
    assert r.quoted(text) == block


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("a", "```diff\na\n```"),
        ("a\n", "```diff\na\n```"),
        ("", "```diff\n```"),
        ("x ````` y\n```", "``````diff\nx ````` y\n```\n``````"),
    ],
)
def test_fenced(text: str, block: str) -> None:
    """The fence is longer than any run of backticks inside."""
    assert r.fenced(text, "diff") == block


# ---- templates -----------------------------------------------------------------------------------------------------


def test_our_templates_need_no_warning() -> None:
    """The shipped templates are complete."""
    assert list(TEMPLATES) == ["feedback-in.md", "open-issues.md", "proposed-patches.md"]
    assert [w for name, text in TEMPLATES.items() for w in r.template_warnings(name, text)] == []


def test_template_warnings() -> None:
    """Unknown names, missing places and front matter of its own are named, each once."""
    text = "---\nid: {{X}}\n---\n# {{ FOO }} {{FOO}} {{bar}} {{ARTIFACT_TITLE}} { {x} }\n"
    assert r.template_warnings("open-issues.md", text) == (
        "open-issues.md: unknown placeholder {{FOO}} becomes empty",
        "open-issues.md: unknown placeholder {{bar}} becomes empty",
        "open-issues.md: no {{ISSUES}}; its text is added at the end",
        "open-issues.md: its front matter is left out",
    )
    assert r.template_warnings("open-issues.md", "{{ENTRIES}}\r\n") == ()


def test_substitution_is_one_pass() -> None:
    """A placeholder in inserted text stays as it is; an unknown one in the template is empty."""
    feedback = "Use {{CARRY_FORWARD}} and {x} and $y \\1"
    got = r.feedback_in(
        ABOUT, "leaf", "full", [], feedback, "{{FEEDBACK_BODY}}", "{{FEEDBACK_BODY}}|{{NO}}|{{CARRY_FORWARD}}"
    )
    assert got == Document("feedback-in.md", feedback + "||{{FEEDBACK_BODY}}\n")


def test_a_template_cannot_lose_the_entries() -> None:
    """Text without its placeholder comes at the end; the template's front matter gives way to ours."""
    got = r.open_issues([], [], [], ABOUT, "---\nid: mine\n---\n\n# Ours, round {{ROUND_NUMBER}} {{ROUND_ID}}\r\n")
    assert r.render(got) == (
        b'---\nid: "session-store-round-02-open-issues"\nkind: "open-issues"\n'
        b'created_at: "2026-03-01T09:00:00Z"\n---\n\n'
        b"# Ours, round 02 session-store-round-02\n\nNo open issues.\n"
    )


def test_feedback_is_verbatim() -> None:
    """The user's brief and the carried seed are byte for byte in the file."""
    brief, seed = "\n# Mine\r\n---\n```\n{{X}}\t<b>", "## round-01/C-02 major: x\n\n> q\n"
    data = r.render(r.feedback_in(ABOUT, "leaf", "full", ["a"], brief, seed, TEMPLATES["feedback-in.md"]))
    assert brief.encode() in data and seed.encode() in data


# ---- the files of a round ------------------------------------------------------------------------------------------

CLAIMS = (
    Claim(
        "C-01", "red-team", "We keep sessions 30 days.", "unsupported", "Nobody says why 30 days.", "major", "replace",
        "We keep sessions 7 days.", 36, 61, (12, 12), "exact", "C-01",
    ),
    Claim(
        "C-02", "fresh-eyes-reader", "sessions 30 days", "unsupported", "No reason for 30 days is given", "minor",
        "none", "", 44, 60, (12, 12), "exact", "C-01",
    ),
    Claim(
        "C-03", "red-team", "See *below*.\n\nTODO", "broken-reference", "There is no `below`.", "nit", "delete", "",
        70, 88, (14, 16), "exact", "C-03",
    ),
    Claim(
        "C-04", "carry-forward", "We retry.", "ambiguity", "Who retries?", "blocker", "replace", "The client retries.",
        anchor="ambiguous", cluster="C-04",
    ),
    Claim("C-05", "red-team", "an invented quote", "risk", "It may fail.", "minor", "none", cluster="C-05"),
    Claim("C-06", "human", "", "other", "Say who owns this.", "major", "none", cluster="C-06"),
)  # fmt: skip
VERDICTS = (
    Verdict("C-01", "CONCEDE", "measured", "The number has no source.", 0.829, True, "choices"),
    Verdict("C-02", "REJECT", "measured", "Said twice.", 0.44, True, "choices"),
    Verdict(
        "C-03", "CONCEDE-IN-PART", "measured", "Only the TODO.", 0.61, False, "choices",
        Amended("replace", "See *above*."),
    ),
    Verdict("C-04", "CONCEDE", "reply", "True."),
    Verdict("C-05", "DEFER", "engine", ""),
    Verdict("C-06", "REJECT", "measured", "The front matter says it.", 0.9, False, "choices"),
)  # fmt: skip
PATCHES = (
    Patch(
        "P-01", "C-01", 36, 61, "We keep sessions 7 days.", b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-30\n+```7\n",
        flags=("overlaps P-02",),
    ),
    Patch("P-02", "C-03", 70, 88, "See *above*.\u202e", b"--- a/x\n+++ b/x\n@@ -4 +4 @@\n-\r\n+a\r\n"),
    Patch("H-01", "C-04", None, None, "The client retries.", by_hand="the quote occurs more than once in the document"),
)  # fmt: skip
REVIEW = Tryout(
    "red-team", "done", ("The text is short.", "Two sections."), CLAIMS[:1] + CLAIMS[2:6], ("Who decides?",)
)
SYNTHESIS = Synthesis(
    (Theme("Numbers", "The numbers have no source.", ("C-01", "C-02")), Theme("Ends", "Loose.", ())),
    ("Short against complete.",),
    ("C-06",),
)

GOLDEN = {
    "tryout.md": r.tryout(REVIEW, ABOUT),
    "tryout-empty.md": r.tryout(Tryout("red-team", "done"), ABOUT),
    "tryout-failed.md": r.tryout(Tryout("red-team", "failed", cause="degenerate"), ABOUT),
    "defender.md": r.defender(CLAIMS, VERDICTS[:5], ABOUT, ["Every claim was conceded."], "Measured by fake 1.0."),
    "defender-empty.md": r.defender([], [], ABOUT),
    "synthesizer.md": r.synthesizer(SYNTHESIS, CLAIMS, ABOUT),
    "synthesizer-empty.md": r.synthesizer(Synthesis((), (), ()), [], ABOUT),
    "proposed-patches.md": r.proposed_patches(CLAIMS, VERDICTS, PATCHES, ABOUT, TEMPLATES["proposed-patches.md"]),
    "proposed-patches-empty.md": r.proposed_patches(CLAIMS, VERDICTS, [], ABOUT, TEMPLATES["proposed-patches.md"]),
    "open-issues.md": r.open_issues(CLAIMS, VERDICTS, ["C-06", "C-01"], ABOUT, TEMPLATES["open-issues.md"]),
    "open-issues-empty.md": r.open_issues([], [], [], ABOUT, TEMPLATES["open-issues.md"]),
    "feedback-in.md": r.feedback_in(
        ABOUT, "leaf", "full", ["red-team", "fresh-eyes-reader"], "Is the retention *right*?", None,
        TEMPLATES["feedback-in.md"],
    ),
    "transcript.md": r.transcript([("2026-03-01T09:00:00Z", "round opened"), ("2026-03-01T09:01:00Z", "x\ny")], ABOUT),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str) -> None:
    """Each kind of file is what its golden file says; DEBATE_UPDATE_GOLDEN=1 writes them anew."""
    file = HERE / "golden" / "render" / name
    if os.environ.get("DEBATE_UPDATE_GOLDEN") == "1":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(r.render(GOLDEN[name]))
    assert r.render(GOLDEN[name]) == file.read_bytes()


def test_every_golden_file_is_used() -> None:
    """No golden file is left behind."""
    assert sorted(p.name for p in (HERE / "golden" / "render").iterdir()) == sorted(GOLDEN)


def test_paths() -> None:
    """Each file stands where § 7 says."""
    names = ["tryout.md", "defender.md", "synthesizer.md", "proposed-patches.md", "open-issues.md", "feedback-in.md"]
    assert [GOLDEN[n].path for n in names] == ["tryouts/red-team.md", *names[1:]]
    assert GOLDEN["transcript.md"].path == "transcript.md"


def test_second_look_lists_the_doubtful_rejects() -> None:
    """A REJECT with a confidence under 0.5, or 0, or with disagreeing orders; no other verdict, no unmeasured one."""
    verdicts = [
        Verdict("C-01", "REJECT", "measured", "r", 0.5, True),
        Verdict("C-02", "REJECT", "measured", "r", 0.0, True),
        Verdict("C-03", "REJECT", "measured", "r", 0.9, False),
        Verdict("C-04", "DEFER", "close", "r", 0.3, False),
        Verdict("C-05", "REJECT", "reply", "r"),
    ]
    body = r.defender(CLAIMS, verdicts, ABOUT).body
    listed = body.split("## REJECTs worth a second look\n\n")[1].split("\n\n")[0]
    assert listed == (
        "- C-02 (confidence 0.00, cause measured, both label orders agreed): No reason for 30 days is given\n"
        "- C-03 (confidence 0.90, cause measured, the two label orders disagreed): There is no \\`below\\`."
    )


def test_no_open_issue_has_no_entry() -> None:
    """A file without issues has no `## ` line, so that no seed is made of it."""
    assert [line for line in GOLDEN["open-issues-empty.md"].body.split("\n") if line.startswith("##")] == []


# ---- no text changes a file's structure ----------------------------------------------------------------------------


def headings(data: bytes) -> list[str]:
    """A reader of structure: headings outside front matter, quotes and fences; any line end of markdown counts."""
    text = data.decode()
    if text.startswith("---\n"):
        text = text.partition("\n---\n")[2]
    found, fence = [], ""
    for line in re.split("\r\n|\n|\r", text):
        mark = re.match(" {0,3}(`{3,}|~{3,})", line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif mark:
            fence = mark[1]
        elif re.match(" {0,3}#{1,6}([ \t]|$)", line):
            found.append(line)
        else:
            assert not re.match(r" {0,3}(===*|---*|\*\*\*|<|\||\t)|    ", line), line
    assert not fence
    return found


@settings(max_examples=120, deadline=None)
@given(st.lists(TEXT, min_size=8, max_size=8), st.sampled_from(["exact", "ambiguous", "unanchored"]))
def test_text_never_changes_the_structure(t: list[str], place: str) -> None:
    """Whatever a model or a document says, the headings are ours, and text behind them is one escaped line."""
    about = replace(ABOUT, title=t[0])
    claim = Claim("C-01", t[1], t[2], "risk", t[3], "nit", "replace", t[4], anchor=place)  # type: ignore[arg-type]
    verdict = Verdict("C-01", "CONCEDE-IN-PART", "reply", t[5], amended=Amended("replace", t[6]))
    diff = Patch(
        "P-01", "C-01", 0, 1, t[4], b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n+" + t[4].encode("utf-8", "replace") + b"\n"
    )
    hand = Patch("H-01", "C-01", None, None, t[4], by_hand="no edit was proposed")
    problem = r.flat(t[3])
    review = Tryout("red-team", "done", (t[5], t[6]), (claim,), (t[7],))
    apart = ["## Claims without a place in the document"] if place == "unanchored" else []
    assert headings(r.render(r.tryout(review, about))) == [
        "# Review by red-team", "## Observations", "## Claims", *apart, f"### nit: {problem}", "## Open questions",
    ]  # fmt: skip
    failed = Tryout("red-team", "failed", cause=t[1])
    assert headings(r.render(r.tryout(failed, about))) == ["# Review by red-team"]
    assert headings(r.render(r.defender([claim], [verdict], about, [t[7]], t[1] or "x"))) == [
        "# Verdicts of the defender", "## Diagnostics", "## Verdicts", "### C-01: CONCEDE-IN-PART",
    ]  # fmt: skip
    synthesis = Synthesis((Theme(t[1], t[2], (t[3],)),), (t[4],), ("C-01", t[5]))
    assert headings(r.render(r.synthesizer(synthesis, [claim], about))) == [
        "# Synthesis", "## Themes", f"### {r.flat(t[1])}", "## Tensions", "## REJECTs to revisit",
    ]  # fmt: skip
    patches = r.proposed_patches([claim], [verdict], [diff, hand], about, TEMPLATES["proposed-patches.md"])
    assert headings(r.render(patches)) == [
        "# Proposed patches", f"## P-01 C-01 nit: {problem}", f"## H-01 C-01 nit: {problem}",
    ]  # fmt: skip
    issues = r.open_issues([claim], [replace(verdict, verdict="DEFER")], [], about, TEMPLATES["open-issues.md"])
    assert headings(r.render(issues)) == ["# Open issues", f"## round-02/C-01 nit: {problem}"]
    assert headings(r.render(r.transcript([(t[1], t[2])], about))) == ["# Transcript"]
    assert r.parse(r.render(issues)).front_matter == issues.front_matter


@settings(max_examples=150, deadline=None)
@given(TEXT)
def test_flat_is_one_line_without_markup(text: str) -> None:
    """No reader of lines sees a second one, and no unescaped character of markup is left."""
    line = r.flat(text)
    assert line and line.splitlines() == [line] and line == line.strip()
    assert not re.search(r"[`*\[\]|~]|<[a-z/!?]", re.sub(r"\\.", "", line))
    assert not re.match(r"#|>|=|[-+] |---|\d+[.)] ", line)
    json.dumps(line).encode("utf-8")
