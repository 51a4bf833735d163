"""Every refusal of the failure table that concerns a full review: message, exit code, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from faults import FaultyDisk, Killed, QuickDisk
from helpers import (
    ALONE,
    FOLDER,
    LEAF,
    THREAD,
    abort,
    close,
    load,
    open_,
    plan,
    profile,
    replace,
    resume,
    settings,
    tree,
    write,
)

from runner import manifests, runs, store
from runner.brain import artifact as artifacts
from runner.brain.root import find_root
from runner.errors import EXIT_INTEGRITY, EXIT_REFUSED, Incomplete, RunnerError
from runner.rounds.plan import Options

LIMITS = f"project-brain/{LEAF}"


@pytest.fixture(autouse=True)
def inside(root, monkeypatch) -> None:
    """Messages name files from the working directory."""
    monkeypatch.chdir(root.parent)


def refused(root: Path, command: Callable[[], object], exit_code: int = EXIT_REFUSED) -> str:
    """The message of a command that fails and leaves every byte and name of the project as it was."""
    before = tree(root.parent, local=True)
    with pytest.raises(RunnerError) as caught:
        command()
    assert tree(root.parent, local=True) == before
    assert caught.value.exit_code == exit_code
    return str(caught.value)


# ---- open ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["draft", "superseded", "active", "building"])
def test_leaf_status(root, status):
    """A leaf that is neither decided nor specified: its status is named."""
    replace(root / LEAF, "status: decided", f"status: {status}")
    assert refused(root, lambda: open_(root)) == (
        f"{LIMITS}: the leaf's status is {status}; a round opens on decided or specified\n"
        "hint: review it once it is decided"
    )


def test_leaf_without_status(root):
    """No status is no status."""
    replace(root / LEAF, "status: decided\n", "")
    assert refused(root, lambda: open_(root)) == (
        f"{LIMITS}: the leaf's status is (none); a round opens on decided or specified\n"
        "hint: review it once it is decided"
    )


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        ("parked", "unpark it first (restore-thread)"),
        ("in-review", "wait for its promotion to resolve (finalize-promotion or discard-promotion)"),
        ("archived", "an archived thread is not reviewed any more"),
    ],
)
def test_thread_status(root, status, hint):
    """A thread that is not active: what to do about it."""
    replace(root / THREAD, '"active"', status)
    assert refused(root, lambda: open_(root, THREAD)) == (
        f"project-brain/{THREAD}: the thread's status is {status}; a round opens on an active thread\nhint: {hint}"
    )


def test_open_leaf_round(root, script):
    """A leaf with an open round is hardening."""
    open_(root)
    assert refused(root, lambda: open_(root)) == (
        f"{LIMITS}: the leaf's status is hardening; a round opens on decided or specified\n"
        "hint: finish its round with `debate close`"
    )


def test_open_thread_round(root, script):
    """A thread with an open round: close is named."""
    open_(root, THREAD)
    assert refused(root, lambda: open_(root, THREAD)) == (
        "project-brain/threads/webhooks/debate/round-01: round-01 is open\n"
        f"hint: close it first: debate close project-brain/{THREAD} --patches-status applied|partial|rejected"
    )


def test_interrupted_round(root, script):
    """An interrupted round: resume and abort are named, and nothing else goes on."""
    with pytest.raises(RunnerError):
        open_(root, name=profile(root, "ill", faults={"reviewer/red-team*": "timeout"}))
    both = f"`debate resume {LIMITS}` finishes it, `debate abort {LIMITS}` removes it"
    folder = "project-brain/tree/area/debate/limits/round-01"
    assert refused(root, lambda: open_(root)) == f"{folder}: round-01 was interrupted\nhint: {both}"
    assert (
        refused(root, lambda: close(root)) == f"{LIMITS}: round-01 was interrupted and cannot be closed\nhint: {both}"
    )


def test_collision(root):
    """A folder round-01 that nobody opened is an interrupted round; a file of that name is no round."""
    write(root / "tree/area/pipeline/debate/round-01/notes.md", b"mine\n")
    assert refused(root, lambda: open_(root, FOLDER)).startswith(
        "project-brain/tree/area/pipeline/debate/round-01: round-01 was interrupted\nhint: `debate resume "
    )
    write(root / "tree/alone/debate/round-01", b"a file\n")
    assert refused(root, lambda: open_(root, ALONE)) == (
        "project-brain/tree/alone/debate: not a round: round-01\n"
        "hint: a round is a folder round-01 to round-99; move anything else away"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"personas": ("red-taem",)},
            "persona `red-taem` is unknown to § 10.2\n"
            "hint: valid personas: fresh-eyes-reader, red-team, simplicity-critic, ops-readiness, plain-reader",
        ),
        (
            {"personas": (), "ad_hoc": ("devops",)},
            'ad-hoc persona without a charter: devops\nhint: write --persona="name:what this reviewer looks for"',
        ),
        (
            {"personas": (), "ad_hoc": ("devops:  ",)},
            'ad-hoc persona without a charter: devops:\nhint: write --persona="name:what this reviewer looks for"',
        ),
        (
            {"reviewers": 5},
            "--reviewers=5, but 2 personas were supplied\nhint: supply more personas or lower --reviewers",
        ),
        ({"reviewers": 0}, "--reviewers=0 leaves no reviewer\nhint: give 1 or more"),
        ({"feedback": "caf\udce9"}, "feedback is not valid UTF-8: 'caf\\udce9'\nhint: give it as UTF-8 text"),
        ({"ad_hoc": ("aa:\udce9",)}, "persona is not valid UTF-8: 'aa:\\udce9'\nhint: give it as UTF-8 text"),
        (
            {"personas": ()},
            "no persona was chosen\nhint: choose from § 10.2: fresh-eyes-reader, red-team, simplicity-critic, "
            "ops-readiness, plain-reader",
        ),
        (
            {"feedback": " \n"},
            'feedback is empty\nhint: say what this round should address: --feedback "…" or --feedback @file',
        ),
    ],
)
def test_options(root, options, message):
    """What was asked for does not fit: the message says what would."""
    assert refused(root, lambda: open_(root, **options)) == message


def test_no_personas_available(root):
    """No § 10.2 and no ad-hoc persona."""
    replace(root / "CONVENTIONS.md", "### 10.2 Reviewers", "### 11 Other")
    assert refused(root, lambda: open_(root, personas=())) == (
        "no personas available\nhint: list personas in § 10.2 of CONVENTIONS.md, or write "
        '--persona="name:what this reviewer looks for"'
    )


def test_missing_charter_warns(root, script):
    """A roster name without a charter reviews with the generic prompt; the transcript says so."""
    opened = open_(root, personas=("plain-reader",))
    warning = (
        "persona 'plain-reader' has no charter (project-brain/assets/persona-charters/plain-reader.md): "
        "reviewing with the generic prompt"
    )
    assert opened.inputs.warnings == (warning,)
    assert f"warning: {warning}".replace("_", "\\_") in (opened.place.folder / "transcript.md").read_text()
    assert (
        (opened.place.folder / "personas.yaml")
        .read_text()
        .endswith('  - name: "plain-reader"\n    source: "conventions-10.2"\nengine: "fake"\n')
    )


@pytest.mark.parametrize("path", ["../outside.md", "tree/area/link.md", "tree/away/outside.md"])
def test_escape(root, path):
    """A path that leaves the brain, as written, by a link to a file or through a linked folder."""
    target = root.parent / "outside.md"
    write(target, (root / LEAF).read_bytes())
    (root / "tree/area/link.md").symlink_to(target)
    (root / "tree/away").symlink_to(root.parent)
    message = f"artifact_path escapes brain_path: {target}"
    assert refused(root, lambda: artifacts.load(root, root / path, None)) == message


def test_history_escape(root):
    """A history folder that is a link out of the brain."""
    (root / "threads/webhooks/debate").symlink_to(root.parent)
    assert refused(root, lambda: open_(root, THREAD)) == f"artifact_path escapes brain_path: {root.parent}"


def test_scope_mismatch(root):
    """--scope must fit."""
    assert refused(root, lambda: artifacts.load(root, root / LEAF, "thread")) == (
        f"{LIMITS}: --scope=thread does not fit: this is a leaf"
    )


def test_no_brain(root, tmp_path):
    """No CONVENTIONS.md up the tree."""
    empty = tmp_path / "empty"
    empty.mkdir()
    assert refused(root, lambda: find_root(None, None, empty)).startswith("Brain root not found\nhint: ")


def test_too_long(root):
    """A document that does not fit: how long it is, what the round needs, how much would fit."""
    name = profile(root, "small", context_tokens=900)
    replace(root / LEAF, "Nobody", "word " * 700 + "Nobody")
    message = refused(root, lambda: open_(root, name=name))
    document = len(load(root).body.decode().split())
    need, room = int(message.split("needs ")[1].split(",")[0]), 900
    assert message == (
        f"the document is too long: it has {document} tokens, and with prompts and replies the round needs {need}, "
        f"but the context holds {room}; about {max(0, document - (need - room))} tokens of document fit at a time\n"
        "hint: fewer reviewers, a shorter brief, or a model or profile with a longer context"
    )
    assert need > room


# ---- the model's file ----------------------------------------------------------------------------------------------


@pytest.fixture
def model(root, monkeypatch) -> Path:
    """A project with a model of four bytes."""
    monkeypatch.delenv("DEBATE_MODELS", raising=False)
    folder = root.parent / "models"
    write(folder / "tiny.gguf", b"tiny")
    sha256 = store.sha256_file(folder / "tiny.gguf")
    manifest = f"name: tiny\nfiles: [{{path: tiny.gguf, bytes: 4, sha256: {sha256}}}]\n"
    write(folder / "tiny.yaml", manifest.encode())
    write(root.parent / "configs/tiny.yaml", b"engine: llama.cpp\nroles: {default: tiny}\n")
    return folder / "tiny.gguf"


def test_missing_model_file(root, model):
    """Exit 5, and where the file is looked for."""
    model.unlink()
    message = refused(root, lambda: settings(root, "tiny"), EXIT_INTEGRITY)
    assert message.startswith(f"{model.parent}/tiny.yaml: the model file tiny.gguf is missing\nhint: `make setup` ")
    assert str(model.parent) in message.splitlines()[1]


def test_altered_model_file(root, model, monkeypatch):
    """Same length, other bytes: exit 5 before anything is written."""
    monkeypatch.setattr(runs, "open_tokenizer", lambda s: None)
    sha = manifests.find_model("tiny", root.parent).manifest.files[0].sha256
    model.write_bytes(b"TINY")
    s = settings(root, "tiny")
    planned = runs.open_plan(load(root), Options(personas=("red-team",), feedback="x"), s)
    assert refused(root, lambda: runs.open_round(planned, s), EXIT_INTEGRITY) == (
        f"{model}: the model file is not the one its manifest describes: sha256 {store.sha256_file(model)}, "
        f"expected {sha}\nhint: copy or install the file again; do not use this one"
    )


# ---- close ---------------------------------------------------------------------------------------------------------


def test_close_without_open(root):
    """A leaf that is not hardening; a thread without a round."""
    assert refused(root, lambda: close(root)) == (
        f"{LIMITS}: the leaf's status is decided; close wants hardening\nhint: open a round first: debate open {LIMITS}"
    )
    assert refused(root, lambda: close(root, THREAD)) == (
        f"project-brain/{THREAD}: No open round: no round in debate/index.md\nhint: open one with `debate open`"
    )


def test_close_twice(root, script):
    """The index's state is named."""
    open_(root, THREAD)
    close(root, THREAD)
    assert refused(root, lambda: close(root, THREAD)) == (
        f"project-brain/{THREAD}: No open round: round-01 is closed in debate/index.md\n"
        "hint: open one with `debate open`"
    )


@pytest.mark.parametrize(("status", "said"), [("done", "cannot be 'done'"), ("", "cannot be ''"), (None, "is missing")])
def test_patches_status(root, script, status, said):
    """One of three words."""
    open_(root)
    assert refused(root, lambda: close(root, status=status)) == (
        f"patches_status {said}\nhint: --patches-status applied|partial|rejected"
    )


def test_no_proposed_patches(root, script):
    """proposed-patches.md must be there."""
    (open_(root).place.folder / "proposed-patches.md").unlink()
    assert refused(root, lambda: close(root)) == (
        "project-brain/tree/area/debate/limits/round-01: proposed-patches.md is missing\nhint: restore it from a copy"
    )


@pytest.mark.parametrize(("value", "said"), [("", "missing"), ("pre_hardening_status: draft\n", "draft")])
def test_pre_hardening_status(root, script, value, said):
    """Without the status of before, none is invented."""
    open_(root)
    replace(root / LEAF, "pre_hardening_status: decided\n", value)
    where = f"{LIMITS}:6" if value else LIMITS
    assert refused(root, lambda: close(root)) == (
        f"{where}: pre_hardening_status is {said}; it must be decided or specified\n"
        "hint: set it to the status before the round"
    )


def test_revisit(root, script):
    """Only REJECTed claims can be revisited; they are listed."""
    open_(root)
    assert refused(root, lambda: close(root, revisit=("C-04", "C-03", "C-99"))) == (
        "not a REJECTed claim: C-03, C-99\nhint: REJECTed claims of round-01: C-04"
    )


# ---- resume, abort -------------------------------------------------------------------------------------------------


def test_nothing_to_resume_or_abort(root):
    """No round: both say so."""
    message = f"{LIMITS}: this artifact has no round\nhint: open one with `debate open`"
    assert refused(root, lambda: resume(root)) == message
    assert refused(root, lambda: abort(root)) == message


def test_resume_before_inputs(root, monkeypatch):
    """Stopped before its inputs were stored, a round can only be aborted."""
    monkeypatch.setattr(store, "disk", FaultyDisk(9))
    with pytest.raises(Killed):
        open_(root)
    monkeypatch.setattr(store, "disk", QuickDisk())
    assert refused(root, lambda: resume(root)) == (
        "project-brain/tree/area/debate/limits/round-01: the round was stopped before its inputs were stored; "
        "it can only be aborted\nhint: debate abort, then open again"
    )


def test_resume_of_a_closed_round(root, script):
    """A closed round stays closed."""
    open_(root)
    close(root)
    assert refused(root, lambda: resume(root)) == f"{LIMITS}: round-01 is closed"


def test_abort_of_open_and_closed(root, script):
    """An open round is closed as rejected instead; a closed one stays."""
    open_(root)
    assert refused(root, lambda: abort(root)) == (
        f"{LIMITS}: round-01 is open; only an interrupted round can be aborted\n"
        f"hint: debate close {LIMITS} --patches-status rejected"
    )
    close(root)
    assert refused(root, lambda: abort(root)) == (
        f"{LIMITS}: round-01 is closed; only an interrupted round can be aborted"
    )


def test_artifact_changed_between_plan_and_claim(root, script):
    """What was checked must still be so under the lock; no folder is left."""
    planned = plan(root)
    replace(root / LEAF, "two seconds", "three seconds")
    assert refused(root, lambda: runs.open_round(planned, settings(root))) == (
        f"{LIMITS}: the artifact changed while the round was being prepared\nhint: run again"
    )


def test_seed_changed_between_plan_and_claim(root, script):
    """A seed that was written meanwhile is not swallowed."""
    planned = plan(root, FOLDER)
    write(root / "tree/area/pipeline/debate/next-round-seed.md", b"## major: New.\n")
    assert refused(root, lambda: runs.open_round(planned, settings(root))).startswith(
        f"project-brain/{FOLDER}: the artifact changed while the round was being prepared"
    )


def test_other_model_at_resume(root, model, monkeypatch, engines):
    """Another model under the same name: exit 5, with both sha256."""
    monkeypatch.setattr(runs, "open_tokenizer", lambda s: None)
    engines.faults = {"reviewer/*": "timeout"}
    with pytest.raises(Incomplete):
        open_(root, name="tiny")
    was = store.sha256_file(model)
    write(model, b"TINY")
    now = store.sha256_file(model)
    replace(model.with_suffix(".yaml"), was, now)
    assert refused(root, lambda: resume(root, name="tiny"), EXIT_INTEGRITY) == (
        f"the round was opened with the model tiny (sha256 {was}); this is tiny (sha256 {now})\n"
        "hint: resume with the same model file, or give the round up with `debate abort`"
    )


def test_other_engine_at_resume(root, model):
    """A round is finished by the engine that began it."""
    with pytest.raises(RunnerError):
        open_(root, name=profile(root, "ill", faults={"reviewer/*": "timeout"}))
    assert refused(root, lambda: resume(root, name="tiny")) == (
        "this round was opened with another engine\nhint: it ran on fake"
    )
