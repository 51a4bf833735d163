"""The command line: parse, call one function, print, exit code."""

from __future__ import annotations

import functools
import inspect
import json
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import typer

from runner import __version__, offline
from runner.cli import ask as asking
from runner.cli import bench, brief, closing, common, context, doctor, export, harden, models, opening, patches, verify
from runner.cli import run as running
from runner.errors import EXIT_INTEGRITY, Refused, RunnerError, worst

app = typer.Typer(
    help="Offline multi-agent review of markdown decisions on a local model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback with locals would print the reviewed document
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"debate-runner {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """Offline multi-agent review of markdown decisions on a local model."""


COMMANDS: dict[str, Callable[..., int]] = {
    "run": running.run,
    "open": opening.open_,
    "resume": opening.resume,
    "abort": closing.abort,
    "ask": asking.ask,
    "patches": patches.patches,
    "close": closing.close,
    "status": closing.status,
    "context": context.context,
    "verify": verify.verify,
    "doctor": doctor.doctor,
    "bench": bench.bench,
    "brief": brief.brief,
    "harden": harden.harden,
    "export": export.export,
}
ISOLATING = (
    "run",
    "open",
    "resume",
    "ask",
    "bench",
    "brief",
    "harden",
)  # those that run an engine; doctor has --isolate of its own


def _isolating(command: Callable[..., int]) -> Callable[..., int]:
    """The command with `--isolate` as its last option: when given, the command starts anew without a network."""

    @functools.wraps(command)
    def isolating(*args: Any, ctx: typer.Context, isolate: bool, **options: Any) -> int:
        if isolate:
            offline.isolate(offline.again(ctx.obj))
        return command(*args, **options)

    added = {"isolate": (common.Isolate, False), "ctx": (typer.Context, inspect.Parameter.empty)}
    keyword = inspect.Parameter.KEYWORD_ONLY
    given = inspect.signature(command, eval_str=True)
    more = [inspect.Parameter(name, keyword, annotation=kind, default=value) for name, (kind, value) in added.items()]
    isolating.__signature__ = given.replace(parameters=[*given.parameters.values(), *more])  # type: ignore[attr-defined]
    isolating.__annotations__ = command.__annotations__ | {name: kind for name, (kind, _) in added.items()}
    return isolating


for _name, _command in COMMANDS.items():
    app.command(_name)(_isolating(_command) if _name in ISOLATING else _command)
app.add_typer(models.app, name="models")
app.add_typer(harden.report, name="report")


class _Terminated(BaseException):
    """SIGTERM arrived; what is on disk stays, and `resume` goes on from there."""


def _on_sigterm(_signum: int, _frame: FrameType | None) -> None:
    raise _Terminated


def main(argv: list[str] | None = None) -> None:
    """The console script. Exit codes: see errors.py; 130 and 143 for Ctrl-C and SIGTERM."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def multi_agent_debate() -> None:
    """The second console script: `debate run` under the name that the specification uses."""
    sys.exit(run(["run", *sys.argv[1:]]))


def run(argv: list[str]) -> int:
    """Run one command line and return its exit code; errors go to stderr, or to stdout as JSON with --json.

    Whatever the command's own outcome, which stays on disk: a call out of this machine is told, and is exit 5.
    """
    offline.switches()
    offline.guard()
    signal.signal(signal.SIGTERM, _on_sigterm)
    code = _command_line(argv, "--json" in argv)
    calls = offline.attempts()
    for call in calls:
        common.warn(f"debate: refused: {call}")
    return worst([code, EXIT_INTEGRITY]) if calls and code < 128 else code


def _command_line(argv: list[str], as_json: bool) -> int:
    try:
        code = app(args=argv, prog_name="debate", standalone_mode=False, obj=argv)
        if code == 130:  # Typer turns a KeyboardInterrupt into this
            return _stopped("interrupted", 130)
        return code if isinstance(code, int) else 0
    except RunnerError as e:
        return _failed(e, as_json)
    except (typer.Abort, KeyboardInterrupt):
        return _stopped("interrupted", 130)
    except _Terminated:
        return _stopped("terminated", 143)
    except typer.TyperException as e:
        hint = "debate --help, or debate COMMAND --help, shows what can be given"
        return _failed(RunnerError(e.format_message(), code="usage", hint=hint), as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone; say no more
        return 141
    except Exception as e:
        if os.environ.get("DEBATE_TRACEBACK"):
            raise
        hint = "this is a fault of debate-runner; set DEBATE_TRACEBACK=1 to see where, and report it"
        return _failed(RunnerError(f"unexpected error: {type(e).__name__}: {e}", hint=hint), as_json)


def _stopped(how: str, code: int) -> int:
    print(f"debate: {how}; `debate resume` goes on from what is on disk", file=sys.stderr)  # noqa: T201
    return code


def _failed(error: RunnerError, as_json: bool) -> int:
    error.hint = error.hint or _next_step(error)
    if as_json:
        found: dict[str, Any] = {"schema": "error/1", "ok": False, "error": error_json(error)}
        print(json.dumps(found, ensure_ascii=False))  # noqa: T201
    else:
        what, _, hint = str(error).rpartition("\nhint: ")
        common.warn(f"debate: {what}")
        common.warn(f"hint: {hint}")
    return error.exit_code


def _next_step(error: RunnerError) -> str:
    """What to do about an error that does not say so itself."""
    if error.path is None and isinstance(error, Refused):
        return "only what lies in the brain is read: name a leaf or a thread of it"
    if error.path is None:
        return "debate --help, or debate COMMAND --help, shows what can be given"
    return f"change {'this' if error.line is None else 'that line'}, then run the command again"


def error_json(error: RunnerError) -> dict[str, Any]:
    return {
        "code": error.code, "message": error.message, "hint": error.hint, "path": error.path, "line": error.line,
        "exit": error.exit_code,
    }  # fmt: skip
