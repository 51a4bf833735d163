"""The context of a question: its words counted, what it names in the project read, nothing outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.debates.question import MAX_WORDS, Found, check_question, context, count, lookup, vague
from runner.errors import Refused


def about(question: str, project: Path, file: str = "", **given: str):
    return context(question, given, file, None, project, project)


@pytest.mark.parametrize(
    ("text", "words"), [("one two  three", 3), ("", 0), ("決策 is made", 4), ("a-b, c", 2), ("日本語", 3)]
)
def test_words(text: str, words: int) -> None:
    """Blanks part words; a script without blanks counts by the character."""
    assert count(text) == words


@pytest.mark.parametrize("text", ["", "   ", "?", "\n\n"])
def test_empty_question(text: str) -> None:
    """Nothing to debate."""
    with pytest.raises(Refused, match="the question is empty"):
        check_question(text)


@pytest.mark.parametrize("text", ["word " * 201, "x" * 4001])
def test_huge_question(text: str) -> None:
    """Refused with its size, and where the rest belongs."""
    with pytest.raises(Refused, match=r"the question has \d+ words \(\d+ characters\)") as caught:
        check_question(text)
    assert "--context-file" in str(caught.value.hint)


def test_question_is_one_line() -> None:
    """Line breaks and runs of blanks are one blank."""
    assert check_question(" Should we\n\n wait? ") == "Should we wait?"


@pytest.mark.parametrize(
    ("question", "unclear"), [("Postgres?", True), ("the plan", True), ("Rust or Go", False), ("Should we wait?", True),
                              ("Should we wait longer?", False)],
)  # fmt: skip
def test_vague(question: str, unclear: bool) -> None:
    """A word or two that name no choice."""
    assert vague(question) is unclear


def test_block_of_the_options(tmp_path: Path) -> None:
    """The specification's four lines, in its order; what was not given is left out."""
    found = about("Q?", tmp_path, decision="Where  to\nstore", leaning="Redis", stakes="Money")
    assert (
        found.text == ("CONTEXT FOR DEBATE:\n- Decision: Where to store\n- Current leaning: Redis\n- Stakes: Money")
        or found.text == "CONTEXT FOR DEBATE:\n- Decision: Where to store\n- Stakes: Money\n- Current leaning: Redis"
    )
    assert found.leaning


def test_block_of_a_file(tmp_path: Path) -> None:
    """As it is, its own heading not doubled; a leaning in it is seen."""
    found = about("Q?", tmp_path, "CONTEXT FOR DEBATE:\n- Stakes: money\n- Current leaning: Redis\n")
    assert found.text == "CONTEXT FOR DEBATE:\n- Stakes: money\n- Current leaning: Redis"
    assert found.leaning
    assert about("Q?", tmp_path, "Leaning towers are old.").leaning
    assert not about("Q?", tmp_path, "We are leaning back.").leaning


def test_no_block(tmp_path: Path) -> None:
    """A bare question has none."""
    assert about("Q?", tmp_path).text == ""


@pytest.mark.parametrize("where", ["file", "option"])
def test_201_words(tmp_path: Path, where: str) -> None:
    """200 words are taken, 201 are refused with the number."""
    for n, refused in ((200, False), (201, True)):
        text = "word " * n
        given = {"file": text} if where == "file" else {"decision": text}
        if not refused:
            assert count(about("Q?", tmp_path, **given).text) >= 200
            continue
        with pytest.raises(Refused, match="the context has 201 words"):
            about("Q?", tmp_path, **given)


def test_one_endless_word(tmp_path: Path) -> None:
    """Characters count too."""
    with pytest.raises(Refused, match=r"the context has 1 words \(5000 characters\)"):
        about("Q?", tmp_path, "x" * 5000)


# ---- what the question names ---------------------------------------------------------------------------------------


def test_named_files_are_read(tmp_path: Path) -> None:
    """Within the words that are left, shared between them; front matter is left out."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("---\ntitle: A\n---\n" + "alpha " * 300)
    (tmp_path / "b.txt").write_text("beta " * 10)
    found = about("Is `docs/a.md` better than b.txt?", tmp_path, "word " * 50)
    assert [f.words for f in found.found] == [(75, 300), (10, 10)]
    assert found.text.count("alpha") == 75 and "title" not in found.text
    assert count(found.text.partition("\n")[2]) <= MAX_WORDS + 6  # the labels of the lines are ours
    assert [f.line for f in found.found][1].endswith("b.txt: 10 of 10 words read")


def test_outside_is_named_not_read(tmp_path: Path) -> None:
    """By `..`, absolute, or through a link: nothing outside the project is read."""
    project = tmp_path / "p"
    project.mkdir()
    (tmp_path / "secret.md").write_text("secret")
    (project / "link.md").symlink_to(tmp_path / "secret.md")
    for name in ("../secret.md", str(tmp_path / "secret.md"), "link.md"):
        found = about(f"What of {name}?", project)
        assert (found.text, found.found) == ("", (Found(name, why="outside the project"),))


def test_what_does_not_exist_is_a_word(tmp_path: Path) -> None:
    """and/or, a folder, a URL, a version: none is a file."""
    (tmp_path / "docs").mkdir()
    assert about("Tabs and/or spaces in docs/ v1.2 https://example.org/x.md?", tmp_path).found == ()


def test_binary_and_full(tmp_path: Path) -> None:
    """A binary file is described, a file without room is named."""
    (tmp_path / "a.bin").write_bytes(b"\0\1\2")
    (tmp_path / "b.md").write_text("text")
    (one,) = about("What of a.bin?", tmp_path).found
    assert "binary file" in one.why and one.text == ""
    (two,) = about("What of b.md?", tmp_path, "word " * 200).found
    assert (two.text, two.why) == ("", "the context has its 200 words already")


def test_brain_links(demo: Path) -> None:
    """A link as a leaf's soft links write it, from the brain's root; and a leaf by its path in the project."""
    project = demo.parent
    for name in (
        "/tree/auth/session-store.md",
        "tree/auth/session-store.md",
        "project-brain/tree/auth/session-store.md",
    ):
        (found,) = lookup(f"Is {name} right?", demo, project, project, 20)
        assert found.name.endswith("tree/auth/session-store.md") and found.words[0] == 20
