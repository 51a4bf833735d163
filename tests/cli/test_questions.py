"""What is asked on a terminal, answered by key presses through a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.input.base import PipeInput
from prompt_toolkit.output import DummyOutput

from runner.cli import questions

DOWN = "\x1b[B"


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    """A terminal that sends what the test types."""
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        yield pipe


def test_personas_are_a_multi_select(keys: PipeInput) -> None:
    """Space picks, Enter takes; in the roster's order."""
    keys.send_text(f" {DOWN}{DOWN} \r")
    assert questions.personas(["one", "two", "three"], {"one": "- Look.\n"}) == ["one", "three"]


def test_no_persona_is_no_answer(keys: PipeInput) -> None:
    """Enter with nothing picked is refused by the prompt; then one is picked."""
    keys.send_text("\r \r")
    assert questions.personas(["one"], {}) == ["one"]


def test_each_charters_first_line_is_shown() -> None:
    """Without its list marker; a persona without a charter says so."""
    assert questions._titled("red-team", "\n- What breaks?\n- More.\n") == "red-team — What breaks?"
    assert questions._titled("red-team", None) == "red-team — no charter"


@pytest.mark.parametrize(
    ("presses", "status"), [("\r", "applied"), (f"{DOWN}\r", "partial"), (f"{DOWN}{DOWN}\r", "rejected")]
)
def test_patches_status_is_one_of_three(keys: PipeInput, presses: str, status: str) -> None:
    """The specification's three sentences."""
    keys.send_text(presses)
    assert questions.patches_status() == status


def test_feedback_and_an_own_persona(keys: PipeInput) -> None:
    """Free text."""
    keys.send_text("Is it [red]clear[/]?\r")
    assert questions.feedback() == "Is it [red]clear[/]?"
    keys.send_text("ops:Look at rollback\r")
    assert questions.persona() == "ops:Look at rollback"


@pytest.mark.parametrize(("presses", "answer"), [("\r", False), ("y", True), ("n", False)])
def test_confirmation_defaults_to_no(keys: PipeInput, presses: str, answer: bool) -> None:
    """Only a yes is a yes."""
    keys.send_text(presses)
    assert questions.confirm("Close all the same?") is answer


@pytest.mark.parametrize("ask", [questions.feedback, questions.patches_status, lambda: questions.personas(["a"], {})])
def test_ctrl_c_at_a_question_is_an_interrupt(keys: PipeInput, ask: Callable[[], object]) -> None:
    """Not an empty answer."""
    keys.send_text("\x03")
    with pytest.raises(KeyboardInterrupt):
        ask()


def test_without_a_terminal_nothing_is_asked() -> None:
    """Under pytest nobody sits there."""
    assert not questions.interactive(False)
