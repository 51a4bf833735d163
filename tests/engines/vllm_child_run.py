"""A run of its own for the tests of dying: two engines, two documents; says what happens, a line at a time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from runner.config import VllmConfig
from runner.engines.vllm import Vllm
from runner.errors import RunnerError
from runner.values import Message, Request, Sampling, Segment

WORD = "The cache is never invalidated, so readers may see a price that is a day old. "


def tell(**values: object) -> None:
    print(json.dumps(values), flush=True)  # noqa: T201


def request(key: str, document: str, **changes: object) -> Request:
    segments = (Segment(document, False), Segment("Name one weakness.", True))
    values = {"max_tokens": 8, "shared": (1,), "sampling": Sampling(temperature=0.0)} | changes
    return Request(key, "default", (Message("user", segments),), **values)


def main() -> None:
    workers = sys.argv[2:] == ["workers"]
    sizes = {"tensor_parallel_size": 3} if workers else {"data_parallel_size": 2}
    options = VllmConfig(kv_cache_gib=0.25, max_num_seqs=8, **sizes)
    engine = Vllm(Path(sys.argv[1]), context_tokens=1024, options=options)
    tell(pids=[child.process.pid for child in engine._children])
    if workers:
        sys.stdin.readline()
        return
    documents = [f"Decision {n}. {WORD * 6}" for n in range(2)]
    replies = []
    for i in range(3):  # the first of a document, and then two that find its prefix
        for n, document in enumerate(documents):
            engine.submit(f"{n}.md", request(f"{n}/{i}", document))
        while engine.busy():
            replies += [reply for _, reply in engine.step()]
    tell(cached={r.key: r.tokens_cached for r in replies}, finishes=sorted({r.finish for r in replies}))
    for n, document in enumerate(documents):
        engine.submit(f"{n}.md", request(f"{n}/long", document, max_tokens=900, sampling=Sampling(seed=1)))
    engine.step()
    tell(running=len(engine.progress()))
    sys.stdin.readline()
    try:
        while engine.busy():
            engine.step()
    except RunnerError as e:
        tell(error=str(e), code=e.code)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
