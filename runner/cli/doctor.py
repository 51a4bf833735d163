"""debate doctor: is everything here that a round needs?"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from runner import offline
from runner.cli import common
from runner.errors import Integrity, RunnerError, worst

if TYPE_CHECKING:
    from runner.runs import Settings

Check = tuple[str, Callable[[], str]]


def doctor(
    ctx: typer.Context,
    profile: Annotated[str | None, typer.Option("--profile", help="Run profile; default: cpu.")] = None,
    model: Annotated[str | None, typer.Option("--model", help="A model by name or path.")] = None,
    prove: Annotated[bool, typer.Option("--offline", help="Prove with a tiny round that nothing is called.")] = False,
    isolate: common.Isolate = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> int:
    """Check the profile, the model's file, the engine (with a tiny constrained reply) and the brain here."""
    again = offline.again(ctx.obj)
    if isolate:
        offline.isolate(again)
    rows, codes = [], []
    for name, check in _proof(profile, model, again) if prove else _checks(profile, model):
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
    from runner import manifests, runs

    def python() -> str:
        return f"Python {sys.version.split()[0]}, {len(os.sched_getaffinity(0))} cores for this process"

    def settings() -> str:
        from runner.settings import threads

        s = runs.settings(profile, model, Path.cwd())
        return f"{s.source}: engine {s.profile.engine}, {threads(s.profile)} threads"

    def weights() -> str:
        s = runs.settings(profile, model, Path.cwd())
        if s.model is None:
            return "the fake engine has no model"
        sha256 = manifests.verify_model(s.model)
        return f"{s.model.manifest.name}: {s.model.path}, sha256 {sha256[:16]}…, as its manifest says"

    def engine() -> str:
        s = runs.settings(profile, model, Path.cwd())
        with runs.engine_of(s) as opened:
            return f"{opened.identity}: {_self_test(opened)}"

    def hosts() -> str:
        entries = runs.settings(profile, model, Path.cwd()).profile.allow_hosts
        offline.allow(entries)
        names = ", ".join(offline.outside(entries))
        return f"leaves this machine: {names}" if names else "the profile allows no other machine"

    yield "python", python
    yield "profile", settings
    yield "hosts", hosts
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


# ---- --offline -----------------------------------------------------------------------------------------------------

_LEAF = """---
id: "backups"
title: "Backups"
status: "decided"
domain: "backups"
---

# Backups

The database is copied every night to a second disk in the same room. A copy is kept for a week. Nobody has tried to
restore one yet.
"""
_CONVENTIONS = """# Conventions

### 10.2 Reviewers

- red-team
"""


def _proof(profile: str | None, model: str | None, again: list[str]) -> Iterator[Check]:
    """The same command, started again where there is no network; what cannot be proved elsewhere is left out there."""
    from runner import runs

    usual = dict(_checks(profile, model))
    yield "kernel", lambda: _kernel(again)
    yield "switches", _switches
    yield "guard", offline.probe
    if not offline.isolated():
        return
    yield from ((name, usual[name]) for name in ("profile", "hosts", "model"))
    yield "round", lambda: _tiny_round(runs.settings(profile, model, Path.cwd()))
    yield "attempts", _attempts


def _kernel(again: list[str]) -> str:
    offline.isolate(again)  # comes back only when this process is isolated
    answer = offline.unreachable()
    if not answer:
        raise Integrity("the kernel has a way to another machine", code="network")
    return f"interfaces up: {', '.join(offline.interfaces()) or 'none'}; native code that calls out gets {answer}"


def _switches() -> str:
    wrong = offline.wrong()
    if wrong:
        raise Integrity(f"not as they must be: {', '.join(wrong)}", code="network")
    return f"{len(offline.SWITCHES)} set, no proxy"


def _tiny_round(s: Settings) -> str:
    from runner import runs
    from runner.brain import artifact
    from runner.rounds.plan import Options

    s = replace(s, profile=s.profile.model_copy(update={"claims": 1}))
    if s.none:
        raise RunnerError("there is no engine to prove it with", hint="make setup, or --profile fake")
    with TemporaryDirectory(prefix="debate-") as folder:
        root = Path(folder).resolve() / "project-brain"
        leaf = root / "tree" / "backups" / "backups.md"
        leaf.parent.mkdir(parents=True)
        leaf.write_text(_LEAF, encoding="utf-8")
        (root / "CONVENTIONS.md").write_text(_CONVENTIONS, encoding="utf-8")
        options = Options(personas=("red-team",), feedback="Is it ready?", allow_dirty=True)
        result = runs.open_round(runs.open_plan(artifact.load(root, leaf, None), options, s), s).result
    if result.exhausted:
        raise RunnerError(f"the round is incomplete: {', '.join(result.exhausted)}", hint="see `debate doctor`")
    return f"opened and reviewed: {len(result.replies)} replies, {len(result.claims)} claims"


def _attempts() -> str:
    calls = offline.attempts()
    if calls:
        raise Integrity(f"{len(calls)}: {'; '.join(map(str, calls))}", code="network")
    return "0, but for the guard's own"
