"""docs/ci.md and its examples: what they name exists, and what they show is safe to copy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from steps import ACTION, ROOT, SCRIPT

from runner import cli, gate

FOLDER = ROOT / "docs/ci"
TEXT = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
WORKFLOWS = sorted(FOLDER.glob("github*.yml"))
OURS = "your-org/debate-runner@"


def load(path: Path) -> Any:
    """YAML; `on`, which YAML 1.1 takes for a truth, by its name."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found | {"on": found.pop(True)} if True in found else found


def steps(workflow: Any) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job["steps"]


def test_every_example_is_in_the_page() -> None:
    """The page names each file, and each file it names is there."""
    names = {p.name for p in FOLDER.iterdir()}
    assert names == set(re.findall(r"`(?:docs/ci/)?([a-z-]+\.ya?ml)`", TEXT)) - {"action.yml"}
    named = re.findall(r"`((?:docs|tools)/[^`*]+\.[a-z]+)`", TEXT)
    assert named and all((ROOT / n).is_file() for n in named)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_workflows(path: Path) -> None:
    """Least rights, a time limit, commits instead of tags, nothing in a shell, uploads also after a failure."""
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in workflow["on"]
    for job in workflow["jobs"].values():
        assert "self-hosted" in job["runs-on"] and job["timeout-minutes"] > 0
        assert set(job.get("permissions", {})) <= {"contents", "security-events"}
    for step in steps(workflow):
        assert "run" not in step
        assert re.fullmatch(r"[\w.-]+(/[\w.-]+)+@[0-9a-f]{40}", step["uses"])
        if "upload" in step["uses"]:
            assert step["if"].startswith("always() && steps.")
        if "checkout" in step["uses"]:
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_inputs_and_outputs_exist(path: Path) -> None:
    """Only inputs and outputs that action.yml has."""
    workflow = load(path)
    ours = [s for s in steps(workflow) if s["uses"].startswith(OURS)]
    assert ours and all(set(s["with"]) <= set(ACTION["inputs"]) for s in ours)
    used = set(re.findall(r"steps\.\w+\.outputs\.([a-z-]+)", path.read_text(encoding="utf-8")))
    assert used and used <= set(ACTION["outputs"])


def test_a_pull_request_has_its_base() -> None:
    """Where a base is compared with, the clone is whole."""
    (job,) = load(FOLDER / "github.yml")["jobs"].values()
    assert job["steps"][0]["with"]["fetch-depth"] == 0
    assert job["if"] == "github.event.pull_request.head.repo.full_name == github.repository"


def test_shards_are_all_joined() -> None:
    """As many reports as parts, also after a failure."""
    jobs = load(FOLDER / "github-shards.yml")["jobs"]
    parts = jobs["review"]["strategy"]["matrix"]["part"]
    review, join = (next(s["with"] for s in jobs[n]["steps"] if s["uses"].startswith(OURS)) for n in ("review", "join"))
    assert review["shard"] == f"${{{{ matrix.part }}}}/{len(parts)}"
    assert join["reports"].split("\n")[:-1] == [
        f"${{{{ runner.temp }}}}/shards/shard-{part}/bulk.json" for part in parts
    ]
    assert jobs["join"]["if"] == "${{ !cancelled() }}"


def test_gitlab() -> None:
    """Reports are kept when the job fails, and its variables are the script's."""
    job = load(FOLDER / "gitlab.yml")["review"]
    given = {name for name in job["variables"] if name.startswith("DEBATE_CI_")}
    known = re.search(r"INPUTS='([A-Z_\s]*)'", SCRIPT.read_text(encoding="utf-8"))
    assert known is not None and {n.removeprefix("DEBATE_CI_") for n in given} <= set(known[1].split())
    assert job["variables"]["GIT_DEPTH"] == "0" and job["cache"] == []
    assert job["artifacts"]["when"] == "always"
    out = job["variables"]["DEBATE_CI_OUT"]
    assert job["artifacts"]["reports"] == {"junit": f"{out}/junit.xml", "codequality": f"{out}/codequality.json"}
    assert "allow_failure" not in job and "|| true" not in str(job["script"])


def test_pre_commit() -> None:
    """Hooks that exist; the review's args end with --."""
    hooks = {h["id"] for h in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
    (repo,) = load(FOLDER / "pre-commit-config.yaml")["repos"]
    assert {h["id"] for h in repo["hooks"]} == hooks
    assert next(h for h in repo["hooks"] if h["id"] == "debate-review")["args"][-1] == "--"


def test_gates_can_be_read() -> None:
    """Every gate in the page and the examples is one."""
    texts = [TEXT.split("the gate, such as `")[1].split("`")[0]]
    texts += [
        m for p in FOLDER.iterdir() for m in re.findall(r"(?:fail-on|FAIL_ON): (.*)", p.read_text(encoding="utf-8"))
    ]
    assert len(texts) == 4
    assert all(gate.parse(text) for text in texts)


def test_the_cron_job_parses(capsys: pytest.CaptureFixture[str]) -> None:
    """Its command line is one that debate takes; cron would cut it at a percent sign."""
    line = next(line for line in TEXT.splitlines() if " debate harden " in line.replace("/opt/debate-runner/bin/", ""))
    assert "%" not in line
    words = shlex.split(line.split("bin/debate ")[1])
    assert cli.run([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in words if word.startswith("--"))


def test_exit_codes_are_all_there() -> None:
    """The page's table has every code that debate ends with."""
    assert re.findall(r"^\| (\d) \| (\w+) \|", TEXT, re.MULTILINE) == [
        ("0", "green"),
        *((str(n), "red") for n in range(1, 6)),
    ]
