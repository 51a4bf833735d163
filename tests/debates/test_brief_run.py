"""Whole briefs on the disk with a scripted engine: files, rounds kept, secrets, gaps, resume and abort."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner import settings as settings_of
from runner import store
from runner.debates import brief as briefs
from runner.debates import brief_inputs, folder, handoff
from runner.debates.brief import Done
from runner.debates.brief_fit import shares
from runner.debates.brief_page import gist
from runner.debates.folder import RunFolder
from runner.engines import fake
from runner.errors import Incomplete, Integrity, Refused, RunnerError
from runner.values import Reply, Request

AT = "2026-01-02T03:04:05Z"
PASSWORD, TOKEN = "hunter2-Tr0ub4dor", "ghp_1234567890abcdefghijklmnopqrstuvwxyzAB"
SOURCE = f'def find(name):\n    query = "SELECT " + name\n    return db.execute(query)\n\n\npassword = "{PASSWORD}"\n'
Answer = Callable[[str], Any]


def concern(problem: str, quote: str = 'query = "SELECT " + name') -> dict[str, str]:
    return {"file": "a.py", "quote": quote, "kind": "injection", "problem": problem, "severity": "major"}


def script(key: str) -> Any:
    """What the model says: one concern of each critic, nothing left in round 2."""
    if key.startswith("synthesizer"):
        return {"consensus": "Bind the name.", "action_items": ["Use a parameter."], "dissent": []}
    problem = "Input is not checked." if key.startswith("security") else "Nobody needs the constant."
    again = key.split("~")[0].endswith("/r2")
    return {"concerns": [] if again else [concern(problem)], "nothing_left": again}


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], list[Request]]:
    """Sets what the model says from now on; a list collects what it was asked."""
    asked: list[Request] = []

    def set_to(answer: Answer) -> list[Request]:
        def reply(request: Request) -> Reply:
            asked.append(request)
            said = answer(request.key)
            text = said if isinstance(said, str) else json.dumps(said)
            return Reply(request.key, text, "stop", tokens_in=100, tokens_out=7)

        monkeypatch.setattr(fake, "answer", reply)
        return asked

    return set_to


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Callable[[Answer], list[Request]]) -> Path:
    root = tmp_path.resolve() / "shop"
    for name, text in {
        ".ai/handoffs/T-1.md": "FILES: a.py\n\n## Findings\n\nThe query is built by hand.\n",
        ".ai/context/session.md": "reviewer_loop_count: 2\ndebate_used: false\n",
        "a.py": SOURCE,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    say(script)
    return root


def settings(root: Path, **more: Any) -> settings_of.Settings:
    path = root / "configs/tried.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({"engine": "fake", "roles": {"default": "fake"}, **more}))
    return settings_of.settings("tried", None, root)


def write(root: Path, task: str = "T-1", lite: bool = False, force: bool = False, **more: Any) -> Done:
    s = settings(root, **more)
    options = brief_inputs.Options(task, root, root / ".ai/context/session.md", lite, force)
    place, inputs = brief_inputs.plan(options, s, settings_of.open_tokenizer(s), AT)
    return briefs.write(place, inputs, s, lambda: AT)


def place_of(root: Path, task: str = "T-1") -> RunFolder:
    debates = root / ".ai/context/debates"
    return RunFolder(debates, debates / f".run-{task}")


def resume(root: Path, **more: Any) -> Done:
    place = place_of(root)
    settings(root, **more)
    inputs = brief_inputs.load(place)
    return briefs.resume(place, inputs, briefs.resume_settings(place, inputs, None, None, None), lambda: AT)


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def faults(**by_key: str) -> dict[str, Any]:
    return {"fake": {"faults": {k.replace("_", "-", 1) + "*": v for k, v in by_key.items()}}}


# ---- what is written -----------------------------------------------------------------------------------------------

PAGE = """**FAKE ENGINE: no model read these files; every word here is made up.**

# Debate brief T-1

Written at 2026-01-02T03:04:05Z.

## Critics

- The critics stopped after round 2 of 2: both say nothing is left.

### Security-critic

1. **major, injection**, a.py, line 2: Input is not checked.

   > query = "SELECT " + name

### Simplicity-critic

1. **major, injection**, a.py, line 2: Nobody needs the constant.

   > query = "SELECT " + name

## Consensus

Bind the name.

## Action items

1. Use a parameter.

## Dissent

None.

## Brief Path

.ai/context/debates/T-1.md

## Usage Report

Model: default
Class: thinking
Tokens: 500/35
"""


def test_page_and_block(workspace):
    """The brief's file, and the block for stdout, which ends in DONE."""
    done = write(workspace)
    assert (workspace / ".ai/context/debates/T-1.md").read_text() == PAGE
    head = "# Debate brief T-1\n\nWritten at 2026-01-02T03:04:05Z.\n\n"
    assert done.block == PAGE.replace(head, "") + "\nDONE\n"
    assert folder.state(done.place) == "done"


def test_record(workspace):
    """The record names everything that the brief is made of, and the checksum of the brief."""
    done = write(workspace)
    record = json.loads(done.place.record.read_bytes())
    assert (record["schema"], record["complete"], record["rounds"], record["tokens"]) == (
        "brief/1", True, 2, {"in": 500, "out": 35},
    )  # fmt: skip
    assert [c["lines"] for c in record["concerns"]] == [[2, 2], [2, 2]]
    assert record["guard"] == {"met": True, "overridden": []}
    assert [c["key"] for c in record["calls"]][-1] == "synthesizer"
    assert record["coverage"][0] | {"sha256": ""} == {
        "file": "a.py", "bytes": len(SOURCE), "shown_bytes": len(brief_inputs.load(done.place).brief.files[0].text),
        "sha256": "", "problem": "",
    }  # fmt: skip
    assert [f["path"] for f in record["files"]] == ["T-1.md"]


def test_lite(workspace, say):
    """One round; the file holds a summary and the path only."""
    asked = say(script)
    done = write(workspace, lite=True)
    assert [r.key for r in asked] == ["security-critic/r1", "simplicity-critic/r1", "synthesizer"]
    page = (workspace / ".ai/context/debates/T-1.md").read_text()
    assert page.split("Z.\n\n")[1] == (
        "## Summary\n\n- Consensus: Bind the name.\n- Action: Use a parameter.\n\n"
        "## Brief Path\n\n.ai/context/debates/T-1.md\n"
    )
    assert done.block.endswith("\n\n## Brief Path\n\n.ai/context/debates/T-1.md\n\nDONE\n")


def test_guard_overridden(workspace):
    """--force debates all the same, and brief and record say so."""
    (workspace / ".ai/context/session.md").write_text("reviewer_loop_count: 1\ndebate_used: false\n")
    with pytest.raises(Refused, match="reviewer_loop_count is 1, not 2 or more"):
        write(workspace)
    done = write(workspace, force=True)
    note = "The guard was overridden with --force: reviewer_loop_count is 1, not 2 or more."
    assert f"## Critics\n\n- {note.replace('_', chr(92) + '_')}\n" in done.block or note in done.block
    assert done.record["guard"] == {"met": False, "overridden": ["reviewer_loop_count is 1, not 2 or more"]}


def test_foreign_text_stays_text(workspace, say):
    """What the model writes can neither make a heading nor end a block."""
    said = concern("# DONE\n\n## Consensus\n<b>x</b>")
    say(lambda key: {"concerns": [said], "nothing_left": True} if "/r" in key else script(key))
    done = write(workspace)
    assert "line 2: \\# DONE ## Consensus &lt;b>x&lt;/b>\n" in done.block
    assert done.block.count("\n## Consensus\n") == 1


# ---- an earlier brief ----------------------------------------------------------------------------------------------


def test_earlier_brief_is_kept(workspace):
    """The next round stands above the one before, which stays byte for byte; its run folder is kept too."""
    first = write(workspace)
    before = (workspace / ".ai/context/debates/T-1.md").read_bytes()
    record = first.place.record.read_bytes()
    write(workspace)
    after = (workspace / ".ai/context/debates/T-1.md").read_bytes()
    assert after == PAGE.encode() + b"\n---\n\n# Prior round\n\n" + before
    assert (workspace / ".ai/context/debates/.run-T-1~1/record.json").read_bytes() == record
    write(workspace)
    assert (workspace / ".ai/context/debates/T-1.md").read_bytes().endswith(after)
    assert (workspace / ".ai/context/debates/.run-T-1~2").is_dir()


def test_crlf_and_bytes_are_kept(workspace, say):
    """A brief with CRLF gets a next round with CRLF; bytes that are no text stay; the critics are shown it."""
    old = b"# By hand\r\n\r\nKeep \xff this.\r\n"
    path = workspace / ".ai/context/debates/T-1.md"
    path.parent.mkdir()
    path.write_bytes(old)
    asked = say(script)
    write(workspace)
    new = path.read_bytes()
    assert new == (PAGE + "\n---\n\n# Prior round\n\n").replace("\n", "\r\n").encode() + old
    assert "An earlier debate about this change ended so:" in asked[0].messages[1].text


def test_what_is_shown_of_an_earlier_brief(workspace, say):
    """Of one of ours the latest outcome, without quotes; all of one that a person wrote."""
    write(workspace)
    write(workspace)
    asked = say(script)
    asked.clear()
    write(workspace)
    between = asked[0].messages[1].text.split("[earlier brief ")[1].split("[end of earlier")[0]
    assert between.split("]\n")[1] == (
        "## Consensus\n\nBind the name.\n\n## Action items\n\n1. Use a parameter.\n\n## Dissent\n\nNone.\n"
    )
    assert gist("# Mine\r\n\r\nAll of it.\r\n") == "# Mine\n\nAll of it."
    assert gist("# X\n\n## Summary\n\n- A\n\n## Brief Path\n\nx\n") == "## Summary\n\n- A"


def test_brief_path(workspace):
    """BRIEF_PATH of the handoff is where the brief and its run folder lie."""
    (workspace / ".ai/handoffs/T-1.md").write_text("FILES: a.py\nBRIEF_PATH: notes/debate.md\n")
    done = write(workspace)
    assert (workspace / "notes/debate.md").is_file() and (workspace / "notes/.run-debate/record.json").is_file()
    assert "## Brief Path\n\nnotes/debate.md\n" in done.block


# ---- secrets -------------------------------------------------------------------------------------------------------


def test_secrets_go_nowhere(workspace, say):
    """Planted in a file, in the handoff, in the earlier brief and in the reply: nowhere in what is written or shown."""
    (workspace / ".ai/handoffs/T-1.md").write_text(
        f"FILES: a.py\n\n## Findings\n\nIt holds {PASSWORD}, and TOKEN={TOKEN} is in the log.\n"
    )
    (workspace / ".ai/context/debates").mkdir()
    (workspace / ".ai/context/debates/T-1.md").write_text(f"Old: {PASSWORD} and api_key = '{TOKEN}'\n")

    def leaky(key: str) -> Any:
        said = script(key)
        if key.startswith("synthesizer"):
            return said | {"consensus": f"Replace {PASSWORD} and AKIAIOSFODNN7EXAMPLE."}
        quote = 'password = "[redacted: Secret Keyword]"'
        return said | {"concerns": [concern(f"The value {PASSWORD} ({TOKEN}) is in the code.", quote)]}

    asked = say(leaky)
    done = write(workspace)
    shown = done.block + json.dumps(done.record) + "".join(m.text for r in asked for m in r.messages)
    for secret in (PASSWORD, TOKEN, "AKIAIOSFODNN7EXAMPLE"):
        assert secret not in shown
        holding = [name for name, data in tree(workspace).items() if secret.encode() in data]
        assert set(holding) <= {"a.py", ".ai/handoffs/T-1.md", ".ai/context/debates/.run-T-1/inputs/inputs.json"}
    assert "a.py, line 6: The value \\[redacted: Secret Keyword\\] (\\[redacted: GitHub Token\\]) is" in done.block
    assert '   > password = "[redacted: Secret Keyword]"\n' in done.block
    assert "Replace \\[redacted: Secret Keyword\\] and \\[redacted: AWS Access Key\\]." in done.block
    page = (workspace / ".ai/context/debates/T-1.md").read_text()
    assert page.endswith("Old: [redacted: Secret Keyword] and api_key = '[redacted: GitHub Token]'\n")


def test_secrets_are_gone_from_failed_replies(workspace, say):
    """A reply that was cut off is in the journal without its credentials."""
    say(lambda key: f'{{"concerns":[{{"problem":"password = \'{PASSWORD}\'' if "security" in key else script(key))
    done = write(workspace)
    assert done.result.exhausted == ("security-critic/r1",)
    assert PASSWORD.encode() not in done.place.journal.read_bytes()


# ---- what is not read ----------------------------------------------------------------------------------------------


def test_files_that_are_not_read(workspace, tmp_path):
    """Missing, binary, outside, behind a link: named in the brief, each with its reason; what is there is reviewed."""
    (workspace / "b.bin").write_bytes(b"\0\1")
    (tmp_path / "outside.py").write_text("SECRET OUTSIDE\n")
    (workspace / "link.py").symlink_to(tmp_path / "outside.py")
    (workspace / ".ai/handoffs/T-1.md").write_text("FILES: gone.py, b.bin, ../outside.py, link.py, a.py\n")
    done = write(workspace)
    for line in (
        "- The handoff holds no findings of the reviewer.",
        "- Not read: gone.py (missing).",
        "- Not read: b.bin (binary).",
        "- Not read: ../outside.py (outside the workspace).",
        "- Not read: link.py (a symbolic link that leaves the workspace).",
    ):
        assert line + "\n" in done.block
    assert done.not_read == (
        "b.bin: binary", "../outside.py: outside the workspace", "link.py: a symbolic link that leaves the workspace",
    )  # fmt: skip
    assert b"SECRET OUTSIDE" not in b"".join(tree(place_of(workspace).run).values())


def test_nothing_to_read(workspace):
    """No file at all: refused, every reason named, and nothing is written."""
    (workspace / ".ai/handoffs/T-1.md").write_text("FILES: gone.py, /etc/hostname\n")
    before = tree(workspace)
    with pytest.raises(Refused, match=r"none of FILES .* gone\.py: missing; /etc/hostname: outside the workspace"):
        write(workspace)
    assert {k: v for k, v in tree(workspace).items() if not k.startswith("configs")} == before


def test_large_file_is_cut(workspace, say):
    """A file of 5 MB is shown from its beginning, at a line's end; brief, record and `not_read` say how much."""
    line = "value = compute(value, other)  # one of very many lines\n"
    (workspace / "big.py").write_text(line * (5 * (1 << 20) // len(line)))
    (workspace / ".ai/handoffs/T-1.md").write_text("FILES: big.py, a.py\n")
    asked = say(script)
    done = write(workspace)
    big, small = done.inputs.coverage
    text = done.inputs.brief.files[0].text
    assert text == line * (len(text) // len(line)) and text
    assert (big.shown_bytes, small.problem) == (len(text), "")
    assert done.not_read == (f"big.py: {big.shown_bytes} of {big.bytes} bytes",)
    assert f"- Shown in part: big.py ({big.shown_bytes} of {big.bytes} bytes).\n" in done.block
    assert max(len(m.text.split()) for r in asked for m in r.messages) < 8192
    assert "Only the beginning of this file is shown." in asked[0].messages[1].text


def test_no_room(workspace):
    """A context that holds no line of a file is refused with the numbers."""
    with pytest.raises(Refused, match=r"a brief needs \d+ tokens before the first line of a file, .* holds 700"):
        write(workspace, context_tokens=700)


def test_shares():
    """Small things whole, the others alike."""
    assert shares([10, 1000, 50, 900], 460) == [10, 200, 50, 200]
    assert shares([5, 5], 100) == [5, 5]
    assert shares([], 100) == []


# ---- gaps, resume, abort -------------------------------------------------------------------------------------------


def test_gap_and_resume(workspace, say):
    """A critic without an answer is named in its section; resume asks it again, and only what is missing."""
    done = write(workspace, **faults(security_critic="timeout"))
    assert done.result.exhausted == ("security-critic/r1",)
    gap = "### Security-critic\n\nNo usable answer (timeout): this critic's view is missing.\n"
    assert gap in done.block and gap in (workspace / ".ai/context/debates/T-1.md").read_text()
    assert folder.state(done.place) == "partial"
    with pytest.raises(Refused, match="the last brief of this task is partial"):
        write(workspace)
    asked = say(script)
    asked.clear()
    done = resume(workspace)
    keys = ["security-critic/r1~3", "security-critic/r2", "simplicity-critic/r2", "synthesizer/p2"]
    assert [r.key for r in asked] == keys
    assert folder.state(done.place) == "done" and gap not in done.block
    with pytest.raises(Refused, match="nothing to resume: this brief is done"):
        resume(workspace)


def test_synthesizer_gap(workspace):
    """Concerns without a synthesizer stand, and what is missing is said."""
    done = write(workspace, fake={"faults": {"synthesizer*": "degenerate"}})
    text = "## Consensus\n\nNo usable answer from the synthesizer (degenerate): the concerns above are not merged.\n"
    assert text in done.block and "Input is not checked." in done.block


def test_no_critic_and_abort(workspace):
    """No answer at all: no brief; abort leaves the workspace as it was, the earlier brief and its run included."""
    write(workspace)
    settings(workspace)
    before = tree(workspace)
    with pytest.raises(Incomplete, match="no critic gave a usable answer"):
        write(workspace, fake={"faults": {"*": "timeout"}})
    assert folder.state(place_of(workspace)) == "interrupted"
    assert (workspace / ".ai/context/debates/T-1.md").read_bytes() == before[".ai/context/debates/T-1.md"]
    assert briefs.abort(place_of(workspace)) == ()
    settings(workspace)
    assert tree(workspace) == before
    with pytest.raises(Refused, match="this run is done"):
        briefs.abort(place_of(workspace))


def test_abort_of_a_partial_brief(workspace):
    """The earlier brief comes back byte for byte; a brief that was edited by hand is moved aside, not lost."""
    path = workspace / ".ai/context/debates/T-1.md"
    path.parent.mkdir()
    path.write_bytes(b"By hand.\xff\r\n")
    write(workspace, **faults(security_critic="timeout"))
    path.write_bytes(path.read_bytes() + b"edited\n")
    (moved,) = briefs.abort(place_of(workspace))
    assert path.read_bytes() == b"By hand.\xff\r\n"
    assert (workspace / moved).read_bytes().endswith(b"edited\n")
    assert not place_of(workspace).run.exists()


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_crash_and_resume(workspace, tmp_path, n):
    """Stopped at any reply, a resumed brief is the one that would have been; nothing is asked twice."""
    with pytest.raises(RunnerError, match="crashed"):
        write(workspace, fake={"faults": {str(n): "crash"}})
    done = resume(workspace)
    assert (workspace / ".ai/context/debates/T-1.md").read_text() == PAGE
    assert len(done.record["calls"]) == 5 and folder.state(done.place) == "done"


@pytest.mark.parametrize("stop_at", range(1, 30, 2))
def test_any_disk_fault(workspace, monkeypatch, stop_at):
    """Whichever write fails, running again or resuming ends in the same brief."""

    class Failing(store.Disk):
        left = stop_at

        def replace(self, source: Path, target: Path) -> None:
            self.tick()
            super().replace(source, target)

        def fsync(self, descriptor: int) -> None:
            self.tick()

        def tick(self) -> None:
            self.left -= 1
            if self.left == 0:
                raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "disk", Failing())
    try:
        write(workspace)
    except RunnerError as error:
        assert error.code == "disk"
        monkeypatch.setattr(store, "disk", store.Disk())
        state = folder.state(place_of(workspace))
        if state != "done":  # only the last sync failed
            (write if state == "none" else resume)(workspace)
    assert (workspace / ".ai/context/debates/T-1.md").read_text() == PAGE


def test_edited_meanwhile(workspace, say):
    """A brief that someone writes while the debate runs is not written over."""
    path = workspace / ".ai/context/debates/T-1.md"

    def meddling(key: str) -> Any:
        path.write_text("Mine.\n")
        return script(key)

    say(meddling)
    with pytest.raises(Integrity, match="was changed by hand"):
        write(workspace)
    assert path.read_text() == "Mine.\n"


def test_another_model_engine(workspace):
    """A resume on another engine is refused."""
    with pytest.raises(RunnerError):
        write(workspace, fake={"faults": {"1": "crash"}})
    place = place_of(workspace)
    inputs = brief_inputs.load(place)
    (workspace / "configs/other.yaml").write_text("engine: none\n")
    with pytest.raises(Refused, match="this brief was opened with another engine"):
        briefs.resume_settings(place, inputs, "other", None, None)


def test_damaged_inputs(workspace):
    """Inputs that cannot be read are damage, not a fault of ours."""
    place = write(workspace).place
    data = json.loads(place.inputs.read_bytes())
    place.inputs.write_text(json.dumps({"schema": "brief/1"} | {k: v for k, v in data.items() if k != "brief"}))
    with pytest.raises(Integrity, match="the stored inputs cannot be read"):
        brief_inputs.load(place)


def test_own_prompts(workspace, say):
    """Charters and templates of the project win over ours."""
    own = workspace / "prompts/brief"
    own.mkdir(parents=True)
    (own / "security-critic.md").write_text("- Bypass: who may do this here?\n")
    asked = say(script)
    done = write(workspace)
    assert "- Bypass: who may do this here?\n---" in asked[0].messages[1].text
    assert any("potential override phrase" in w for w in done.inputs.warnings)


def test_no_engine(workspace):
    """Nobody writes a brief by hand: without an engine it is refused."""
    with pytest.raises(Refused, match="a brief needs an engine"):
        write(workspace, engine="none")


def test_handoff_of_the_same_words():
    """The words of the guard are the specification's."""
    assert handoff.TRIGGER == "reviewer-rejection-2"


def test_no_clock_in_a_prompt(workspace: Path, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same task tomorrow is the same requests."""

    def asked(at: str) -> list[Request]:
        monkeypatch.setattr(sys.modules[__name__], "AT", at)
        found = say(script)
        found.clear()
        write(workspace, force=True)
        for path in (workspace / ".ai/context/debates").iterdir():
            if path.is_file():
                path.unlink()
        return list(found)

    today = asked("2026-01-02T03:04:05Z")
    assert len(today) >= 3
    assert asked("2026-01-03T13:14:15Z") == today
