"""action.yml and tools/ci/review.sh: a job's review of a pull request, its reports, its result."""

from __future__ import annotations

import json
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from steps import ACTION, HOSTILE, SCRIPT, SESSION, Job, commands, real, stub, tree

REPORTS = {
    "report": "bulk.json", "findings": "findings.json", "sarif": "debate.sarif", "junit": "junit.xml",
    "codequality": "codequality.json", "html": "report.html", "summary": "summary.md",
}  # fmt: skip


def with_stub(job: Job, more: str = "") -> Job:
    """The job with a `debate` that only writes down what it is asked."""
    return Job(job.project, job.base, stub(job.project.parent, more))


def asked(job: Job) -> list[str]:
    """What the stub was asked, a line per call."""
    path = job.project.parent / "asked"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


# ---- action.yml ----------------------------------------------------------------------------------------------------


def test_inputs_go_through_the_environment() -> None:
    """One step; its script interpolates nothing; every input is a variable that the script knows, and no other is."""
    (step,) = ACTION["runs"]["steps"]
    assert ACTION["runs"]["using"] == "composite"
    assert step["shell"] == "bash"
    assert "${{" not in step["run"] and "${{" not in SCRIPT.read_text(encoding="utf-8")
    assert step["run"].startswith("set -euo pipefail\n")
    names = {f"DEBATE_CI_{name.upper().replace('-', '_')}" for name in ACTION["inputs"]}
    assert set(step["env"]) == names | {"DEBATE_CI_EVENT_BASE"}
    known = re.search(r"INPUTS='([A-Z_\s]*)'", SCRIPT.read_text(encoding="utf-8"))
    assert known is not None and {f"DEBATE_CI_{n}" for n in known[1].split()} == set(step["env"])
    assert all("default" in spec and spec["description"] for spec in ACTION["inputs"].values())


def test_outputs_are_those_of_the_step(job: Job) -> None:
    """What action.yml hands on is what the script writes, each under its name."""
    ran = with_stub(job).run()
    assert {n: f"${{{{ steps.review.outputs.{n} }}}}" for n in ran.outputs} == {
        name: spec["value"] for name, spec in ACTION["outputs"].items()
    }


# ---- a real run ----------------------------------------------------------------------------------------------------


def test_a_pull_request(job: Job) -> None:
    """What was changed, renamed or added is reviewed, what was deleted is not; the checkout stays as it was; nothing
    in a name or a text is obeyed by the shell or the log; every report is there and named."""
    before = tree(job.project)
    ran = job.run()
    assert (ran.code, ran.outputs["exit"], ran.outputs["tripped"]) == (0, "0", "false"), ran.log
    report = json.loads(Path(ran.outputs["report"]).read_text(encoding="utf-8"))
    assert [a["path"] for a in report["artifacts"]] == [SESSION, HOSTILE, "tree/ops/deploys.md"]
    assert [ran.outputs[f"num-{n}"] for n in ("done", "partial", "failed", "skipped")] == ["3", "0", "0", "0"]
    assert tree(job.project) == before
    assert not list(job.project.parent.rglob("pwned"))
    out = Path(ran.outputs["out"])
    assert {n: Path(ran.outputs[n]).relative_to(out).as_posix() for n in REPORTS} == REPORTS
    assert all((out / name).stat().st_size for name in REPORTS.values())
    written = (out / "annotations.txt").read_text(encoding="utf-8").splitlines()
    assert commands(ran.log) == written
    assert len(written) > 3 and all(re.match("::(error|warning|notice) (file|title)=", line) for line in written)
    assert ran.summary.startswith("**debate-runner: exit 0, done.** Isolated: false.\n\n# Review\n")
    assert list(job.temp.glob("debate-work-*")) == []


def test_the_gate(job: Job) -> None:
    """A gate that trips is exit 3, every report is written, JUnit has the same gate; known findings do not count."""
    paths = f"project-brain/{SESSION}\n"
    ran = job.run(fail_on="nit:any", paths=paths)
    assert (ran.code, ran.outputs["exit"], ran.outputs["tripped"]) == (3, "3", "true"), ran.log
    assert "--fail-on nit:any: " in ran.log
    assert ran.summary.startswith("**debate-runner: exit 3, the gate tripped.**")
    assert int(ET.parse(ran.outputs["junit"]).getroot().attrib["failures"]) > 0
    known = job.temp / "known.json"
    known.write_bytes(Path(ran.outputs["findings"]).read_bytes())
    again = job.run(fail_on="nit:any", paths=paths, known=str(known))
    assert (again.code, again.outputs["tripped"]) == (0, "false"), again.log


def test_nothing_changed(job: Job) -> None:
    """Exit 0, with a line, and with reports that say that nothing was read."""
    ran = job.run(paths="project-brain/tree/storage")
    assert ran.code == 0, ran.log
    assert "review.sh: nothing was selected: there is nothing to review" in ran.log.splitlines()
    assert ran.log.rstrip().endswith("exit 0: nothing was selected")
    assert "Nothing was read." in ran.summary
    assert json.loads(Path(ran.outputs["report"]).read_text())["artifacts"] == []


def test_incomplete(job: Job) -> None:
    """A reviewer that failed is exit 4, whatever the gate says; the gate is told apart in `tripped`."""
    profile = job.temp / "faulty.yaml"
    profile.write_text("engine: fake\nroles: {default: fake}\nfake: {faults: {'*red-team*': error}}\n")
    ran = job.run(profile=str(profile), paths=f"project-brain/{SESSION}", fail_on="nit:any")
    assert (ran.code, ran.outputs["exit"], ran.outputs["tripped"]) == (4, "4", "false"), ran.log
    assert "INCOMPLETE" in ran.summary


def test_a_crash_is_no_pass(job: Job) -> None:
    """An engine that takes the process with it: the signal's code, and reports that say what was not reached."""
    profile = job.temp / "faulty.yaml"
    profile.write_text("engine: fake\nroles: {default: fake}\nfake: {faults: {1: sigkill}}\n")
    ran = job.run(profile=str(profile))
    assert (ran.code, ran.outputs["exit"]) == (137, "137")
    cut = json.loads(Path(ran.outputs["report"]).read_text())
    assert (cut["ok"], {a["why"] for a in cut["artifacts"]}) == (False, {"not reached"})
    assert ran.summary.startswith(
        "**debate-runner: exit 137, debate was killed, perhaps for memory; nothing was decided.** Isolated: false.\n\n"
        "# Review\n\n0 documents reviewed · 0 findings · **INCOMPLETE**\n\n## Not done\n"
    )


def test_a_clone_without_the_base(job: Job) -> None:
    """A base that the clone lacks is exit 2, with what to do; nothing is reviewed."""
    ran = Job(job.project, "a" * 40, job.debate).run()
    assert ran.code == 2
    assert "fetch-depth: 0" in ran.log
    assert "There is no report." in ran.summary


def test_nobody_to_review(job: Job) -> None:
    """debate's refusal is passed on as exit 1."""
    ran = job.run(personas="")
    assert (ran.code, ran.outputs["exit"]) == (1, "1")
    assert "missing: personas" in ran.log


def test_shards_joined(job: Job) -> None:
    """The reports of a matrix become one, with its gate; a shard that left none is an error."""
    parts = [job.run(shard=f"{i}/2").outputs["report"] for i in (1, 2)]
    whole = job.run(reports="\n".join(parts), fail_on="nit:any")
    assert (whole.code, whole.outputs["num-done"], whole.outputs["tripped"]) == (3, "3", "true"), whole.log
    missing = job.run(reports="\n".join([*parts, str(job.temp / "shard-3.json")]))
    assert (missing.code, missing.outputs["report"]) == (2, ""), missing.log
    assert "cannot be read" in missing.log


def test_a_join_without_a_result(job: Job) -> None:
    """No report is never a pass, whatever debate ended with."""
    assert with_stub(job).run(reports="a").code == 2


# ---- what debate is asked ------------------------------------------------------------------------------------------


def test_every_input_reaches_debate(job: Job) -> None:
    """Inputs are single arguments as they stand; files come after --."""
    store = job.temp / "a store"
    store.mkdir()
    ran = with_stub(job).run(
        paths="a b.md\n-x.md\n\n$(touch pwned)\n@list", personas="-a,b", feedback="'; touch pwned #", profile="-p",
        model="m", shard="1/2", wait_s="5", brain="-b", model_dir=str(store), out="o", fail_on="nit",
    )  # fmt: skip
    assert ran.code == 0, ran.log
    harden = next(line for line in asked(with_stub(job)) if line.startswith("harden "))
    out = f"{job.project}/o"
    assert harden == (
        f"harden --scratch={out}/rounds --report={out}/bulk.json --progress=lines --brain=-b "
        f"--changed-since={job.base} --personas=-a\\,b --feedback=\\'\\;\\ touch\\ pwned\\ # --profile=-p --model=m "
        "--shard=1/2 --wait-s=5 -- a\\ b.md -x.md \\$\\(touch\\ pwned\\) @list "
    )
    exports = [line for line in asked(with_stub(job)) if line.startswith("export ")]
    assert len(exports) == 8 and all(line.startswith("export --brain=-b --fail-on=nit --out=") for line in exports)


WRONG = {
    "scope": ({"scope": "chnaged"}, "scope must be changed or all, not chnaged"),
    "isolate": ({"isolate": "yes"}, "isolate must be auto, true or false, not yes"),
    "debate": ({"debate": "/no such\nprogram"}, "no program $'/no such\\nprogram'"),
    "known": ({"known": "gone.json"}, "known: no file gone.json"),
    "model-dir": ({"model-dir": "/tmp:/gone"}, "model-dir: no folder /gone"),
    "base and all": ({"scope": "all", "base": "main"}, "base goes with scope: changed"),
    "reports and paths": (
        {"reports": "a", "paths": "b"},
        "reports are joined; paths, base and shard do not go with them",
    ),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_input(job: Job, name: str) -> None:
    """A wrong input is exit 2 with its name, before debate is started once."""
    inputs, message = WRONG[name]
    stubbed = with_stub(job)
    ran = stubbed.run(**{k.replace("-", "_"): v for k, v in inputs.items()})
    assert (ran.code, ran.outputs["exit"]) == (2, "2")
    assert ran.log.splitlines()[0] == f"review.sh: {message}"
    assert ran.log.splitlines()[1].startswith("review.sh: hint: ")
    assert asked(stubbed) == []


def test_an_input_nobody_knows(job: Job) -> None:
    """A variable that is misspelt is exit 2, not ignored."""
    env = with_stub(job).env({}) | {"DEBATE_CI_FAILON": "nit"}
    done = subprocess.run([SCRIPT], cwd=job.project, env=env, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[0]) == (2, "review.sh: no input is named DEBATE_CI_FAILON")


@pytest.mark.parametrize("before", ["", "0" * 40])
def test_no_base(job: Job, before: str) -> None:
    """An event without a base is exit 2: neither nothing nor everything is reviewed in its stead."""
    ran = with_stub(Job(job.project, before, job.debate)).run()
    assert (ran.code, ran.log.splitlines()[0]) == (2, "review.sh: there is no base to compare with")


def test_a_wrong_gate_is_found_first(job: Job) -> None:
    """A rule that cannot be read costs no review."""
    ran = job.run(fail_on="huge")
    assert ran.code == 2
    assert "--fail-on: 'huge' is no severity" in ran.log
    assert "done" not in ran.log and ran.outputs["report"] == ""


def test_everything(job: Job) -> None:
    """scope: all compares with nothing."""
    stubbed = with_stub(job)
    assert stubbed.run(scope="all").code == 0
    assert not any("--changed-since" in line for line in asked(stubbed))


def test_an_earlier_runs_folder(job: Job) -> None:
    """Rounds and reports of an earlier run never pass for this one's: a folder that is not empty is exit 2."""
    stubbed = with_stub(job)
    assert stubbed.run(out="o").code == 0
    ran = stubbed.run(out="o")
    assert (ran.code, ran.log.splitlines()[0]) == (2, "review.sh: out: o is not empty")


# ---- results that are none -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ('[ "$1" != harden ] || rm -f "$report"', 2),  # well, it says, and no report
        ('[ "$1" != harden ] || { rm -f "$report"; code=5; }', 5),
        ('[ "$1" != harden ] || code=99', 2),  # a code that debate does not have
        ('[ "$1" != harden ] || code=4', 4),
        ('case "$*" in *"-- sarif"*) rm "$out"; code=2 ;; esac', 2),
        ('case "$*" in *"-- html"*) code=1 ;; esac', 1),
        ('[ "$1" != harden ] || echo "{}" > "$report"', 2),  # a report of another version
        ('[ "$1" != harden ] || code=139', 139),
    ],
)
def test_the_worst_counts(job: Job, more: str, code: int) -> None:
    """Whatever goes wrong in one step is the job's result, and reports are written all the same."""
    ran = with_stub(job, more).run()
    assert (ran.code, ran.outputs["exit"]) == (code, str(code)), ran.log


def test_outputs_that_cannot_be_written(job: Job) -> None:
    """A result that nobody can read is no pass."""
    env = with_stub(job).env({}) | {"GITHUB_OUTPUT": "/gone/output"}
    assert subprocess.run([SCRIPT], cwd=job.project, env=env, check=False, capture_output=True).returncode == 2


# ---- isolation -----------------------------------------------------------------------------------------------------

REFUSES = 'case "$*" in *--isolate*) echo "debate: the system refused it" >&2; code=2; rm -f "$report" ;; esac'


@pytest.mark.parametrize("more", ["", REFUSES])
def test_isolation_by_itself(job: Job, more: str) -> None:
    """auto isolates where that works; where it does not, it goes on without and says so in log, outputs and summary."""
    stubbed = with_stub(job, more)
    ran = stubbed.run(isolate="auto")
    works = not more
    assert (ran.code, ran.outputs["isolated"]) == (0, "true" if works else "false"), ran.log
    assert ("NOT ISOLATED: this system refuses it" in ran.log) == (not works)
    assert ("::warning title=debate-runner::not isolated" in "\n".join(commands(ran.log))) == (not works)
    review = [line for line in asked(stubbed) if line.startswith("harden ") and "--limit=0" not in line]
    assert len(review) == 1 and (" --isolate " in review[0]) == works
    assert f"Isolated: {'true' if works else 'false'}." in ran.summary


def test_isolation_demanded(job: Job) -> None:
    """true never goes on without."""
    stubbed = with_stub(job, REFUSES)
    ran = stubbed.run(isolate="true")
    assert (ran.code, ran.outputs["isolated"], ran.outputs["report"]) == (2, "false", ""), ran.log
    assert "the system refused it" in ran.log
    assert all("--limit=0" in line for line in asked(stubbed) if line.startswith("harden "))


# ---- outside GitHub ------------------------------------------------------------------------------------------------


def test_another_ci(job: Job) -> None:
    """Without GitHub's variables there are no workflow commands, and reports lie in debate-report/."""
    env = with_stub(job).env({}, github=False)
    done = subprocess.run([SCRIPT], cwd=job.project, env=env, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert not any(line.startswith("::") for line in done.stderr.splitlines())
    assert (job.project / "debate-report/junit.xml").is_file()


def test_the_token_is_new_each_time(job: Job) -> None:
    """A document cannot know what ends the fence."""
    logs = [with_stub(job).run().log for _ in range(2)]
    tokens = re.findall("::stop-commands::([0-9a-f]{32})\n", "".join(logs))
    assert len(tokens) == len(set(tokens)) >= 2


def test_a_real_program_is_found_by_name(job: Job) -> None:
    """debate: a name is looked up on PATH."""
    folder = job.project.parent / "bin"
    folder.mkdir()
    real(folder / "debate")
    env = job.env({"debate": "debate", "scope": "chnaged"})
    env["PATH"] = f"{folder}:{env['PATH']}"
    done = subprocess.run([SCRIPT], cwd=job.project, env=env, check=False, capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == "review.sh: scope must be changed or all, not chnaged"
