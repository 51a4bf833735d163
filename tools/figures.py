"""How good are the reviews of a model? Runs rounds over the example brain and prints figures about what was written.

    .venv/bin/python tools/figures.py --seeds 20

Nothing is written but a journal in a temporary folder.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from rapidfuzz import fuzz

from runner import claims, runs, scheduler
from runner.brain import artifact as artifacts
from runner.errors import Refused
from runner.journal import Journal
from runner.protocols.round import Result, Review, review
from runner.rounds.plan import Options
from runner.values import Flow, Tryout

BRAIN = Path(__file__).parents[1] / "tests" / "brains" / "demo"
LEAVES = (
    "tree/auth/session-store.md", "tree/auth/token-rotation.md", "tree/storage/backup-policy/backup-policy.md",
    "tree/ops/deploy-pipeline.md",
)  # fmt: skip
PERSONAS = ("fresh-eyes-reader", "red-team", "ops-readiness")
FEEDBACK = "We build this next month. What is unclear, risky or missing?"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--profile", default="cpu")
    options.add_argument("--model")
    options.add_argument("--side-by-side", type=int, default=4)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        project = Path(shutil.copytree(BRAIN, Path(folder) / "project"))
        measure(project, given)


def measure(project: Path, given: argparse.Namespace) -> None:
    settings = runs.settings(given.profile, given.model, project)
    reviews: dict[str, Review] = {}
    for leaf in LEAVES:
        artifact = artifacts.load(project / "project-brain", project / "project-brain" / leaf, None)
        planned = runs.open_plan(artifact, Options(personas=PERSONAS, feedback=FEEDBACK), settings).inputs.review
        for seed in range(given.seeds):
            reviews[f"{leaf}#{seed}"] = replace(planned, sampling=replace(planned.sampling, seed=seed))
    journal = Journal(runs.now)

    def flows() -> Iterator[tuple[str, Flow]]:
        for i, (name, one) in enumerate(reviews.items()):
            journal.open(name, project / f"{i}.jsonl", {"version": "figures"})
            yield name, review(one)

    start = time.perf_counter()
    with runs.engine_of(settings) as engine:
        found = scheduler.run(
            flows(), engine, journal, lambda *_: None, None, given.side_by_side, manifest_sha256=lambda _: "figures"
        )
        wall = time.perf_counter() - start
        share = getattr(engine, "decode_s", 0.0) / wall
    results = {name: outcome.result for name, outcome in found.items() if outcome.error is None}
    print(f"{len(found)} rounds in {wall:.0f} s, {share:.1%} of it inside llama_decode; "  # noqa: T201
          f"{len(found) - len(results)} ended with an error")  # fmt: skip
    report(reviews, results)


def report(reviews: dict[str, Review], results: dict[str, Result]) -> None:
    tryouts = [t for r in results.values() for t in r.tryouts]
    raised = [c for t in tryouts for c in t.claims]
    replaced = [c for c in raised if c.action == "replace"]
    pairs = [pair for t in tryouts for pair in combinations((c.problem for c in t.claims), 2)]
    alike = [fuzz.ratio(a, b) / 100 for a, b in pairs]
    twice = sum(len({c.quote for c in t.claims}) < len(t.claims) for t in tryouts)
    differ = sum(c.replacement.strip() != c.quote.strip() for c in replaced)
    verdicts = [v for r in results.values() for v in r.verdicts]
    texts = [s for t in tryouts for s in strings(t)] + [v.reason for v in verdicts]
    quotes_found = sum(c.quote in reviews[n].body for n, r in results.items() for c in r.claims)
    total = sum(len(r.claims) for r in results.values())
    for what, n, of in (
        ("tryouts that hold a claim", sum(bool(t.claims) for t in tryouts), len(tryouts)),
        ("tryouts that failed", sum(t.status == "failed" for t in tryouts), len(tryouts)),
        ("quotes that are in the document", quotes_found, total),
        ("pairs of problems in a tryout with similarity under 0.8", sum(x < 0.8 for x in alike), len(alike)),
        ("tryouts with a quote twice", twice, len(tryouts)),
        ("strings with four words three times", sum(map(loops, texts)), len(texts)),
        ("strings with {{", sum("{{" in s for s in texts), len(texts)),
        ("replacements that differ from their quote", differ, len(replaced)),
        ("tryouts with observations", sum(bool(t.observations) for t in tryouts), len(tryouts)),
        ("tryouts with open questions", sum(bool(t.open_questions) for t in tryouts), len(tryouts)),
        ("rounds with a patch that applies", sum(applies(reviews[n], r) for n, r in results.items()), len(results)),
        ("verdicts in which both label orders agree", sum(v.agree is True for v in verdicts), len(verdicts)),
    ):  # fmt: skip
        print(f"{what:<60} {n:>4} of {of:<4} {n / of if of else 0:>6.1%}")  # noqa: T201
    for what, counts in (
        ("verdicts", Counter(v.verdict for v in verdicts)),
        ("cause", Counter(v.cause for v in verdicts)),
        ("actions", Counter(c.action for c in raised)),
        ("kinds", Counter(c.kind for c in raised)),
        ("severities", Counter(c.severity for c in raised)),
    ):
        print(f"{what:<12} {dict(counts.most_common())}")  # noqa: T201


def strings(t: Tryout) -> list[str]:
    fields = [s for c in t.claims for s in (c.problem, c.replacement)]
    return [*t.observations, *t.open_questions, *fields]


def loops(text: str) -> bool:
    """Does a run of four words occur three times?"""
    words = text.lower().split()
    return any(n >= 3 for n in Counter(tuple(words[i : i + 4]) for i in range(len(words) - 3)).values())


def applies(one: Review, result: Result) -> bool:
    """Does at least one patch apply to the reviewed body?"""
    for patch in (p for p in result.patches if not p.by_hand):
        try:
            if claims.apply(one.body.encode(), [patch]) != one.body.encode():
                return True
        except Refused:
            pass
    return False


if __name__ == "__main__":
    main()
