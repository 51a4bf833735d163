"""Where rounds lie, whose they are, and what state they are in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.brain.artifact import load
from runner.brain.history import (
    RoundState,
    history_folder,
    next_round,
    pointer,
    round_name,
    rounds,
    state,
)
from runner.errors import Refused

ROUND_ROW = "---\nid: x\n---\n\n| Round | Status |\n|---|---|\n| round-01 | {} |\n"


@pytest.fixture
def brain(tmp_path: Path) -> Path:
    (tmp_path / "CONVENTIONS.md").write_text("---\na: b\n---\n")
    return tmp_path


def leaf(brain: Path, path: str, **fields: str) -> Path:
    file = brain / "tree" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{key}: {value}\n" for key, value in {"status": "decided", **fields}.items())
    file.write_text(f"---\n{lines}---\n# T\n")
    return file


def thread(brain: Path, **fields: str) -> Path:
    file = brain / "threads" / "t" / "thread.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{key}: {value}\n" for key, value in {"status": "active", **fields}.items())
    file.write_text(f"---\n{lines}---\n# T\n")
    return file


def make_round(brain: Path, path: str, names: str | None = None) -> Path:
    folder = brain / path
    (folder / ".run").mkdir(parents=True)
    if names is not None:
        (folder / ".run" / "record.json").write_text(json.dumps({"artifact": {"path": names}}))
    return folder


def folder_of(brain: Path, file: Path) -> str:
    return history_folder(load(brain, file, None)).relative_to(brain).as_posix()


def refused(brain: Path, file: Path) -> str:
    with pytest.raises(Refused) as error:
        folder_of(brain, file)
    return str(error.value).replace(f"{brain}/", "")


# ---- where ---------------------------------------------------------------------------------------------------------


def test_thread(brain: Path) -> None:
    """A thread's rounds lie in its debate/."""
    assert folder_of(brain, thread(brain)) == "threads/t/debate"


def test_first_round_of_a_lone_leaf(brain: Path) -> None:
    """NODE.md and an impl-spec are no siblings."""
    leaf(brain, "d/NODE.md")
    leaf(brain, "d/impl-spec.md", kind="impl-spec")
    assert folder_of(brain, leaf(brain, "d/a.md")) == "tree/d/debate"


def test_first_round_with_siblings(brain: Path) -> None:
    """A flat leaf with siblings has debate/<stem>/; the leaf of a folder has debate/."""
    leaf(brain, "d/a.md")
    assert folder_of(brain, leaf(brain, "d/b.md")) == "tree/d/debate/b"
    assert folder_of(brain, leaf(brain, "d/d.md")) == "tree/d/debate"


@pytest.mark.parametrize("stem", ["round-02", "round-robin"])
def test_stem_that_looks_like_a_round(brain: Path, stem: str) -> None:
    """debate/round-02/ would be taken for a round, so such a leaf needs a folder of its own."""
    leaf(brain, "d/a.md")
    assert refused(brain, leaf(brain, f"d/{stem}.md")) == (
        f"tree/d/{stem}.md: debate/{stem}/ would look like a round\n"
        f"hint: give the leaf another name, or a folder of its own: {stem}/{stem}.md"
    )
    assert folder_of(brain, leaf(brain, f"d/{stem}/{stem}.md")) == f"tree/d/{stem}/debate"


@pytest.mark.parametrize("where", ["a.debate", "debate/a", "debate"])
def test_history_is_continued_where_it_lies(brain: Path, where: str) -> None:
    """Siblings that come later do not move a leaf's rounds."""
    file = leaf(brain, "d/a.md", source_debate=f"{where}/round-01")
    make_round(brain, f"tree/d/{where}/round-01")
    assert folder_of(brain, file) == f"tree/d/{where}"
    leaf(brain, "d/b.md")
    assert folder_of(brain, file) == f"tree/d/{where}"


@pytest.mark.parametrize("where", ["a.debate", "debate/a"])
def test_prepared_folder_is_used(brain: Path, where: str) -> None:
    """The validator looks into these even when they are empty."""
    file = leaf(brain, "d/a.md")
    (brain / "tree/d" / where).mkdir(parents=True)
    assert folder_of(brain, file) == f"tree/d/{where}"


def test_history_stays_when_siblings_go(brain: Path) -> None:
    """A leaf that is alone now keeps its debate/<stem>/."""
    file = leaf(brain, "d/a.md")
    make_round(brain, "tree/d/debate/a/round-01")
    assert folder_of(brain, file) == "tree/d/debate/a"


def test_shared_folder_of_a_lone_leaf(brain: Path) -> None:
    """The sole leaf owns debate/round-NN, whatever their record says."""
    file = leaf(brain, "d/a.md")
    make_round(brain, "tree/d/debate/round-01", names="tree/d/old-name.md")
    assert folder_of(brain, file) == "tree/d/debate"


def test_shared_folder_of_a_folders_leaf(brain: Path) -> None:
    """A leaf with a folder of its own owns the folder's rounds, unless another claims them."""
    leaf(brain, "d/notes.md")
    make_round(brain, "tree/d/debate/round-01")
    assert folder_of(brain, leaf(brain, "d/d.md")) == "tree/d/debate"


def test_shared_folder_told_by_record(brain: Path) -> None:
    """A round's record names its leaf: the sibling gets a folder of its own."""
    a, b = leaf(brain, "d/a.md"), leaf(brain, "d/b.md")
    make_round(brain, "tree/d/debate/round-01", names="tree/d/a.md")
    assert folder_of(brain, a) == "tree/d/debate"
    assert folder_of(brain, b) == "tree/d/debate/b"


def test_shared_folder_told_by_the_siblings_pointer(brain: Path) -> None:
    """A sibling's source_debate tells, too."""
    leaf(brain, "d/a.md", source_debate="debate/round-01")
    b = leaf(brain, "d/b.md")
    make_round(brain, "tree/d/debate/round-01")
    assert folder_of(brain, b) == "tree/d/debate/b"


def test_shared_folder_taken_by_another(brain: Path) -> None:
    """Even the folder's own leaf does not go into another's rounds."""
    leaf(brain, "d/a.md", source_debate="debate/round-01")
    make_round(brain, "tree/d/debate/round-01")
    assert folder_of(brain, leaf(brain, "d/d.md")) == "tree/d/debate/d"


def test_ownership_that_cannot_be_told(brain: Path) -> None:
    """Both leaves are named."""
    a = leaf(brain, "d/a.md")
    leaf(brain, "d/b.md")
    make_round(brain, "tree/d/debate/round-01")
    assert refused(brain, a) == (
        "tree/d/debate: the rounds here may be of a.md or b.md\n"
        "hint: set source_debate in the leaf whose rounds these are, e.g. debate/round-01"
    )


def test_ownership_claimed_by_two(brain: Path) -> None:
    """Two leaves that point into one folder: neither goes on."""
    a = leaf(brain, "d/a.md", source_debate="debate/round-01")
    leaf(brain, "d/b.md", source_debate="debate/round-02")
    make_round(brain, "tree/d/debate/round-01")
    assert refused(brain, a).startswith("tree/d/debate: the rounds here may be of a.md or b.md")


def test_two_histories(brain: Path) -> None:
    """Rounds in two layouts: refused naming both, unless source_debate tells."""
    file = leaf(brain, "d/a.md")
    make_round(brain, "tree/d/a.debate/round-01")
    make_round(brain, "tree/d/debate/round-01")
    assert refused(brain, file) == (
        "tree/d/a.md: rounds of this leaf lie in tree/d/a.debate and tree/d/debate\n"
        "hint: set source_debate to the leaf's last round, or move the other's rounds away"
    )
    leaf(brain, "d/a.md", source_debate="debate/round-01")
    assert folder_of(brain, file) == "tree/d/debate"


def test_others_rounds_do_not_disturb(brain: Path) -> None:
    """A leaf with a history of its own does not care whose rounds lie in debate/."""
    a = leaf(brain, "d/a.md")
    leaf(brain, "d/b.md")
    make_round(brain, "tree/d/debate/a/round-01")
    make_round(brain, "tree/d/debate/round-01")
    assert folder_of(brain, a) == "tree/d/debate/a"


def test_broken_record_tells_nothing(brain: Path) -> None:
    """A torn record is no traceback."""
    a = leaf(brain, "d/a.md", source_debate="debate/round-01")
    leaf(brain, "d/b.md")
    (make_round(brain, "tree/d/debate/round-01", names="x") / ".run/record.json").write_text('{"artifact":')
    assert folder_of(brain, a) == "tree/d/debate"


def test_debate_that_links_out(brain: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A history folder may not lead out of the brain."""
    outside = tmp_path_factory.mktemp("outside")
    file = thread(brain)
    (file.parent / "debate").symlink_to(outside)
    assert refused(brain, file) == f"artifact_path escapes brain_path: {outside}"


def test_pointer(brain: Path) -> None:
    """What the front matter holds is relative to the artifact's folder."""
    artifact = load(brain, leaf(brain, "d/a.md"), None)
    assert pointer(artifact, artifact.directory / "debate" / "a", 2) == "debate/a/round-02"


# ---- numbers -------------------------------------------------------------------------------------------------------


def test_rounds_in_order(tmp_path: Path) -> None:
    """Rounds only; a dot-prefixed folder, the index and another leaf's history are not."""
    for name in ("round-02", "round-01", ".aborted-round-03", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "index.md").write_text("")
    (tmp_path / "round-notes.md").write_text("")
    assert rounds(tmp_path) == [1, 2]
    assert next_round(tmp_path) == 3


def test_no_folder_has_no_rounds(tmp_path: Path) -> None:
    """The first round is round-01."""
    assert rounds(tmp_path / "debate") == []
    assert next_round(tmp_path / "debate") == 1


@pytest.mark.parametrize("name", ["round-2", "round-02.tmp", "round-00", "round-100"])
def test_malformed_names_are_reported(tmp_path: Path, name: str) -> None:
    """What the validator would trip over."""
    (tmp_path / "round-01").mkdir()
    (tmp_path / name).mkdir()
    with pytest.raises(Refused) as error:
        rounds(tmp_path)
    assert error.value.message == f"not a round: {name}"


def test_file_in_the_place_of_a_round(tmp_path: Path) -> None:
    """A file called round-01 is reported, too."""
    (tmp_path / "round-01").write_text("")
    with pytest.raises(Refused, match="not a round: round-01"):
        rounds(tmp_path)


def test_gap_is_reported(tmp_path: Path) -> None:
    """Rounds are numbered without gaps."""
    for name in ("round-01", "round-03"):
        (tmp_path / name).mkdir()
    with pytest.raises(Refused) as error:
        next_round(tmp_path)
    assert error.value.message == "rounds are not sequential: round-02 is missing"


def test_no_round_100(tmp_path: Path) -> None:
    """Two digits end at 99."""
    for number in range(1, 100):
        (tmp_path / round_name(number)).mkdir()
    with pytest.raises(Refused) as error:
        next_round(tmp_path)
    assert error.value.message == "no round can follow round-99"


# ---- state ---------------------------------------------------------------------------------------------------------


def state_of(brain: Path, file: Path, *, scratch: bool = False) -> RoundState:
    artifact = load(brain, file, None)
    return state(artifact, history_folder(artifact), scratch=scratch)


def test_no_round(brain: Path) -> None:
    """Nothing was ever opened."""
    assert state_of(brain, leaf(brain, "d/a.md")) == RoundState(None, "none")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"status": "hardening", "source_debate": "debate/round-01"}, "open"),
        ({"status": "hardening", "source_debate": "./debate/round-01/"}, "open"),
        ({"status": "hardening", "source_debate": "/tree/d/debate/round-01"}, "open"),
        ({"status": "decided", "source_debate": "debate/round-01"}, "interrupted"),
        ({"status": "hardening"}, "interrupted"),
        ({"status": "hardening", "source_debate": "debate/round-02"}, "interrupted"),
        ({"status": "decided"}, "interrupted"),
    ],
)
@pytest.mark.parametrize("row", ["open", None])
def test_leaf_must_point_to_its_round(brain: Path, fields: dict[str, str], expected: str, row: str | None) -> None:
    """Open means hardening with this source_debate, whatever index.md says."""
    file = leaf(brain, "d/a.md", **fields)
    make_round(brain, "tree/d/debate/round-01")
    if row:
        (brain / "tree/d/debate/index.md").write_text(ROUND_ROW.format(row))
    assert state_of(brain, file) == RoundState(1, expected)  # type: ignore[arg-type]


def test_thread_must_point_to_its_round(brain: Path) -> None:
    """Open means this last_debate_round."""
    file = thread(brain, last_debate_round="debate/round-01")
    make_round(brain, "threads/t/debate/round-01")
    assert state_of(brain, file) == RoundState(1, "open")
    make_round(brain, "threads/t/debate/round-02")
    assert state_of(brain, file) == RoundState(2, "interrupted")


@pytest.mark.parametrize("status", ["closed", "abandoned", "Closed", "**closed**"])
def test_close_entry(brain: Path, status: str) -> None:
    """A row that says closed or abandoned closes the round."""
    file = leaf(brain, "d/a.md", status="hardening", source_debate="debate/round-01")
    make_round(brain, "tree/d/debate/round-01")
    (brain / "tree/d/debate/index.md").write_text(ROUND_ROW.format(status))
    assert state_of(brain, file) == RoundState(1, "closed")


def test_close_and_abort_in_progress(brain: Path) -> None:
    """.run/close.json is a close to finish, .run/abort an abort; the abort comes first."""
    file = leaf(brain, "d/a.md")
    run = make_round(brain, "tree/d/debate/round-01") / ".run"
    (run / "close.json").write_text("{}")
    assert state_of(brain, file) == RoundState(1, "closing")
    (run / "abort").write_text("")
    assert state_of(brain, file) == RoundState(1, "aborting")


def test_scratch_goes_by_the_record(brain: Path) -> None:
    """Where no artifact is flipped, the record tells."""
    file = leaf(brain, "d/a.md")
    run = make_round(brain, "tree/d/debate/round-01") / ".run"
    assert state_of(brain, file, scratch=True) == RoundState(1, "interrupted")
    (run / "record.json").write_text("{}")
    assert state_of(brain, file, scratch=True) == RoundState(1, "open")


def test_unreadable_index_is_refused(brain: Path) -> None:
    """A state is not guessed from an index nobody can read."""
    file = leaf(brain, "d/a.md")
    make_round(brain, "tree/d/debate/round-01")
    (brain / "tree/d/debate/index.md").write_text("# no table\n")
    with pytest.raises(Refused, match="no readable table of rounds"):
        state_of(brain, file)
