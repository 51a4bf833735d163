"""The llama.cpp engine: one unified KV pool, shared prefixes computed once, continuous batching, forced tokens.

How it works. A *node* is a run of cells that others build on: a prefix that requests share, or a finished sequence
that a later request continues. Nodes form a tree; each owns the cells after its parent's end, and `seq_cp` makes the
whole path visible to a sequence without copying anything. A *task* is a running request: its own sequence on top of a
node, with a list of tokens still to be fed. Prompt and reply are fed the same way, so a step is: admit what fits,
fill one batch from the feeds in order, decode, and give every task whose feed is used up its next token.

Admission counts cells: what nodes own, plus each task's prompt tail and max_tokens, never exceeds the pool; so
llama_decode always finds room. Order of admission, chunk size and sampling depend on nothing but the requests, so the
same requests give the same replies on the same machine and build.
"""

from __future__ import annotations

import ctypes
import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import llama_cpp.llama_cpp as C
import llguidance
import llguidance.numpy as guidance
import numpy as np
from llguidance.llamacpp import lltokenizer_from_vocab
from numpy.typing import NDArray

from runner.engines.base import Progress
from runner.engines.choices import Branch, Trie
from runner.engines.llama_vocab import Vocab, open_model
from runner.engines.sampling import Sampler
from runner.errors import RunnerError, UsageError
from runner.values import Finish, Reply, Request, Segment

_N_BATCH = 512  # tokens per llama_decode; more than n_batch aborts the process, so it is checked before every call


@dataclass(eq=False, slots=True)
class _Node:
    """Cells that sequences share. feed: tokens not decoded yet; users: tasks and nodes that stand on it."""

    seq: int
    parent: _Node | None
    length: int  # tokens from the root to its end, once fed
    feed: list[int]
    flows: set[str] = field(default_factory=set)
    users: int = 0
    used_at: int = 0

    @property
    def cells(self) -> int:
        return self.length - (self.parent.length if self.parent else 0)

    @property
    def pos(self) -> int:
        return self.length - len(self.feed)


@dataclass(eq=False, slots=True)
class _Kept:
    node: _Node
    pieces: list[Segment]
    text: str
    tokens: list[int]


@dataclass(eq=False, slots=True)
class _Task:
    flow: str
    request: Request
    pieces: list[Segment]
    prefixes: list[tuple[int, ...]]  # tokens of the shareable prefixes, ascending
    tokens: list[int]
    reply_tokens: int  # the most it can still need after the prompt
    trie: Trie | None = None  # of a choices request
    base: _Node | None = None
    seq: int = -1
    pos: int = 0
    feed: list[int] = field(default_factory=list)
    out: list[int] = field(default_factory=list)
    forced: int = 0
    cached: int = 0
    admitted: float = 0.0
    matcher: llguidance.LLMatcher | None = None
    sampler: Sampler | None = None
    branches: list[Branch] = field(default_factory=list)  # chains still to be measured


class LlamaCpp:
    """See engines.base.Engine. context_tokens: cells of the pool; one sequence is bounded by the model's context."""

    scores = True

    def __init__(
        self,
        path: Path,
        *,
        context_tokens: int = 12288,
        model_context: int | None = None,
        threads: int = 2,
        flash_attention: bool = False,
        n_seq_max: int = 128,
    ) -> None:
        self._model = open_model(str(path), vocab_only=False)
        if C.llama_model_is_recurrent(self._model) or C.llama_model_is_hybrid(self._model):
            C.llama_model_free(self._model)
            self._model = None
            raise UsageError("recurrent and hybrid models cannot share a prefix", path=str(path), hint="use another")
        self.vocab = Vocab(self._model)
        self.context_tokens: int = min(model_context or 1 << 30, C.llama_model_n_ctx_train(self._model))
        self._n_ctx = context_tokens
        self._ctx = _context(self._model, context_tokens, threads, flash_attention, n_seq_max)
        self._mem = C.llama_get_memory(self._ctx)
        self._batch = C.llama_batch_init(_N_BATCH, 0, 1)
        self._grammar_tokens = self._lltokenizer()
        self._executor = llguidance.LLExecutor(num_threads=threads)
        self._grammars: dict[str, llguidance.LLMatcher] = {}
        self._free_seqs = list(range(n_seq_max - 1, -1, -1))
        self._nodes: dict[tuple[int, ...], _Node] = {}
        self._building: list[_Node] = []
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._waiting: list[_Task] = []
        self._running: list[_Task] = []
        self._clock = 0
        self.decode_s = 0.0  # wall time inside llama_decode
        self.decoded = 0  # tokens fed to it
        self.identity = f"llama.cpp via llama-cpp-python {_version('llama-cpp-python')}"

    def _lltokenizer(self) -> llguidance.LLTokenizer:
        with warnings.catch_warnings():  # one deprecation warning per token of the vocabulary
            warnings.simplefilter("ignore", DeprecationWarning)
            return lltokenizer_from_vocab(self.vocab.ptr, self.vocab.size, self.vocab.eog)

    # ---- the contract --------------------------------------------------------------------------------------------

    def check(self, request: Request) -> None:
        prompt = len(self._tokens(self.vocab.pieces(request.messages)[0]))
        limit = min(self.context_tokens, self._n_ctx)
        if prompt + request.max_tokens > limit:
            raise UsageError(
                f"request {request.key}: the prompt has {prompt} tokens and the reply may take {request.max_tokens}, "
                f"but the context holds {limit}",
                code="context",
                hint=f"shorten the document by about {prompt + request.max_tokens - limit} tokens, "
                "or use a model or profile with a longer context",
            )
        if request.format is not None:  # a grammar that does not compile ends its own flow, not the engine
            self._matcher(request.format.lark)

    def submit(self, flow: str, request: Request) -> None:
        pieces, ends = self.vocab.pieces(request.messages)
        tokens = self._tokens(pieces)
        lengths = [len(self._tokens(pieces[: ends[n]])) for n in request.shared]
        # The last token of a prompt is always fed by the task itself: its logits are needed.
        prefixes = [tuple(tokens[:n]) for n in sorted(set(lengths)) if 0 < n < len(tokens)]
        trie = Trie([self._label(c) for c in request.choices]) if request.choices else None
        most = max(len(b.tokens) for b in trie.chains()) if trie else request.max_tokens
        self._waiting.append(_Task(flow, request, pieces, prefixes, tokens, most, trie))

    def _label(self, choice: str) -> list[int]:
        """With an end, so that no label is the beginning of another; where labels have parted it is never fed."""
        return [*self.vocab.tokens(Segment(choice, False)), self.vocab.end]

    def _tokens(self, pieces: list[Segment]) -> list[int]:
        return [t for p in pieces for t in self.vocab.tokens(p)]

    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    def step(self) -> Sequence[tuple[str, Reply]]:
        self._clock += 1
        done = self._expired()
        self._admit()
        if self._running or self._building:
            done += self._decode()
        return done

    def progress(self) -> Sequence[Progress]:
        return [Progress(t.flow, t.request.key, len(t.out), t.request.max_tokens) for t in self._running]

    def forget(self, flow: str, keys: Sequence[str]) -> None:
        for key in keys:
            kept = self._kept.get((flow, key))
            if kept is not None:
                kept.node.flows.clear()
        self._sweep()

    def release(self, flow: str) -> None:
        for node in self._all_nodes():
            node.flows.discard(flow)
        self._sweep()

    def close(self) -> None:
        """Matchers hold the vocabulary's pointer, so they go before the model."""
        if self._model is None:
            return
        for task in self._running + self._waiting:
            task.matcher = None
        self._running, self._waiting, self._building, self._grammars = [], [], [], {}
        self._nodes, self._kept = {}, {}
        del self._grammar_tokens
        C.llama_batch_free(self._batch)
        C.llama_free(self._ctx)
        C.llama_model_free(self._model)
        self._model = None

    # ---- admission -----------------------------------------------------------------------------------------------

    def _used(self) -> int:
        """Cells that are taken or promised."""
        return sum(n.cells for n in self._all_nodes()) + sum(self._cells(t, t.base) for t in self._running)

    def _admit(self) -> None:
        """Admit waiting tasks in order. One that must wait stops the line: the order stays the requests'."""
        while self._waiting:
            task = self._waiting[0]
            base, ready = self._base(task)
            if not ready or not self._room(self._cells(task, base), 1, keep=base):
                break
            task.base = base
            self._start(self._waiting.pop(0))
        if self._waiting and not self._running and not self._building:
            raise RunnerError("nothing can be admitted", code="engine", hint="raise context_tokens in the profile")

    def _cells(self, task: _Task, base: _Node | None) -> int:
        return len(task.tokens) - (base.length if base else 0) + task.reply_tokens

    def _base(self, task: _Task) -> tuple[_Node | None, bool]:
        """The node this task stands on, made if need be, and whether it is ready to stand on."""
        kept = self._continued(task)
        if kept is not None:
            return kept, not kept.feed
        node: _Node | None = None
        for prefix in task.prefixes:
            found = self._nodes.get(prefix) or self._grow(node, prefix)
            if found is None:
                return node, False
            found.flows.add(task.flow)
            found.used_at = self._clock
            node = found
            if node.feed:
                return node, False
        return node, True

    def _continued(self, task: _Task) -> _Node | None:
        """The kept sequence that this prompt extends word for word, with the tail as the task's own tokens."""
        kept = self._kept.get((task.flow, task.request.continues or ""))
        if kept is None:
            return None
        n = len(kept.pieces)
        if task.pieces[:n] != kept.pieces or len(task.pieces) <= n + 1 or task.pieces[n].text != kept.text:
            return None
        tail = [t for p in task.pieces[n + 1 :] for t in self.vocab.tokens(p)]
        task.tokens = kept.tokens + tail
        kept.node.used_at = self._clock
        return kept.node

    def _grow(self, parent: _Node | None, prefix: tuple[int, ...]) -> _Node | None:
        """A new node for this prefix, or None while there is no room for it."""
        start = parent.length if parent else 0
        if not self._room(len(prefix) - start, 1, keep=parent):
            return None
        seq = self._free_seqs.pop()
        if parent is not None:
            C.llama_memory_seq_cp(self._mem, parent.seq, seq, -1, -1)
            parent.users += 1
        node = _Node(seq, parent, len(prefix), list(prefix[start:]), used_at=self._clock)
        self._nodes[prefix] = node
        self._building.append(node)
        return node

    def _room(self, cells: int, seqs: int, keep: _Node | None) -> bool:
        """Is there room? If not, nodes that nobody stands on go, those that nobody waits for before the others."""
        while self._used() + cells > self._n_ctx or len(self._free_seqs) < seqs:
            idle = [n for n in self._all_nodes() if n.users == 0 and n is not keep]
            awaited = self._awaited()
            free = [n for n in idle if id(n) not in awaited]
            if not free and (self._running or self._building):
                return False  # cells come back when these end
            if not idle:
                return False
            self._drop(min(free or idle, key=lambda n: (n.used_at, -n.cells)))
        return True

    def _all_nodes(self) -> list[_Node]:
        return [*self._nodes.values(), *(k.node for k in self._kept.values())]

    def _awaited(self) -> set[int]:
        """Nodes that waiting tasks will stand on."""
        found: set[int] = set()
        for task in self._waiting:
            kept = self._kept.get((task.flow, task.request.continues or ""))
            nodes = [kept.node] if kept else [self._nodes.get(p) for p in task.prefixes]
            found |= {id(n) for n in nodes if n is not None}
        return found

    def _drop(self, node: _Node) -> None:
        self._nodes = {k: n for k, n in self._nodes.items() if n is not node}
        self._kept = {k: v for k, v in self._kept.items() if v.node is not node}
        self._building = [n for n in self._building if n is not node]
        self._free(node.seq, node.parent)

    def _free(self, seq: int, base: _Node | None) -> None:
        C.llama_memory_seq_rm(self._mem, seq, -1, -1)
        self._free_seqs.append(seq)
        if base is not None:
            base.users -= 1

    def _sweep(self) -> None:
        """Drop nodes that no flow holds and nobody stands on, leaves of the tree first."""
        while gone := [n for n in self._all_nodes() if not n.flows and n.users == 0]:
            for node in gone:
                self._drop(node)

    def _start(self, task: _Task) -> None:
        task.seq = self._free_seqs.pop()
        task.admitted = time.monotonic()
        if task.base is not None:
            C.llama_memory_seq_cp(self._mem, task.base.seq, task.seq, -1, -1)
            task.base.users += 1
            task.pos = task.cached = task.base.length
        task.feed = task.tokens[task.pos :]
        if task.trie is not None:
            task.branches = task.trie.chains()
            task.feed += task.branches[0].tokens
        else:
            task.sampler = Sampler(task.request.sampling)
            task.sampler.see(task.tokens)
            if task.request.format is not None:
                task.matcher = self._matcher(task.request.format.lark)
                self._force(task)
        self._running.append(task)

    def _matcher(self, lark: str) -> llguidance.LLMatcher:
        known = self._grammars.get(lark)
        if known is None:
            known = llguidance.LLMatcher(self._grammar_tokens, lark, log_level=0, limits=_limits())
            if known.is_error():
                # The message goes on with lines of the grammar, and those hold text of the document.
                what = re.split(r"""["'`\n]""", known.get_error())[0].strip(" :")
                raise RunnerError(f"the grammar does not compile: {what}", code="grammar")
            if len(self._grammars) > 256:
                self._grammars.clear()
            self._grammars[lark] = known
        return known.deep_copy()

    def _force(self, task: _Task) -> None:
        """Append what the grammar forces; those tokens are fed without being sampled."""
        assert task.matcher is not None
        forced = task.matcher.compute_ff_tokens()[: task.request.max_tokens - len(task.out)]
        if forced:
            task.matcher.consume_tokens(forced)
            task.feed += forced
            self._say(task, forced)
            task.forced += len(forced)

    def _say(self, task: _Task, tokens: Sequence[int]) -> None:
        task.out += tokens
        if task.sampler is not None:
            task.sampler.see(tokens)

    # ---- one batch -----------------------------------------------------------------------------------------------

    def _decode(self) -> list[tuple[str, Reply]]:
        rows: list[tuple[int, _Task, int]] = []  # row in the batch, task, position of its token
        n = 0
        owners: list[_Node | _Task] = [*self._building, *self._running]
        for owner in owners:
            take = owner.feed[: _N_BATCH - n]
            wants = self._wanted(owner, len(take)) if isinstance(owner, _Task) else set()
            for i, token in enumerate(take):
                self._put(n, token, owner.pos + i, owner.seq, owner.pos + i in wants)
                if owner.pos + i in wants:
                    assert isinstance(owner, _Task)
                    rows.append((n, owner, owner.pos + i))
                n += 1
            self._advance(owner, len(take))
            if n == _N_BATCH:
                break
        self._call(n)
        self._building = [b for b in self._building if b.feed]
        return self._take(rows)

    def _advance(self, owner: _Node | _Task, n: int) -> None:
        del owner.feed[:n]
        if isinstance(owner, _Task):
            owner.pos += n

    def _wanted(self, task: _Task, n: int) -> set[int]:
        """Positions whose logits are needed among the next n tokens."""
        if task.trie is not None:
            start = len(task.tokens)
            return {start + at - 1 for at in task.branches[0].rows} & set(range(task.pos, task.pos + n))
        return {task.pos + n - 1} if n and n == len(task.feed) else set()

    def _put(self, i: int, token: int, pos: int, seq: int, logits: bool) -> None:
        b = self._batch
        b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, pos, 1, logits
        b.seq_id[i][0] = seq

    def _call(self, n: int) -> None:
        if not 0 < n <= _N_BATCH:
            raise RunnerError(f"a batch of {n} tokens", code="engine")
        self._batch.n_tokens = n
        start = time.perf_counter()
        rc = C.llama_decode(self._ctx, self._batch)
        self.decode_s += time.perf_counter() - start
        self.decoded += n
        if rc != 0:
            raise RunnerError(
                f"llama_decode failed with {rc}", code="engine", hint="`debate resume` continues from the journal"
            )

    def _take(self, rows: list[tuple[int, _Task, int]]) -> list[tuple[str, Reply]]:
        """Use the logits: they are a view that dies at the next decode."""
        done: list[tuple[str, Reply]] = []
        masked = [t.matcher for _, t, _ in rows if t.matcher is not None]
        masks = guidance.allocate_token_bitmask(len(masked), self._grammar_tokens.vocab_size)
        if masked:
            guidance.fill_next_token_bitmask_par(self._executor, [(m, i) for i, m in enumerate(masked)], masks)
        n_masked = 0
        for row, task, pos in rows:
            logits = self._logits(row)
            if task.trie is not None:
                task.trie.measure(task.branches[0].rows[pos + 1 - len(task.tokens)], logits)
                continue
            allowed = None
            if task.matcher is not None:
                allowed = _allowed(masks[n_masked], logits.shape[0])
                n_masked += 1
            finish = self._next(task, logits, allowed)
            if finish is not None:
                done.append(self._finish(task, finish))
        return done + self._measured()

    def _logits(self, row: int) -> NDArray[np.float32]:
        return np.ctypeslib.as_array(C.llama_get_logits_ith(self._ctx, row), shape=(self.vocab.size,))

    def _next(self, task: _Task, logits: NDArray[np.float32], allowed: NDArray[np.intp] | None) -> Finish | None:
        assert task.sampler is not None
        if (ended := _ended(task)) is not None:  # what the grammar forces may be all there is to say
            return ended
        if allowed is not None and allowed.size == 0:
            return "error"
        token = task.sampler.pick(logits, allowed)
        if task.matcher is None and token in self.vocab.eog:
            return "stop"
        if task.matcher is not None and not task.matcher.consume_token(token):
            return "error"
        task.feed = [token]
        self._say(task, [token])
        if task.matcher is not None and not task.matcher.is_stopped():
            self._force(task)
        return _ended(task)

    def _measured(self) -> list[tuple[str, Reply]]:
        """Choices tasks whose chain is fed: go on with the next one, or answer."""
        done = []
        for task in [t for t in self._running if t.trie is not None and not t.feed]:
            task.branches.pop(0)
            if task.branches:
                if not C.llama_memory_seq_rm(self._mem, task.seq, len(task.tokens), -1):
                    raise RunnerError("this model cannot take tokens back", code="engine")
                task.pos = len(task.tokens)
                task.feed = list(task.branches[0].tokens)
            else:
                done.append(self._finish(task, "stop"))
        return done

    def _expired(self) -> list[tuple[str, Reply]]:
        now = time.monotonic()
        late = [
            t for t in self._running if t.request.deadline_s is not None and now - t.admitted > t.request.deadline_s
        ]
        return [self._finish(t, "timeout") for t in late]

    def _finish(self, task: _Task, finish: Finish) -> tuple[str, Reply]:
        self._running.remove(task)
        if finish == "error" and task.request.format is not None:
            # Its automaton may be at a limit, and copies share it: whoever asks next gets a new one.
            self._grammars.pop(task.request.format.lark, None)
        text = b"".join(self.vocab.bytes_of(t) for t in task.out).decode("utf-8", "replace")
        scores: tuple[float, ...] = ()
        if task.trie is not None and finish == "stop":
            scores = tuple(task.trie.scores())
            text = task.request.choices[int(np.argmax(scores))]
        known = (task.flow, task.request.key) in self._kept  # the first one stays
        if task.request.keep and finish == "stop" and task.trie is None and not known:
            self._keep(task, text)
        else:
            self._free(task.seq, task.base)
        self._sweep()
        reply = Reply(
            key=task.request.key, text=text, finish=finish, tokens_in=len(task.tokens), tokens_cached=task.cached,
            tokens_out=len(task.out), forced=task.forced, scores=scores,
            ms=round((time.monotonic() - task.admitted) * 1000),
        )  # fmt: skip
        return task.flow, reply

    def _keep(self, task: _Task, text: str) -> None:
        """The task's sequence becomes a node; what was chosen last is still to be fed."""
        tokens = task.tokens + task.out
        node = _Node(task.seq, task.base, len(tokens), list(task.feed), {task.flow}, used_at=self._clock)
        self._kept[(task.flow, task.request.key)] = _Kept(node, task.pieces, text, tokens)
        if node.feed:
            self._building.append(node)


def _context(model: object, n_ctx: int, threads: int, flash: bool, n_seq_max: int) -> ctypes.c_void_p:
    p = C.llama_context_default_params()
    p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max = n_ctx, _N_BATCH, _N_BATCH, n_seq_max
    p.kv_unified = True
    p.flash_attn_type = int(flash)
    p.n_threads = p.n_threads_batch = threads
    ctx: ctypes.c_void_p = C.llama_init_from_model(model, p)
    if not ctx:
        raise RunnerError(
            f"no memory for a context of {n_ctx} tokens", code="engine", hint="lower context_tokens in the profile"
        )
    return ctx


def _ended(task: _Task) -> Finish | None:
    if task.matcher is not None and task.matcher.is_stopped():
        return "error" if task.matcher.is_error() else "stop"
    return "length" if len(task.out) >= task.request.max_tokens else None


def _limits() -> llguidance.LLParserLimits:
    """Room for long replies: copies of a matcher share one automaton, and masks are computed side by side, so what one
    request builds counts for the other; the defaults ended two of four reviewers. Messages hold no document text."""
    return llguidance.LLParserLimits(
        verbose_errors=False, initial_lexer_fuel=20_000_000, step_lexer_fuel=20_000_000, max_lexer_states=5_000_000
    )


def _allowed(mask: NDArray[np.int32], size: int) -> NDArray[np.intp]:
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[:size])


def _version(name: str) -> str:
    from importlib.metadata import version

    return version(name)
