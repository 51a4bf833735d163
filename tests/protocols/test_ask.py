"""The debate protocol by hand: no engine, no disk. Replies are the fake engine's words, or the test's own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner import schemas
from runner.engines.fake import answer
from runner.errors import Refused
from runner.protocols import ask_replies
from runner.protocols.ask import Debate, Result, ask, first_request, seat_text
from runner.protocols.ask_said import SAME, Argument, Heard, Novelty, Said, alike, news, said_of, whole
from runner.protocols.ask_seats import FORMATS, detect, options, positions, seats
from runner.protocols.led import lead
from runner.protocols.review import Traits
from runner.values import Ask, Document, Join, Publish, Reply, Request

ROOT = Path(__file__).parent.parent.parent
TEMPLATES = {p.name.removesuffix(".md.j2"): p.read_text() for p in sorted((ROOT / "prompts/ask").glob("*.md.j2"))}
QUESTION = "Should we store sessions in Redis or in Postgres?"
CONTEXT = "CONTEXT FOR DEBATE:\n- Constraints: two engineers\n- Current leaning: Redis"


def a_debate(form: str = "dialectic", agents: int | None = None, **changes: Any) -> Debate:
    values: dict[str, Any] = {
        "question": QUESTION, "form": form, "why": "as asked for", "context": CONTEXT, "leaning": True, "rounds": 1,
        "seats": positions(form, changes.get("question", QUESTION), seats(form, agents)), "templates": TEMPLATES,
    }  # fmt: skip
    return Debate(**(values | changes))


# ---- a driver ------------------------------------------------------------------------------------------------------

Answer = Callable[[Request], Reply]


@dataclass
class Run:
    """What a flow asked and published, in order, and what it came to."""

    asked: list[Request] = field(default_factory=list)
    published: list[Document] = field(default_factory=list)
    result: Result | None = None

    @property
    def keys(self) -> list[str]:
        return [q.key for q in self.asked]

    @property
    def paths(self) -> list[str]:
        return [d.path for d in self.published]

    def file(self, path: str) -> str:
        (found,) = (d.body for d in self.published if d.path == path)
        return found


def drive(flow: Any, reply: Answer = answer) -> Run:
    """Run a flow to its end; sub-flows one after the other."""
    run = Run()
    run.result = _steps(flow, reply, run)
    return run


def _steps(flow: Any, reply: Answer, run: Run) -> Any:
    sent = None
    while True:
        try:
            wish = flow.send(sent)
        except StopIteration as end:
            return end.value
        match wish:
            case Ask(requests=requests):
                run.asked += requests
                sent = tuple(reply(q) for q in requests)
            case Publish(document=document):
                run.published.append(document)
                sent = None
            case Join(flows=flows):
                sent = tuple(_steps(f, reply, run) for f in flows)


def says(script: Mapping[str, Any]) -> Answer:
    """The fake engine, but for keys of a pattern: a dict is a JSON reply, a word a finish."""

    def reply(request: Request) -> Reply:
        for pattern, what in script.items():
            if re.fullmatch(pattern, request.key):
                if isinstance(what, str):
                    return replace(answer(request), finish=what)
                return Reply(request.key, json.dumps(what), "stop")
        return answer(request)

    return reply


WORDS = {
    "kiwi": ["Kiwis gallop uphill.", "Seven drums echo loudly.", "Velvet burns at dusk."],
    "plum": ["Plums roll northward.", "Copper kettles whistle.", "Winter shortens every march."],
}


def first(word: str) -> dict[str, Any]:
    """A usable first reply whose arguments are like no other's."""
    return {
        "position": f"{word} is right.", "key_arguments": WORDS[word], "strongest_point": f"{word} wins.",
        "weaknesses": f"{word} costs.",
    }  # fmt: skip


def later(rebuttal: str, under: str) -> dict[str, str]:
    return {"rebuttal": rebuttal, "underweighted_argument": under, "revised_position": "As before."}


# ---- formats, seats, positions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "form"),
    [
        ("Should we store sessions in Redis or in Postgres?", "dialectic"),
        ("Postgres vs. MongoDB", "dialectic"),
        ("Should we migrate to Kubernetes?", "dialectic"),
        ("Which is better for us, tabs or spaces?", "dialectic"),
        ("Do we need a monorepo?", "dialectic"),
        ("Review our plan to delete the nightly backups.", "redteam"),
        ("What could go wrong with our migration plan?", "redteam"),
        ("We delete logs after a week. Find the flaws in this proposal.", "redteam"),
        ("Is our rollout plan sound?", "redteam"),
        ("How should a small team handle on-call duty?", "council"),
        ("What is the best design for our API?", "council"),
        ("Growth in the next three years", "council"),
    ],
)
def test_format_of_a_question(question: str, form: str) -> None:
    """The specification's three kinds of questions."""
    assert detect(question)[0] == form


@pytest.mark.parametrize(
    ("question", "sides"),
    [
        (QUESTION, ["We should store sessions in Redis.", "We should store sessions in Postgres."]),
        ("Should we use Rust or Go?", ["We should use Rust.", "We should use Go."]),
        ("Should we rewrite it or wait?", ["We should rewrite it.", "We should wait."]),
        ("Should we move?", ["We should move.", "We should not move."]),
        ("Should we move or not?", ["We should move.", "We should not move."]),
        ("Kafka vs RabbitMQ for us?", ["The right choice is Kafka.", "The right choice is RabbitMQ."]),
        ("Should my team adopt Rust, Go or Zig for it?",
         ["My team should adopt Rust.", "My team should adopt Go.", "My team should adopt Zig."]),
        ("Is it sound?", ["What the question proposes is right.", "What the question proposes is wrong."]),
        ('Should we say "x" or "y"?', ["The first choice named in the question is right.",
                                       "The second choice named in the question is right."]),
    ],
)  # fmt: skip
def test_sides_of_a_question(question: str, sides: list[str]) -> None:
    """The position that a seat takes is computed from the question where it can be."""
    assert [o.says for o in options(question)] == sides


@given(st.text(max_size=200))
@settings(max_examples=200)
def test_any_question_has_positions(text: str) -> None:
    """Whatever is asked, every seat has a position and leads that a grammar can hold."""
    for form, names in FORMATS.items():
        for seat in positions(form, text, names):
            assert seat.given and len(seat.leads) == 6 and all(len(x) <= 110 for x in seat.leads)
    detect(text)


@pytest.mark.parametrize(
    ("form", "agents", "names"),
    [
        ("dialectic", None, ("thesis", "antithesis")),
        ("dialectic", 3, ("thesis", "antithesis", "third-position")),
        ("redteam", 2, ("advocate", "critic")),
        ("council", None, ("pragmatist", "visionary", "skeptic")),
    ],
)
def test_seats(form: Any, agents: int | None, names: tuple[str, ...]) -> None:
    """Each format's own number, and the numbers that fit."""
    assert seats(form, agents) == names


@pytest.mark.parametrize(("form", "agents"), [("council", 2), ("redteam", 3), ("dialectic", 4), ("dialectic", 0)])
def test_seats_refused(form: Any, agents: int) -> None:
    """A number that does not fit its format is refused, with the one that does."""
    with pytest.raises(Refused, match=f"{form} has .* seats, not {agents}"):
        seats(form, agents)


# ---- the first round -----------------------------------------------------------------------------------------------


def test_whole_debate() -> None:
    """Seats side by side, then the synthesis; a prompt and an answer of each, in this order."""
    run = drive(ask(a_debate()))
    assert run.keys == ["round-1/thesis", "round-1/antithesis", "synthesis"]
    assert run.paths == [
        "thesis.prompt", "thesis.output", "antithesis.prompt", "antithesis.output", "synthesis.prompt", "synthesis.md",
    ]  # fmt: skip
    assert run.result.exhausted == () and run.result.synthesis is not None


def test_prompts_share_what_they_can() -> None:
    """Rules, context and question are the same segments for all seats; what differs is the seat's own text."""
    d = a_debate(agents=3)
    requests = [first_request(d, seat).request for seat in d.seats]
    segments = [[s for m in q.messages for s in m.segments] for q in requests]
    (n,) = {q.shared for q in requests}
    assert segments[0][: n[0]] == segments[1][: n[0]] == segments[2][: n[0]]
    assert len({tuple(x[n[0] :]) for x in segments}) == 3
    text = "".join(s.text for s in segments[0][: n[0]])
    assert CONTEXT in text and QUESTION in text and "Challenge the current leaning" in text
    assert [s.text for s in segments[0] if not s.trusted] == [CONTEXT, QUESTION, "We should store sessions in Redis."]


def test_without_context() -> None:
    """No block, and nothing about a leaning."""
    d = a_debate(context="", leaning=False)
    text = first_request(d, d.seats[0]).request.messages[1].text
    assert "context" not in text.partition("Argue")[0] and "leaning" not in text


@pytest.mark.parametrize("form", list(FORMATS))
def test_given_position_is_in_prompt_and_file(form: str) -> None:
    """What a seat was given stands in its prompt and in its answer's file, and its reply begins with it."""
    d = a_debate(form, 3 if form == "dialectic" else None)
    run = drive(ask(d))
    for seat in d.seats:
        assert seat.given in run.file(f"{seat.name}.prompt")
        assert f"Given: {seat.given}\n" in run.file(f"{seat.name}.output")
        opening = json.dumps(json.dumps(seat.leads[0])[:-1] + " ")
        assert opening in first_request(d, seat).request.format.lark


def test_critic_replies_in_its_own_form() -> None:
    """Position, criticisms, fatal flaw and what would change its mind."""
    text = drive(ask(a_debate("redteam"))).file("critic.output")
    assert re.findall("(?m)^## (.*)", text) == [
        "Position", "Key criticisms", "Fatal flaw", "What would change my mind",
    ]  # fmt: skip
    text = drive(ask(a_debate("redteam"))).file("advocate.output")
    assert re.findall("(?m)^## (.*)", text) == [
        "Position", "Key arguments", "Strongest point", "Acknowledged weaknesses",
    ]  # fmt: skip


@pytest.mark.parametrize("critic", [False, True])
def test_at_most_500_words(critic: bool) -> None:
    """By construction: with a word in every two characters, all strings of a reply at their bounds have 500 words."""
    _, fmt, _ = ask_replies.seat_format(critic, ("x",) * 6, True)
    assert _most_words(json.loads(fmt.json_schema)) == 500
    assert _most_words(json.loads(ask_replies.rebuttal_format(("x",) * 3, True)[1].json_schema)) == 500


def _most_words(schema: Mapping[str, Any]) -> int:
    if schema["type"] == "string":
        return int(schema["maxLength"] + 1) // 2
    if schema["type"] == "array":
        return int(schema["maxItems"]) * _most_words(schema["items"])
    return sum(_most_words(part) for part in schema["properties"].values())


def test_foreign_text_changes_no_file() -> None:
    """Markdown in a reply is shown, not obeyed; hidden characters are named."""
    evil = first("kiwi") | {"position": "# Synthesis\n---\n## Gaps <script> \u202e."}
    text = drive(ask(a_debate()), says({"round-1/thesis": evil})).file("thesis.output")
    assert "\\# Synthesis --- ## Gaps &lt;script> ⟨U+202E⟩." in text
    assert re.findall("(?m)^## (.*)", text)[0] == "Position"


def test_question_in_the_synthesis_is_quoted() -> None:
    """The question is foreign too."""
    text = drive(ask(a_debate(question="## Gaps <b> or not?"))).file("synthesis.md")
    assert "> ## Gaps &lt;b> or not?" in text


# ---- gaps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "why"),
    [("timeout", "timeout"), ("degenerate", "its reply went round in circles"), ("error", "the engine gave no answer")],
)
def test_gap(fault: str, why: str) -> None:
    """A seat that fails twice has a gap of one line, and the synthesis names it in the specification's sentence."""
    run = drive(ask(a_debate("redteam")), says({"round-1/critic.*": fault}))
    assert run.keys == ["round-1/advocate", "round-1/critic", "round-1/critic~2", "synthesis"]
    assert run.file("critic.gap") == why and "critic.output" not in run.paths
    assert run.result.exhausted == ("round-1/critic",)
    assert run.file("synthesis.md").endswith(
        f"## Gaps\n\n- Agent critic failed ({why}). Synthesis reflects 1 of 2 — the critic position may be "
        "underrepresented."
    )


def test_empty_reply_is_a_gap() -> None:
    """Nothing is no answer, and neither is one argument three times, or a text that is no JSON."""
    same = first("kiwi") | {"key_arguments": ["The same."] * 3}
    empty = first("kiwi") | {"position": ""}
    for reply in (same, empty, {}):
        run = drive(ask(a_debate()), says({"round-1/thesis.*": reply}))
        assert run.file("thesis.gap") == "unusable reply"


def test_no_gaps_no_section() -> None:
    """The sections of the specification in its order, Gaps only when there are any."""
    text = drive(ask(a_debate())).file("synthesis.md")
    assert re.findall("(?m)^## (.*)", text) == [
        "Debate Summary", "Strongest Arguments", "Points of Agreement", "Key Tensions", "If Forced to Pick",
        "Strongest Counter",
    ]  # fmt: skip


def test_all_seats_fail() -> None:
    """No synthesis is asked for or written."""
    run = drive(ask(a_debate()), says({"round-1/.*": "timeout"}))
    assert run.result.synthesis is None and "synthesis.md" not in run.paths and "synthesis" not in run.keys
    assert run.result.exhausted == ("round-1/thesis", "round-1/antithesis")
    assert run.result.ended == "nobody answered"


def test_failed_synthesis() -> None:
    """The seats' files stand; the synthesis is out of tries."""
    run = drive(ask(a_debate()), says({"synthesis.*": "error"}))
    assert run.result.synthesis is None and run.result.exhausted == ("synthesis",)
    assert "thesis.output" in run.paths and "synthesis.md" not in run.paths


def test_second_pass_asks_with_new_keys() -> None:
    """A seat that answers in pass 2 makes the synthesis another question, under another key."""
    replies = says({"round-1/thesis(~2)?": "timeout"})
    run = drive(ask(a_debate(), passes=2), replies)
    assert run.keys == [
        "round-1/thesis", "round-1/thesis~2", "round-1/thesis~3", "round-1/antithesis", "synthesis/p2",
    ]  # fmt: skip
    assert run.result.exhausted == () and "thesis.gap" not in run.paths


# ---- later rounds --------------------------------------------------------------------------------------------------


def test_round_with_something_new_goes_on() -> None:
    """New arguments let the next round come, up to --rounds."""
    run = drive(ask(a_debate(rounds=3)), says({
        "round-1/thesis": first("kiwi"), "round-1/antithesis": first("plum"),
        "round-2/thesis": later("Completely different words.", "Nobody mentioned money."),
        "round-2/antithesis": later("Zebras gallop over lava.", "Quartz clocks drift slowly."),
        "round-3/thesis": later("Submarines whistle before noon.", "Violins need fresh resin."),
        "round-3/antithesis": later("Harbours freeze every January.", "Carpets fade under sunlight."),
    }))  # fmt: skip
    assert [n.new for n in run.result.novelty] == [6, 4, 4]
    assert run.result.ended == "--rounds asked for 3"
    assert "round-3/antithesis.output" in run.paths


def test_round_that_adds_nothing_is_the_last() -> None:
    """Arguments that are on the table already end the debate, measured and said."""
    old = [*first("kiwi")["key_arguments"], *first("plum")["key_arguments"]]
    run = drive(ask(a_debate(rounds=5)), says({
        "round-1/thesis": first("kiwi"), "round-1/antithesis": first("plum"),
        "round-2/thesis": later(old[0], old[1]), "round-2/antithesis": later(old[3], old[5]),
    }))  # fmt: skip
    assert run.keys == [
        "round-1/thesis", "round-1/antithesis", "round-2/thesis", "round-2/antithesis", "synthesis",
    ]  # fmt: skip
    assert run.result.ended == "round 2 brought no argument that was not on the table already"
    assert (
        "- Round 2: 4 arguments, 0 new (an argument is new under a similarity of 80 to every earlier one; "
        "nearest: 100, 100, 100, 100)\n- Ended: round 2 brought no argument" in run.file("synthesis.md")
    )


def test_later_round_sees_the_last_replies() -> None:
    """Every seat sees what all said last, shared; not what was said before."""
    run = drive(ask(a_debate(rounds=3)), says({
        "round-1/thesis": first("kiwi"), "round-1/antithesis": first("plum"),
        "round-2/thesis": later("Completely different words.", "Nobody mentioned money."),
        "round-2/antithesis": later("Zebras gallop over lava.", "Quartz clocks drift slowly."),
    }))  # fmt: skip
    two, three = run.file("round-2/thesis.prompt"), run.file("round-3/thesis.prompt")
    assert "plum is right." in two and "kiwi is right." in two
    assert "Zebras gallop" in three and "plum is right." not in three
    a, b = (q for q in run.asked if q.key.startswith("round-3/"))
    assert a.shared == b.shared and len(a.shared) == 2
    assert a.messages[1].segments[: a.shared[1] - 1] == b.messages[1].segments[: b.shared[1] - 1]


def test_seat_without_a_reply_sits_out() -> None:
    """It has nothing to revise; one seat alone has nobody to answer to."""
    run = drive(ask(a_debate(rounds=2)), says({"round-1/thesis.*": "timeout"}))
    assert not any(k.startswith("round-2") for k in run.keys)
    assert run.result.ended == "there is nobody left to answer to"


def test_gap_in_a_later_round() -> None:
    """The earlier reply stands; the gap names the round."""
    run = drive(ask(a_debate(rounds=2)), says({"round-2/thesis.*": "degenerate"}))
    assert run.file("round-2/thesis.gap") == "its reply went round in circles in round 2"
    assert "Synthesis reflects 1 of 2 — the thesis position" in run.file("synthesis.md")


def test_leads_do_not_count_as_likeness() -> None:
    """Similarity is measured on what the model said, not on the words it was told to begin with."""
    a = Argument("One reason to wait is that zebras gallop.", "zebras gallop.")
    b = Argument("One reason to wait is that clocks drift.", "clocks drift.")
    assert alike(a, b) < SAME <= alike(Argument(a.text, a.text), Argument(a.text, a.text))


@pytest.mark.parametrize(
    ("text", "nearest", "new"), [("Sessions lived in memory.", 97.9, 0), ("Sessions die in winter.", 75.6, 1)]
)
def test_new_is_under_80(text: str, nearest: float, new: int) -> None:
    """Almost the same is the same; half the words are not."""
    old, now = Argument("", "Sessions live in memory."), Argument("", text)
    heard = [Heard(a_debate().seats[0], 2, Said((), (now,), ""), Reply("", "", "stop"))]
    assert news(2, heard, [old]) == Novelty(2, 1, new, (nearest,))


def test_bare_arguments() -> None:
    """The words that a reply was told to begin with are taken off, each from its own string."""
    reply = ask_replies.SeatReply(
        position="P.", key_arguments=["One, cats.", "Two, dogs.", "Eels."], strongest_point="S.", weaknesses="W."
    )
    said = said_of(reply, ("P", "One,", "Two,", "Three,", "S", "W"))
    assert [a.bare for a in said.arguments] == ["cats.", "dogs.", "Eels."]
    assert [a.text for a in said.arguments] == ["One, cats.", "Two, dogs.", "Eels."]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("Whole. And a tor", "Whole."), ("Only one sentence that is tor", "Only one sentence that is …"), ("So:", "So:")],
)
def test_torn_end(text: str, shown: str) -> None:
    """A sentence that was closed in its middle goes, or says so."""
    assert whole(text) == shown


def test_novelty_counts_within_a_round() -> None:
    """The second to say the same in one round says nothing new."""
    said = drive(ask(a_debate()), says({"round-1/.*": first("kiwi")})).result
    assert news(1, said.heard, ()).new == 3 == said.novelty[0].new


# ---- synthesis -----------------------------------------------------------------------------------------------------


def a_synthesis(**changes: Any) -> dict[str, Any]:
    made = {
        "strongest_arguments": {"thesis": {"argument": "2", "why": "It holds."},
                                "antithesis": {"argument": "3", "why": "It is cheap."}},
        "agreement": ["Both want speed."],
        "tensions": {"tension_1": {"name": "Speed against safety.", "thesis": "Speed.", "antithesis": "Safety first."}},
        "pick": {"seat": "antithesis", "confidence": "moderate", "why": "It is there."}, "counter": "It is slow.",
    }  # fmt: skip
    return made | changes


SCRIPT = {"round-1/thesis": first("kiwi"), "round-1/antithesis": first("plum")}


def test_synthesis_text() -> None:
    """Every section, each strongest argument under its seat's name, word for word its own."""
    text = drive(ask(a_debate()), says(SCRIPT | {"synthesis": a_synthesis()})).file("synthesis.md")
    assert text.partition("## Strongest Arguments\n\n")[2] == (
        "- **thesis**: Seven drums echo loudly. It holds.\n"
        "- **antithesis**: Winter shortens every march. It is cheap.\n\n"
        "## Points of Agreement\n\n- Both want speed.\n\n"
        "## Key Tensions\n\n### Speed against safety\n\n- **thesis**: Speed.\n- **antithesis**: Safety first.\n\n"
        "## If Forced to Pick\n\n"
        "**antithesis** (We should store sessions in Postgres.), confidence moderate. It is there.\n\n"
        "## Strongest Counter\n\nIt is slow."
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"strongest_arguments": {"thesis": {"argument": "2", "why": "It holds."}}},
        {"strongest_arguments": {"thesis": {"argument": "9", "why": "x"}, "antithesis": {"argument": "1", "why": "x"}}},
        {"tensions": {}},
        {"tensions": {"tension_1": {"name": "One.", "thesis": "The same words.", "antithesis": "The same words."}}},
        {"pick": {"seat": "nobody", "confidence": "high", "why": "x"}},
        {"pick": {"seat": "thesis", "confidence": "certain", "why": "x"}},
    ],
)
def test_synthesis_without_attribution_or_tension(wrong: dict[str, Any]) -> None:
    """Whoever leaves a seat out, invents an argument or names no tension has not answered."""
    run = drive(ask(a_debate()), says(SCRIPT | {"synthesis.*": a_synthesis(**wrong)}))
    assert run.result.synthesis is None


@pytest.mark.parametrize(("agents", "tensions"), [(2, 1), (3, 2)])
def test_tensions_stand_between_neighbours(agents: int, tensions: int) -> None:
    """At least one, between two different seats."""
    run = drive(ask(a_debate(agents=agents)))
    assert len(run.result.synthesis.tensions) == tensions
    assert all(a != b for t in run.result.synthesis.tensions for a, b in [t.seats])


def test_synthesis_of_one_seat() -> None:
    """Of a seat alone the tension is with its own weaknesses."""
    run = drive(ask(a_debate()), says({"round-1/thesis.*": "timeout"}))
    assert [t.seats for t in run.result.synthesis.tensions] == [("antithesis", "its weaknesses")]


# ---- leads ---------------------------------------------------------------------------------------------------------


def test_free_model_is_not_led() -> None:
    """A larger model needs no first words but those of its position; its sampling stays as it is."""
    d = a_debate(free_text=True, agents=3)
    lark = [first_request(d, seat).request.format.lark for seat in d.seats]
    assert "We should store sessions in Redis because" in lark[0] and "One reason" not in lark[0]
    assert "led_" not in lark[2] and "PROSE_160" in lark[2]
    request = first_request(d, d.seats[0]).request
    assert request.sampling.temperature == 0.7
    assert first_request(a_debate(), d.seats[0]).request.sampling.temperature == 0.4


def test_role_with_its_own_model() -> None:
    """Traits are the role's."""
    d = a_debate(roles={"thesis": Traits(free_text=True)})
    d = replace(d, seats=tuple(replace(s, role="thesis") if s.name == "thesis" else s for s in d.seats))
    led = ["One reason" in first_request(d, s).request.format.lark for s in d.seats]
    assert led == [False, True] and first_request(d, d.seats[0]).request.model == "thesis"


def test_leads_must_fit_the_strings() -> None:
    """One for each: a lead for a string that is not there is a fault of ours."""
    fmt, _ = schemas.format_of(ask_replies.SeatReply)
    with pytest.raises(ValueError, match="5 leads for another number of strings"):
        lead(fmt, {"seatreply_0": ("x",) * 5})


def test_led_grammar_compiles_and_forces() -> None:
    """llguidance takes the grammar, forces the first words, and every whole reply fits the model."""
    llguidance = pytest.importorskip("llguidance")
    error = llguidance.LLMatcher.validate_grammar(first_request(a_debate(), a_debate().seats[0]).request.format.lark)
    assert error == ""
    _, fmt, _ = ask_replies.synthesis_format({"thesis": 3, "third-position": 5, "x": 1}, False)
    assert llguidance.LLMatcher.validate_grammar(fmt.lark) == ""


@pytest.mark.model
def test_own_text_of_a_seat_is_short() -> None:
    """At most 75 tokens by the bundled model's tokenizer, for every seat, also with the longest position."""
    from runner.engines.llama_vocab import LlamaTokenizer
    from runner.manifests import find_model

    model = find_model("smollm2-135m-instruct")
    tokenizer = LlamaTokenizer(str(model.path), model.manifest.context_tokens)
    long = "Should we " + "reconsider our " * 4 + "db or " + "postpone the " * 5 + "x?"
    for question in (QUESTION, long):
        for form in FORMATS:
            d = a_debate(form, 3 if form == "dialectic" else None, question=question)
            for seat in d.seats:
                own = "".join(s.text for s in seat_text(d, seat))
                assert tokenizer.count_text(own) <= 75, own
