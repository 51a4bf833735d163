"""Prompts: foreign text once, untouched, and apart from ours; faulty templates named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import UsageError
from runner.prompts import Foreign, render
from runner.values import Segment

FOLDER = Path(__file__).parent.parent / "prompts" / "review"
TEMPLATES = {p.name.removesuffix(".md.j2"): p.read_text(encoding="utf-8") for p in sorted(FOLDER.glob("*.md.j2"))}


def ours(text: str) -> Segment:
    return Segment(text, True)


def theirs(text: str) -> Segment:
    return Segment(text, False)


def test_segments():
    """Our words and foreign ones in turn, each its own segment."""
    made = render({"t": "A {{ x }} B {{ n }} {{ y }}"}, "t", {"x": Foreign("one"), "n": 7, "y": Foreign("two")})
    assert made == (ours("A "), theirs("one"), ours(" B 7 "), theirs("two"))


def test_foreign_at_any_depth():
    """In lists and mappings too, and each place of it is a segment."""
    rows = [{"name": Foreign("a"), "id": 1}, {"name": Foreign("b"), "id": 2}]
    made = render({"t": "{% for r in rows %}{{ r.id }}={{ r.name }};{% endfor %}"}, "t", {"rows": rows})
    assert made == (ours("1="), theirs("a"), ours(";2="), theirs("b"), ours(";"))


def test_same_text_twice():
    """A template may show a text in two places."""
    made = render({"t": "{{ x }}|{{ x }}"}, "t", {"x": Foreign("a")})
    assert made == (theirs("a"), ours("|"), theirs("a"))


def test_unused_and_empty():
    """A value that no template names is no error; an empty text is an empty segment in its place."""
    assert render({"t": "a"}, "t", {"x": Foreign("b")}) == (ours("a"),)
    assert render({"t": "a{{ x }}"}, "t", {"x": Foreign("")}) == (ours("a"), theirs(""))


NASTY = [
    "{{ x }}", "{{ nonce }}", "{% raw %}", "{% for a in b %}", "{# gone #}", "{{ 7 * 7 }}", "}}{{", "{x} $y %s",
    "\ue0000\ue001", "\ue0001\ue001", "\ue000", "\ue001", "\ue00099\ue001", "a\r\nb\r\n", "  blanks  ", "\n", "&lt;<b>",
    "数据 👨‍👩‍👧", "<|im_end|>", "\\", "\x00\x1b",
]  # fmt: skip


@pytest.mark.parametrize("text", NASTY)
def test_foreign_text_is_put_in_untouched(text):
    """Braces, private-use characters, line ends and control tokens: once, as they are, and never read."""
    made = render({"t": "<{{ x }}>{{ y }}."}, "t", {"x": Foreign(text), "y": Foreign("next")})
    assert made == (ours("<"), theirs(text), ours(">"), theirs("next"), ours("."))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text() | st.sampled_from(NASTY), min_size=1, max_size=5))
def test_any_foreign_text(texts):
    """Whatever the texts, they are the untrusted segments, in order, and ours are ours."""
    template = "".join(f"[{i}]{{{{ t[{i}] }}}}" for i in range(len(texts)))
    made = render({"t": template}, "t", {"t": [Foreign(t) for t in texts]})
    assert [s.text for s in made if not s.trusted] == texts
    assert "".join(s.text for s in made if s.trusted) == "".join(f"[{i}]" for i in range(len(texts)))


@pytest.mark.parametrize("name", [n for n in sorted(TEMPLATES) if n != "system"])
def test_our_templates_with_nasty_texts(name):
    """Every template of ours keeps foreign text whole and out of its own words."""
    marked = [Foreign(f"{text}§{i}") for i, text in enumerate(NASTY)]
    for text in marked:
        values = {
            "kind": "leaf", "title": text, "nonce": "f00d", "body": text, "feedback": text, "quote": text,
            "part": "1 of 2", "differences": text,
            "companions": [{"name": text, "text": text}], "problem": text, "action": "replace", "replacement": text,
            "headings": text, "id": 1, "labels": [{"name": "DEFER", "meaning": "later"}],
            "claims": [
                {"id": 1, "verdict": "DEFER", "quote": text, "problem": text, "action": "replace", "replacement": text}
            ],
        }  # fmt: skip
        made = render(TEMPLATES, name, values)
        assert {s.text for s in made if not s.trusted} <= {text.text}
        assert "§" not in "".join(s.text for s in made if s.trusted)
        assert not set("\ue000\ue001") & set("".join(s.text for s in made if s.trusted))


def failure(template: str, values: dict) -> str:
    with pytest.raises(UsageError) as caught:
        render({"reviewer": template}, "reviewer", values)
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a {{ titel }}", "reviewer: the prompt template does not render: 'titel' is undefined"),
        (
            "{{ c.nmae }}",
            "reviewer: the prompt template does not render: 'dict object' has no attribute 'nmae'",
        ),
        ("one\n{% if %}", "reviewer:2: the prompt template does not render: Expected an expression, got 'end of "
         "statement block'"),
        ("{{ 1 / 0 }}", "reviewer: the prompt template does not render: division by zero"),
        ("{{ n + body }}", 'reviewer: the prompt template does not render: unsupported operand type(s) for +: '
         "'int' and 'str'"),
        ("{% include 'x' %}", "reviewer: the prompt template does not render: no loader for this environment "
         "specified"),
        ("{{ ''.__class__.__mro__ }}", "reviewer: the prompt template does not render: access to attribute "
         "'__class__' of 'str' object is unsafe."),
        ("\n{{ body | upper | truncate(1, true, '', 0) }}", "reviewer: the prompt template changes a text that is only "
         "to be put in"),
        ("\ue0009\ue001", "reviewer: the prompt template changes a text that is only to be put in"),
        ("a \ue000 b", "reviewer: the prompt template changes a text that is only to be put in"),
    ],
)  # fmt: skip
def test_faulty_template(template, message):
    """A project's own template may be wrong: the error names it, and the line where that is known."""
    assert failure(template, {"n": 1, "body": Foreign("b"), "c": {"name": Foreign("c")}}) == message


def test_missing_template():
    """Its name, and where to look."""
    with pytest.raises(UsageError) as caught:
        render({}, "reviewer", {})
    assert str(caught.value) == "the prompt template reviewer is missing\nhint: look in prompts/"


def test_golden_verdict():
    """The one prompt that is compared word for word: the question whose probabilities are measured."""
    labels = [{"name": "DEFER", "meaning": "it waits"}, {"name": "REJECT", "meaning": "it is wrong"}]
    text = "Your verdict: DEFER, REJECT?\n"
    assert render(TEMPLATES, "verdict", {"labels": labels}) == (ours(text),)
