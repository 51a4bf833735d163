"""debate export: a round, a bulk run, an ask or a brief, for other programs and for people; and the gate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner.cli import common
from runner.cli.common import warn
from runner.errors import UsageError

if TYPE_CHECKING:
    from runner.export.model import Findings
    from runner.gate import Gate, Trip

FORMATS = ("json", "sarif", "junit", "annotations", "codequality", "html", "markdown")


def export(
    format_: Annotated[str, typer.Argument(metavar="FORMAT", help=", ".join(FORMATS) + ".")],
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="An artifact, a round, a folder of rounds, an ask, a brief, a report."),
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file; default: stdout.")] = None,
    fail_on: common.FailOn = "none",
    known: common.Known = None,
    brain: common.Brain = None,
) -> int:
    """Write what was found as json, sarif, junit, annotations, codequality, html or markdown."""
    from runner import gate
    from runner.cli import exporting
    from runner.export.findings import without

    writer = writer_of(format_, rules := gate.parse(fail_on))
    prints = known_of(known)
    found = [without(f, prints) for f in exporting.read(paths, brain)]
    text = writer(found)
    _write(text, out)
    return gate_code(rules, found)


def writer_of(format_: str, rules: Gate) -> Callable[[Sequence[Findings]], str]:
    """A format's writer. rules: what a JUnit report calls a failure."""
    from runner.config import meant
    from runner.export import annotations, html, json, junit, markdown, sarif
    from runner.gate import failing

    writers: dict[str, Callable[[Sequence[Findings]], str]] = {
        "json": json.write, "sarif": sarif.write, "annotations": annotations.write, "html": html.write,
        "codequality": annotations.codequality, "markdown": markdown.write,
        "junit": lambda found: junit.write(found, lambda x: failing(rules, x)),
    }  # fmt: skip
    if format_ not in writers:
        raise UsageError(f"no format named {format_!r}", hint=meant(format_, FORMATS))
    return writers[format_]


def known_of(path: Path | None) -> frozenset[str]:
    """The fingerprints that --known names. UsageError when the file cannot be read."""
    from runner.export.findings import known

    if path is None:
        return frozenset()
    try:
        return known(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"--known: cannot be read: {reason}", path=str(path)) from None


def gate_code(rules: Gate, found: Sequence[Findings]) -> int:
    """Say on stderr what is incomplete and which rules failed; the exit code. Reports are written before."""
    from runner import gate

    trips: tuple[Trip, ...] = gate.tripped(rules, found)
    for f in found:
        if not f.complete:
            warn(f"incomplete: {f.path or f.title}: {f.why or 'not reviewed'}")
    for trip in trips:
        warn(str(trip))
    return gate.exit_code(trips, found)


def _write(text: str, out: Path | None) -> None:
    from runner import store

    if out is None:
        sys.stdout.write(text)
    else:
        store.write_atomic(out.absolute(), text.encode(), sync=False)
