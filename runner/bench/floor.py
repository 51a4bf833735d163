"""How near a round comes to what the machine can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.bench.workload import PHASES, Measured

if TYPE_CHECKING:
    from runner.engines.llama_raw import Rates


@dataclass(frozen=True, slots=True)
class Shapes:
    """What a round asks of the model. prefill: tokens computed without being sampled (prompts, each shared prefix
    once, forced tokens, labels). sampled, widths: per phase, tokens sampled and requests side by side."""

    prefill: int
    sampled: dict[str, int]
    widths: dict[str, int]


def shapes(m: Measured, wasted: int) -> Shapes:
    """Of a measured round. wasted: guesses that were taken back."""
    sampled = {p: sum(r.tokens_out - r.forced for r in m.of(p)) for p in PHASES}
    widths = {p: max(1, sum(r.tokens_out > 0 for r in m.of(p))) for p in PHASES}
    return Shapes(m.decoded - wasted - sum(sampled.values()), sampled, widths)


def floor_s(s: Shapes, rates: Rates) -> float:
    """Seconds at the raw rates: every prompt token at the rate of prefill, every sampled token at the rate of decoding
    with all requests of its phase side by side from beginning to end."""
    return s.prefill / rates.prefill + sum(s.sampled[p] / rates.decode[s.widths[p]] for p in PHASES)
