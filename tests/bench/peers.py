"""The same round asked of other ways to run it, in one run on one machine: `python tests/bench/peers.py`.

Our round is run first and its requests are noted. Each peer is then asked the same requests, wave after wave: the same
prompts to the token, the same bounds of the reply as a JSON schema, the same limit of tokens, temperature, threads
and model file. What each peer's best cache can share, it shares. Ratios are of whole rounds.

--weights says what peers load: `file`, the model file with llama.cpp's own defaults, as its users do; `copy`, the Q8_0
weights and keys that our profile makes of it, so that only the scheduling differs.

Peers:
  loop, document first   one `Llama`, one request after the other; it reuses the prefix that two prompts share
  loop, persona first    the same with the task in front of the document, as most loops are written
  server                 llama-server -np 5 -kvu, all requests of a wave at once
  server, slots          the same, the shared prefix computed once, saved and restored into every slot before each wave

Needs the engine of `make setup` and, for the server, `tools/build-llama-server.sh`.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from runner import settings as settings_of
from runner.bench import workload
from runner.bench.floor import floor_s, shapes
from runner.engines.llama_raw import raw_rates
from runner.engines.llama_vocab import LlamaTokenizer
from runner.values import Message, Request

SERVER = Path(".cache/llama-server/bin/llama-server")


@dataclass(frozen=True)
class Tuned:
    """Settings of llama.cpp that a peer runs with."""

    flash: bool
    cache_type_k: str

    @property
    def type_k(self) -> int:
        return {"f16": 1, "q8_0": 8}[self.cache_type_k]  # numbers of ggml's types


WAVES = ("reviewers", "reasons", "verdicts", "amended", "synthesis")
SLOTS = 5


def wave_of(key: str) -> str:
    if key.startswith("reviewer/"):
        return "reviewers"
    if "/order-" in key or "/prior-" in key:
        return "verdicts"
    if key.endswith("amended"):
        return "amended"
    return "reasons" if key.startswith("defender/") else "synthesis"


def schema(request: Request) -> dict[str, object]:
    """What the reply may be. A peer that cannot measure labels is asked for one."""
    if request.choices:
        return {"enum": [json.loads(c) for c in request.choices]}
    assert request.format is not None
    found: dict[str, object] = json.loads(request.format.json_schema)
    return found


class Prompts:
    """Prompts as token ids, by the rules of our engine."""

    def __init__(self, model: Path) -> None:
        self.vocab = LlamaTokenizer(str(model)).vocab

    def tokens(self, messages: Sequence[Message]) -> list[int]:
        return [t for piece in self.vocab.pieces(messages)[0] for t in self.vocab.tokens(piece)]

    def shared(self, request: Request) -> list[int]:
        """The longest prefix that other requests of its wave share."""
        pieces, ends = self.vocab.pieces(request.messages)
        last = request.shared[-1] if request.shared else 0
        return [t for piece in pieces[: ends[last]] for t in self.vocab.tokens(piece)]


def persona_first(messages: Sequence[Message]) -> list[Message]:
    """The same segments, those that follow the shared part in front of it."""
    user = messages[1]
    n = next((i for i, s in enumerate(user.segments) if s.text.startswith("\nRemember")), len(user.segments) // 2)
    return [messages[0], Message("user", (*user.segments[n:], *user.segments[:n])), *messages[2:]]


# ---- peers ---------------------------------------------------------------------------------------------------------


def loop(
    waves: dict[str, list[Request]], model: Path, threads: int, tuned: Tuned, prompts: Prompts, first: str
) -> dict[str, float]:
    """One request after the other. Each wave's seconds."""
    from llama_cpp import Llama, LlamaGrammar

    llm = Llama(
        str(model),
        n_ctx=8192,
        n_batch=512,
        n_threads=threads,
        n_threads_batch=threads,
        flash_attn=tuned.flash,
        type_k=tuned.type_k,
        verbose=False,
    )
    took = {}
    for name, requests in waves.items():
        start = time.perf_counter()
        for request in requests:
            messages = request.messages if first == "document" else persona_first(request.messages)
            llm.create_completion(
                prompts.tokens(messages), max_tokens=request.max_tokens, temperature=request.sampling.temperature,
                top_k=request.sampling.top_k, top_p=request.sampling.top_p, min_p=request.sampling.min_p,
                repeat_penalty=request.sampling.repeat_penalty, seed=request.sampling.seed,
                grammar=LlamaGrammar.from_json_schema(json.dumps(schema(request)), verbose=False),
            )  # fmt: skip
        took[name] = time.perf_counter() - start
    llm.close()
    return took


@contextmanager
def server(model: Path, threads: int, tuned: Tuned, slots: Path, cells: int) -> Iterator[httpx.Client]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(SERVER), "-m", str(model), "--offline", "--no-ui", "--host", "127.0.0.1", "--port", str(port),
        "-t", str(threads), "-tb", str(threads), "-fa", "on" if tuned.flash else "off", "-b", "512", "-ub", "512",
        "-ctk", tuned.cache_type_k,
        "--cache-ram", "0", "--no-cache-idle-slots", "--no-context-shift", "-np", str(SLOTS), "-kvu", "-c", str(cells),
        "--slot-save-path", f"{slots}/",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=3600, trust_env=False) as client:
            for _ in range(600):
                try:
                    if client.get("/health").status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                time.sleep(0.1)
            yield client
    finally:
        process.kill()
        process.wait()


def ask(client: httpx.Client, request: Request, prompt: list[int], slot: int | None) -> tuple[bool, int]:
    """(is the reply JSON, tokens of it)."""
    s = request.sampling
    body = {
        "prompt": prompt, "n_predict": request.max_tokens, "temperature": s.temperature, "top_k": s.top_k,
        "top_p": s.top_p, "min_p": s.min_p, "repeat_penalty": s.repeat_penalty, "seed": s.seed, "cache_prompt": True,
        "json_schema": schema(request),
    } | ({} if slot is None else {"id_slot": slot})  # fmt: skip
    answer = client.post("/completion", json=body).json()
    try:
        json.loads(answer.get("content", ""))
        ok = True
    except ValueError:
        ok = False
    return ok, int(answer.get("tokens_predicted", 0))


def served(
    waves: dict[str, list[Request]], client: httpx.Client, prompts: Prompts, pinned: bool
) -> tuple[dict[str, float], dict[str, tuple[int, int]]]:
    """Each wave's seconds, and (valid replies, tokens of all replies)."""
    took, said = {}, {}
    for name, requests in waves.items():
        start = time.perf_counter()
        if pinned and len(requests) > 1:
            shared = prompts.shared(requests[0])
            warm = {"prompt": shared, "n_predict": 0, "cache_prompt": True, "id_slot": 0}
            client.post("/completion", json=warm)
            client.post("/slots/0?action=save", json={"filename": name})
            for slot in range(1, SLOTS):
                client.post(f"/slots/{slot}?action=restore", json={"filename": name})
        with ThreadPoolExecutor(SLOTS) as pool:
            jobs = [
                pool.submit(ask, client, r, prompts.tokens(r.messages), i % SLOTS if pinned else None)
                for i, r in enumerate(requests)
            ]
            found = [job.result() for job in jobs]
        took[name] = time.perf_counter() - start
        said[name] = (sum(ok for ok, _ in found), sum(n for _, n in found))
    return took, said


# ---- the table -----------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reviewers", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--weights", choices=("file", "copy"), nargs="+", default=["file", "copy"])
    parser.add_argument("--skip", default="", help="loop-document,loop-persona,server,slots")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args()
    settings = settings_of.settings(None, None, None)
    settings = settings_of.with_profile(settings, settings.profile.model_copy(update={"threads": options.threads}))
    assert settings.model is not None
    model, prompts = settings.model.path, Prompts(settings.model.path)
    review = workload.bench_review(settings, options.reviewers, workload.document())
    with settings_of.engine_of(settings) as engine:
        ours = workload.whole_round(engine, review, settings.manifest_sha256)
        asked = shapes(ours, engine.wasted)  # type: ignore[attr-defined]
    prefix = max(r.tokens_cached for r in ours.of("reviewers"))
    profile = settings.profile
    tuned = Tuned(profile.flash_attention, profile.cache_type_k)
    copies = ExitStack()
    copy = copies.enter_context(settings_of.weights_of(profile, settings.model))
    rates = raw_rates(
        copy, threads=options.threads, flash_attention=tuned.flash, cache_type_k=tuned.cache_type_k, batch_tokens=512,
        prefix_tokens=prefix, widths=sorted({1, *asked.widths.values()}),
    )  # fmt: skip
    waves = {w: [r for r in ours.requests if wave_of(r.key) == w] for w in WAVES}
    waves = {w: r for w, r in waves.items() if r}
    claims = len(ours.result.claims) if ours.result else 0
    floor = floor_s(asked, rates)
    print(f"requests: {', '.join(f'{len(r)} {w}' for w, r in waves.items())}; claims: {claims}", flush=True)
    print(f"ours: {ours.wall_s:.1f} s, {ours.phases}, overhead {ours.wall_s / ours.model_s - 1:.1%}", flush=True)
    print(
        f"floor: {floor:.1f} s (prefill {rates.prefill:.0f}/s, decode {rates.decode}); {ours.wall_s / floor:.2f} times"
    )
    figures: dict[str, object] = {"ours": ours.wall_s, "phases": ours.phases, "floor": floor, "claims": claims}
    skip = options.skip.split(",")
    for weights in options.weights:
        path, how = (copy, tuned) if weights == "copy" else (model, Tuned(False, "f16"))
        for first in ("document", "persona"):
            if f"loop-{first}" not in skip:
                took = loop(waves, path, options.threads, how, prompts, first)
                report(f"loop, {first} first, {weights}", took, ours.wall_s, {}, figures)
        cells = SLOTS * max(len(prompts.tokens(r.messages)) + r.max_tokens for rs in waves.values() for r in rs)
        for name, pinned in (("server", False), ("slots", True)):
            if name not in skip and SERVER.is_file():
                with (
                    tempfile.TemporaryDirectory() as slots,
                    server(path, options.threads, how, Path(slots), cells) as client,
                ):
                    took, said = served(waves, client, prompts, pinned)
                name = "server" if not pinned else "server, slots"
                report(f"{name}, {weights}", took, ours.wall_s, said, figures)
    copies.close()
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


def report(
    name: str, took: dict[str, float], ours: float, said: dict[str, tuple[int, int]], figures: dict[str, object]
) -> None:
    total = sum(took.values())
    each = ", ".join(f"{w} {s:.1f}" for w, s in took.items())
    valid = f"; valid JSON and tokens: {said}" if said else ""
    print(f"{name}: {total:.1f} s ({each}), {total / ours:.2f} times ours{valid}", flush=True)
    figures[name] = {"total": total, "waves": took, "said": said}


if __name__ == "__main__":
    sys.exit(main())
