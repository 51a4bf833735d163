"""The handoff, the session that allows a debate, and the files that the handoff lists."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.debates import handoff
from runner.debates.handoff import Listed
from runner.errors import Refused, UsageError


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "shop"
    (root / ".ai/handoffs").mkdir(parents=True)
    (root / ".ai/context").mkdir()
    monkeypatch.chdir(root)
    return root.resolve()


def written(workspace: Path, text: str | bytes) -> Path:
    path = workspace / ".ai/handoffs/T-1.md"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return workspace


# ---- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["T-1", "a.b_c-9", "x" * 128])
def test_task(task):
    """A name of letters, digits, dot, underscore and dash is a task."""
    assert handoff.check_task(task) == task


@pytest.mark.parametrize("task", ["", ".", "..", "a/b", "../x", "a b", "é", "a\n", "x" * 129])
def test_no_task(task):
    """Anything else is wrong usage."""
    with pytest.raises(UsageError, match="is no TASK_ID"):
        handoff.check_task(task)


def test_workspace(workspace, tmp_path):
    """As given, else the nearest folder above that holds .ai, else here."""
    deep = workspace / "src/deep"
    deep.mkdir(parents=True)
    assert handoff.find_workspace(None, deep) == workspace
    assert handoff.find_workspace("..", deep) == workspace / "src"
    assert handoff.find_workspace(None, tmp_path) == tmp_path.resolve()
    with pytest.raises(UsageError, match="no such folder"):
        handoff.find_workspace("nowhere", deep)


# ---- handoff -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "FILES: src/a.py, src/b.py\n",
        "files: [src/a.py, 'src/b.py']\n",
        "FILES: src/a.py,\n  src/b.py\n",
        "FILES:\n- src/a.py\n- `src/b.py`\n\nMore text: x\n",
        "FILES:\n\n- src/a.py  # the form\n- src/b.py\n## Notes\n",
        "FILES:\nsrc/a.py\nsrc/b.py\nDEBATE_TRIGGER: reviewer-rejection-2\n",
        "---\nFILES:\n  - src/a.py\n  - src/b.py\n---\n# Handoff\n",
        "---\r\nFILES:\r\n  - src/a.py\r\n  - src/b.py\r\n---\r\n",
        "\ufeff- **FILES**: src/a.py, src/b.py, src/a.py\n",
        "FILES: [\n src/a.py,\n src/b.py\n]\n",
    ],
)
def test_files(workspace, text):
    """FILES over commas, lines or both, in front matter or not; each once, in order."""
    found = handoff.read_handoff(written(workspace, text), "T-1")
    assert found.files == ("src/a.py", "src/b.py")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DT: reviewer-rejection-2\n", ".ai/handoffs/T-1.md: there is no FILES"),
        ("X: y\nFILES:\n\n## Notes\n", ".ai/handoffs/T-1.md:2: FILES lists nothing"),
        ("FILES: a\nFILES: b\n", ".ai/handoffs/T-1.md:2: FILES is there twice, in lines 1 and 2"),
        (
            "FILES: a\nDEBATE_TRIGGER: user-asked\n",
            ".ai/handoffs/T-1.md:2: DEBATE_TRIGGER is 'user-asked', not reviewer-rejection-2",
        ),
        ("DT: reviewer-rejection-1\nFILES: a\n", ".ai/handoffs/T-1.md:1: DT is 'reviewer-rejection-1'"),
        (b"FILES: a\n\xff\n", ".ai/handoffs/T-1.md:2: "),
        ("FILES: a\n" + "x" * (1 << 20), ".ai/handoffs/T-1.md: the handoff has more than 1,048,576 bytes"),
    ],
)
def test_refused(workspace, text, message):
    """A handoff that does not say what it must is refused, with path and line."""
    with pytest.raises(Refused) as caught:
        handoff.read_handoff(written(workspace, text), "T-1")
    assert str(caught.value).startswith(message)


def test_missing_and_linked(workspace, tmp_path):
    """A missing handoff is refused with its path; so is one that a link leads out of the workspace."""
    with pytest.raises(Refused, match=r"^\.ai/handoffs/T-1\.md: the handoff is missing"):
        handoff.read_handoff(workspace, "T-1")
    (tmp_path / "other.md").write_text("FILES: a\n")
    (workspace / ".ai/handoffs/T-1.md").symlink_to(tmp_path / "other.md")
    with pytest.raises(Refused, match="the handoff is outside the workspace"):
        handoff.read_handoff(workspace, "T-1")


def test_findings_latest(workspace):
    """The latest section of findings, its own subsections with it, is what the critics see."""
    text = (
        "FILES: a\n## Reviewer findings 1\n\nOld.\n\n## Findings 2\n\nNew.\n\n### Reviewer's detail\n\n"
        "```\n# reviewer in code\nFILES: not this\n```\nEnd.\n\n## Next\n\nNot this.\n"
    )
    found = handoff.read_handoff(written(workspace, text), "T-1")
    assert found.findings == "New.\n\n### Reviewer's detail\n\n```\n# reviewer in code\nFILES: not this\n```\nEnd."
    assert (found.files, found.total_words) == (("a",), 14)


def test_findings_cut(workspace):
    """At most 400 words, and how many there were."""
    text = "FILES: a\n# Findings\n" + "word " * 399 + "last\nover and out\n"
    found = handoff.read_handoff(written(workspace, text), "T-1")
    assert (len(found.findings.split()), found.findings.endswith("word last"), found.total_words) == (400, True, 403)
    assert handoff.read_handoff(written(workspace, "FILES: a\n"), "T-1").findings == ""


def test_brief_path(workspace):
    """BRIEF_PATH takes the default's place; it must be a .md file of the workspace that is none of the inputs."""
    place = workspace / ".ai/context/debates/T-1.md"
    assert handoff.brief_place(workspace, "T-1", handoff.Handoff(("a",), None, "", 0), ()) == place
    own = handoff.Handoff(("docs/a.md",), "docs/b.md", "", 0)
    assert handoff.brief_place(workspace, "T-1", own, ()) == workspace / "docs/b.md"
    for path in ("docs/a.md", "src/x.py", ".ai"):
        with pytest.raises(Refused, match=f"BRIEF_PATH cannot be written: {path}"):
            handoff.brief_place(workspace, "T-1", handoff.Handoff(("docs/a.md",), path, "", 0), ())
    with pytest.raises(Refused, match="BRIEF_PATH is outside the workspace"):
        handoff.brief_place(workspace, "T-1", handoff.Handoff(("a",), "../b.md", "", 0), ())
    with pytest.raises(Refused, match="cannot be written"):
        handoff.brief_place(workspace, "T-1", own, (workspace / "docs/b.md",))


# ---- session -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "unmet"),
    [
        ("reviewer_loop_count: 2\ndebate_used: false\n", ()),
        ("---\r\ndebate_used: 'False'\r\nreviewer_loop_count: 7\r\n---\r\n", ()),
        ("reviewer_loop_count: 1\ndebate_used: false\n", ("reviewer_loop_count is 1, not 2 or more",)),
        (
            "reviewer_loop_count: two\ndebate_used: true\n",
            ("reviewer_loop_count is two, not 2 or more", "debate_used is true, not false"),
        ),
        ("reviewer_loop_count: 3\n", ("debate_used is missing, not false",)),
        (
            "reviewer_loop_count: 2\ndebate_used: false\ndebate_used: true\n",
            ("debate_used is there twice, in lines 2 and 3 (line 3)",),
        ),
    ],
)
def test_guard(workspace, text, unmet):
    """The guard names every condition that is not met, with the value found; --force passes."""
    path = workspace / ".ai/context/session.md"
    path.write_bytes(text.encode())
    session = handoff.read_session(path)
    assert session.unmet == unmet
    handoff.check_guard(session, path, forced=True)
    if unmet:
        with pytest.raises(Refused) as caught:
            handoff.check_guard(session, path, forced=False)
        assert (str(caught.value).split("\n")[0], caught.value.exit_code) == (
            f".ai/context/session.md: {'; '.join(unmet)}",
            1,
        )
    else:
        handoff.check_guard(session, path, forced=False)


def test_session_missing_and_round(workspace):
    """No session file is a guard that is not met; debate_round is read when it is there."""
    path = workspace / ".ai/context/session.md"
    assert handoff.read_session(path).unmet == ("the session file is missing",)
    path.write_text("reviewer_loop_count: 2\ndebate_used: false\ndebate_round: 3\n")
    assert handoff.read_session(path) == handoff.Session(3, ())


# ---- the files it lists --------------------------------------------------------------------------------------------


def test_listed(workspace, tmp_path):
    """Only regular text files of the workspace are read, links within it included; everything else says why not."""
    (workspace / "src").mkdir()
    (workspace / "src/a.py").write_bytes(b"x = 1\r\ny = 2\r\n")
    (workspace / "bom.py").write_bytes(b"\xef\xbb\xbfx = 1\n")
    (workspace / "binary.bin").write_bytes(b"\x7fELF\0\0")
    (workspace / "latin.txt").write_bytes("caf\xe9\n".encode("latin-1"))
    (workspace / "empty.py").write_bytes(b" \n")
    (workspace / "within").symlink_to("src/a.py")
    (workspace / "without").symlink_to(tmp_path / "secret.txt")
    (workspace / "folder").symlink_to(tmp_path)
    (workspace / "loop").symlink_to("loop")
    os.mkfifo(workspace / "pipe")
    (tmp_path / "secret.txt").write_text("outside\n")
    names = [
        "./src/a.py", "src/a.py", str(workspace / "src/a.py"), "within", "bom.py", "binary.bin", "latin.txt",
        "empty.py", "without", "folder/secret.txt", "../secret.txt", "/etc/hostname", "loop", "pipe", "src", "*.py",
        "gone.py", "a\0b",
    ]  # fmt: skip
    text = "x = 1\r\ny = 2\r\n"
    link = "a symbolic link that leaves the workspace"
    assert handoff.read_listed(workspace, names, 1000) == (
        Listed("src/a.py", text, 14),
        Listed("bom.py", "x = 1\n", 9),
        Listed("binary.bin", None, 6, "binary"),
        Listed("latin.txt", None, 5, "not UTF-8 text"),
        Listed("empty.py", " \n", 2, "empty"),
        Listed("without", None, 0, link),
        Listed("folder/secret.txt", None, 0, link),
        Listed("../secret.txt", None, 0, "outside the workspace"),
        Listed("/etc/hostname", None, 0, "outside the workspace"),
        Listed("loop", None, 0, "not a file name, or a link that leads to itself"),
        Listed("pipe", None, 0, "not a regular file"),
        Listed("src", None, 0, "a folder"),
        Listed("*.py", None, 0, "missing"),
        Listed("gone.py", None, 0, "missing"),
        Listed("a\0b", None, 0, "not a file name, or a link that leads to itself"),
    )


def test_large(workspace):
    """Of a file of 5 MB no more is read than asked for, and never half a character."""
    (workspace / "big.txt").write_text("é" * (5 << 19))
    (found,) = handoff.read_listed(workspace, ["big.txt"], 1001)
    assert (found.text, found.bytes, found.problem) == ("é" * 500, 5 << 20, "")
