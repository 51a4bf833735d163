"""Ask the pack's own validator about every case, and write down what it says. Run by hand:

    python tests/brain/verify/oracle.py PATH_OF_THE_PACK

Its walk is made to go by name, so that its answers are the same on every machine: it reports a circle of links on the
file that the file system happens to list first. CONVENTIONS.md, which it reads twice, counts once.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DEMO = HERE.parents[1] / "brains" / "demo" / "project-brain"
VERDICTS = HERE / "verdicts.json"

_walk = os.walk


def _by_name(top: Any, *args: Any, **options: Any) -> Iterator[tuple[str, list[str], list[str]]]:
    for folder, folders, files in _walk(top, *args, **options):
        folders.sort()
        yield folder, folders, sorted(files)


def verdict(main: Any, brain: Path, *scope: str) -> list[list[str]] | str:
    """Sorted [code, file] of all it reports, or "crash"."""
    out = io.StringIO()
    os.walk = _by_name
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = main(["--brain", str(brain), "--format", "json", *scope])
    except Exception:
        return "crash"
    finally:
        os.walk = _walk
    if code == 2:
        return "crash"
    data = json.loads(out.getvalue())
    found = [[v["code"], v["file"]] for v in data["errors"] + data["warnings"]]
    once = [v for v in found if v[1] != "CONVENTIONS.md"]
    for v in found:
        if v[1] == "CONVENTIONS.md" and v not in once:
            once.append(v)
    return sorted(once)


def validator(pack: str) -> Any:
    """The entry point of the pack's validator."""
    sys.path.insert(0, str(Path(pack) / "scripts"))
    from verify_tree.cli import main

    return main


def clean_environment() -> None:
    """No aliases but those of the brain."""
    for name in ("PROJECT_BRAIN_CONFIG", "PROJECT_BRAIN_PROJECTS_YAML", "PROJECT_BRAIN_VERBOSITY"):
        os.environ.pop(name, None)
    os.environ["XDG_CONFIG_HOME"] = "/nonexistent"


def record(pack: str) -> None:
    from verify_broken import apply
    from verify_cases import CASES

    clean_environment()
    main = validator(pack)
    verdicts = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            brain = Path(shutil.copytree(DEMO, Path(folder) / "project-brain"))
            apply(brain, case.edits)
            scope = [f"--thread={case.thread}"] * bool(case.thread) + [f"--path={case.path}"] * bool(case.path)
            verdicts[case.name] = verdict(main, brain, *scope)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in verdicts.items())
    VERDICTS.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    record(sys.argv[1])
