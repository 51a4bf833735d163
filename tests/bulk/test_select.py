"""Which artifacts a bulk run takes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from helpers import open_, replace, write
from many import leaf

from runner.bulk.select import Found, Selection, in_shard, select, shard_of
from runner.errors import UsageError

ALL = [
    "threads/webhooks/thread.md", "tree/alone/backups.md", "tree/area/limits.md", "tree/area/other.md",
    "tree/area/pipeline/pipeline.md",
]  # fmt: skip


def paths(root: Path, *patterns: str, **more: object) -> list[str]:
    found = select(root, Selection(patterns, **more), root.parent)
    assert [f for f in found if f.why] == []
    return [f.path for f in found]


def test_the_whole_brain(root):
    """Every leaf and thread, by path; not the nodes, rounds or anything else."""
    assert paths(root) == ALL
    open_(root)
    assert paths(root) == ALL


@pytest.mark.parametrize(
    ("patterns", "taken"),
    [
        (("project-brain/tree/area",), ALL[2:]),
        (("tree/area",), ALL[2:]),
        (("tree/area/limits.md", "tree/area/limits.md"), ALL[2:3]),
        (("tree/*/*.md", "threads"), [*ALL[:4]]),
        (("project-brain/tree/**/pipe*",), ALL[4:]),
        (("tree/none/*.md",), []),
        (("project-brain",), ALL),
    ],
)
def test_patterns(root, patterns, taken):
    """Files, folders and globs, from the working directory or the brain; each artifact once."""
    found = select(root, Selection(patterns), root.parent)
    assert [f.path for f in found if not f.why] == taken


def test_a_glob_does_not_match_what_rounds_made(root):
    """The list does not depend on what a run changes."""
    before = [f.path for f in select(root, Selection(("tree/**/*.md",)), root.parent)]
    open_(root)
    assert [f.path for f in select(root, Selection(("tree/**/*.md",)), root.parent)] == before


def test_names_with_brackets_and_other_scripts(root):
    """A path as written wins over its meaning as a pattern."""
    leaf(root, "tree/area/a[1].md")
    leaf(root, "tree/area/決定.md")
    assert paths(root, "tree/area/a[1].md", "tree/area/決定.md") == ["tree/area/a[1].md", "tree/area/決定.md"]


def test_a_list(root):
    """One path per line, comments and blank lines aside; an empty list selects nothing."""
    write(root.parent / "list.txt", b"# mine\n\ntree/area/limits.md\r\nthreads/webhooks\n")
    assert paths(root, "@list.txt") == [ALL[0], ALL[2]]
    write(root.parent / "list.txt", b"")
    assert paths(root, "@list.txt") == []


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("@gone.txt", "the list cannot be read: No such file or directory"),
        ("tree/gone.md", "no such file or folder"),
        ("../outside.md", "lies outside the brain"),
    ],
)
def test_what_cannot_be_read(root, pattern, message):
    """Named, with exit 2."""
    write(root.parent.parent / "outside.md", b"x")
    with pytest.raises(UsageError, match=message):
        select(root, Selection((pattern,)), root.parent)


def test_what_is_no_artifact(root):
    """A node is not eligible; a leaf that cannot be read is broken. Neither stops the others."""
    write(root / "tree/area/bad.md", b"no front matter\n")
    found = select(root, Selection(("tree/area/NODE.md", "tree/area/bad.md", "tree/area/limits.md")), root.parent)
    assert [(f.path, bool(f.why), f.broken) for f in found] == [
        ("tree/area/NODE.md", True, False), ("tree/area/bad.md", True, True), ("tree/area/limits.md", False, False),
    ]  # fmt: skip
    assert found[2] == Found("tree/area/limits.md")


def test_filters(root):
    """Status, domain and limit; a status is the one before the round where one is open."""
    assert paths(root, status=("decided",)) == [ALL[2], ALL[4]]
    open_(root)
    assert "hardening" in (root / ALL[2]).read_text()
    assert paths(root, status=("decided",)) == [ALL[2], ALL[4]]
    assert paths(root, domain="area") == ALL[2:4]
    assert paths(root, limit=2) == ALL[:2]
    assert paths(root, limit=0) == []


@pytest.mark.parametrize("text", ["0/3", "4/3", "a/b", "1", "1/0", "-1/3", "1/3/5", ""])
def test_wrong_shards(text):
    with pytest.raises(UsageError, match="--shard must be i/n"):
        shard_of(text)


def test_shards_divide_the_list(root):
    """Every artifact is in one shard; the digest of its path alone decides, so a known path stays where it is."""
    shards = [paths(root, shard=(i, 3)) for i in (1, 2, 3)]
    assert sorted(p for part in shards for p in part) == ALL
    names = [f"tree/a/{n}.md" for n in range(300)]
    sizes = [sum(in_shard(name, (i, 3)) for name in names) for i in (1, 2, 3)]
    assert sum(sizes) == 300
    assert min(sizes) > 70
    assert [i for i in range(1, 8) if in_shard("tree/area/limits.md", (i, 7))] == [7]


# ---- git -----------------------------------------------------------------------------------------------------------


def git(root: Path, *words: str) -> None:
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(root.parent), *words],
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.fixture
def repo(root: Path) -> Path:
    leaf(root, "tree/area/über uns.md")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "one")
    git(root, "tag", "base")
    return root


def test_changed_since(repo):
    """Edited, new and renamed files, committed or not, with any name; deleted and untouched ones are not there."""
    replace(repo / ALL[2], "two seconds", "three seconds")
    git(repo, "mv", "project-brain/tree/area/über uns.md", "project-brain/tree/area/über euch.md")
    replace(repo / "tree/area/über euch.md", 'id: "über uns"', 'id: "über euch"')
    git(repo, "commit", "-q", "-am", "two")
    (repo / ALL[3]).unlink()
    leaf(repo, "tree/area/new.md")
    wanted = ["tree/area/limits.md", "tree/area/new.md", "tree/area/über euch.md"]
    assert paths(repo, changed_since="base") == wanted
    assert paths(repo, changed_since="HEAD~1") == wanted
    assert paths(repo, changed_since="HEAD") == ["tree/area/new.md"]


def test_line_ends_are_as_git_has_them(repo):
    """A checkout with CRLF is no change where git normalises them."""
    write(repo.parent / ".gitattributes", b"* text=auto\n")
    path = repo / ALL[2]
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert paths(repo, changed_since="base") == []


@pytest.mark.parametrize("ref", ["gone", "HEAD~9", "0" * 40, ""])
def test_a_reference_that_cannot_be_read(repo, ref):
    """Exit 2, with what to do; never an empty list."""
    with pytest.raises(UsageError) as caught:
        paths(repo, changed_since=ref)
    assert f"--changed-since {ref}: the commit cannot be read" in str(caught.value)
    assert "shallow" in str(caught.value)


def test_no_repository(root):
    with pytest.raises(UsageError, match="the brain is in no git work tree"):
        paths(root, changed_since="HEAD")
