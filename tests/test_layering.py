"""Who may import whom, read from the source; and what the command line must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "runner"

_PURE = {"errors", "values"}
# A part (a module of runner/, or a package of it) and the other parts it may import. Within a package all may
# import each other, except that no engine imports another.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "values": {"errors"},
    "schemas": _PURE,
    "render": _PURE,
    "claims": _PURE,
    "prompts": _PURE,
    "store": _PURE,
    "guard": _PURE,
    "config": _PURE,
    "manifests": _PURE | {"config"},
    "device": _PURE | {"config"},
    "bench": _PURE | {"config", "store", "settings", "scheduler", "journal", "protocols", "render", "engines"},
    "gguf": {"errors"},
    "model_folder": _PURE | {"engines"},
    "model_facts": _PURE | {"config", "manifests", "gguf", "model_folder"},
    "manifest_text": _PURE | {"manifests"},
    "bulk": _PURE | {"brain", "rounds", "journal", "scheduler", "settings", "runs", "store", "config"},
    "settings": _PURE | {"config", "manifests", "device", "offline", "engines"},
    "offline": _PURE,
    "engines": _PURE | {"store", "config"},
    "journal": _PURE | {"store"},
    "protocols": _PURE | {"schemas", "prompts", "claims", "guard", "render"},
    "scheduler": _PURE | {"journal"},
    "brain": _PURE | {"store"},
    "publish": _PURE | {"store", "journal", "brain"},
    "rounds": _PURE | {"store", "journal", "publish", "prompts", "brain", "protocols", "render", "claims", "guard"},
    "debates": _PURE
    | {"store", "journal", "publish", "prompts", "brain", "protocols", "render", "claims", "guard", "schemas", "config"}
    | {"manifests", "settings", "scheduler"},
    "export": _PURE | {"render", "claims"},
    "gate": _PURE | {"export"},
}
# For typing only (under `if TYPE_CHECKING:`): the engine's contract.
TYPING_ONLY = {"engines.base"}
NEVER = {"protocols": {"os", "time", "random", "pathlib"}}
HEAVY = {"torch", "vllm", "llama_cpp", "llguidance", "numpy"}
# Only the pool knows several engines. What every start loads has nothing heavy.
ENGINES = {"fake", "llama_cpp", "vllm", "server"}
LIGHT = {"engines.__init__", "engines.base", "engines.fake", "engines.server", "engines.pool"}


def imports(tree: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """(line, dotted name, for typing only) of everything imported, inside functions too."""
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for part in block.body
        for node in ast.walk(part)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, id(node) in typing_only
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                dots = "." * node.level
                name = f"{dots}{node.module or ''}.{alias.name}" if node.module or dots else alias.name
                yield node.lineno, name, id(node) in typing_only


def _is_engine(name: str) -> bool:
    """engines.x is an engine; anything else in that folder is the contract or a helper that engines share."""
    return name.split(".")[1:2] != [] and name.split(".")[1] in ENGINES


def violations(module: str, source: str, allowed: dict[str, set[str]] = ALLOWED) -> list[str]:
    """module: dotted, below runner: `protocols.flow`. One line per import that the table does not admit."""
    part = module.split(".")[0]
    found = []
    for line, name, typing_only in imports(ast.parse(source)):
        problem = _problem(module, part, name, typing_only, allowed)
        if problem:
            found.append(f"{module}:{line}: {problem} {name}")
    return sorted(found)


def _problem(module: str, part: str, name: str, typing_only: bool, allowed: dict[str, set[str]]) -> str:
    top, _, rest = name.partition(".")
    if name.startswith("."):
        return "imports relatively"
    if top in HEAVY and (part != "engines" or module in LIGHT):
        return "must not load"
    if top in NEVER.get(part, ()):
        return "must never import"
    other = rest.split(".")[0]
    # `from runner import __version__` is no module; `runs` may import everything but `cli`, `cli` everything.
    if top != "runner" or other in ("", "__version__") or part == "cli" or (part == "runs" and other != "cli"):
        return ""
    if typing_only and any(rest == t or rest.startswith(f"{t}.") for t in TYPING_ONLY):
        return ""
    if part == "engines" and other == "engines":
        return "must not import another engine:" if _is_engine(rest) and module != "engines.pool" else ""
    return "" if other == part or other in allowed.get(part, ()) else "must not import"


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_imports(path):
    """A module imports what its part may import, and nothing else of ours."""
    module = dotted(path)
    if module.startswith("engines") and path.name == "__init__.py":
        module = "engines.__init__"
    assert violations(module, path.read_text()) == []


def test_every_part_is_in_the_table():
    """A new module of runner/ gets its line in the table."""
    parts = {dotted(path).split(".")[0] for path in modules()} - {"__init__", "runs", "cli"}
    assert parts - set(ALLOWED) == set()


@pytest.mark.parametrize(
    ("module", "source", "problem"),
    [
        ("store", "from runner import journal", "store:1: must not import runner.journal"),
        ("store", "import runner.journal as j", "store:1: must not import runner.journal"),
        ("values", "def f():\n    from runner.store import claim", "values:2: must not import runner.store.claim"),
        ("protocols.flow", "import os.path", "protocols.flow:1: must never import os.path"),
        ("protocols.flow", "from time import time", "protocols.flow:1: must never import time.time"),
        (
            "protocols.flow",
            "from runner.journal import family",
            "protocols.flow:1: must not import runner.journal.family",
        ),
        ("brain.index", "from . import root", "brain.index:1: imports relatively ..root"),
        ("brain.index", "from .root import x", "brain.index:1: imports relatively .root.x"),
        ("runs", "from runner.cli import main", "runs:1: must not import runner.cli.main"),
        ("engines.fake", "from runner.schemas import x", "engines.fake:1: must not import runner.schemas.x"),
        (
            "engines.fake",
            "from runner.engines.server import x",
            "engines.fake:1: must not import another engine: runner.engines.server.x",
        ),
        ("engines.fake", "import numpy as np", "engines.fake:1: must not load numpy"),
        ("cli", "from llama_cpp import Llama", "cli:1: must not load llama_cpp.Llama"),
        (
            "scheduler",
            "from runner.engines.base import Engine",
            "scheduler:1: must not import runner.engines.base.Engine",
        ),
        (
            "scheduler",
            "if TYPE_CHECKING:\n    from runner.engines.fake import x",
            "scheduler:2: must not import runner.engines.fake.x",
        ),
    ],
)
def test_the_check_finds(module, source, problem):
    """The check itself: each of these is a violation."""
    assert violations(module, source) == [problem]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("store", "from runner.errors import Refused\nimport os"),
        ("prompts", "import jinja2"),
        ("protocols.round", "from runner.protocols.flow import ask_as"),
        ("scheduler", "if TYPE_CHECKING:\n    from runner.engines.base import Engine"),
        (
            "engines.llama_cpp",
            "import numpy\nfrom runner.engines.sampling import x\nfrom runner.engines.base import y",
        ),
        ("engines.pool", "from runner.engines.server import x"),
        ("rounds.open", "from runner import __version__"),
        ("runs", "from runner import scheduler"),
        ("cli.main", "from runner import runs"),
    ],
)
def test_the_check_admits(module, source):
    """The check itself: none of these is one."""
    assert violations(module, source) == []


def test_command_line_loads_nothing_heavy():
    """Importing the command line loads no engine, so that `close` and `verify` run on a machine that has none."""
    if not (ROOT / "cli.py").exists() and not (ROOT / "cli").is_dir():
        pytest.skip("there is no command line yet")
    code = f"import sys, runner.cli; print(*sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
