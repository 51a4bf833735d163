"""Foreign text made safe for other programs' formats."""

from __future__ import annotations

import pytest

from runner.export import words


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("tree/a.md", "tree/a.md"),
        ("/etc/../x//y/./z", "etc/x/y/z"),
        ("a b:決.md", "a%20b%3A%E6%B1%BA.md"),
        ("50%#?.md", "50%25%23%3F.md"),
        ("back\\slash", "back/slash"),
        ("\ud800", "%ED%A0%80"),
        ("..", "."),
        ("", "."),
    ],
)
def test_uri(path, uri):
    """Relative, percent-encoded, without a step upwards."""
    assert words.uri(path) == uri


def test_line_is_cut_and_shown():
    """One line of at most so many characters; what hides in it is seen."""
    assert words.line("a\r\n b\u202ec\x00", 100) == "a b⟨U+202E⟩c⟨U+0000⟩"
    assert words.line("x" * 50, 10) == "x" * 9 + "…"


def test_path_keeps_its_blanks():
    """A path is not tidied: two blanks stay two, a line end is seen."""
    assert words.path_line("a  b\nc") == "a  b⟨U+000A⟩c"
