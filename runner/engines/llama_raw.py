"""What llama.cpp itself can do on this machine, without us: raw rates of prefill and of decoding at a width."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import llama_cpp.llama_cpp as C

from runner.engines.llama_vocab import open_context, open_model
from runner.errors import RunnerError

_STEPS = 24  # of each width, after two that are not counted


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens per second. decode: by width, all sequences standing on one prefix of prefix_tokens."""

    prefix_tokens: int
    prefill: float
    decode: dict[int, float]


def raw_rates(
    path: Path, *, threads: int, flash_attention: bool, batch_tokens: int, prefix_tokens: int, widths: Sequence[int],
    cache_type_k: str = "f16",
) -> Rates:  # fmt: skip
    """Measure with a context of its own. The tokens are arbitrary: time does not depend on what they say."""
    model = open_model(str(path), vocab_only=False)
    n_ctx = prefix_tokens + max(widths) * (_STEPS + 2) + 256
    ctx = open_context(model, n_ctx, threads, flash_attention, max(widths) + 1, batch_tokens, cache_type_k)
    memory, batch = C.llama_get_memory(ctx), C.llama_batch_init(batch_tokens, 0, 1)

    def decode(rows: Sequence[tuple[int, int, bool]]) -> None:
        for i, (pos, seq, logits) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = 100 + i, pos, 1, logits
            batch.seq_id[i][0] = seq
        batch.n_tokens = len(rows)
        if C.llama_decode(ctx, batch) != 0:
            raise RunnerError("llama_decode failed", code="engine")

    try:
        decode([(0, 0, False)])  # the first call sets things up
        C.llama_memory_clear(memory, True)
        start = time.perf_counter()
        for at in range(0, prefix_tokens, batch_tokens):
            decode([(pos, 0, False) for pos in range(at, min(at + batch_tokens, prefix_tokens))])
        prefill = prefix_tokens / (time.perf_counter() - start)
        found = {}
        for width in sorted(set(widths)):
            for seq in range(1, width + 1):
                C.llama_memory_seq_cp(memory, 0, seq, -1, -1)
            for step in range(_STEPS + 2):
                if step == 2:
                    start = time.perf_counter()
                decode([(prefix_tokens + step, seq, True) for seq in range(1, width + 1)])
            found[width] = width * _STEPS / (time.perf_counter() - start)
            for seq in range(1, width + 1):
                C.llama_memory_seq_rm(memory, seq, -1, -1)
        return Rates(prefix_tokens, prefill, found)
    finally:
        C.llama_batch_free(batch)
        C.llama_free(ctx)
        C.llama_model_free(model)
