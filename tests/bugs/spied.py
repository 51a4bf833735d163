"""Run as a program: command lines in this process, and what they read and whom they call, as JSON on the last line.

    python spied.py '[["status", "tree/a.md"], ["doctor"]]'

Each row: {"argv", "code", "stdout", "stderr", "seconds", "reads": [paths opened], "listed": [folders], "network":
[events]}.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.bind", "urllib")
seen: dict[str, list[str]] = {"reads": [], "listed": [], "network": []}


def hook(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(args[0], (str, bytes)):
        seen["reads"].append(str(Path(os.fsdecode(args[0])).absolute()))
    elif event in ("os.listdir", "os.scandir") and isinstance(args[0], (str, bytes)):
        seen["listed"].append(str(Path(os.fsdecode(args[0])).absolute()))
    elif event.startswith(NETWORK) or event == "socket.__new__":
        seen["network"].append(f"{event} {args[1:]}")


def main(commands: list[list[str]]) -> None:
    sys.addaudithook(hook)
    from runner import cli

    rows = []
    for argv in commands:
        for found in seen.values():
            found.clear()
        out, err, start = io.StringIO(), io.StringIO(), time.perf_counter()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.run(argv)
        took = time.perf_counter() - start
        said = {"argv": argv, "code": code, "stdout": out.getvalue(), "stderr": err.getvalue(), "seconds": took}
        rows.append(said | {name: list(found) for name, found in seen.items()})
    print(json.dumps(rows))  # noqa: T201


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
