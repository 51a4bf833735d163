"""debate ask as a user types it: exact text, both streams, exit codes. On the fake engine, and once on the model."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from runner import cli
from runner.cli import questions

FAKE = ("--profile", "fake", "-q", "--out", "out")
QUESTION = "Should we store sessions in Redis or in Postgres?"
ONE_MODEL = "warning: one model fills every seat: a one-model panel agrees with itself\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    return tmp_path


def debate(*argv: str) -> int:
    """Run one command line."""
    return cli.run(list(argv))


def profile(here: Path, **fake: object) -> str:
    (here / "own.yaml").write_text(json.dumps({"engine": "fake", "roles": {"default": "fake"}, "fake": fake}))
    return "own.yaml"


def test_ask(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """How each round was measured, why it ended, where it lies."""
    assert debate("ask", QUESTION, *FAKE) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(
        r"Round 1: 6 arguments, \d new \(an argument is new under a similarity of 80 to every earlier one; nearest: "
        r"[\d, ]+\)\nEnded: --rounds asked for 1\.\n"
        r"Debated in out \(dialectic, 2 seats, 1 round\)\. FAKE ENGINE: no model read it\. Done\.\n",
        out,
    )
    assert err == ONE_MODEL


def test_what_is_shown_while_it_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The choice of the format, what was read, and each seat's position; a gap is told at once."""
    (here / "notes.md").write_text("Sessions live long.")
    own = profile(here, faults={"round-1/antithesis*": "timeout"})
    assert debate("ask", f"{QUESTION[:-1]}, see notes.md?", "--profile", own) == 4
    err = capsys.readouterr().err.split("\n")
    assert err[:3] == [
        "format: dialectic (a choice between two); seats: thesis, antithesis", "read: notes.md: 3 of 3 words",
        ONE_MODEL.strip(),
    ]  # fmt: skip
    assert "antithesis: no usable answer (timeout)" in err
    assert any(re.fullmatch(r"thesis: [A-Z].*\.", line) for line in err)
    (folder,) = (here / "debates").iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-should-we-store-sessions-in-redis-or-in", folder.name)
    assert err[-3:] == [
        "debate: incomplete (partial): no usable answer of antithesis (timeout)",
        f"hint: debate resume debates/{folder.name} asks again", "",
    ]  # fmt: skip


def test_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One document on stdout, the record with its folder."""
    assert debate("ask", QUESTION, *FAKE, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["schema"], data["ok"], data["folder"]) == ("ask/1", True, str(here / "out"))
    assert data["synthesis"]["confidence"] in ("high", "moderate", "low")


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("",), 1, "the question is empty"),
        (("word " * 500,), 1, "the question has 500 words (2499 characters), 200 (4000) are allowed"),
        ((QUESTION, "--format", "duel"), 2, "--format must be dialectic, redteam, council, not 'duel'"),
        ((QUESTION, "--format", "council", "--agents", "2"), 1, "council has 3 seats, not 2"),
        ((QUESTION, "--decision", "word " * 201), 1, "the context has 201 words (1004 characters), 200 (4000) are "
         "allowed"),
        ((QUESTION, "--context-file", "none.md"), 1, "none.md: no such file"),
        ((QUESTION, "--context-file", "x", "--stakes", "y"), 2, "--context-file and --stakes both give the context"),
        ((QUESTION, "--timeout-s", "0"), 2, "--timeout-s must be more than 0, not 0.0"),
        ((QUESTION, "--rounds", "0"), 2, "--rounds must be 1 or more, not 0"),
        ((QUESTION, "--engine", "none"), 1, "there is no engine to debate with"),
        ((QUESTION, "--models", "a"), 2, "the fake engine takes no models by name"),
    ],
)  # fmt: skip
def test_refusals(
    here: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], code: int, message: str
) -> None:
    """One line that says what, with a hint; nothing is written."""
    assert debate("ask", *argv, "--profile", "fake", "--out", "out") == code
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"debate: {message}\nhint: ")
    assert not (here / "out").exists() and not (here / "debates").exists()


def test_a_model_that_is_not_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Named, before anything is written."""
    assert debate("ask", QUESTION, "--models", "smollm2-135m-instruct,no-such-model", "--out", "out") == 2
    assert "no model named 'no-such-model'" in capsys.readouterr().err
    assert debate("ask", QUESTION, "--model", "smollm2-135m-instruct", "--models", "smollm2-135m-instruct") == 2
    assert "--model and --models both name the models" in capsys.readouterr().err
    assert not (here / "out").exists()


def test_a_folder_that_cannot_be_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names it."""
    (here / "file").write_text("")
    assert debate("ask", QUESTION, "--profile", "fake", "-q", "--out", "file/out") == 2
    err = capsys.readouterr().err.removeprefix(ONE_MODEL)
    assert re.fullmatch(r"debate: file: (is not a folder|cannot make the folder: .*)\nhint: .*\n", err)


def test_question_from_stdin(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` reads it."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{QUESTION}\n"))
    assert debate("ask", "-", *FAKE) == 0
    assert "> Should we store" in (here / "out/synthesis.md").read_text()


def test_unclear_question(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere it goes on and says what it assumed; on a terminal it asks once."""
    assert debate("ask", "Kafka?", *FAKE) == 0
    assumed = "Assumed: the question is whether this is a good idea: Kafka?"
    assert capsys.readouterr().err.startswith(f"note: the question is short. {assumed}\n")
    assert f"- {assumed}" in (here / "out/synthesis.md").read_text()
    asked: list[str] = []
    monkeypatch.setattr(questions, "interactive", lambda no_input: not no_input)
    monkeypatch.setattr(questions, "clarified", lambda q: asked.append(q) or "Kafka or RabbitMQ for orders")
    assert debate("ask", "Kafka?", *FAKE) == 0
    assert asked == ["Kafka?"]
    assert "> Kafka: Kafka or RabbitMQ for orders" in (here / "out-2/synthesis.md").read_text()
    assert debate("ask", "Kafka?", *FAKE, "--no-input") == 0 and asked == ["Kafka?"]


def test_resume_and_abort(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the folder: a partial debate is completed, an interrupted one taken back, a done one left alone."""
    own = profile(here, faults={"round-1/thesis*": "timeout"})
    assert debate("ask", QUESTION, "--profile", own, "-q", "--out", "out") == 4
    profile(here)
    capsys.readouterr()
    assert debate("resume", "out", "-q") == 0
    assert "Debated in out (dialectic, 2 seats, 1 round)." in capsys.readouterr().out
    for command in ("resume", "abort"):
        assert debate(command, "out") == 1
        assert re.match(r"debate: out: (nothing to resume: this debate is|this run is) done", capsys.readouterr().err)
    profile(here, faults={"round-1/thesis": "crash"})
    assert debate("ask", QUESTION, "--profile", own, "-q", "--out", "two") == 2
    (here / "two/mine.txt").write_text("Mine.")
    capsys.readouterr()
    assert debate("abort", "two", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data == {"schema": "abort/1", "ok": True, "aborted": "two", "moved": [".aborted-two/mine.txt"]}
    assert not (here / "two").exists()


def test_synthesis_is_rendered_on_a_terminal(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its headings without their marks; foreign square brackets as they are."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert debate("ask", "Should we [red]wait[/red] or go?", *FAKE) == 0
    out = capsys.readouterr().out
    assert "[red]wait[/red]" in out and "Strongest Counter" in out and "## Strongest" not in out


def test_isolate_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    """As every command that runs an engine."""
    assert debate("ask", "--help") == 0
    assert "--isolate" in capsys.readouterr().out


@pytest.mark.model
def test_on_the_bundled_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """200 words of context are computed once for all seats; every seat argues for what it was given."""
    (here / "context.md").write_text("The shop keeps its sessions in memory now. " * 25)
    argv = ("--context-file", "context.md", "--agents", "3", "--out", "out", "--json", "-q", "--wait-s", "300")
    assert debate("ask", QUESTION, *argv) == 0
    data = json.loads(capsys.readouterr().out)
    first = [c for c in data["calls"] if re.fullmatch("round-1/[a-z-]+", c["key"])]
    assert len(first) == 3 and all(c["tokens_cached"] > 250 for c in first)
    assert all(c["tokens_in"] - c["tokens_cached"] <= 90 for c in first)
    for seat in data["seats"][:2]:
        assert seat["rounds"][0]["position"].startswith(seat["given"].rstrip(".") + " because ")
    assert [t["seats"] for t in data["synthesis"]["tensions"]] == [
        ["thesis", "antithesis"], ["antithesis", "third-position"],
    ]  # fmt: skip
