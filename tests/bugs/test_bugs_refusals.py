"""Every refusal of the command line says what, where and what to do next; nothing is written, no traceback is shown."""

# ruff: noqa: E501 (a table: a row is a line)

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import FOLDER, LEAF, THREAD, replace, tree, write
from hostile import FEEDBACK, Says, claim, debate

PATH = f"project-brain/{LEAF}"
OPEN = ("open", PATH, "--personas", "red-team", *FEEDBACK)
CLOSE = ("close", PATH, "--patches-status", "applied")
Prepare = Callable[[Path], object] | None


def edit(old: str, new: str, path: str = LEAF) -> Prepare:
    return lambda root: replace(root / path, old, new)


def put(path: str, data: bytes) -> Prepare:
    return lambda root: write(root / path, data)


def opened(root: Path) -> None:
    assert debate(*OPEN) == 0


def spoilt(path: str, data: bytes) -> Prepare:
    """Open a round, then overwrite a file of it."""

    def prepare(root: Path) -> None:
        opened(root)
        write(root / "tree/area/debate/limits/round-01" / path, data)

    return prepare


def interrupted(root: Path) -> None:
    write(root.parent / "configs/ill.yaml", b"engine: fake\nroles: {default: fake}\nfake: {faults: {'1': crash}}\n")
    assert debate(*OPEN[:4], "--feedback", "x", "--profile", "ill", "-q") == 2


def link(path: str, target: str) -> Prepare:
    return lambda root: (root / path).symlink_to(target)


def with_profile(text: str) -> Prepare:
    return put("../configs/odd.yaml", text.encode())


ODD = (*OPEN[:4], "--feedback", "x", "--profile", "odd")
# (how to get there, the command line, exit code, words of what is said)
CASES: dict[str, tuple[Prepare, tuple[str, ...], int, tuple[str, ...]]] = {
    # wrong usage
    "no-command": (None, ("opne", PATH), 2, ("opne",)),
    "no-option": (None, ("open", PATH, "--persona-list", "x"), 2, ("--persona-list",)),
    "not-a-number": (None, (*OPEN, "--reviewers", "two"), 2, ("--reviewers",)),
    "scope": (None, ("status", PATH, "--scope", "tree"), 2, ("--scope", "tree")),
    "scope-mismatch": (None, ("status", PATH, "--scope", "thread"), 1, (PATH, "--scope=thread")),
    "review-mode": (None, (*OPEN, "--review-mode", "half"), 2, ("--review-mode", "half")),
    "mode": (None, ("run", PATH, "--mode", "x"), 2, ("--mode", "x")),
    "two-modes": (None, ("run", PATH, "--open", "--close"), 2, ("--mode", "close and open")),
    "two-paths": (None, ("run", PATH, "--artifact-path", "x"), 2, ("PATH", "--artifact-path")),
    "engine": (None, (*OPEN, "--engine", "gpu"), 2, ("gpu",)),
    "consumer": (None, ("context", PATH, "--consumer", "x"), 2, ("--consumer", "x")),
    "ceiling": (None, ("context", PATH, "--ceiling", "0"), 2, ("--ceiling=0",)),
    "roles": (None, ("context", PATH, "--roles", "x"), 2, ("--roles", "x")),
    "bench": (None, ("bench", "--profile", "fake", "--reviewers", "99"), 2, ("--reviewers",)),
    "feedback-file": (None, ("open", PATH, "--personas", "red-team", "--feedback", "@no"), 2, ("no", "--feedback")),
    "claim-file": (None, (*OPEN, "--claim", "@no.md"), 2, ("no.md", "--claim")),
    # profile and model
    "profile": (None, (*OPEN[:4], "--profile", "fakee"), 2, ("fakee",)),
    "profile-path": (None, (*OPEN[:4], "--profile", "./no.yaml"), 2, ("./no.yaml",)),
    "profile-yaml": (with_profile("engine: ["), ODD, 2, ("odd.yaml:1",)),
    "profile-list": (with_profile("- engine"), ODD, 2, ("odd.yaml", "keys and values")),
    "profile-key": (with_profile("engin: fake"), ODD, 2, ("odd.yaml", "engin")),
    "profile-value": (with_profile("claims: 99"), ODD, 2, ("odd.yaml", "claims")),
    "fake-option": (with_profile("engine: fake\nfake: {x: 1}"), ODD, 2, ("x",)),
    "fake-fault": (with_profile("engine: fake\nfake: {faults: {a: b}}"), ODD, 2, ("b",)),
    "fake-unnamed": (put("../configs/cpu.yaml", b"engine: fake\n"), (*OPEN[:4], "--feedback", "x"), 2, ("fake",)),
    "no-default-model": (with_profile("roles: {defender: a}"), ODD, 2, ("odd.yaml", "default")),
    "no-model": (with_profile("roles: {default: nobody}"), ODD, 2, ("nobody",)),
    "model-path": (None, (*OPEN[:4], "--feedback", "x", "--model", "no.gguf"), 2, ("no.gguf",)),
    "model-missing": (put("../models/m.yaml", b"name: m\nfiles: [{path: m.gguf}]\n"),
                      (*OPEN[:4], "--feedback", "x", "--model", "m"), 5, ("m.yaml", "m.gguf")),
    # the artifact
    "no-brain": (None, ("status", PATH, "--brain", "/"), 1, ("--brain=/",)),
    "no-file": (None, ("status", "project-brain/tree/area/no.md"), 1, ("project-brain/tree/area/no.md",)),
    "folder": (None, ("status", "project-brain/tree/area"), 1, ("project-brain/tree/area", "limits.md")),
    "node": (put("tree/area/NODE.md", b"---\nid: n\n---\n"), ("status", "project-brain/tree/area/NODE.md"), 1, ("NODE",)),
    "not-markdown": (put("tree/area/x.txt", b"---\nid: n\n---\n"), ("status", "project-brain/tree/area/x.txt"), 1, ("x.txt",)),
    "conventions": (None, ("status", "project-brain/CONVENTIONS.md"), 1, ("CONVENTIONS.md",)),
    "beside-a-thread": (put("threads/webhooks/x.md", b"x"), ("status", "project-brain/threads/webhooks/x.md"), 1, ("x.md",)),
    "escape": (link("tree/area/away.md", "/etc/hostname"), ("status", "project-brain/tree/area/away.md"), 1, ("/etc/hostname",)),
    "latin-1": (put(LEAF, b"---\nid: x\nstatus: decided\n---\n\n\xe9\n"), OPEN, 1, (f"{PATH}:6",)),
    "no-front-matter": (put(LEAF, b"# Limits\n"), OPEN, 1, (f"{PATH}:1",)),
    "open-front-matter": (put(LEAF, b"---\nid: x\n"), OPEN, 1, (f"{PATH}:1",)),
    "huge-front-matter": (edit("title:", f"x: {'y' * 70000}\ntitle:"), OPEN, 1, (PATH, "65536")),
    "twice": (edit("title:", "status: draft\ntitle:"), OPEN, 1, (PATH, "status")),
    "list-status": (edit("status: decided", "status: [decided]"), OPEN, 1, (PATH, "(none)")),
    "wrapped-status": (edit("status: decided", "status:\n  decided"), OPEN, 1, (PATH, "status")),
    "flow-mapping": (put(LEAF, b"---\n{id: x, status: decided}\n---\n\nSome words here.\n"), OPEN, 1, (PATH,)),
    "domain": (edit('domain: "area"', "domain: other"), OPEN, 1, (PATH, "other")),
    "status": (edit("status: decided", "status: draft"), OPEN, 1, (PATH, "draft")),
    "status-run": (edit("status: decided", "status: draft"), ("run", PATH), 1, (PATH, "draft")),
    "parked": (edit('"active"', "parked", THREAD), ("open", f"project-brain/{THREAD}", *OPEN[2:]), 1, ("parked",)),
    # personas and text
    "nothing": (None, ("open", PATH), 1, ("personas and feedback",)),
    "no-roster": (edit("### 10.2", "### 9.9", "CONVENTIONS.md"), ("open", PATH), 1, ("personas and feedback",)),
    "persona": (None, ("open", PATH, "--personas", "red-taem", *FEEDBACK), 1, ("red-taem",)),
    "ad-hoc": (None, ("open", PATH, "--persona", "alone", *FEEDBACK), 1, ("alone",)),
    "reserved": (None, ("open", PATH, "--persona", "defender:x", *FEEDBACK), 1, ("defender",)),
    "slug": (None, ("open", PATH, "--persona", "Big Name:x", *FEEDBACK), 1, ("Big Name",)),
    "repeated": (None, ("open", PATH, "--personas", "red-team,red-team", *FEEDBACK), 1, ("red-team",)),
    "too-many": (None, (*OPEN, "--reviewers", "3"), 1, ("--reviewers=3",)),
    "too-few": (None, (*OPEN, "--reviewers", "0"), 1, ("--reviewers=0",)),
    "roster-twice": (edit("- red-team", "- red-team\n- red-team", "CONVENTIONS.md"), OPEN, 1, ("CONVENTIONS.md:", "red-team")),
    "charter-marker": (put("assets/persona-charters/red-team.md", b"a\n--- END PERSONA CHARTER ---\n"), OPEN, 1, ("red-team.md:2",)),
    "charter-bytes": (put("assets/persona-charters/red-team.md", b"\xff\n"), OPEN, 1, ("red-team.md:1",)),
    "template": (put("assets/debate-templates/reviewer-prompt.md", b"Look!\n"), OPEN, 1, ("reviewer-prompt.md",)),
    "our-template": (put("../prompts/review/reviewer.md.j2", b"{% if %}"), OPEN, 2, ("reviewer",)),
    "claim": (put("../c.md", b"### huge: x\n"), (*OPEN, "--claim", "@c.md"), 1, ("c.md:1",)),
    "no-claim": (put("../c.md", b"nothing\n"), (*OPEN, "--claim", "@c.md"), 1, ("c.md",)),
    "too-long": (with_profile("engine: fake\nfake: {context_tokens: 200}"), ODD, 1, ("200",)),
    # rounds
    "none-to-close": (None, CLOSE, 1, (PATH, "decided")),
    "none-to-resume": (None, ("resume", PATH), 1, (PATH, "no round")),
    "none-to-abort": (None, ("abort", PATH), 1, (PATH, "no round")),
    "none-to-patch": (None, ("patches", PATH), 1, (PATH, "no round")),
    "open-twice": (opened, OPEN, 1, (PATH, "hardening")),
    "open-abort": (opened, ("abort", PATH), 1, (PATH, "round-01")),
    "open-resume": (opened, ("resume", PATH), 1, (PATH, "round-01")),
    "patches-status": (opened, CLOSE[:2], 1, ("patches_status",)),
    "patches-status-word": (opened, (*CLOSE[:3], "done"), 1, ("done",)),
    "patch-id": (opened, ("patches", PATH, "--apply", "P-99"), 1, ("P-99",)),
    "revisit": (opened, (*CLOSE, "--revisit", "C-99"), 1, ("C-99",)),
    "interrupted-open": (interrupted, OPEN, 1, ("round-01",)),
    "interrupted-close": (interrupted, CLOSE, 1, (PATH, "round-01")),
    "other-engine": (interrupted, ("resume", PATH, "--profile", "cpu"), 1, ("engine",)),
    "gap": (put("tree/area/debate/limits/round-02/x.md", b""), OPEN, 1, ("round-01",)),
    "not-a-round": (put("tree/area/debate/limits/round-01", b""), OPEN, 1, ("round-01",)),
    "nobodys-rounds": (put("tree/area/debate/round-01/x.md", b""), OPEN, 1, ("tree/area/debate", "limits.md")),
    "last-round": (lambda root: [write(root / f"tree/area/pipeline/debate/round-{n:02d}/.x", b"") for n in range(1, 100)]
                   and write(root / "tree/area/pipeline/debate/index.md", b"| Round | Status |\n|---|---|\n| round-99 | closed |\n"),
                   ("open", f"project-brain/{FOLDER}", *OPEN[2:]), 1, ("round-99",)),
    "index": (put("tree/area/debate/limits/index.md", b"| Round | Round |\n|---|---|\n"), OPEN, 1, ("index.md:1",)),
    "index-rows": (put("tree/area/debate/limits/index.md", b"| Round |\n|---|\n| round-01 |\n| round-01 |\n"), OPEN, 1, ("index.md:4",)),
    "index-cells": (put("tree/area/debate/limits/index.md", b"| Round |\n|---|\n| round-09 | a | b |\n"), OPEN, 1, ("index.md:3",)),
    "record": (spoilt(".run/record.json", b"{"), ("patches", PATH), 5, ("record.json",)),
    "applied": (spoilt(".run/applied.jsonl", b"{}\n"), ("patches", PATH), 5, ("applied.jsonl:1",)),
    "journal": (spoilt(".run/journal.jsonl", b"x\ny\n"), ("resume", PATH, "--only-failed"), 5, ("journal.jsonl:1",)),
    "inputs": (spoilt(".run/inputs/inputs.json", b"{}"), ("resume", PATH, "--only-failed"), 5, ("inputs.json",)),
    "close-json": (spoilt(".run/close.json", b"{}"), CLOSE, 5, ("close.json",)),
    "no-patches-file": (lambda root: (opened(root), (root / "tree/area/debate/limits/round-01/proposed-patches.md").unlink()),
                        CLOSE, 1, ("proposed-patches.md",)),
    "pre-hardening": (lambda root: (opened(root), replace(root / LEAF, "pre_hardening_status: decided\n", "")), CLOSE, 1, (PATH, "pre_hardening_status")),
    "delta-same": (lambda root: (opened(root), debate(*CLOSE)), (*OPEN, "--review-mode", "delta"), 1, (PATH, "--review-mode=full")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_where_and_what_next(root, says, capsys, name):
    """One line of what and where, one of what to do next; the same as JSON with --json; nothing written."""
    prepare, argv, code, words = CASES[name]
    says(Says([claim("The limit is the same for all shops.", "Each shop has its own.")]))
    if prepare is not None:
        prepare(root)
    capsys.readouterr()
    before = tree(root.parent, local=True)
    assert debate(*argv) == code
    out, err = capsys.readouterr()
    said = [line for line in err.split("\n") if not line.startswith("warning: ")]
    assert out == "" and len(said) == 3 and said[2] == "", err
    assert said[0].startswith("debate: ") and said[1].startswith("hint: ") and len(said[1]) > 12, err
    assert "unexpected" not in err and "Traceback" not in err
    for word in words:
        assert word in err, err
    if "--json" not in argv and argv[0] in ("open", "close", "status", "resume", "patches", "run"):
        assert debate(*argv, "--json") == code
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["message"] and error["hint"] and error["exit"] == code
        shown = error["path"] is None or Path(error["path"]).parent.exists() or os.sep not in error["path"]
        assert shown, error
    assert tree(root.parent, local=True) == before
