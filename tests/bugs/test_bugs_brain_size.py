"""A brain of 2,000 leaves and 300 threads: what a command reads of it, counted, not timed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import CONVENTIONS, LEAF, make, write
from test_bugs_network import OPEN, PATH, spied

BODY = b"\n# A leaf\n\nIt holds a sentence that is long enough to be quoted.\n"


def big(project: Path) -> Path:
    """The tiny brain among 2,000 leaves in 100 folders and 300 threads with three rounds each."""
    root = make(project)
    for n in range(2000):
        head = f'---\nid: "leaf-{n}"\nstatus: decided\ndomain: "d{n // 20}"\nimpl_spec: "spec-{n}"\n---\n'
        write(root / f"tree/d{n // 20}/leaf-{n}.md", head.encode() + BODY)
    for n in range(100):
        write(root / f"tree/d{n}/NODE.md", b"---\nid: node\n---\n" + BODY)
        write(root / f"tree/d{n}/impl-spec.md", f"---\nid: spec-{n * 20}\nkind: impl-spec\n---\n".encode() + BODY)
    for n in range(300):
        folder = root / f"{'archive' if n % 3 else 'threads'}/thread-{n}"
        write(folder / "thread.md", f"---\nid: thread-{n}\nstatus: active\n---\n".encode() + BODY)
        write(folder / "debate/round-01/defender.md", BODY)
    write(root / "thread-index.md", b"x\n" * 300)
    write(root / "CONVENTIONS.md", CONVENTIONS.encode())
    return root


@pytest.fixture(scope="module")
def brain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return big(tmp_path_factory.mktemp("big") / "project")


def inside(root: Path, names: list[str]) -> set[str]:
    """Of these paths, those in the brain, from its root."""
    return {str(Path(n).relative_to(root)) for n in names if root in Path(n).parents or Path(n) == root}


def strangers(root: Path, row: dict[str, Any], mine: tuple[str, ...]) -> list[str]:
    """Files of the brain that were opened and are not mine (a folder is opened to be synced)."""
    return sorted(n for n in inside(root, row["reads"]) if not n.startswith(mine) and not (root / n).is_dir())


def test_a_round_reads_its_own_files_only(brain):
    """open, status, patches, close: of the brain's 3,000 files those of the artifact, its folder's other leaves, the
    conventions and the audit log's switch; no folder is listed but the artifact's own."""
    rows = spied(
        brain.parent, (*OPEN, "--profile", "fake", "-q"), ("status", PATH), ("patches", PATH),
        ("close", PATH, "--patches-status", "rejected"), ("status", "project-brain/threads/thread-0"),
    )  # fmt: skip
    assert [r["code"] for r in rows] == [0] * 5, rows
    mine = (LEAF, "tree/area/", "CONVENTIONS.md", "config.yaml", "assets/", "threads/thread-0/", "aliases")
    for row in rows:
        assert strangers(brain, row, mine) == [], row["argv"]
        assert len(inside(brain, row["reads"])) < 60, row["argv"]
        listed = {n for n in inside(brain, row["listed"]) if not n.startswith(("tree/area", "threads/thread-0"))}
        assert listed == set(), row["argv"]


def test_a_full_folder(brain):
    """Of twenty leaves of a folder the other ones are not read to find out where the first one's rounds lie."""
    leaf = "project-brain/tree/d3/leaf-65.md"
    rows = spied(brain.parent, ("status", leaf), ("open", leaf, *OPEN[2:], "--profile", "fake", "-q"))
    for row in rows:
        assert row["code"] == 0, row["stderr"]
        others = {n for n in inside(brain, row["reads"]) if n.startswith("tree/d3/leaf-") and "leaf-65" not in n}
        assert others <= {"tree/d3/leaf-60.md"}, row["argv"]


@pytest.mark.parametrize(("n", "own"), [(40, True), (41, False)])
def test_an_impl_spec_by_its_id(brain, n, own):
    """An impl-spec beside its leaf is found there, and no folder of the tree is walked; only one that is elsewhere (or
    nowhere) is looked for, and then impl-specs alone are read."""
    leaf = f"project-brain/tree/d2/leaf-{n}.md"
    (row,) = spied(brain.parent, ("open", leaf, *OPEN[2:], "--profile", "fake", "-q"))
    assert row["code"] == 0, row["stderr"]
    far = strangers(brain, row, ("tree/d2/", "CONVENTIONS.md", "config.yaml", "assets/"))
    assert [f for f in far if not f.endswith("/impl-spec.md")] == []
    assert (len(far) < 5) is own
    assert (len(inside(brain, row["listed"])) < 10) is own


def test_git_does_not_read_the_brain(brain):
    """With the brain in a repository, precondition 7 reads git's index and the artifact's own files."""
    porcelain = pytest.importorskip("dulwich.porcelain")
    repo = porcelain.init(str(brain.parent))
    repo.get_worktree().stage([f"project-brain/{LEAF}".encode()])
    repo.close()
    (row,) = spied(brain.parent, ("open", f"project-brain/{LEAF}", *OPEN[2:], "--profile", "fake", "-q"))
    assert row["code"] == 1 and "uncommitted changes" in row["stderr"]
    asked = strangers(brain, row, ("tree/area/", "CONVENTIONS.md", "config.yaml", "assets/", "thread-index.md"))
    assert [n for n in asked if not n.endswith((".gitignore", ".gitattributes"))] == []
    assert len(inside(brain, row["reads"])) < 60
