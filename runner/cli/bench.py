"""debate bench: one wave of reviewers on a document of about 1,700 tokens, and where the time goes."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runner.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    from runner.protocols.round import Review
    from runner.runs import Settings


def bench(
    reviewers: Annotated[int, typer.Option("--reviewers", help="How many side by side.")] = 5,
    profile: Annotated[str | None, typer.Option("--profile", help="Run profile; default: cpu.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="A model by name or path.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Measure one wave: share of time inside llama_decode, shared prefix, tokens per second, forced tokens."""
    from runner import runs

    settings = runs.settings(profile, model, None)
    figures = _measure(_review(settings, reviewers), settings)
    if as_json:
        print(json.dumps({"schema": "bench/1", "ok": True} | figures))  # noqa: T201
        return EXIT_DONE
    for line in _lines(figures):
        print(line)  # noqa: T201
    return EXIT_DONE


def _review(settings: Settings, reviewers: int) -> Review:
    from runner import config, render
    from runner.protocols.round import Review, Reviewer

    charters = sorted((config.bundled("prompts") / "personas").glob("*.md"))
    if not 1 <= reviewers <= len(charters):
        raise UsageError(f"--reviewers must be 1 to {len(charters)}")
    body = (config.bundled("prompts") / "bench" / "document.md").read_text(encoding="utf-8")
    templates = config.texts("prompts/review", "*.md.j2", None)
    return Review(
        scope="leaf",
        title="Bench",
        path="bench.md",
        body=body,
        front="",
        about=render.About("Bench", 1, "bench-round-01", ""),
        feedback="Is this ready to be built?",
        reviewers=tuple(Reviewer(p.stem, p.read_text(encoding="utf-8").rstrip("\n")) for p in charters[:reviewers]),
        templates={k.removesuffix(".md.j2"): v for k, v in templates.items()},
        file_templates={},
        max_claims=settings.profile.claims,
        sampling=settings.sampling,
    )


def _measure(review: Review, settings: Settings) -> dict[str, Any]:
    from runner import settings as settings_of
    from runner.protocols.round import reviewer_request

    requests = [reviewer_request(review, None, i) for i in range(len(review.reviewers))]
    with settings_of.engine_of(settings) as engine:
        start = time.perf_counter()
        for request in requests:
            engine.check(request)
            engine.submit("bench", request)
        replies = []
        while engine.busy():
            replies += [reply for _, reply in engine.step()]
        wall = time.perf_counter() - start
        decode = float(getattr(engine, "decode_s", 0.0))
        decoded = int(getattr(engine, "decoded", 0))
    shared = max(r.tokens_cached for r in replies)
    return {
        "engine": settings_of.engine_name(settings),
        "model": None if settings.model is None else settings.model.manifest.name,
        "threads": settings_of.threads(settings.profile),
        "wall_s": round(wall, 3),
        "decode_share": round(decode / wall, 4),
        "decoded_tokens": decoded,
        "shared_prefix_tokens": shared,
        "tokens_in": sum(r.tokens_in for r in replies),
        "tokens_out": sum(r.tokens_out for r in replies),
        "forced": sum(r.forced for r in replies),
        "replies": [
            {"key": r.key, "finish": r.finish, "tokens_in": r.tokens_in, "tokens_cached": r.tokens_cached,
             "tokens_out": r.tokens_out, "forced": r.forced, "ms": r.ms}
            for r in sorted(replies, key=lambda r: r.key)
        ],
    }  # fmt: skip


def _lines(f: dict[str, Any]) -> list[str]:
    unshared = f["tokens_in"] + f["tokens_out"]
    lines = [
        f"{f['engine']}, model {f['model']}, {f['threads']} threads",
        f"wall time                 {f['wall_s']:.1f} s for {len(f['replies'])} reviewers side by side",
        f"inside llama_decode       {f['decode_share']:.1%} of it",
        f"shared prefix             {f['shared_prefix_tokens']} tokens, computed once",
        f"tokens fed to the model   {f['decoded_tokens']} ({unshared} without sharing)",
        f"reply tokens              {f['tokens_out']} ({f['forced']} forced, never sampled), "
        f"{f['tokens_out'] / f['wall_s']:.0f} per second",
    ]
    for r in f["replies"]:
        lines.append(
            f"  {r['key']:<34} {r['tokens_in']} in, {r['tokens_cached']} of them shared, "
            f"{r['tokens_out']} out, {r['ms']} ms"
        )
    return lines
