"""What the commands share: options, finding the artifact, the two streams, progress, the audit log."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runner.errors import RunnerError, UsageError

if TYPE_CHECKING:
    from runner.brain.artifact import Artifact
    from runner.cli.progress import Watch
    from runner.debates.folder import RunFolder

PathArg = Annotated[str | None, typer.Argument(metavar="[PATH]", help="The leaf or thread; default: the one here.")]
Brain = Annotated[str | None, typer.Option("--brain", help="The brain root; default: found from here.")]
Scope = Annotated[str | None, typer.Option("--scope", help="leaf or thread; default: from the path.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Verbose = Annotated[int, typer.Option("--verbose", "-v", count=True, help="Say more; twice: everything.")]
NoInput = Annotated[bool, typer.Option("--no-input", help="Ask nothing; what is missing is an error.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan; write nothing, load no engine.")]
ProfileOpt = Annotated[str | None, typer.Option("--profile", help="Run profile, by name or path; default: cpu.")]
EngineOpt = Annotated[
    str | None, typer.Option("--engine", help="llama.cpp, vllm, server, fake or none (people write the tryouts).")
]
WaitS = Annotated[
    float | None, typer.Option("--wait-s", min=0, help="Seconds to wait for a device that another run holds.")
]
ClaimOpt = Annotated[str | None, typer.Option("--claim", help="@file: claims of your own, judged like all others.")]
ModelOpt = Annotated[str | None, typer.Option("--model", help="A model by name, or the path of a .gguf file.")]
Personas = Annotated[str | None, typer.Option("--personas", help="Names from § 10.2, comma-separated.")]
Persona = Annotated[list[str] | None, typer.Option("--persona", help='An own one: "name:charter". Repeatable.')]
Reviewers = Annotated[int | None, typer.Option("--reviewers", help="How many; default: 3 or fewer.")]
Feedback = Annotated[str | None, typer.Option("--feedback", help="TEXT, @file or -: what to address.")]
Synthesizer = Annotated[
    bool | None, typer.Option("--synthesizer/--no-synthesizer", help="Default: with 4 reviewers or more.")
]
ReviewMode = Annotated[str, typer.Option("--review-mode", help="full or delta.")]
MinReviewers = Annotated[int | None, typer.Option("--min-reviewers", help="Default: all of them.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Another draw of the same review.")]
AllowDirty = Annotated[bool, typer.Option("--allow-dirty", help="Open although there are uncommitted changes.")]
FailOn = Annotated[
    str, typer.Option("--fail-on", help="none, or severity[:verdict][@confidence][>count],…: exit 3 when it holds.")
]
Known = Annotated[
    Path | None, typer.Option("--known", help="An earlier export (json, sarif, codequality): only what is new counts.")
]
PatchesStatus = Annotated[str | None, typer.Option("--patches-status", help="applied, partial or rejected.")]
Revisit = Annotated[str | None, typer.Option("--revisit", help="REJECTed claims to carry forward: C-03,C-07.")]
Isolate = Annotated[
    bool, typer.Option("--isolate", help="Run where the kernel has no network; a server is reached by unix: only.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def out(line: str = "") -> None:
    """A line of the result, foreign text in it as it is."""
    print(line)  # noqa: T201


def warn(line: str) -> None:
    print(one_line(line), file=sys.stderr)  # noqa: T201


def one_line(text: str) -> str:
    """Our words with foreign ones among them: never a second line, nothing that a terminal or a CI job would obey."""
    from runner.render import visible

    return visible(re.sub(r"\r?\n", " ", text))


def out_json(data: Mapping[str, Any]) -> None:
    out(json.dumps(data, ensure_ascii=False))


def find(path: str | None, brain: str | None, scope: str | None) -> Artifact:
    """The artifact that the user named, or the one that the working directory is in."""
    from runner.brain import artifact, root

    if scope not in (None, "leaf", "thread"):
        raise UsageError(f"--scope must be leaf or thread, not {scope!r}")
    found = root.find_root(path, brain, Path.cwd())
    return artifact.load(found, Path(path or "."), scope)


def debate_at(path: str | None) -> tuple[Any, RunFolder] | None:
    """The command's module (of ask or of brief) and the run folder, when the path is one of theirs."""
    from importlib import import_module

    from runner.debates import folder

    found = None if path is None else folder.find(Path(path))
    return None if found is None else (import_module(f"runner.cli.{found[0]}"), found[1])


def text_of(option: str, text: str | None) -> str:
    """TEXT, @file, or - for standard input."""
    if text == "-":
        return sys.stdin.read()
    if text is not None and text.startswith("@"):
        try:
            return Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, ValueError) as e:
            reason = e.strerror if isinstance(e, OSError) else "not UTF-8"
            raise UsageError(f"{option}: cannot be read: {reason}", path=text[1:]) from None
    return text or ""


def words(text: str | None) -> tuple[str, ...]:
    """Comma-separated words."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def watch(quiet: bool) -> Watch:
    from runner.cli.progress import Watch

    tty = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return Watch(live=tty and not quiet, lines=not quiet)


@contextmanager
def audited_bulk(op: str, root: Path, artifacts: list[str]) -> Iterator[dict[str, Any]]:
    """One audit line for a run over many artifacts."""
    from runner import __version__
    from runner.brain import audit

    notes: dict[str, Any] = {}
    code = 2
    try:
        yield notes
        code = int(notes.pop("exit", 0))
    finally:
        if audit.enabled(root):
            record = audit.line(
                op, ts=now(), version=__version__, exit_code=code, artifacts=artifacts, flags={}, details=notes
            )
            audit.write(root, record)


def now() -> str:
    """The present moment, UTC, to the second."""
    from datetime import UTC, datetime

    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def audited(op: str, artifact: Artifact, flags: Mapping[str, Any], dry_run: bool = False) -> Iterator[dict[str, Any]]:
    """Write the audit line when the brain asks for one. The caller puts `exit` and details into what it gets."""
    from runner import __version__
    from runner.brain import audit

    notes: dict[str, Any] = {}
    code = 2
    try:
        yield notes
        code = int(notes.pop("exit", 0))
    except RunnerError as error:
        code = error.exit_code
        notes["error"] = error.code
        raise
    finally:
        if not dry_run and audit.enabled(artifact.root):
            record = audit.line(
                op, ts=now(), version=__version__, exit_code=code, artifacts=[artifact.relative], flags=flags,
                details=notes,
            )  # fmt: skip
            audit.write(artifact.root, record)
