""".pre-commit-hooks.yaml: which files a hook gets, and what its entry does with them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from steps import ROOT, SESSION, program, real, tree

HOOKS: dict[str, dict[str, Any]] = {
    h["id"]: h for h in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
}
LEAF = '---\nid: "{n}"\ntitle: "T"\nstatus: "decided"\ndomain: "ops"\n---\n\n# T\n\nA session lasts thirty days.\n'
NAMES = ["a b.md", "it's \"x\".md", "$(touch pwned).md", "`touch pwned`;&|.md", "a\nb.md", "-x.md", "--engine=none.md",
         "@list.md", "[ab].md", "résumé 决策.md"]  # fmt: skip


def given(hook: dict[str, Any], names: list[str]) -> list[str]:
    """The files that a hook gets, as pre-commit filters them."""
    out = re.compile(hook.get("exclude", "^$"))
    return [n for n in names if re.search(hook["files"], n) and not out.search(n)]


def call(
    hook: dict[str, Any], names: list[str], cwd: Path, folder: Path, *args: str
) -> subprocess.CompletedProcess[str]:
    """The hook's process: entry, args, then the files. args: the user's, in the place of the hook's own."""
    words = shlex.split(hook["entry"])
    if hook["language"] == "script":
        words[0] = str(ROOT / words[0])
    files = given(hook, names) if hook.get("pass_filenames", True) else []
    env = os.environ | {
        "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(folder / "xdg"),
        "TMPDIR": str(folder / "tmp"),
    }  # fmt: skip
    (folder / "tmp").mkdir(exist_ok=True)
    return subprocess.run(
        [*words, *(args or hook.get("args", [])), *files], cwd=cwd, env=env, check=False, capture_output=True, text=True
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with `debate` in it, for PATH."""
    made = tmp_path / "bin"
    made.mkdir()
    real(made / "debate")
    return made


def test_the_manifest() -> None:
    """Nothing is installed; one engine at a time; entries exist."""
    assert set(HOOKS) == {"debate-verify", "debate-review"}
    for hook in HOOKS.values():
        assert hook["language"] in ("system", "script") and hook["require_serial"] is True
        assert hook["minimum_pre_commit_version"] == "3.2.0"
    assert os.access(ROOT / HOOKS["debate-review"]["entry"], os.X_OK)
    assert HOOKS["debate-verify"]["pass_filenames"] is False


def test_which_files() -> None:
    """A review is of leaves and threads; a check is run for anything of the brain."""
    reviewed = ["tree/a.md", "b/tree/x/y.md", "b/threads/t/thread.md", "tree/a\nb.md"]
    others = [
        "b/tree/x/NODE.md", "b/tree/x/debate/round-01/defender.md", "b/tree/x/a.debate/round-01/x.md", "README.md",
        "b/threads/t/proposal.md", "b/tree/a.txt", "b/mytree/a.md", "b/tree/x/impl-spec.md", "tree/transcript.md",
        "b/tree/a.md.bak",
    ]  # fmt: skip
    assert given(HOOKS["debate-review"], [*reviewed, *others]) == reviewed
    checked = [*reviewed, "b/tree/x/NODE.md", "b/CONVENTIONS.md", "b/threads/t/proposal.md", "archive/t/thread.md"]
    assert given(HOOKS["debate-verify"], [*checked, "README.md", "x.py", "b/tree/a.txt"]) == checked


def test_verify(demo: Path, folder: Path) -> None:
    """The whole brain is checked from the repository's top; a broken rule fails the hook."""
    names = [f"project-brain/{SESSION}"]
    done = call(HOOKS["debate-verify"], names, demo.parent, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    leaf = demo / SESSION
    leaf.write_text(leaf.read_text(encoding="utf-8").replace('domain: "auth"', 'domain: "ops"'), encoding="utf-8")
    assert call(HOOKS["debate-verify"], names, demo.parent, folder).returncode == 1


@pytest.mark.parametrize("top", ["-brain", "@brain"])
def test_review_of_hostile_names(demo: Path, folder: Path, top: str) -> None:
    """Each file is reviewed under its very name, also when the brain's folder looks like an option or a list; nothing
    of it is run, read as an option, a list or a pattern; the brain stays as it is and nothing is left behind."""
    brain = demo.rename(demo.parent / top)
    for n, name in enumerate(NAMES):
        (brain / "tree/ops" / name).write_text(LEAF.format(n=n), encoding="utf-8")
    names = [f"{top}/tree/ops/{name}" for name in NAMES]
    before = tree(demo.parent)
    args = (f"--brain={top}", "--profile=fake", "--personas=red-team", "--feedback=Is it ready?", "--")
    done = call(HOOKS["debate-review"], names, demo.parent, folder, *args)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"\n{len(NAMES)} done; " in done.stdout
    assert f"\n{len(NAMES)} documents reviewed · " in done.stdout
    assert tree(demo.parent) == before
    assert list((folder / "tmp").iterdir()) == []


def test_review_says_what_it_needs(demo: Path, folder: Path) -> None:
    """Without options debate's refusal fails the hook; without -- the hook refuses; without files it does nothing."""
    names = [f"project-brain/{SESSION}"]
    bare = call(HOOKS["debate-review"], names, demo.parent, folder)
    assert (bare.returncode, bare.stdout) == (1, "") and bare.stderr.startswith("debate: missing: ")
    unended = call(HOOKS["debate-review"], names, demo.parent, folder, "--profile=fake")
    assert (unended.returncode, unended.stderr.splitlines()[0]) == (2, "hook.sh: there is no -- before the files")
    assert call(HOOKS["debate-review"], [], demo.parent, folder, "--profile=fake", "--").returncode == 0


@pytest.mark.parametrize(
    ("harden", "export", "code"), [(4, 4, 4), (3, 0, 3), (0, 2, 2), (5, 2, 5), (0, 4, 0), (0, 0, 0)]
)
def test_review_result(tmp_path: Path, folder: Path, harden: int, export: int, code: int) -> None:
    """debate's code is the hook's; findings that cannot be shown are no pass."""
    stub = f'for a; do case $a in --report=*) : > "${{a#--report=}}";; esac; done\n[ "$1" = export ] && exit {export}\n'
    program(folder / "debate", f"#!/bin/sh\n{stub}exit {harden}\n")
    assert call(HOOKS["debate-review"], ["tree/a.md"], tmp_path, folder).returncode == code
