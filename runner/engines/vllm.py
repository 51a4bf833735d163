"""The vLLM engine: requests handed to LLMEngine one by one, its steps driven from here, in processes that end with us.

How it works. vLLM runs in a child process (vllm_child), one for each data parallel engine; nothing of it is imported
here. A step sends every child what is new, has it do one LLMEngine.step and reads what came of it, so requests that
are submitted together are scheduled together, and vLLM's prefix cache computes what they share once. The same
requests in the same order make the same steps. A data parallel engine is chosen by the first shared prefix.

Prompts are token ids, by the rules of vllm_vocab. A choice is measured at each branching point of its labels by a
request for one token. Of the sampling, repeat_penalty is vLLM's repetition_penalty, which counts the prompt's tokens
too, and dry_* is not known to vLLM: it is left out. `keep`, `continues` and `forget` need nothing: vLLM caches blocks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from runner.config import VllmConfig
from runner.engines.base import Progress
from runner.engines.choices import Trie
from runner.engines.vllm_process import installed, start
from runner.engines.vllm_settings import check_folder
from runner.engines.vllm_vocab import VllmTokenizer
from runner.errors import UsageError
from runner.values import Finish, Reply, Request, Segment

_FINISHES: dict[str, Finish] = {"stop": "stop", "length": "length", "repetition": "degenerate"}


@dataclass(eq=False, slots=True)
class _Task:
    flow: str
    request: Request
    tokens: list[int]
    home: tuple[int, ...] | str  # what chooses its engine: the first shared prefix, else the flow
    labels: list[list[int]]  # of a choices request, as tokens
    trie: Trie | None
    points: dict[str, tuple[int, ...]]  # vLLM's request id -> branching point; one that means nothing without a trie
    child: int = 0
    admitted: float = 0.0
    cached: int | None = None
    out: list[int] = field(default_factory=list)

    @property
    def sequences(self) -> int:
        return len(self.points)


class Vllm:
    """See engines.base.Engine. path: a model folder; context_tokens: the most a prompt and its reply may take.

    step_s: seconds that passed inside LLMEngine.step. RunnerError when the model cannot be loaded (code memory: with
    numbers), UsageError for settings that cannot be, or when vllm is not installed.
    """

    scores = True

    def __init__(self, path: Path, *, context_tokens: int, options: VllmConfig) -> None:
        check_folder(path)
        self.tokenizer = VllmTokenizer(path)
        self.context_tokens: int = min(context_tokens, self.tokenizer.context_tokens)
        self._children = start(path, self.context_tokens, options)
        self._most = options.max_num_seqs
        self.identity = f"vllm {installed()}"
        self.step_s = 0.0
        self._waiting: list[_Task] = []
        self._running: list[_Task] = []
        self._named: dict[str, _Task] = {}  # running tasks by vLLM's request id
        self._homes: dict[tuple[int, ...] | str, int] = {}
        self._flows: dict[str, set[tuple[int, ...] | str]] = {}
        self._abort: list[_Task] = []
        self._next_id = 0

    # ---- the contract --------------------------------------------------------------------------------------------

    def check(self, request: Request) -> None:
        prompt = self.tokenizer.count(request.messages)
        if prompt + request.max_tokens > self.context_tokens:
            raise UsageError(
                f"request {request.key}: the prompt has {prompt} tokens and the reply may take {request.max_tokens}, "
                f"but the context holds {self.context_tokens}",
                code="context",
                hint=f"shorten the document by about {prompt + request.max_tokens - self.context_tokens} tokens, "
                "or use a model or profile with a longer context",
            )

    def submit(self, flow: str, request: Request) -> None:
        tokens = self.tokenizer.prompt(request.messages)
        shared = self.tokenizer.prompt(request.messages, min(request.shared)) if request.shared else None
        labels = [self._label(c) for c in request.choices]
        trie = Trie(labels) if labels else None
        points = [()] if trie is None else [p for c in trie.chains() for p in c.rows.values()]
        named = {self._new_id(): point for point in points}
        home = tuple(shared) if shared else flow
        self._waiting.append(_Task(flow, request, tokens, home, labels, trie, named))

    def _label(self, choice: str) -> list[int]:
        """With an end, so that no label is the beginning of another; where labels have parted it is never fed."""
        return [*self.tokenizer.tokens(Segment(choice, False)), self.tokenizer.end]

    def _new_id(self) -> str:
        self._next_id += 1
        return str(self._next_id)

    def step(self) -> Sequence[tuple[str, Reply]]:
        done = self._expired()
        admitted = self._admit()
        done += [self._finish(t, "stop") for t in admitted if not t.points]  # a choice of one needs no measurement
        for told in self._turn(admitted):
            done += self._take(told)
        return done

    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    def progress(self) -> Sequence[Progress]:
        return [
            Progress(t.flow, t.request.key, min(len(t.out), t.request.max_tokens), t.request.max_tokens)
            for t in self._running
        ]

    def forget(self, flow: str, keys: Sequence[str]) -> None:
        """Nothing is held for a key: vLLM's cache gives up what was used least recently."""

    def release(self, flow: str) -> None:
        for home in self._flows.pop(flow, set()):
            if not any(home in others for others in self._flows.values()):
                self._homes.pop(home, None)

    def close(self) -> None:
        self._waiting, self._running, self._named = [], [], {}
        for child in self._children:
            child.close()

    # ---- one step ------------------------------------------------------------------------------------------------

    def _admit(self) -> list[_Task]:
        """Waiting tasks in order, as many as their engine runs at once."""
        admitted: list[_Task] = []
        load = [sum(t.sequences for t in self._running if t.child == i) for i in range(len(self._children))]
        for task in self._waiting:
            child = self._home(task, load)
            if load[child] and load[child] + task.sequences > self._most:
                break  # the order stays the requests'
            task.child, task.admitted = child, time.monotonic()
            load[child] += task.sequences
            admitted.append(task)
        del self._waiting[: len(admitted)]
        self._running += admitted
        self._named |= {name: task for task in admitted for name in task.points}
        return admitted

    def _home(self, task: _Task, load: Sequence[int]) -> int:
        """The engine that has the task's prefix, else the one with least to do."""
        child = self._homes.setdefault(task.home, min(range(len(load)), key=load.__getitem__))
        self._flows.setdefault(task.flow, set()).add(task.home)
        return child

    def _turn(self, admitted: Sequence[_Task]) -> list[dict[str, Any]]:
        """One LLMEngine.step in every engine that has something to do, at the same time; what came of them."""
        asked = []
        for i, child in enumerate(self._children):
            add = [one for t in admitted if t.child == i for one in self._orders(t)]
            abort = [name for t in self._abort if t.child == i for name in t.points]
            if add or abort or any(t.child == i for t in self._running):
                child.send("step", add=add, abort=abort)
                asked.append(child)
        self._abort = []
        answers = [child.receive() for child in asked]
        self.step_s += max((a["step_s"] for a in answers), default=0.0)
        return [told for a in answers for told in a["out"]]

    def _orders(self, task: _Task) -> list[dict[str, Any]]:
        """What the child is told of a task: one request, or one for each branching point."""
        if task.trie is not None:
            return [
                {"id": name, "tokens": [*task.tokens, *point], "max_tokens": 1, "ids": _after(task.labels, point)}
                for name, point in task.points.items()
            ]
        (name,) = task.points
        request, s = task.request, task.request.sampling
        grammar = None if request.format is None else request.format.lark
        one = {
            "id": name, "tokens": task.tokens, "stop": list(self.tokenizer.stops), "ids": None, "grammar": grammar,
            # Under a grammar a finished reply still needs the token that ends it.
            "max_tokens": request.max_tokens + (grammar is not None),
            "temperature": s.temperature, "top_k": s.top_k, "top_p": s.top_p, "min_p": s.min_p,
            "repetition_penalty": s.repeat_penalty, "seed": s.seed % (1 << 63),
        }  # fmt: skip
        return [one]

    def _take(self, told: dict[str, Any]) -> list[tuple[str, Reply]]:
        """Give a task what vLLM said of it; its reply when that was the last."""
        task = self._named.get(told["id"])
        if task is None:
            return []  # it was aborted
        task.cached = told["cached"] if task.cached is None else min(task.cached, told["cached"])
        if task.trie is None:
            task.out += told["tokens"]
            return [] if told["finish"] is None else [self._finish(task, _FINISHES.get(told["finish"], "error"))]
        if told["finish"] not in ("stop", "length"):
            self._abort.append(task)
            return [self._finish(task, "error")]
        self._named.pop(told["id"])
        _measure(task.trie, task.points.pop(told["id"]), told["measured"])
        return [] if task.points else [self._finish(task, "stop")]

    def _expired(self) -> list[tuple[str, Reply]]:
        now = time.monotonic()
        late = [
            t for t in self._running if t.request.deadline_s is not None and now - t.admitted > t.request.deadline_s
        ]
        self._abort += late
        return [self._finish(t, "timeout") for t in late]

    def _finish(self, task: _Task, finish: Finish) -> tuple[str, Reply]:
        self._running.remove(task)
        for name in task.points:
            self._named.pop(name, None)
        out = task.out[:-1] if finish == "stop" and task.out[-1:] and task.out[-1] in self.tokenizer.stops else task.out
        out = out[: task.request.max_tokens]
        text = self.tokenizer.text(out)
        scores: tuple[float, ...] = ()
        if task.trie is not None and finish == "stop":
            scores = tuple(task.trie.scores())
            text = task.request.choices[int(np.argmax(scores))]
        reply = Reply(
            key=task.request.key, text=text, finish=finish, tokens_in=len(task.tokens),
            tokens_cached=min(task.cached or 0, len(task.tokens)), tokens_out=len(out), scores=scores,
            ms=round((time.monotonic() - task.admitted) * 1000),
        )  # fmt: skip
        return task.flow, reply


def _after(labels: Sequence[Sequence[int]], point: tuple[int, ...]) -> list[int]:
    """The tokens that labels go on with from here."""
    n = len(point)
    return sorted({label[n] for label in labels if len(label) > n and tuple(label[:n]) == point})


def _measure(trie: Trie, point: tuple[int, ...], measured: Sequence[tuple[int, float]]) -> None:
    row = np.full(1 + max(token for token, _ in measured), -np.inf, dtype=np.float32)
    for token, log_p in measured:
        row[token] = log_p
    trie.measure(point, row)
