"""G. Engines and offline, H. CLI: the classes that touch a round.

Also proved elsewhere: G1 and G2 with a spy in tests/bugs/test_bugs_network.py, G7's deadline in
tests/engines/test_llama_cpp.py::test_deadline, H3 in tests/cli/test_commands.py and in
test_bugs_network.py, H9 in tests/cli/test_dry_run.py.
"""

# ruff: noqa: N802 (a test has its class's letter in its name)

from __future__ import annotations

import os
import threading

import pytest
from helpers import LEAF, open_, replace, settings, tree, write
from hostile import FEEDBACK, Says, claim, debate, files

from runner.errors import RunnerError
from runner.journal import Journal
from runner.settings import threads

SENTENCE = "The limit is the same for all shops."
GOOD = [claim(SENTENCE, "Each shop has its own limit.")]
PATH = f"project-brain/{LEAF}"
ONE = ("--personas", "red-team", *FEEDBACK)


@pytest.mark.parametrize("name", ["org/name", "Qwen/Qwen3-8B-GGUF", "https://host/x.gguf", "hf.co/a/b:Q4"])
def test_G1_a_models_name_is_no_address(root, capsys, name):
    """A model by the name of a hub: refused with what a model is here."""
    assert debate("open", PATH, "--personas", "red-team", "--feedback", "x", "--model", name) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"debate: {name}: no such model file\nhint: models are local files: give the path of a .gguf")


def test_G3_one_thread(root, says):
    """The engine and the journal are used by the thread that runs the round, and by no other."""
    used = set()

    def answer(request):
        used.add(threading.get_ident())
        return Says(GOOD)(request)

    says(answer)
    open_(root, personas=("red-team", "fresh-eyes-reader", "simplicity-critic"))
    assert used == {threading.get_ident()}


def test_G7_what_ran_is_said(root, says, monkeypatch):
    """Threads are the cores that the process may use, not the machine's; the engine's name is in the files."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert threads(settings(root).profile) == 1
    says(Says(GOOD))
    opened = open_(root)
    assert "engine: fake" in files(opened.place.folder)["transcript.md"]
    assert "Engine: fake." in files(opened.place.folder)["defender.md"]


# ---- H -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "code", "said"),
    [
        ({"reviewer/*": ("", "error")}, 4, "0 of 1 reviewers answered, 1 are needed; failed: red-team (error)"),
        ({"reviewer/*": ""}, 4, "failed: red-team (invalid)"),
        ({"defender/C-*": ("", "timeout")}, 4, "the defender gave no verdict on any claim"),
    ],
)
def test_H1_a_failure_is_no_review(root, says, capsys, raw, code, said):
    """An engine that fails or says nothing: its own exit code, no line that says Opened, no file like a clean one."""
    says(Says(GOOD, raw=raw))
    assert debate("open", PATH, *ONE) == code
    out, err = capsys.readouterr()
    assert out == "" and said in err and "\nhint: `debate resume`" in err
    folder = root / "tree/area/debate/limits/round-01"
    assert sorted(p.name for p in folder.glob("*.md")) == ["feedback-in.md"] and "decided" in (root / LEAF).read_text()


def test_H1_an_engine_that_raises(root, says, capsys):
    """A crash of the engine is exit 2 and an interrupted round."""
    says(Says(GOOD))
    write(root.parent / "configs/crash.yaml", b"engine: fake\nroles: {default: fake}\nfake: {faults: {1: crash}}\n")
    assert debate("open", PATH, *ONE[:2], "--feedback", "x", "--profile", "crash", "-q") == 2
    assert capsys.readouterr().err.startswith("debate: the fake engine crashed at ")
    assert debate("status", PATH) == 0
    assert "round-01 (interrupted)" in capsys.readouterr().out


def test_H1_no_claims_and_not_run_differ(root, says, capsys):
    """A reviewer without claims: done, `no claims` in line, index and transcript; one that failed: FAILED there."""
    says(Says((), raw={"reviewer/fresh-eyes-reader*": ("", "timeout")}))
    assert debate("open", PATH, "--personas", "red-team,fresh-eyes-reader", "--min-reviewers", "1", *FEEDBACK) == 4
    out, err = capsys.readouterr()
    assert "(2 reviewers, 1 failed, no claims)" in out
    assert "debate: incomplete (partial): no usable answer to reviewer/fresh-eyes-reader" in err
    text = files(root / "tree/area/debate/limits/round-01")
    assert "None." in text["tryouts/red-team.md"] and "None." not in text["tryouts/fresh-eyes-reader.md"]
    assert "reviewer red-team: 0 claims" in text["transcript.md"]
    assert "reviewer fresh-eyes-reader: FAILED (timeout)" in text["transcript.md"]


MARKUP = "see [(probe) [red] [/] [TODO] [bold]x[/bold] :smile: [link=x]"


def test_H4_rich_markup(root, says, capsys):
    """Markup in title, body, brief and model text: shown as it is everywhere, crashes nothing."""
    replace(root / LEAF, 'title: "Limits"', f"title: '{MARKUP}'")
    replace(root / LEAF, "Nobody has", f"{MARKUP} Nobody has")
    says(Says([claim(SENTENCE, MARKUP, problem=f"Why {MARKUP}")], observations=(MARKUP,), reason=MARKUP))
    assert debate("open", PATH, "--personas", "red-team", "--feedback", MARKUP, "--profile", "fake", "-vv") == 0
    assert debate("patches", PATH) == 0
    out = capsys.readouterr().out
    assert f"P-01  major: Why {MARKUP}\n" in out and f"+{MARKUP}" not in out.split("P-01")[0]
    assert MARKUP in files(root / "tree/area/debate/limits/round-01")["feedback-in.md"]
    assert debate("close", PATH, "--patches-status", "rejected", "-v") == 0


COMMANDS = "::error::boom\n##[error]boom\n::set-output name=a::b\n::add-mask::x\n##vso[a]\n\x1b[2J\x1b]0;t\x07"


def test_H6_workflow_commands(root, says, capsys):
    """Workflow commands and terminal codes in body, front matter and model text: no line of ours begins with one, and
    no control character gets out."""
    replace(root / LEAF, "Nobody has", f"{COMMANDS}\n<!-- {COMMANDS} -->\n<|\x1b[2J|> Nobody has")
    replace(root / LEAF, 'title: "Limits"', 'title: "a\\n::error::boom\\e[2J"\nsummary: "\\n::error::boom"')
    flat = COMMANDS.replace("\n", " ")[:200]
    says(Says([claim("##[error]boom", COMMANDS, problem=flat)], observations=(COMMANDS[:150],), reason=COMMANDS))
    for argv in (("open", PATH, *ONE, "-vv"), ("patches", PATH), ("status", PATH), ("context", PATH, "--dry-run"),
                 ("close", PATH, "--patches-status", "rejected", "--dry-run"),
                 ("close", PATH, "--patches-status", "rejected", "-vv"),
                 ("open", PATH, *ONE, "--dry-run")):  # fmt: skip
        assert debate(*argv) in (0, 1), argv
    replace(root / LEAF, "status: decided", 'status: "x\\n::error::boom\\e[2J"')
    for argv in (("status", PATH), ("open", PATH, *ONE), ("run", PATH), ("close", PATH)):
        debate(*argv)
    replace(root / LEAF, 'domain: "area"', 'domain: "x\\r\\n##[error]boom"')
    debate("open", PATH, *ONE)
    out, err = capsys.readouterr()
    for line in (out + err).split("\n"):
        assert not line.startswith(("::", "##[", "##vso")), line
        assert [c for c in line if ord(c) < 32 or 127 <= ord(c) < 160] == [], line
    assert "unexpected" not in err


def test_H9_a_dry_run_is_dry(demo, says, monkeypatch, capsys):
    """No write, no engine, no reply asked; also where the model's file is absent."""
    monkeypatch.chdir(demo.parent)
    said = Says(GOOD)
    says(said)

    def never(*_: object) -> None:
        raise RunnerError("an engine was opened")

    monkeypatch.setattr("runner.settings.open_engine", never)
    monkeypatch.setattr(Journal, "open", never)
    write(demo.parent / "models/gone.yaml", b"name: gone\nfiles: [{path: gone.gguf, sha256: ab}]\n")
    before = tree(demo.parent, local=True)
    for more in (FEEDBACK, ("--feedback", "x", "--model", "gone")):
        path = "project-brain/tree/auth/session-store.md"
        assert debate("open", path, "--personas", "red-team", *more, "--dry-run") == 0
    assert "the model file gone.gguf is missing" in capsys.readouterr().out
    assert said.asked == [] and tree(demo.parent, local=True) == before
