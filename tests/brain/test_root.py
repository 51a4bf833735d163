"""Which folder is the brain, and what stays inside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.brain.root import contained, decode, find_root, kind, read_bytes, shown
from runner.errors import Refused


@pytest.fixture
def brain(tmp_path: Path) -> Path:
    root = tmp_path / "project" / "project-brain"
    (root / "tree").mkdir(parents=True)
    (root / "CONVENTIONS.md").write_text("")
    return root


def test_flag_wins_over_everything(brain: Path, tmp_path: Path) -> None:
    """--brain is taken even from inside another brain, and counts from the working directory."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "CONVENTIONS.md").write_text("")
    assert find_root(None, "../other", brain.parent) == other


def test_flag_without_conventions_is_refused(brain: Path) -> None:
    """A --brain that is no brain is not replaced by a guess."""
    with pytest.raises(Refused) as error:
        find_root(None, "tree", brain)
    assert str(error.value) == (
        "Brain root not found: --brain=tree holds no CONVENTIONS.md\n"
        "hint: run inside a brain, or give the folder that holds CONVENTIONS.md with --brain=<path>"
    )


def test_nearest_ancestor_of_the_working_directory(brain: Path) -> None:
    """From a folder inside the brain, the brain is found upwards."""
    assert find_root("/nowhere/x.md", None, brain / "tree") == brain


def test_ancestor_comes_before_project_folder(brain: Path) -> None:
    """A brain that holds another below project-brain/ is itself the nearest."""
    (brain / "project-brain").mkdir()
    (brain / "project-brain" / "CONVENTIONS.md").write_text("")
    assert find_root(None, None, brain) == brain


def test_project_folder_beside_the_brain(brain: Path) -> None:
    """From the project folder, ./project-brain is the brain."""
    assert find_root(None, None, brain.parent) == brain


def test_path_as_written_comes_last(brain: Path, tmp_path: Path) -> None:
    """From elsewhere, the path's own ancestors are asked, `..` taken as written."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert find_root("../project/project-brain/tree/x/../a.md", None, elsewhere) == brain


def test_root_comes_from_the_path_before_links_are_resolved(brain: Path, tmp_path: Path) -> None:
    """A leaf that is a link to another place still belongs to the brain it is written in."""
    (tmp_path / "outside.md").write_text("x")
    (brain / "tree" / "a.md").symlink_to(tmp_path / "outside.md")
    assert find_root(str(brain / "tree" / "a.md"), None, tmp_path) == brain


def test_linked_root_is_canonical(brain: Path, tmp_path: Path) -> None:
    """The root is returned without links."""
    (tmp_path / "link").symlink_to(brain)
    assert find_root(None, str(tmp_path / "link"), tmp_path) == brain


def test_no_brain_is_refused(tmp_path: Path) -> None:
    """The specification's words, and what to do."""
    with pytest.raises(Refused) as error:
        find_root("a.md", None, tmp_path)
    assert error.value.message == "Brain root not found"
    assert error.value.exit_code == 1


@pytest.mark.parametrize("written", ["tree/../../../etc/passwd", "/etc/passwd", ".."])
def test_dots_lead_out(brain: Path, written: str) -> None:
    """Precondition 1's exact text, with the canonical path."""
    with pytest.raises(Refused) as error:
        contained(brain, brain / written)
    assert str(error.value) == f"artifact_path escapes brain_path: {(brain / written).resolve()}"


def test_link_leads_out(brain: Path, tmp_path: Path) -> None:
    """A symbolic link to a file outside is an escape."""
    (tmp_path / "secret.md").write_text("x")
    (brain / "tree" / "a.md").symlink_to(tmp_path / "secret.md")
    with pytest.raises(Refused) as error:
        contained(brain, brain / "tree" / "a.md")
    assert str(error.value) == f"artifact_path escapes brain_path: {tmp_path / 'secret.md'}"


def test_sibling_with_the_same_prefix_is_outside(brain: Path) -> None:
    """`project-brain-2` is not inside `project-brain`."""
    with pytest.raises(Refused):
        contained(brain, brain.parent / "project-brain-2" / "a.md")


def test_inside_and_root_itself(brain: Path) -> None:
    """A path inside comes back canonical, the root itself too, existing or not."""
    assert contained(brain, brain / "tree" / ".." / "tree" / "new.md") == brain / "tree" / "new.md"
    assert contained(brain, brain) == brain


def test_loop_of_links_is_refused(brain: Path) -> None:
    """No traceback for links that point at each other."""
    (brain / "a").symlink_to(brain / "b")
    (brain / "b").symlink_to(brain / "a")
    with pytest.raises(Refused):
        contained(brain, brain / "a" / "x.md")


def test_null_byte_is_refused(brain: Path) -> None:
    """No traceback for a path that no system has."""
    with pytest.raises(Refused):
        contained(brain, brain / "a\0b")


def test_unreadable_names_are_refused(brain: Path) -> None:
    """A name too long for the system is refused with the system's reason."""
    with pytest.raises(Refused, match="cannot be read: File name too long"):
        kind(brain / ("x" * 5000))


def test_read_says_what_is_wrong(brain: Path) -> None:
    """Missing, or not a file."""
    with pytest.raises(Refused, match="no such file"):
        read_bytes(brain / "none.md")
    with pytest.raises(Refused, match="not a regular file"):
        read_bytes(brain / "tree")


def test_decode_names_the_line() -> None:
    """Invalid UTF-8 is refused with its line; a byte-order mark is dropped."""
    with pytest.raises(Refused) as error:
        decode(b"a\nb\xff\n", "x.md")
    assert str(error.value) == "x.md:2: not valid UTF-8\nhint: save the file as UTF-8"
    assert decode(b"\xef\xbb\xbfa", "x.md") == "a"


def test_shown_from_the_working_directory(brain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages name files below the working directory relative to it, others absolute."""
    monkeypatch.chdir(brain)
    assert shown(brain / "tree" / "a.md") == os.path.join("tree", "a.md")  # noqa: PTH118
    assert shown(brain.parent / "x.md") == str(brain.parent / "x.md")
