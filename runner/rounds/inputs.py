"""What a round is made of, stored before its first request; resume and every digest use only that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runner import store
from runner.brain.root import shown
from runner.errors import Integrity
from runner.protocols.review import Review, Reviewer, Traits
from runner.render import About
from runner.values import Claim, Sampling, Tryout, Verdict

NAME = "inputs/inputs.json"


@dataclass(frozen=True, slots=True)
class Inputs:
    """review: what the prompts are made of. personas: rows of personas.yaml; charter_sha256: by name.

    changes: the front-matter flip. before, flipped, body: sha256 of the artifact's file before and after the flip,
    and of its body. seed: next-round-seed.md's text, consumed by this round. index_template: of the brain, or None.
    models: role -> what the record says of its model. warnings, notes: found while preparing, for the transcript;
    warnings are shown to the user as well. baseline: of a delta review, the text it is measured against.
    scaffold: opened without an engine, so people write tryouts. profile, model: as named when it was opened.
    scratch: the round lies outside the brain, which it does not change.
    """

    version: str
    opened_at: str
    path: str
    number: int
    review: Review
    mode_requested: str
    mode: str
    baseline: str | None
    personas: tuple[Mapping[str, str], ...]
    charter_sha256: Mapping[str, str]
    skipped: tuple[str, ...]
    changes: tuple[tuple[str, str | None], ...]
    before: str
    flipped: str
    body: str
    seed: str | None
    index_template: str | None
    models: Mapping[str, Mapping[str, str]]
    engine: str
    fake: bool
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    scaffold: bool = False
    profile: str | None = None
    model: str | None = None
    scratch: bool = False


def save(run: Path, inputs: Inputs) -> None:
    """Durably; a round without this file has asked nothing and can only be aborted."""
    store.make_folder((run / NAME).parent)
    data = json.dumps(asdict(inputs), ensure_ascii=False, indent=1) + "\n"
    store.write_atomic(run / NAME, data.encode("utf-8", "surrogatepass"))


def load(run: Path) -> Inputs | None:
    """None when the round was stopped before its inputs were stored. Integrity when the file is damaged."""
    path = run / NAME
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
        return _inputs(data)
    except (ValueError, TypeError, KeyError) as error:
        raise Integrity(
            f"the stored inputs cannot be read ({type(error).__name__})",
            path=shown(path),
            hint="`debate abort` gives up",
        ) from None


def _inputs(data: dict[str, Any]) -> Inputs:
    tuples = {k: tuple(data[k]) for k in ("personas", "skipped", "warnings", "notes")}
    changes = tuple((str(k), v) for k, v in data["changes"])
    return Inputs(**(data | tuples | {"changes": changes, "review": _review(data["review"])}))


def _review(data: dict[str, Any]) -> Review:
    quotable = data["quotable"]
    return Review(
        **(
            data
            | {
                "about": About(**data["about"]),
                "reviewers": tuple(Reviewer(**x) for x in data["reviewers"]),
                "context": tuple((n, t) for n, t in data["context"]),
                "windows": tuple((int(a), int(b)) for a, b in data["windows"]),
                "quotable": quotable if quotable is None else tuple((int(a), int(b)) for a, b in quotable),
                "carried": tuple(Claim.from_json(c) for c in data["carried"]),
                "given": tuple(_tryout(t) for t in data["given"]),
                "verdicts": tuple(Verdict.from_json(v) for v in data["verdicts"]),
                "sampling": Sampling(**data["sampling"]),
                "roles": {role: _traits(t) for role, t in data.get("roles", {}).items()},
            }
        )
    )


def _traits(data: dict[str, Any]) -> Traits:
    return Traits(**(data | {"sampling": Sampling(**data["sampling"])}))


def _tryout(data: dict[str, Any]) -> Tryout:
    tuples = {k: tuple(data[k]) for k in ("observations", "open_questions")}
    return Tryout(**(data | tuples | {"claims": tuple(Claim.from_json(c) for c in data["claims"])}))
