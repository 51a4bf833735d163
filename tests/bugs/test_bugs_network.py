"""G1, G2. No command calls anyone: counted by an audit hook in a child process, with the fake engine and the model."""

# ruff: noqa: N802 (a test has its class's letter in its name)

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import LEAF, write
from spied import hook, seen

HERE = Path(__file__).resolve().parent
PATH = f"project-brain/{LEAF}"
OPEN = ("open", PATH, "--personas", "red-team", "--feedback", "Is it ready?")


def spied(cwd: Path, *commands: tuple[str, ...]) -> list[dict[str, Any]]:
    """What spied.py says of these command lines."""
    done = subprocess.run(
        [sys.executable, str(HERE / "spied.py"), json.dumps(commands)], cwd=cwd, check=False, capture_output=True,
        text=True, env=os.environ | {"PYTHONPATH": str(HERE.parents[1])},
    )  # fmt: skip
    assert done.stderr == "" and done.stdout.count("\n") == 1, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_the_spy_sees(monkeypatch):
    """The hook notices a connection, a look-up and a socket (or the other tests would prove nothing)."""
    for event, args in (("socket.connect", (None, ("h", 1))), ("socket.getaddrinfo", ("h",)), ("socket.__new__", (1,))):
        monkeypatch.setitem(seen, "network", [])
        hook(event, args)
        assert len(seen["network"]) == 1


def test_G2_no_command_calls_anyone(root):
    """Every command on the fake engine, refused or not: not one socket, look-up or connection."""
    links = b"soft_links:\n  - {uri: 'https://example.org/x', role: spec}\n  - {uri: 'mcp://a/b', role: spec}\n"
    raw = (root / LEAF).read_bytes().replace(b"domain:", links + b"domain:")
    write(root / LEAF, raw)
    write(root.parent / "configs/ill.yaml", b"engine: fake\nroles: {default: fake}\nfake: {faults: {1: crash}}\n")
    fake = ("--profile", "fake")
    rows = spied(
        root.parent, (*OPEN, *fake, "--dry-run"), ("run", PATH, "--mode", "x"), (*OPEN, "--profile", "ill"),
        ("status", PATH), ("resume", PATH, *fake), ("patches", PATH), ("patches", PATH, "--apply", "all"),
        ("context", PATH, "--persist"), ("close", PATH, "--patches-status", "rejected", "--dry-run"),
        ("close", PATH, "--patches-status", "rejected"), ("abort", PATH), ("models", "list"), ("models", "path"),
        ("models", "verify"), ("doctor", *fake), ("bench", *fake, "--reviewers", "1"),
        (*OPEN, "--model", "org/name"), ("--version",),
    )  # fmt: skip
    assert [(r["argv"][0], r["network"]) for r in rows if r["network"]] == []
    codes = {" ".join(r["argv"][:1]): r["code"] for r in rows}
    assert (codes["status"], codes["resume"], codes["close"], codes["context"], codes["doctor"]) == (0, 0, 0, 0, 0)


@pytest.mark.model
def test_G2_H3_with_the_model(root):
    """A whole round with llama.cpp: no call, and with --json stdout is one document and nothing else."""
    pytest.importorskip("llama_cpp")
    text = (HERE.parents[1] / "configs/cpu.yaml").read_text().replace("claims: 3", "claims: 1")
    write(root.parent / "configs/one.yaml", (text + "threads: 1\n").encode())
    opened, closed = spied(
        root.parent, (*OPEN, "--profile", "one", "--json"), ("close", PATH, "--patches-status", "rejected", "--json")
    )
    assert (opened["code"], closed["code"]) == (0, 0), opened["stderr"]
    assert opened["network"] == closed["network"] == []
    assert json.loads(opened["stdout"])["schema"] == "open/1" and opened["stdout"].count("\n") == 1
    assert json.loads(closed["stdout"])["restored_status"] == "decided"
