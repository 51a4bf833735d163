"""debate bench: a whole round on a document of about 1,700 tokens, beside what the machine could do at best."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runner.cli import common
from runner.cli.common import out
from runner.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    from runner.bench.workload import Measured
    from runner.engines.llama_raw import Rates
    from runner.settings import Settings


def bench(
    reviewers: Annotated[int, typer.Option("--reviewers", help="How many side by side.")] = 5,
    document: Annotated[str | None, typer.Option("--document", help="A text file to review in the round.")] = None,
    profile: common.ProfileOpt = None,
    model: common.ModelOpt = None,
    engine: common.EngineOpt = None,
    wait_s: common.WaitS = None,
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Try threads, flash attention and batch sizes; write the best into the profile."),
    ] = False,
    as_json: common.Json = False,
) -> int:
    """Measure a whole round, per phase, and how far it is from the raw rates of the machine."""
    from runner import settings as settings_of

    if tune:
        return _tune(profile, model, wait_s, as_json)
    settings = settings_of.settings(profile, model, None, engine=engine, wait_s=wait_s)
    if settings.none:
        raise UsageError("there is no engine to measure", hint="make setup installs llama.cpp; --engine names another")
    figures = _measure(settings, reviewers, document)
    if as_json:
        common.out_json({"schema": "bench/2", "ok": True} | figures)
    else:
        for line in _lines(figures):
            out(line)
    return EXIT_DONE


def _measure(settings: Settings, reviewers: int, document: str | None) -> dict[str, Any]:
    from runner import settings as settings_of
    from runner.bench import workload

    body = workload.document() if document is None else common.text_of("--document", f"@{document}")
    review = workload.bench_review(settings, reviewers, body)
    with settings_of.engine_of(settings) as engine:
        measured = workload.whole_round(engine, review, settings.manifest_sha256)
        wasted = int(getattr(engine, "wasted", 0))
        name = engine.identity
    assert measured.result is not None
    first = max((r.tokens_cached for r in measured.of("reviewers")), default=0)
    figures = {
        "engine": name,
        "model": None if settings.model is None else settings.model.manifest.name,
        "threads": settings_of.threads(settings.profile),
        "reviewers": reviewers,
        "claims": len(measured.result.claims),
        "wall_s": round(measured.wall_s, 3),
        "phases_s": {k: round(v, 3) for k, v in measured.phases.items()},
        "model_s": round(measured.model_s, 3),
        "overhead": round(measured.wall_s / measured.model_s - 1, 4) if measured.model_s else None,
        "decoded_tokens": measured.decoded,
        "shared_prefix_tokens": first,
        "tokens_in": sum(r.tokens_in for r in measured.replies),
        "tokens_out": sum(r.tokens_out for r in measured.replies),
        "forced": sum(r.forced for r in measured.replies),
        "finishes": sorted({r.finish for r in measured.replies}),
    }
    if settings.profile.engine == "llama.cpp" and settings.model is not None and measured.result.claims:
        figures |= _beside_the_floor(settings, measured, wasted, first)
    return figures


def _beside_the_floor(settings: Settings, measured: Measured, wasted: int, prefix: int) -> dict[str, Any]:
    """The raw rates are measured right after the round, on the same machine in the same state."""
    from runner.bench.floor import floor_s, shapes

    asked = shapes(measured, wasted)
    rates = _rates(settings, prefix, sorted({1, *asked.widths.values()}))
    floor = floor_s(asked, rates)
    return {
        "raw": {"prefill": round(rates.prefill, 1), "decode": {str(w): round(v, 1) for w, v in rates.decode.items()}},
        "prefill_tokens": asked.prefill,
        "sampled": asked.sampled,
        "widths": asked.widths,
        "wasted_guesses": wasted,
        "floor_s": round(floor, 3),
        "over_floor": round(measured.wall_s / floor, 3),
    }


def _rates(settings: Settings, prefix: int, widths: list[int]) -> Rates:
    from runner.engines.llama_raw import raw_rates
    from runner.settings import threads, weights_of

    assert settings.model is not None
    p = settings.profile
    with weights_of(p, settings.model) as path:
        return raw_rates(
            path, threads=threads(p), flash_attention=p.flash_attention, cache_type_k=p.cache_type_k,
            batch_tokens=p.batch_tokens, prefix_tokens=prefix, widths=widths,
        )  # fmt: skip


def _lines(f: dict[str, Any]) -> list[str]:
    phases = ", ".join(f"{k} {v:.1f} s" for k, v in f["phases_s"].items())
    lines = [
        f"{f['engine']}, model {f['model']}, {f['threads']} threads",
        f"whole round               {f['wall_s']:.1f} s: {f['reviewers']} reviewers, {f['claims']} claims judged",
        f"                          {phases}",
        f"shared prefix             {f['shared_prefix_tokens']} tokens, computed once",
        f"tokens of all prompts     {f['tokens_in']}",
        f"reply tokens              {f['tokens_out']} ({f['forced']} forced, never sampled)",
    ]
    if f["overhead"] is not None:
        lines.append(f"inside the model          {f['model_s']:.1f} s; all the rest adds {f['overhead']:.1%}")
    if f["decoded_tokens"]:
        lines.append(f"tokens fed to the model   {f['decoded_tokens']}")
    if "floor_s" in f:
        raw = ", ".join(f"{v:.0f} at width {w}" for w, v in f["raw"]["decode"].items())
        lines += [
            f"raw rates here            prefill {f['raw']['prefill']:.0f} tokens/s; decoding {raw}",
            f"floor at these rates      {f['floor_s']:.1f} s; the round took {f['over_floor']:.2f} times that",
        ]
    return lines


# ---- tune ----------------------------------------------------------------------------------------------------------


def _tune(profile: str | None, model: str | None, wait_s: float | None, as_json: bool) -> int:
    from runner import config, device
    from runner import settings as settings_of
    from runner.bench import tune

    settings = settings_of.settings(profile, model, None, wait_s=wait_s)
    if settings.profile.engine != "llama.cpp" or settings.model is None:
        raise UsageError("--tune is for the llama.cpp engine", hint="the other engines tune themselves")
    found = config.find(profile or "cpu", "configs", None)
    rows = []
    with device.held("cpu", settings.profile.wait_s):
        for tried in tune.candidates(settings_of.threads(settings.profile)):
            one = settings_of.with_profile(settings, settings.profile.model_copy(update=tried))
            rates = _rates(one, tune.PREFIX, list(tune.WIDTHS))
            rows.append(tune.Row(tried, rates.prefill, rates.decode, tune.round_s(rates.prefill, rates.decode)))
            if not as_json:
                out(rows[-1].line())
    best = min(rows, key=lambda r: r.round_s)
    path = tune.write(found, best.settings)
    if as_json:
        common.out_json({"schema": "tune/1", "ok": True, "best": best.settings, "profile": str(path),
                         "tried": [r.to_json() for r in rows]})  # fmt: skip
    else:
        out(f"best: {json.dumps(best.settings)}, written to {path}")
    return EXIT_DONE
