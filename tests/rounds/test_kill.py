"""A process that is really killed, and what is left of its round."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import LEAF, answered, changed, copy, open_, place_of, profile, record, resume, state, tree

from runner.rounds.folder import Round

HERE = Path(__file__).resolve().parent
CHILD = """
import sys
from pathlib import Path
sys.path[:0] = {paths!r}
import helpers
root = Path(sys.argv[1])
if sys.argv[3] == "open":
    helpers.open_(root, name=sys.argv[2], reviewers=int(sys.argv[4]))
else:
    helpers.resume(root, name=sys.argv[2])
"""


def child(root: Path, name: str, command: str, reviewers: int = 2) -> subprocess.Popen[bytes]:
    code = CHILD.format(paths=[str(HERE.parents[1]), str(HERE.parent), str(HERE)])
    return subprocess.Popen([sys.executable, "-c", code, str(root), name, command, str(reviewers)])


@pytest.mark.parametrize("where", ["1", "reviewer/red-team", "defender/C-01", "defender/C-02*"])
def test_fake_engine(root, tmp_path, engines, where):
    """SIGKILL at a reply: resumed here, the files are the undisturbed ones, and nothing recorded is asked again."""
    killing = profile(root, "killing", faults={where: "sigkill"})
    whole = copy(root, tmp_path / "whole")
    open_(whole)
    assert child(root, killing, "open").wait(60) == -signal.SIGKILL
    assert state(root) == "interrupted"
    known = answered(place_of(root))
    resume(root)
    assert set(engines.asked) & set(known) == set()
    # The stored inputs name the profile, which is the only difference.
    assert [p for p in changed(tree(whole), tree(root)) if not p.endswith("inputs.json")] == []


def kill_when(process: subprocess.Popen[bytes], seen: Callable[[], bool]) -> int:
    """Kill the child as soon as that is seen; its exit code."""
    while process.poll() is None and not seen():
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
    process.kill()
    return process.wait(60)


@pytest.mark.model
def test_llama_cpp(root):
    """Killed at the first reviewer's reply and again among the verdicts: resumed here, the round is complete."""
    pytest.importorskip("llama_cpp")
    place = Round(root / "tree/area/debate/limits", 1, LEAF)
    text = (HERE.parents[1] / "configs/cpu.yaml").read_text()
    (root.parent / "configs").mkdir()
    (root.parent / "configs/model.yaml").write_text(text.replace("claims: 3", "claims: 1"))

    def has(prefix: str) -> bool:
        return any(key.startswith(prefix) for key in answered(place))

    assert kill_when(child(root, "model", "open", 1), lambda: has("reviewer/")) == -signal.SIGKILL
    assert kill_when(child(root, "model", "resume"), lambda: has("defender/C-")) == -signal.SIGKILL
    assert state(root) == "interrupted"
    known = answered(place)
    opened = resume(root, name="model")
    keys = answered(place)
    assert keys[: len(known)] == known
    assert len(keys) == len(set(keys))
    assert state(root) == "open"
    assert [t.persona for t in opened.result.tryouts] == ["red-team"]
    assert {v["claim"] for v in record(place)["verdicts"]} == {c["id"] for c in record(place)["claims"]}
