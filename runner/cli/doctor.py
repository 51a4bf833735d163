"""debate doctor: is everything here that a round needs?"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from runner.errors import RunnerError, worst

Check = tuple[str, Callable[[], str]]


def doctor(
    profile: Annotated[str | None, typer.Option("--profile", help="Run profile; default: cpu.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="A model by name or path.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Check the profile, the model's file, the engine (with a tiny constrained reply) and the brain here."""
    rows, codes = [], []
    for name, check in _checks(profile, model):
        try:
            rows.append({"check": name, "ok": True, "says": check()})
        except RunnerError as e:
            rows.append({"check": name, "ok": False, "says": str(e)})
            codes.append(e.exit_code)
    if as_json:
        print(json.dumps({"schema": "doctor/1", "ok": not codes, "checks": rows}, ensure_ascii=False))  # noqa: T201
    else:
        for row in rows:
            print(f"{'ok  ' if row['ok'] else 'FAIL'}  {row['check']:<8} {row['says']}")  # noqa: T201
    return worst(codes)


def _checks(profile: str | None, model: str | None) -> Iterator[Check]:
    from runner import config, runs

    def python() -> str:
        return f"Python {sys.version.split()[0]}, {len(os.sched_getaffinity(0))} cores for this process"

    def settings() -> str:
        s = runs.settings(profile, model, Path.cwd())
        return f"{s.source}: engine {s.profile.engine}, {runs.threads(s.profile)} threads"

    def weights() -> str:
        s = runs.settings(profile, model, Path.cwd())
        if s.model is None:
            return "the fake engine has no model"
        sha256 = config.verify_model(s.model)
        return f"{s.model.manifest.name}: {s.model.path}, sha256 {sha256[:16]}…, as its manifest says"

    def engine() -> str:
        s = runs.settings(profile, model, Path.cwd())
        with runs.engine_of(s) as opened:
            return f"{opened.identity}: {_self_test(opened)}"

    yield "python", python
    yield "profile", settings
    yield "model", weights
    yield "engine", engine
    yield "brain", _brain


def _self_test(engine: object) -> str:
    """A reply that the grammar allows and nothing else: is the grammar really applied?"""
    from runner import schemas
    from runner.engines.base import Engine
    from runner.values import Message, Request, Segment

    opened: Engine = engine  # type: ignore[assignment]
    fmt, worst_case = schemas.format_of(schemas.AmendedReply)
    ask = Message("user", (Segment("Say anything but JSON.", True),))
    opened.submit("doctor", Request("self-test", "default", (ask,), worst_case, fmt))
    replies = []
    while opened.busy():
        replies += [reply for _, reply in opened.step()]
    try:
        schemas.AmendedReply.model_validate_json(replies[0].text)
    except ValueError:
        raise RunnerError("a reply broke its grammar", hint="this engine build cannot be trusted") from None
    return f"a constrained reply of {replies[0].tokens_out} tokens in {replies[0].ms} ms"


def _brain() -> str:
    from runner.brain.root import find_root

    try:
        root = find_root(None, None, Path.cwd())
    except RunnerError:
        return "none here; give --brain to the commands"
    leftovers = sorted(str(p.relative_to(root)) for p in root.rglob("*.debate-tmp"))
    return str(root) + (f"; left by killed runs: {', '.join(leftovers)}" if leftovers else "")
