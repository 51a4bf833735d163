"""Every error a user can cause: what happened, where, what to do next, and the exit code.

This module imports nothing of ours.

RunnerError                     2   unexpected, or wrong usage
|- UsageError                   2   the command line or a configuration file is wrong
|- Refused                      1   a precondition does not hold; nothing was written
|- Incomplete                   4   not everything was reviewed; `reason` is the machine's word for it
|- Integrity                    5   something is not what it was: a model's hash, a body, a journal, a network call
"""

from __future__ import annotations

EXIT_DONE = 0
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_GATE = 3
EXIT_INCOMPLETE = 4
EXIT_INTEGRITY = 5

# Several outcomes at once: the worst wins, in this order (a signal's code wins over all).
_WORST_FIRST = (EXIT_INTEGRITY, EXIT_USAGE, EXIT_INCOMPLETE, EXIT_GATE, EXIT_REFUSED, EXIT_DONE)


def worst(codes: list[int]) -> int:
    """The exit code of a run made of several parts."""
    return min(codes, key=_WORST_FIRST.index, default=EXIT_DONE)


class RunnerError(Exception):
    """`message` says what; `path` and `line` say where; `hint` says what to do next."""

    exit_code = EXIT_USAGE
    code = "error"

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        line: int | None = None,
        hint: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.line = line
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        where = "" if self.path is None else self.path + ("" if self.line is None else f":{self.line}") + ": "
        return where + self.message + ("" if self.hint is None else f"\nhint: {self.hint}")


class UsageError(RunnerError):
    """Wrong flag, unknown profile, unreadable configuration."""

    code = "usage"


class Refused(RunnerError):
    """A precondition of the specification does not hold. Nothing was written."""

    exit_code = EXIT_REFUSED
    code = "refused"


class Incomplete(RunnerError):
    """Part of the work is missing. `reason`: interrupted, partial, scaffolded or busy.

    exhausted: keys of requests that are out of tries; `debate resume` asks them again.
    """

    exit_code = EXIT_INCOMPLETE

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        path: str | None = None,
        hint: str | None = None,
        exhausted: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message, path=path, hint=hint, code=reason)
        self.reason = reason
        self.exhausted = exhausted


class Integrity(RunnerError):
    """Something that must not change has changed."""

    exit_code = EXIT_INTEGRITY
    code = "integrity"
