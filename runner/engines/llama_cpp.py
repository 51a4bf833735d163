"""The llama.cpp engine: one unified KV pool, shared prefixes computed once, continuous batching, forced tokens.

How it works. A *task* is a running request: its own sequence on top of a node (llama_cells), with a list of tokens
still to be fed. Prompt and reply are fed the same way, so a step is: admit what fits, fill one batch from the feeds in
order, decode, and give every task whose feed is used up its next token (llama_task).

Admission counts cells: what nodes own, plus each task's prompt tail and max_tokens, never exceeds the pool; so
llama_decode always finds room. Order of admission, chunk size and sampling depend on nothing but the requests, so the
same requests give the same replies on the same machine and build.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as C
import numpy as np
from numpy.typing import NDArray

from runner.engines.base import Progress
from runner.engines.choices import Trie
from runner.engines.llama_cells import Cells, Kept, Node
from runner.engines.llama_grammars import Allowed, Grammars
from runner.engines.llama_task import Task
from runner.engines.llama_threads import Threads
from runner.engines.llama_vocab import Vocab, open_context, open_model
from runner.errors import RunnerError, UsageError
from runner.values import Finish, Reply, Request, Segment


class Weights:
    """A loaded model and its vocabulary, for one context or for several; freed after all of them."""

    def __init__(self, path: Path) -> None:
        self.model = open_model(str(path), vocab_only=False)
        if C.llama_model_is_recurrent(self.model) or C.llama_model_is_hybrid(self.model):
            self.close()
            raise UsageError("recurrent and hybrid models cannot share a prefix", path=str(path), hint="use another")
        self.vocab = Vocab(self.model)

    def close(self) -> None:
        if self.model is not None:
            C.llama_model_free(self.model)
            self.model = None


class LlamaCpp:
    """See engines.base.Engine. context_tokens: cells of the pool; one sequence is bounded by the model's context.
    batch_tokens: per llama_decode at most. cache_type_k: how keys are stored.

    decode_s: wall time inside llama_decode; decoded: tokens fed to it; wasted: those that were guessed and taken back.
    """

    scores = True

    def __init__(
        self,
        weights: Weights,
        *,
        context_tokens: int = 12288,
        model_context: int | None = None,
        threads: int = 2,
        flash_attention: bool = False,
        cache_type_k: str = "f16",
        batch_tokens: int = 512,
        n_seq_max: int = 128,
    ) -> None:
        self.vocab = weights.vocab
        self.context_tokens: int = min(model_context or 1 << 30, C.llama_model_n_ctx_train(weights.model))
        self._n_batch = batch_tokens
        self._ctx: Any = open_context(
            weights.model, context_tokens, threads, flash_attention, n_seq_max, batch_tokens, cache_type_k
        )
        self._cells = Cells(C.llama_get_memory(self._ctx), context_tokens, n_seq_max)
        self._batch = C.llama_batch_init(batch_tokens, 0, 1)
        self._grammars = Grammars(self.vocab, threads)
        self._waiting: list[Task] = []
        self._running: list[Task] = []
        self._run_on = threads
        self._threads: Threads | None = None
        self.decode_s = 0.0
        self.decoded = 0
        self.wasted = 0
        self.identity = f"llama.cpp via llama-cpp-python {version('llama-cpp-python')}"

    def run_on(self, threads: int, *, adapt: bool) -> None:
        """From the next step on. adapt: on fewer while others need the cores; for one that runs alone."""
        if threads != self._run_on or adapt != (self._threads is not None):
            self._run_on = threads
            self._threads = Threads(threads, self._set_threads) if adapt else None
            self._set_threads(threads)

    def _set_threads(self, n: int) -> None:
        C.llama_set_n_threads(self._ctx, n, n)

    # ---- the contract --------------------------------------------------------------------------------------------

    def check(self, request: Request) -> None:
        prompt = len(self._tokens(self.vocab.pieces(request.messages)[0]))
        limit = min(self.context_tokens, self._cells.n_cells)
        if prompt + request.max_tokens > limit:
            raise UsageError(
                f"request {request.key}: the prompt has {prompt} tokens and the reply may take {request.max_tokens}, "
                f"but the context holds {limit}",
                code="context",
                hint=f"shorten the document by about {prompt + request.max_tokens - limit} tokens, "
                "or use a model or profile with a longer context",
            )
        if request.format is not None:  # a grammar that does not compile ends its own flow, not the engine
            self._grammars.matcher(request.format.lark)

    def submit(self, flow: str, request: Request) -> None:
        pieces, ends = self.vocab.pieces(request.messages)
        tokens = self._tokens(pieces)
        lengths = [len(self._tokens(pieces[: ends[n]])) for n in request.shared]
        # The last token of a prompt is always fed by the task itself: its logits are needed.
        prefixes = [tuple(tokens[:n]) for n in sorted(set(lengths)) if 0 < n < len(tokens)]
        trie = Trie([self._label(c) for c in request.choices]) if request.choices else None
        self._waiting.append(Task(flow, request, pieces, prefixes, tokens, trie))

    def _label(self, choice: str) -> list[int]:
        """With an end, so that no label is the beginning of another; where labels have parted it is never fed."""
        return [*self.vocab.tokens(Segment(choice, False)), self.vocab.end]

    def _tokens(self, pieces: list[Segment]) -> list[int]:
        return [t for p in pieces for t in self.vocab.tokens(p)]

    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    def step(self) -> Sequence[tuple[str, Reply]]:
        self._cells.clock += 1
        done = [self._finish(t, "timeout") for t in [t for t in self._running if t.late]]
        self._admit()
        if self._running or self._cells.building:
            done += self._decode()
        return done

    def progress(self) -> Sequence[Progress]:
        return [Progress(t.flow, t.request.key, len(t.out), t.request.max_tokens) for t in self._running]

    def forget(self, flow: str, keys: Sequence[str]) -> None:
        for key in keys:
            self._cells.forget(flow, key)
        self._cells.sweep()

    def release(self, flow: str) -> None:
        self._cells.release(flow)

    def close(self) -> None:
        """Matchers hold the vocabulary's pointer, so they go before the model."""
        if self._ctx is None:
            return
        for task in self._running + self._waiting:
            task.matcher, task.ahead = None, []
        self._running, self._waiting = [], []
        self._cells.close()
        del self._grammars
        C.llama_batch_free(self._batch)
        C.llama_free(self._ctx)
        self._ctx = None

    # ---- admission -----------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Admit waiting tasks in order. One that must wait stops the line: the order stays the requests'."""
        while self._waiting:
            task = self._waiting[0]
            base, ready = self._base(task)
            cells = len(task.tokens) - (base.length if base else 0) + task.reply_tokens
            if not ready or not self._room(cells, base):
                break
            self._waiting.pop(0)
            task.cells, task.seq = cells, self._cells.start(base, cells)
            form = task.request.format
            task.start(base, None if form is None or task.trie is not None else self._grammars.matcher(form.lark))
            self._running.append(task)
        if self._waiting and not self._running and not self._cells.building:
            raise RunnerError("nothing can be admitted", code="engine", hint="raise context_tokens in the profile")

    def _base(self, task: Task) -> tuple[Node | None, bool]:
        """The node this task stands on, made if need be, and whether it is ready to stand on."""
        kept = self._continued(task)
        if kept is not None:
            return kept, not kept.feed
        node: Node | None = None
        for prefix in task.prefixes:
            found = self._cells.prefixes.get(prefix)
            if found is None:
                if not self._room(len(prefix) - (node.length if node else 0), node):
                    return node, False
                found = self._cells.grow(node, prefix)
            found.flows.add(task.flow)
            found.used_at = self._cells.clock
            node = found
            if node.feed:
                return node, False
        return node, True

    def _continued(self, task: Task) -> Node | None:
        """The kept sequence that this prompt extends word for word, with the tail as the task's own tokens."""
        kept = self._cells.kept.get((task.flow, task.request.continues or ""))
        if kept is None:
            return None
        n = len(kept.pieces)
        if task.pieces[:n] != kept.pieces or len(task.pieces) <= n + 1 or task.pieces[n].text != kept.text:
            return None
        tail = [t for p in task.pieces[n + 1 :] for t in self.vocab.tokens(p)]
        task.tokens = kept.tokens + tail
        kept.node.used_at = self._cells.clock
        return kept.node

    def _room(self, cells: int, keep: Node | None) -> bool:
        return self._cells.room(cells, keep, self._awaited(), bool(self._running))

    def _awaited(self) -> set[int]:
        """Nodes that waiting tasks will stand on."""
        found: set[int] = set()
        for task in self._waiting:
            kept = self._cells.kept.get((task.flow, task.request.continues or ""))
            nodes = [kept.node] if kept else [self._cells.prefixes.get(p) for p in task.prefixes]
            found |= {id(n) for n in nodes if n is not None}
        return found

    # ---- one batch -----------------------------------------------------------------------------------------------

    def _decode(self) -> list[tuple[str, Reply]]:
        rows: list[tuple[Task, list[tuple[int, int]]]] = []  # task, (row in the batch, position of its token)
        n = 0
        for node in self._cells.building:
            take = node.feed[: self._n_batch - n]
            for i, token in enumerate(take):
                self._put(n + i, token, node.pos + i, node.seq, False)
            n += len(take)
            del node.feed[: len(take)]
        for task in self._running:
            take = task.batch(self._n_batch - n)
            wanted = task.wanted(len(take))
            for i, token in enumerate(take):
                self._put(n + i, token, task.pos + i, task.seq, task.pos + i in wanted)
            if wanted:
                rows.append((task, [(n + at - task.pos, at) for at in wanted]))
            task.fed(len(take))
            n += len(take)
        self._call(n)
        self._cells.building = [b for b in self._cells.building if b.feed]
        return self._take(rows)

    def _put(self, i: int, token: int, pos: int, seq: int, logits: bool) -> None:
        b = self._batch
        b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, pos, 1, logits
        b.seq_id[i][0] = seq

    def _call(self, n: int) -> None:
        if not 0 < n <= self._n_batch:  # more than n_batch would abort the process
            raise RunnerError(f"a batch of {n} tokens", code="engine")
        self._batch.n_tokens = n
        start, cpu = time.perf_counter(), time.process_time()
        rc = C.llama_decode(self._ctx, self._batch)
        took = time.perf_counter() - start
        self.decode_s += took
        self.decoded += n
        if self._threads is not None:
            self._threads.inside(took, time.process_time() - cpu)
        if rc != 0:
            raise RunnerError(
                f"llama_decode failed with {rc}", code="engine", hint="`debate resume` continues from the journal"
            )

    def _take(self, rows: list[tuple[Task, list[tuple[int, int]]]]) -> list[tuple[str, Reply]]:
        """Use the logits: they are a view that dies at the next decode."""
        done: list[tuple[str, Reply]] = []
        masked = iter(self._grammars.allowed([m for task, _ in rows for m in task.matchers()]))
        for task, found in rows:
            if task.trie is not None:
                for row, pos in found:
                    task.trie.measure(task.branches[0].rows[pos + 1 - len(task.tokens)], self._logits(row))
                continue
            allowed: list[Allowed | None] = [next(masked) for _ in task.matchers()] or [None]
            logits = [self._logits(row) for row, _ in found]
            finish, wrong = task.take(logits, allowed, self.vocab.eog, self._grammars.mask)
            self.wasted += wrong
            if wrong:
                self._cells.take_back(task.seq, task.pos)
            if finish is not None:
                done.append(self._finish(task, finish))
        return done + self._measured()

    def _logits(self, row: int) -> NDArray[np.float32]:
        return np.ctypeslib.as_array(C.llama_get_logits_ith(self._ctx, row), shape=(self.vocab.size,))

    def _measured(self) -> list[tuple[str, Reply]]:
        """Choices tasks whose chain is fed: go on with the next one, or answer."""
        done = []
        for task in [t for t in self._running if t.trie is not None and not t.feed]:
            task.branches.pop(0)
            if task.branches:
                self._cells.take_back(task.seq, len(task.tokens))
                task.pos = len(task.tokens)
                task.feed = list(task.branches[0].tokens)
            else:
                done.append(self._finish(task, "stop"))
        return done

    def _finish(self, task: Task, finish: Finish) -> tuple[str, Reply]:
        self._running.remove(task)
        request = task.request
        if finish == "error" and request.format is not None:
            self._grammars.forget(request.format.lark)
        text = b"".join(self.vocab.bytes_of(t) for t in task.out).decode("utf-8", "replace")
        scores: tuple[float, ...] = ()
        if task.trie is not None and finish == "stop":
            scores = tuple(task.trie.scores())
            text = request.choices[int(np.argmax(scores))]
        name = (task.flow, request.key)
        if request.keep and finish == "stop" and task.trie is None and name not in self._cells.kept:
            tokens = task.tokens + task.out  # what was said last is still to be fed
            node = Node(task.seq, task.base, len(tokens), list(task.feed), {task.flow})
            self._cells.keep(name, Kept(node, task.pieces, text, tokens), task.cells)
        else:  # of two with one name, the first one stays
            self._cells.end(task.seq, task.base, task.cells)
        self._cells.sweep()
        reply = Reply(
            key=request.key, text=text, finish=finish, tokens_in=len(task.tokens), tokens_cached=task.cached,
            tokens_out=len(task.out), forced=task.forced, scores=scores,
            ms=round((time.monotonic() - task.admitted) * 1000),
        )  # fmt: skip
        return task.flow, reply
