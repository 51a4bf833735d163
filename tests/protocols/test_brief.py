"""The debate of a brief by hand: what is asked, in which order, and what comes of the replies."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.errors import Incomplete
from runner.protocols import brief as protocol
from runner.protocols.brief import Brief, Critic, Merged, Result, Source, debate
from runner.protocols.brief_replies import Run, critic_format, passages, runs_of
from runner.protocols.review import Traits
from runner.values import Finish, Reply, Request

PROMPTS = Path(__file__).parents[2] / "prompts/brief"
TEMPLATES = {p.name.removesuffix(".md.j2"): p.read_text() for p in PROMPTS.glob("*.md.j2")}
A = "def find(name):\r\n    query = 'SELECT ' + name\r\n    return db.execute(query)\r\n"
B = "class NoticeFactory:\n    def build(self):\n        return self.text\n    def build(self):\n        pass\n"
BRIEF = Brief(
    files=(Source("src/a.py", A), Source("src/b.py", B, cut=True)),
    findings="The query is built by hand.",
    earlier="Earlier: nothing was changed.",
    critics=(Critic("security-critic", "- Is it checked?"), Critic("simplicity-critic", "- Is it needed?")),
    templates=TEMPLATES,
)
QUERY = "query = 'SELECT ' + name"


def concern(problem: str, file: str = "src/a.py", quote: str = QUERY) -> dict[str, str]:
    return {"file": file, "quote": quote, "kind": "injection", "problem": problem, "severity": "major"}


def says(*concerns: dict[str, str], left: bool = True) -> str:
    return json.dumps({"concerns": concerns, "nothing_left": not left})


MERGED = {"consensus": "Use parameters.", "action_items": ["Bind it.", "bind it!", "Drop the class."], "dissent": []}
NOTHING = says(left=False)


class Talk:
    """Drives a debate: `asked` holds its requests, `say` answers the one that waits."""

    def __init__(self, b: Brief = BRIEF, passes: int = 1) -> None:
        self.steps: Generator[Any, Any, Result] = debate(b, passes)
        self.asked: list[Request] = list(next(self.steps).requests)
        self.result: Result | None = None

    def say(self, text: str | dict[str, Any], finish: Finish = "stop") -> None:
        words = text if isinstance(text, str) else json.dumps(text)
        try:
            self.asked += self.steps.send((Reply(self.asked[-1].key, words, finish),)).requests
        except StopIteration as end:
            self.result = end.value

    @property
    def keys(self) -> list[str]:
        return [r.key for r in self.asked]

    def text(self, i: int = -1) -> str:
        return "\n".join(m.text for m in self.asked[i].messages)


# ---- order ---------------------------------------------------------------------------------------------------------


def test_two_rounds():
    """One critic after the other; only from round 2 on does each see both; then one who merges."""
    talk = Talk()
    talk.say(says(concern("Input is not checked.")))
    assert "Input is not checked." not in talk.text()
    talk.say(says(concern("Nobody needs the class.", "src/b.py", "class NoticeFactory:")))
    for _ in range(2):
        assert "security-critic, in src/a.py: Input is not checked." in talk.text()
        assert "simplicity-critic, in src/b.py: Nobody needs the class." in talk.text()
        talk.say(says(concern("The result is returned raw.", quote="return db.execute(query)")))
    assert talk.text().count("The result is returned raw.") == 2
    talk.say(MERGED)
    keys = ["security-critic/r1", "simplicity-critic/r1", "security-critic/r2", "simplicity-critic/r2", "synthesizer"]
    assert talk.keys == keys
    assert talk.result is not None
    assert talk.result.merged == Merged("Use parameters.", ("Bind it.", "Drop the class."), ())
    assert (talk.result.rounds, talk.result.agreed, talk.result.exhausted) == (2, False, ())
    assert [(c.critic, c.round, c.lines) for c in talk.result.concerns] == [
        ("security-critic", 1, (2, 2)),
        ("simplicity-critic", 1, (1, 1)),
        ("security-critic", 2, (3, 3)),
        ("simplicity-critic", 2, (3, 3)),
    ]


def test_prompts_share_their_beginning():
    """Rules, files, findings and the earlier brief are byte for byte the same for everybody, charter and task after."""
    talk = Talk()
    for text in (says(concern("It is not checked.")),) * 4:
        talk.say(text)
    shared = [r.messages[0].segments + r.messages[1].segments for r in talk.asked]
    n = talk.asked[0].shared[0]
    assert {s[:n] for s in shared} == {shared[0][:n]}
    assert all(r.shared[0] == n for r in talk.asked)
    start = "".join(s.text for s in shared[0][:n])
    for part in ("[file src/a.py ", A, "Only the beginning of this file is shown.", BRIEF.findings, BRIEF.earlier):
        assert part in start
    foreign = {s.text for s in shared[0] if not s.trusted}
    assert foreign == {"src/a.py", "src/b.py", A, B, BRIEF.findings, BRIEF.earlier, "- Is it checked?"}
    assert "--- BEGIN PERSONA CHARTER (advisory) ---\n- Is it checked?\n--- END" in talk.text(0)


def test_early_exit():
    """Both say that nothing is left: no second round; without a concern nobody is asked to merge."""
    talk = Talk()
    talk.say(says(concern("It is not checked."), left=False))
    talk.say(NOTHING)
    assert talk.keys == ["security-critic/r1", "simplicity-critic/r1", "synthesizer"]
    talk = Talk()
    talk.say(NOTHING)
    talk.say(NOTHING)
    assert talk.result is not None
    assert (talk.result.agreed, talk.result.merged, talk.result.cause) == (True, None, "")
    assert talk.keys == ["security-critic/r1", "simplicity-critic/r1"]


def test_one_round():
    """`rounds` is a cap."""
    talk = Talk(replace(BRIEF, rounds=1))
    talk.say(says(concern("It is not checked.")))
    talk.say(says(concern("It is not needed.")))
    assert talk.keys[-1] == "synthesizer"


# ---- gaps ----------------------------------------------------------------------------------------------------------


def test_a_critic_fails():
    """Looping, late or empty: asked once more, then a gap; the debate ends after that round and is merged."""
    talk = Talk()
    talk.say("and so on ", "degenerate")
    talk.say("", "timeout")
    talk.say(says(concern("It is not needed.")))
    talk.say(MERGED)
    assert talk.keys == ["security-critic/r1", "security-critic/r1~2", "simplicity-critic/r1", "synthesizer"]
    assert talk.result is not None
    assert [(s.critic, s.cause) for s in talk.result.said] == [
        ("security-critic", "timeout"),
        ("simplicity-critic", ""),
    ]
    assert (talk.result.exhausted, talk.result.agreed) == (("security-critic/r1",), False)


@pytest.mark.parametrize(
    "text",
    [
        says(),
        '{"concerns": []}',
        "no JSON",
        says(concern("")),
        says(*[concern("It is not checked.")] * 5),
        json.dumps({"concerns": [concern("x") | {"kind": "style"}], "nothing_left": True}),
    ],
)
def test_answers_that_say_nothing(text):
    """Neither a concern nor an end, or not in the form asked for: no answer."""
    talk = Talk()
    talk.say(text)
    talk.say(text)
    talk.say(NOTHING)
    assert talk.result is not None
    assert (talk.result.said[0].cause, talk.result.exhausted) == ("invalid", ("security-critic/r1",))


def test_no_critic_answers():
    """Without one usable answer there is nothing to write a brief of."""
    talk = Talk()
    with pytest.raises(Incomplete) as caught:
        for _ in range(4):
            talk.say("", "timeout")
    error = caught.value
    assert (error.reason, error.exhausted) == ("interrupted", ("security-critic/r1", "simplicity-critic/r1"))
    assert error.message == "no critic gave a usable answer: security-critic (timeout), simplicity-critic (timeout)"


def test_the_synthesizer_fails():
    """The concerns stand, and the gap has a name."""
    talk = Talk(replace(BRIEF, rounds=1))
    talk.say(says(concern("It is not checked.")))
    talk.say(NOTHING)
    talk.say("", "error")
    talk.say("", "length")
    assert talk.result is not None
    assert (talk.result.merged, talk.result.cause, talk.result.exhausted) == (None, "length", ("synthesizer",))


def test_a_late_answer():
    """In a later pass a critic gets more tries; a set of concerns that grew is a new question to the synthesizer."""
    talk = Talk(replace(BRIEF, rounds=1), passes=2)
    for _ in range(3):
        talk.say("", "timeout")
    talk.say(says(concern("It is not checked.")))
    talk.say(NOTHING)
    assert talk.keys[-3:] == ["security-critic/r1~4", "simplicity-critic/r1", "synthesizer/p2"]
    unchanged = Talk(replace(BRIEF, rounds=1), passes=2)
    for _ in range(4):
        unchanged.say("", "timeout")
    unchanged.say(says(concern("It is not needed.")))
    assert unchanged.keys[-1] == "synthesizer"


# ---- concerns ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "quote", "wanted"),
    [
        ("src/a.py", QUERY, ("src/a.py", (2, 2), "exact")),
        ("src/b.py", QUERY, ("src/a.py", (2, 2), "exact")),  # the quote decides
        ("src/c.py", "return self.text", ("src/b.py", (3, 3), "exact")),
        ("src/b.py", "def build(self):", ("src/b.py", None, "ambiguous")),
        ("src/b.py", "nowhere to be found", ("src/b.py", None, "unanchored")),
        ("src/a.py", "def find(name):\n    query = 'SELECT '", ("src/a.py", None, "unanchored")),
    ],
)
def test_places(file, quote, wanted):
    """File, lines and quote always fit; a quote that is not there, or there twice, has no line."""
    talk = Talk()
    talk.say(says(concern("It is not checked.", file, quote)))
    talk.say(says(concern("It is not needed.")))
    talk.steps.close()
    done = Talk(replace(BRIEF, rounds=1))
    done.say(says(concern("It is not checked.", file, quote)))
    done.say(NOTHING)
    done.say(MERGED)
    assert done.result is not None
    (found,) = done.result.concerns
    assert (found.file, found.lines, found.anchor) == wanted


def test_repeats():
    """What a critic says again, in much the same words of the same file, counts once; the other critic may say it."""
    talk = Talk()
    talk.say(says(concern("Input is not checked."), concern("The input is not checked!"), concern("Too slow by far.")))
    talk.say(says(concern("Input is not checked.")))
    talk.say(says(concern("Input is not checked.")))
    talk.say(NOTHING)
    talk.say(MERGED)
    assert talk.result is not None
    assert [(c.critic, c.problem) for c in talk.result.concerns] == [
        ("security-critic", "Input is not checked."),
        ("security-critic", "Too slow by far."),
        ("simplicity-critic", "Input is not checked."),
    ]


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        ("The query is built by hand, and SQL gets through.", True),
        ("SEND ERRORS SIGNED IN BLOCKED.", False),
        ("It is iawvzfjbkjhxgqgjlwvwmwjcwzjwzjwzjlwzjyzjwjz.", False),
        ("入力が検査されていない、これは問題であり、名前がそのまま問い合わせに入ってしまうことになる。", True),
    ],
)
def test_legible(text, readable):
    """Of a small model, capitals and endless words are no answer; a larger one may write what it likes."""
    talk = Talk(replace(BRIEF, rounds=1))
    talk.say(says(concern(text)))
    assert (talk.keys[-1] == "simplicity-critic/r1") is readable
    free = Talk(replace(BRIEF, rounds=1, traits=Traits(free_text=True)))
    free.say(says(concern(text)))
    assert free.keys[-1] == "simplicity-critic/r1"


# ---- what can be quoted --------------------------------------------------------------------------------------------


def test_passages():
    """Lines that say something and are there once; in a file without one, whatever else can be quoted once."""
    assert passages(A) == ("def find(name):", QUERY, "return db.execute(query)")
    assert passages(B) == ("class NoticeFactory:", "return self.text")
    assert passages("x = 1\ny = 2\nz = 3\n") == ("x = 1\ny = 2\nz = 3",)
    assert passages("x\n") == ()


def test_runs():
    """With runs enough each lies in one file, and longer files get more; with fewer, files share; turns rotate."""
    files = [("a", A), ("b", B)]
    assert [r.files for r in runs_of(files, 4, 0)] == [("a",), ("a",), ("b",), ("b",)]
    assert [r.files for r in runs_of(files, 3, 1)] == [("a",), ("b",), ("a",)]
    assert [r.files for r in runs_of(files, 1, 0)] == [("a", "b")]
    assert runs_of([("x", "x\n")], 4, 0) == ()
    many = [(f"f{i}", f"line number {i} of file") for i in range(9)]
    assert [len(r.files) for r in runs_of(many, 4, 0)] == [2, 2, 2, 3]


def test_format_ties_file_to_quote():
    """The grammar of each concern names the file its quotes come from; the schema, all of them."""
    runs = (Run(("a.py",), ("def find(name):",)), Run(('b "x".py', "c.py"), ("class NoticeFactory:",)))
    fmt, worst = critic_format(runs, False)
    rules = {line.split(":")[0]: line for line in fmt.lark.split("\n") if line.startswith("concernreply_")}
    assert r'"\"a.py\"")' in rules["concernreply_0"] and "c.py" not in rules["concernreply_0"]
    assert r'("\"b \\\"x\\\".py\"" | "\"c.py\"")' in rules["concernreply_1"] and "a.py\\" not in rules["concernreply_1"]
    assert "\ue000" not in fmt.lark + fmt.json_schema
    schema = json.loads(fmt.json_schema)["properties"]
    assert schema["concerns"]["maxItems"] == 2
    assert schema["concerns"]["items"]["properties"]["file"] == {"enum": ["a.py", 'b "x".py', "c.py"]}
    assert schema["nothing_left"] == {"enum": [True, False]}
    assert 300 < worst < 700


@pytest.mark.parametrize("free", [False, True])
def test_grammar_compiles(free):
    """llguidance takes the grammar, and a reply that it admits is one that the host takes."""
    llguidance = pytest.importorskip("llguidance")
    runs = runs_of([("src/a.py", A), ("b.py", B)], 4, 0)
    fmt, _ = critic_format(runs, free)
    tokenizer = llguidance.LLTokenizer("byte")
    reply = json.dumps({
        "concerns": [concern("Input is never checked here.", "src/a.py", "def find(name):")], "nothing_left": False,
    }, separators=(",", ":"))  # fmt: skip
    for text, admitted in ((reply, True), (reply.replace("src/a.py", "b.py"), False)):
        matcher = llguidance.LLMatcher(tokenizer, fmt.lark)
        assert not matcher.is_error(), matcher.get_error()
        tokens = tokenizer.tokenize_bytes(text.encode())
        assert (matcher.try_consume_tokens(tokens) == len(tokens)) is admitted


def test_worst_tokens():
    """The worst of each critic and of the synthesizer grow with rounds and files; the reply is counted."""
    count = lambda messages: sum(len(m.text.split()) for m in messages)  # noqa: E731
    one = protocol.worst_tokens(replace(BRIEF, rounds=1), count)
    two = protocol.worst_tokens(BRIEF, count)
    assert set(one) == {"security-critic/r1", "simplicity-critic/r1", "synthesizer"}
    assert all(two[k] > one[k] > 300 for k in one)
