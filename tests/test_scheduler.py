"""The loop: any order, any capacity, one bad flow, an alien yield, and death at every operation of the disk."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from faults import FaultyDisk, Killed, QuickDisk
from hypothesis import given, settings
from hypothesis import strategies as st

from runner import scheduler, store
from runner.engines.fake import FakeEngine, Options, answer
from runner.errors import Integrity, Refused, RunnerError, UsageError
from runner.journal import Journal
from runner.protocols.flow import ask_as
from runner.scheduler import Outcome
from runner.values import Ask, Document, Join, Message, Publish, Reply, Request, Segment

HEADER = {"version": "1.0"}


def request(key, text="Go on.", **changes):
    return Request(key, "default", (Message("user", (Segment(text, True),)),), 40, **changes)


def ask(*keys):
    """A flow that asks for these keys together and returns their texts."""
    replies = yield Ask(tuple(request(key, f"Say {key}.") for key in keys))
    assert [r.key for r in replies] == list(keys)
    return [r.text for r in replies]


def text_of(key):
    return answer(request(key, f"Say {key}.")).text


class Recorder:
    """An engine that notes every call, in front of the fake one."""

    def __init__(self, engine=None):
        self.engine = engine or FakeEngine()
        self.calls = []

    def __getattr__(self, name):
        found = getattr(self.engine, name)
        if not callable(found) or name in ("busy", "progress", "step"):
            return found

        def call(*args):
            self.calls.append((name, *(a.key if isinstance(a, Request) else a for a in args)))
            return found(*args)

        return call


class Bench:
    """A journal on disk and a list of what was published; `run` opens a journal for every flow."""

    def __init__(self, folder):
        self.folder = folder
        self.published = []
        self.journal = Journal(lambda: "now")

    def flows(self, flows):
        for i, (name, flow) in enumerate(flows.items()):
            self.journal.open(name, self.folder / f"{i}.jsonl", HEADER)
            yield name, flow

    def run(self, flows, engine=None, **more):
        values = {"publish": lambda flow, doc: self.published.append((flow, doc.path)), "manifest_sha256": str} | more
        return scheduler.run(self.flows(flows), engine or FakeEngine(), self.journal, **values)


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Hundreds of small files; that a sync happens is seen in the log of operations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "disk", QuickDisk())
        yield


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


# ---- Ask, Publish, Join --------------------------------------------------------------------------------------------


def test_replies_come_in_the_order_of_the_requests(bench):
    """Whatever order the engine has, a flow sees its own."""
    keys = [f"r/{i}" for i in range(9)]
    outcomes = bench.run({"a": ask(*keys)}, FakeEngine(Options(seed=5, per_step=2)))
    assert outcomes == {"a": Outcome([text_of(key) for key in keys])}


def test_a_flow_that_asks_nothing(bench):
    """A flow may end at once; its result is there."""

    def flow():
        return 7
        yield

    assert bench.run({"a": flow()}) == {"a": Outcome(7)}


def test_no_flows(bench):
    """Nothing to do is nothing done."""
    assert bench.run({}) == {}


def test_empty_ask_and_empty_join(bench):
    """They are answered at once with an empty tuple."""

    def flow():
        return (yield Ask(())), (yield Join(()))

    assert bench.run({"a": flow()}) == {"a": Outcome(((), ()))}


def test_publish_is_sent_none(bench):
    """Documents are published in order, under the flow's id."""

    def flow():
        first = yield Publish(Document("0.md", ""))
        return [first, (yield Publish(Document("1.md", "")))]

    assert bench.run({"a": flow(), "b": flow()}) == {"a": Outcome([None, None]), "b": Outcome([None, None])}
    assert bench.published == [("a", "0.md"), ("a", "1.md"), ("b", "0.md"), ("b", "1.md")]


def test_publish_that_fails_ends_the_flow(bench):
    """The error is thrown at the yield; the other flow goes on."""
    error = RunnerError("cannot write", path="0.md")

    def publish(flow, document):
        if flow == "a":
            raise error

    def flow():
        yield Publish(Document("0.md", ""))
        return "done"

    assert bench.run({"a": flow(), "b": flow()}, publish=publish) == {"a": Outcome(error=error), "b": Outcome("done")}


def test_join_nested(bench):
    """Sub-flows run side by side to any depth; results come in their order."""

    def node(name, depth):
        if depth == 0:
            return (yield from ask(name))[0]
        return (yield Join((node(f"{name}l", depth - 1), node(f"{name}r", depth - 1))))

    engine = Recorder(FakeEngine(Options(per_step=1)))
    assert bench.run({"a": node("n", 2)}, engine) == {
        "a": Outcome(((text_of("nll"), text_of("nlr")), (text_of("nrl"), text_of("nrr"))))
    }
    submitted = [call[2] for call in engine.calls if call[0] == "submit"]
    assert submitted == ["nll", "nlr", "nrl", "nrr"]  # all before the first step


def test_join_does_not_wait_for_siblings(bench):
    """A sub-flow's next step does not wait for a slower one."""
    events = []

    def part(name, count):
        for i in range(count):
            yield from ask(f"{name}/{i}")
            events.append(f"{name}/{i}")

    class InOrder(FakeEngine):
        def step(self):
            (flow, key), asked = next((n, r) for n, r in reversed(self._waiting.items()))
            del self._waiting[flow, key]
            return [(flow, answer(asked))]

    def flow():
        yield Join((part("slow", 1), part("quick", 3)))

    bench.run({"a": flow()}, InOrder())
    assert events == ["quick/0", "quick/1", "quick/2", "slow/0"]


def failing(name, error):
    yield from ask(name)
    raise error


def test_error_of_a_sub_flow_reaches_the_parent_after_its_siblings(bench):
    """The parent gets the first error in the order of the sub-flows, once all have ended, and may go on."""
    first, second = Refused("first"), Refused("second")
    ended = []

    def slow():
        for i in range(3):
            yield from ask(f"slow/{i}")
        ended.append("slow")

    def flow():
        try:
            yield Join((slow(), failing("x", first), failing("y", second)))
        except RunnerError as error:
            ended.append(error)
        return (yield from ask("after"))

    assert bench.run({"a": flow()}) == {"a": Outcome([text_of("after")])}
    assert ended == ["slow", first]


def test_error_of_a_sub_flow_that_nobody_catches(bench):
    """It goes up through every Join and ends the flow."""
    error = RunnerError("deep")

    def up(flow):
        yield Join((flow,))

    assert bench.run({"a": up(up(failing("x", error))), "b": ask("r")}) == {
        "a": Outcome(error=error),
        "b": Outcome([text_of("r")]),
    }


def test_one_bad_flow_does_not_hurt_others(bench):
    """Its error is its outcome; all others have their results, in the order given."""
    error = UsageError("bad")
    outcomes = bench.run({"a": ask("r"), "b": failing("s", error), "c": ask("t", "u")})
    assert list(outcomes) == ["a", "b", "c"]
    assert outcomes["b"] == Outcome(error=error)
    assert outcomes["c"] == Outcome([text_of("t"), text_of("u")])


# ---- any order, any capacity ---------------------------------------------------------------------------------------


def review(name):
    """A small round: three sub-flows that retry, then a question about what they said."""

    def part(i):
        value, last = yield from ask_as(request(f"part/{i}", f"{name} {i}"), str.upper)
        yield Publish(Document(f"{i}.md", last.text))
        return value, last.key

    parts = yield Join(tuple(part(i) for i in range(3)))
    replies = yield Ask((request("sum", repr(parts)), request("title", name)))
    return parts, [r.text for r in replies]


FAILING = {"part/1": "timeout", "part/2*": "error"}


def run_reviews(folder, options, max_running):
    bench = Bench(folder)
    outcomes = bench.run({name: review(name) for name in "abcd"}, FakeEngine(options), max_running=max_running)
    return outcomes, sorted(bench.published)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return run_reviews(tmp_path_factory.mktemp("expected"), Options(faults=FAILING), 8)


def test_what_is_expected(expected):
    """The run that the next test compares with: one part was retried, one has failed."""
    assert [key for _, key in expected[0]["a"].result[0]] == ["part/0", "part/1~2", "part/2~2"]
    assert [value is None for value, _ in expected[0]["a"].result[0]] == [False, False, True]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), per_step=st.integers(1, 9), max_running=st.integers(0, 5))
def test_any_order_and_capacity_give_the_same(tmp_path_factory, expected, seed, per_step, max_running):
    """Results and published files do not depend on the engine's order, its size, or how many flows run."""
    options = Options(seed=seed, per_step=per_step, faults=FAILING)
    assert run_reviews(tmp_path_factory.mktemp("bench"), options, max_running) == expected


def test_same_run_twice_makes_the_same_calls(bench, tmp_path):
    """The engine sees the same submissions in the same order, whatever the hashing of strings."""
    calls = []
    for n in range(2):
        (tmp_path / str(n)).mkdir()
        engine = Recorder()
        Bench(tmp_path / str(n)).run({name: review(name) for name in "abc"}, engine)
        calls.append(engine.calls)
    assert calls[0] == calls[1]


def test_flows_go_on_in_the_order_they_were_started(bench):
    """Replies of one step that come in reverse wake the flows in order, so what is submitted next is in order."""

    def flow():
        yield from ask("r")
        yield from ask("s")

    class Reversed(FakeEngine):
        def step(self):
            done = [(name[0], answer(asked)) for name, asked in reversed(self._waiting.items())]
            self._waiting.clear()
            return done

    engine = Reversed()
    bench.run({name: flow() for name in "abc"}, engine)
    assert engine.submitted == [(name, key) for key in "rs" for name in "abc"]


def test_a_flow_that_ended_holds_no_file_open(bench):
    """Its journal's descriptor is given back, so that a long run does not run out of them."""
    files = []

    def flow():
        files.append(bench.journal.open("a", bench.folder / "own", HEADER))
        yield from ask("r")
        assert files[0].appender is not None

    bench.run({"a": flow()})
    assert files[0].appender is None


def test_flows_are_taken_lazily(bench):
    """Never more than max_running are at work; the next is taken when one has ended."""
    events = []

    def flow(name):
        yield from ask("r")
        events.append(f"end {name}")

    def flows():
        for name in "abcd":
            events.append(f"take {name}")
            bench.journal.open(name, bench.folder / name, HEADER)
            yield name, flow(name)

    scheduler.run(
        flows(), FakeEngine(Options(per_step=1)), bench.journal, lambda *_: None, None, 2, manifest_sha256=str
    )
    alive = list(itertools.accumulate(1 if event.startswith("take") else -1 for event in events))
    assert max(alive) == 2
    assert events[:2] == ["take a", "take b"]
    assert len(events) == 8


def test_a_flow_twice(bench):
    """Two flows with one id are an error."""

    def flows():
        bench.journal.open("a", bench.folder / "a", HEADER)
        yield "a", ask("r")
        yield "a", ask("r")

    with pytest.raises(RunnerError) as caught:
        scheduler.run(flows(), FakeEngine(), bench.journal, lambda *_: None, manifest_sha256=str)
    assert caught.value.message == "the flow a was given twice"


def test_observe_once_per_step(bench):
    """The observer sees what runs after each step, and at the end nothing."""
    seen = []
    bench.run({"a": ask("r", "s", "t")}, FakeEngine(Options(per_step=1)), observe=seen.append)
    assert [[(p.flow, p.key, p.expected) for p in event] for event in seen][-2:] == [[("a", seen[1][0].key, 40)], []]
    assert len(seen) == 3


# ---- keys ----------------------------------------------------------------------------------------------------------


def test_the_same_request_twice_is_asked_once(bench):
    """In one Ask, in two sub-flows at once, and later: one submission, the same reply."""

    def flow():
        both = yield from ask("r", "r")
        return both, (yield Join((ask("r", "s"), ask("s", "r"))))

    engine = Recorder()
    r, s = text_of("r"), text_of("s")
    assert bench.run({"a": flow()}, engine) == {"a": Outcome(([r, r], ([r, s], [s, r])))}
    assert [call for call in engine.calls if call[0] == "submit"] == [("submit", "a", "r"), ("submit", "a", "s")]


def test_two_requests_with_one_key(bench):
    """A key that stands for two different requests of a flow is an error; in two flows it is none."""

    def flow():
        yield Ask((request("r", "one"),))
        yield Ask((request("r", "two"),))

    outcomes = bench.run({"a": flow(), "b": ask("r")})
    assert outcomes["a"].error.message == "two different requests of a have the key r"
    assert outcomes["b"] == Outcome([text_of("r")])


def test_two_requests_with_one_key_in_one_ask(bench):
    """Also together; nothing is submitted then."""

    def flow():
        yield Ask((request("r", "one"), request("r", "two")))

    engine = FakeEngine()
    outcomes = bench.run({"a": flow()}, engine)
    assert outcomes["a"].error.message == "two different requests of a have the key r"
    assert engine.submitted == []


def test_a_request_that_never_fits(bench):
    """It is refused before any request of its Ask is submitted; the flow may catch that and ask for less."""

    def flow():
        try:
            yield Ask((request("short"), request("long", "word " * 9000)))
        except UsageError as error:
            return error.message, (yield from ask("short"))

    engine = FakeEngine()
    assert bench.run({"a": flow()}, engine) == {
        "a": Outcome(
            (
                "the request long does not fit: 9000 tokens of prompt and 40 of reply, 8192 of context",
                [text_of("short")],
            )
        )
    }
    assert engine.submitted == [("a", "short")]


def test_forget_and_release(bench):
    """A sub-flow that kept sequences has them forgotten when it ends; a flow is released when it ends."""

    def keeper():
        yield Ask((request("reason", keep=True), request("other")))
        yield Ask((request("verdict", continues="reason"),))

    def flow():
        yield Join((keeper(), ask("plain")))
        yield Ask((request("top", keep=True),))

    engine = Recorder()
    bench.run({"a": flow()}, engine)
    assert [call for call in engine.calls if call[0] in ("forget", "release")] == [
        ("forget", "a", ("reason",)),
        ("release", "a"),
    ]


# ---- alien yields --------------------------------------------------------------------------------------------------


class _Awaitable:
    def __await__(self):
        yield

    def __repr__(self):
        return "<coroutine>"


ASK_HINT = "put requests into an Ask: yield Ask((request,))"
JOIN_HINT = "run a sub-flow with `yield from flow`, or several side by side with yield Join((flow, flow))"
BARE_HINT = "a flow talks to the scheduler through these three only; a bare `yield` says nothing"


@pytest.mark.parametrize(
    ("wish", "hint"),
    [
        (request("r"), ASK_HINT),
        ([request("r")], ASK_HINT),
        (Document("a.md", ""), "put the document into a Publish: yield Publish(document)"),
        (ask("r"), JOIN_HINT),
        ((ask("r"), ask("s")), JOIN_HINT),
        (Join([ask("r")]), JOIN_HINT),
        (Join((ask,)), "a sub-flow is the generator that the function returns: call it"),
        (_Awaitable(), "this looks written for asyncio; a flow is a plain generator"),
        (None, BARE_HINT),
        ([], BARE_HINT),
        ("ask", BARE_HINT),
    ],
    ids=lambda value: type(value).__name__,
)
def test_alien_yield(bench, wish, hint):
    """Anything but the three is an error that shows it and guesses what was meant; others go on."""

    def flow():
        yield wish

    outcomes = bench.run({"a": flow(), "b": ask("r")})
    assert outcomes["a"].error.hint == hint
    assert outcomes["a"].error.message.startswith("the flow a yielded ")
    assert outcomes["a"].error.message.endswith(", which is not Ask, Publish or Join")
    assert outcomes["b"] == Outcome([text_of("r")])


def test_alien_yield_is_shown_shortened(bench):
    """The message holds the object, not a whole document."""

    def flow():
        yield "x" * 10_000

    message = bench.run({"a": flow()})["a"].error.message
    assert message == "the flow a yielded 'xxxxxxxxxxxx...xxxxxxxxxxxxx', which is not Ask, Publish or Join"


def test_a_sub_flow_given_twice(bench):
    """One generator cannot run twice."""
    part = ask("r")

    def flow():
        yield Join((part, part))

    assert bench.run({"a": flow()})["a"].error.message == "a Join of the flow a holds one sub-flow twice"


# ---- how a run ends early ------------------------------------------------------------------------------------------


def closing(name, events):
    try:
        yield from ask(name)
    finally:
        events.append(f"closed {name}")


def test_a_crash_of_the_engine_ends_the_run(bench):
    """What arrived before is on disk, every flow's `finally` runs, and the error comes out."""
    events = []
    engine = FakeEngine(Options(per_step=1, faults={2: "crash"}))

    parts = [closing(name, events) for name in "rst"]  # held here, so that no garbage collection closes them

    def flow():
        yield Join((parts[0], parts[1]))

    with pytest.raises(RunnerError, match="the fake engine crashed"):
        bench.run({"a": flow(), "b": parts[2]}, engine)
    assert len(bench.journal.replies("a")) + len(bench.journal.replies("b")) == 1
    assert sorted(events) == ["closed r", "closed s", "closed t"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_interrupt_and_bugs_end_the_run_after_a_sync(bench, monkeypatch, error):
    """Ctrl-C, or a bug in a flow, comes out unchanged; the journal was synced first."""
    syncs = []

    def flow():
        yield from ask("r")
        bench.journal.note("a", {"event": "unsynced"})
        disk = FaultyDisk(0)
        monkeypatch.setattr(store, "disk", disk)
        syncs.append(disk)
        raise error

    with pytest.raises(error):
        bench.run({"a": flow()})
    assert syncs[0].log == ["fsync"]


def test_a_reply_is_on_disk_before_the_flow_sees_it(bench):
    """When a flow goes on, its replies can be read from the file."""

    def flow():
        yield from ask("r", "s")
        other = Journal(lambda: "later")
        other.open("a", bench.folder / "0.jsonl", HEADER)
        return sorted(other.replies("a"))

    assert bench.run({"a": flow()}) == {"a": Outcome(["r", "s"])}


def test_journal_that_cannot_be_synced_ends_the_run(bench, monkeypatch):
    """Without the record no flow goes on."""
    went_on = []

    def flow():
        monkeypatch.setattr(store, "disk", FaultyDisk(2, lambda: OSError(5, "x"), killed=False))
        yield from ask("r")
        went_on.append("a")

    with pytest.raises(RunnerError, match="cannot sync: Input/output error"):
        bench.run({"a": flow()})
    assert went_on == []


def test_engine_that_loses_a_request(bench):
    """An engine that is idle while somebody waits is an error, not a loop without end."""

    class Lossy(FakeEngine):
        def step(self):
            self._waiting.clear()
            return []

    with pytest.raises(RunnerError) as caught:
        bench.run({"a": ask("r", "s")}, Lossy())
    assert caught.value.message == "the engine has lost these requests: r of a, s of a"


def test_engine_that_answers_what_nobody_asked(bench):
    """A reply that nobody waits for is an error."""

    class Chatty(FakeEngine):
        def step(self):
            return [("a", Reply("x", "", "stop"))]

    with pytest.raises(RunnerError) as caught:
        bench.run({"a": ask("r")}, Chatty())
    assert caught.value.message == "the engine answered x of a, which nobody waits for"


def test_error_at_submit_ends_the_run(bench):
    """An engine that cannot take a request is the run's end, not the flow's."""

    class Broken(FakeEngine):
        def submit(self, flow, request):
            raise RunnerError("no memory")

    with pytest.raises(RunnerError, match="no memory"):
        bench.run({"a": ask("r")}, Broken())


# ---- resuming ------------------------------------------------------------------------------------------------------


def test_a_second_run_asks_nothing(tmp_path):
    """What the journal knows is not asked again, failures neither."""
    engine = FakeEngine(Options(faults={"part/2*": "error"}))
    first = Bench(tmp_path).run({"a": review("a")}, engine)
    again = FakeEngine()
    assert Bench(tmp_path).run({"a": review("a")}, again) == first
    assert (len(engine.submitted), again.submitted) == (6, [])


def test_a_changed_request_ends_its_flow(tmp_path):
    """A resumed flow that asks something else under a recorded key is over."""
    Bench(tmp_path).run({"a": review("a")})
    outcomes = Bench(tmp_path).run({"a": review("changed")})
    assert isinstance(outcomes["a"].error, Integrity)
    assert outcomes["a"].error.message == "the request part/0 has changed since its reply was recorded"


def round_of(folder):
    """Four requests, three files, the last of which is made of all replies; and its publisher."""
    journal = Journal(lambda: "now")

    def flow():
        store.make_folder(folder / ".run")
        journal.open("a", folder / ".run" / "journal.jsonl", HEADER)

        def part(i):
            value, last = yield from ask_as(request(f"part/{i}"), str.upper)
            yield Publish(Document(f"tryouts/{i}.md", last.text))
            return value

        parts = yield Join((part(0), part(1)))
        replies = yield Ask((request("sum", repr(parts)),))
        yield Publish(Document("sum.md", "\n".join((*parts, *(r.text for r in replies)))))

    def publish(name, document):
        target = folder / document.path
        store.make_folder(target.parent)
        journal.note(name, {"file": document.path}, once=True)
        journal.sync()
        store.write_atomic(target, document.body.encode())

    return journal, flow(), publish


def run_round(folder, engine):
    journal, flow, publish = round_of(folder)
    outcomes = scheduler.run([("a", flow)], engine, journal, publish, manifest_sha256=str)
    assert outcomes == {"a": Outcome()}
    for path in [folder, *(p for p in folder.rglob("*") if p.is_dir())]:
        store.sweep(path)


def tree(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != "journal.jsonl"
    }


FAULTS = {"part/1": "length"}  # one retry: four requests in all


def test_death_at_every_operation(tmp_path, monkeypatch):
    """Killed at any operation of the disk and run again: the same files, and no recorded reply is asked again."""
    run_round(tmp_path / "whole", FakeEngine(Options(faults=FAULTS)))
    expected = tree(tmp_path / "whole")
    assert sorted(expected) == ["sum.md", "tryouts/0.md", "tryouts/1.md"]
    counting = FaultyDisk(0)
    monkeypatch.setattr(store, "disk", counting)
    run_round(tmp_path / "counted", FakeEngine(Options(faults=FAULTS)))
    assert counting.done > 30
    for nth in range(1, counting.done + 1):
        folder = tmp_path / str(nth)
        for death in (nth, 1 + nth % 13):  # the first run dies, and so does the one that resumes it
            monkeypatch.setattr(store, "disk", FaultyDisk(death))
            with contextlib.suppress(Killed):
                run_round(folder, FakeEngine(Options(faults=FAULTS)))
                assert death < nth, "the first run must die"
        monkeypatch.setattr(store, "disk", QuickDisk())
        recorded = recorded_keys(folder / ".run" / "journal.jsonl")
        engine = FakeEngine(Options(faults=FAULTS, seed=nth))
        run_round(folder, engine)
        assert tree(folder) == expected, nth
        asked = {key for _, key in engine.submitted}
        assert asked | recorded == {"part/0", "part/1", "part/1~2", "sum"}, nth
        assert not asked & recorded, nth


def recorded_keys(path):
    """Keys whose line is whole, as the dead run left them."""
    if not path.exists() or b"\n" not in path.read_bytes():
        return set()
    journal = Journal(lambda: "later")
    journal.open("a", path, HEADER)
    return set(journal.replies("a"))
