"""The action's script as a step runs it, and what a runner makes of what it prints."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from dulwich import porcelain

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
SCRIPT = ROOT / "tools/ci/review.sh"
SESSION = "tree/auth/session-store.md"
# A name and a text that would be commands to a shell, to YAML, or to a job's log.
HOSTILE = "tree/ops/-$(touch pwned) 'a' \"b\"\n::error::boom über.md"
TEXT = (
    "::error::boom\n\n##[error]boom\n\n::set-output name=exit::0\n\n$(touch pwned) `touch pwned` ${{ github.token }}\n"
)


def commit(project: Path) -> str:
    """Commit everything; the commit's id."""
    paths = [str(p) for p in project.rglob("*") if p.is_file() and ".git" not in p.relative_to(project).parts]
    porcelain.add(str(project), paths)
    return porcelain.commit(str(project), message=b"x", author=b"a <a@b>", committer=b"a <a@b>").decode()


@dataclass(frozen=True, slots=True)
class Ran:
    """A step that has ended. log: all it printed. outputs: by name. summary: of the step."""

    code: int
    log: str
    outputs: dict[str, str]
    summary: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job in a checkout. base: the pull request's. debate: the program."""

    project: Path
    base: str
    debate: Path

    @property
    def temp(self) -> Path:
        return self.project.parent / "temp"

    def env(self, inputs: Mapping[str, str], github: bool = True) -> dict[str, str]:
        """The environment that action.yml makes of these inputs."""
        step = ACTION["runs"]["steps"][0]
        given = {name: str(spec["default"]) for name, spec in ACTION["inputs"].items()}
        given |= {"debate": str(self.debate), "profile": "fake", "isolate": "false"}
        given |= {"personas": "red-team", "feedback": "Is it ready?"} | dict(inputs)
        assert set(given) == set(ACTION["inputs"])
        made = {name: self._value(text, given) for name, text in step["env"].items()}
        base = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "DEBATE_", "RUNNER_", "CI"))}
        base |= {"PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(self.temp / "xdg")}
        files = {"GITHUB_OUTPUT": str(self.temp / "output"), "GITHUB_STEP_SUMMARY": str(self.temp / "summary")}
        files |= {"GITHUB_ACTIONS": "true", "GITHUB_ACTION_PATH": str(ROOT)}
        return base | made | {"RUNNER_TEMP": str(self.temp)} | (files if github else {})

    def _value(self, text: str, inputs: Mapping[str, str]) -> str:
        expression = re.fullmatch(r"\$\{\{ (.*) \}\}", text)
        assert expression is not None, text
        words = expression[1]
        if words.startswith("github.event.pull_request.base.sha"):
            return self.base
        return inputs[words.removeprefix("inputs.")]

    def command(self) -> list[str]:
        """As a runner starts the step: its `run` text in a file."""
        step = ACTION["runs"]["steps"][0]
        (self.temp / "step.sh").write_text(step["run"], encoding="utf-8")
        return ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(self.temp / "step.sh")]

    def run(self, **inputs: str) -> Ran:
        names = {name.replace("_", "-"): value for name, value in inputs.items()}
        done = subprocess.run(
            self.command(), cwd=self.project, env=self.env(names), check=False, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, encoding="utf-8", errors="surrogateescape", timeout=120,
        )  # fmt: skip
        return self.ran(done.returncode, done.stdout)

    def ran(self, code: int, log: str) -> Ran:
        texts = {
            n: p.read_text(encoding="utf-8") if (p := self.temp / n).exists() else "" for n in ("output", "summary")
        }
        return Ran(code, log, outputs_of(texts["output"]), texts["summary"])


def outputs_of(text: str) -> dict[str, str]:
    """GITHUB_OUTPUT, as the runner reads it."""
    found, lines = {}, iter(text.splitlines())
    for line in lines:
        name, _, end = line.partition("<<")
        value: list[str] = []
        for part in lines:
            if part == end:
                break
            value.append(part)
        found[name] = "\n".join(value)
    return found


def commands(log: str) -> list[str]:
    """The lines of a log that a runner obeys, those that switch obedience off and on left out."""
    stopped, found = None, []
    for line in log.splitlines():
        if stopped is not None:
            stopped = None if line == f"::{stopped}::" else stopped
        elif line.startswith("::stop-commands::"):
            stopped = line.removeprefix("::stop-commands::")
        elif line.startswith("::") or line.lstrip().startswith("##["):
            found.append(line)
    assert stopped is None
    return found


def program(path: Path, text: str) -> Path:
    """An executable file."""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def real(path: Path, *python: str) -> Path:
    """`debate`, run from this checkout by this interpreter. python: its arguments instead of the command line's."""
    words = shlex.join([sys.executable, *(python or ("-m", "runner.cli"))])
    return program(path, f'#!/bin/sh\nexec {words} "$@"\n')


STUB = """#!/usr/bin/env bash
printf '%q ' "$@" >> {log}
echo >> {log}
for one; do case $one in --out=*) out=${{one#--out=}};; --report=*) report=${{one#--report=}};; esac; done
head='{{"schema": "bulk/1", "ok": true, "exit": 0, "counts": '
case $1 in
  export) echo "$*" > "$out" ;;
  harden) echo "$head"'{{"done": 1, "partial": 0, "failed": 0, "skipped": 0}}}}' > "$report" ;;
esac
code=0
{more}
exit "$code"
"""


def stub(folder: Path, more: str = "") -> Path:
    """A `debate` that writes down what it is asked, and does as little as passes. more: shell, with $1, $out, $code."""
    return program(folder / "stub", STUB.format(log=folder / "asked", more=more))


def tree(folder: Path) -> dict[str, Any]:
    """Every file with its bytes, without git's."""
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and ".git" not in p.relative_to(folder).parts
    }
