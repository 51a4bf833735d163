"""Settings of llama.cpp tried out by their raw rates, and the best ones written into a profile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import config, store

PREFIX = 1700  # tokens of the shared prefix, as in the bench round
WIDTHS = (1, 5, 12)
# What such a round asks of the model, roughly: prompt tokens, and tokens sampled at each width.
_PREFILL, _SAMPLED = 5200, {1: 180, 5: 650, 12: 250}


@dataclass(frozen=True, slots=True)
class Row:
    """Settings tried; tokens per second of prefill and of decoding by width; seconds of a typical round."""

    settings: Mapping[str, Any]
    prefill: float
    decode: Mapping[int, float]
    round_s: float

    def line(self) -> str:
        tried = ", ".join(f"{k} {str(v).lower()}" for k, v in self.settings.items())
        rates = ", ".join(f"{rate:.0f} at {width}" for width, rate in self.decode.items())
        return f"{tried:<58} prefill {self.prefill:.0f}, decode {rates}; a round about {self.round_s:.1f} s"

    def to_json(self) -> dict[str, Any]:
        return {
            "settings": dict(self.settings), "prefill": round(self.prefill, 1),
            "decode": {str(w): round(v, 1) for w, v in self.decode.items()}, "round_s": round(self.round_s, 2),
        }  # fmt: skip


def candidates(cores: int) -> Iterator[dict[str, Any]]:
    """Threads from all cores downwards, each with flash attention, without it, and with keys as Q8_0 too; and with two
    batch sizes."""
    for threads in sorted({cores, max(1, cores // 2), max(1, cores - 1)}, reverse=True):
        for flash, type_k in ((False, "q8_0"), (False, "f16"), (True, "f16")):
            for batch in (512, 256):
                yield {
                    "threads": threads, "flash_attention": flash, "cache_type_k": type_k, "batch_tokens": batch,
                }  # fmt: skip


def round_s(prefill: float, decode: Mapping[int, float]) -> float:
    return _PREFILL / prefill + sum(n / decode[width] for width, n in _SAMPLED.items())


def write(profile: Path, settings: Mapping[str, Any]) -> Path:
    """Set these keys in the profile's text; every other byte stays. A bundled profile is not changed: the user's own
    copy of it, which then wins, is."""
    target = profile
    if profile.resolve().is_relative_to(config.bundled("configs").resolve()):
        target = config.xdg("CONFIG") / "configs" / profile.name
    text = (target if target.is_file() else profile).read_bytes().decode()
    for key, value in settings.items():
        text = _set(text, key, str(value).lower())
    store.make_folder(target.parent)
    store.write_atomic(target, text.encode())
    return target


def _set(text: str, key: str, value: str) -> str:
    """The top-level key's value, its comment kept; a new line at the end when the key is not there."""
    found = re.compile(rf"^({key}:[ \t]*)[^#\n\r]*?([ \t]*(#[^\n\r]*)?)(?=\r?$)", re.MULTILINE)
    if found.search(text):
        return found.sub(lambda m: f"{m[1] if m[1] != f'{key}:' else f'{key}: '}{value}{m[2]}", text, count=1)
    end = "\r\n" if "\r\n" in text else "\n"
    return text + ("" if not text or text.endswith("\n") else end) + f"{key}: {value}{end}"
