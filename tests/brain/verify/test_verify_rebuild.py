"""The two index files, made from front matter: exact bytes, order, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from verify_broken import BACKUP, CONVENTIONS, DEPLOY, DONE, HOOKS, STATUS, add, apply, drop, edit, leaf, link, thread

from runner import store
from runner.brain import front_matter
from runner.brain.verify import Unsound, check, diff, rebuild
from runner.errors import Refused

STATE = """\
<!--
Made by `debate verify --rebuild-index` from the front matter of threads and leaves.
Do not edit: the next rebuild writes it anew.
Newest time in the sources: 2026-05-02T06:00:00Z
-->

---
id: "parcel-desk-current-state"
title: "Parcel Desk conventions — Current State"
primary_project: "parcel-desk"
kind: "snapshot"
---

# Parcel Desk conventions — Current State

Threads: 1 active, 1 in-review, 2 parked, 1 archived.

## Active threads

- **Webhook delivery** (`webhook-delivery`) — last touched 2026-04-02T13:30:00Z

## Threads in review

- **Ready** (`ready`) — https://example.org/1, https://example.org/2

## Parked threads

- **Later** (`later`) — no time (until: after the summer)
- **Earlier** (`earlier`) — no money

## Leaves building

- **Deploy pipeline** (`deploy-pipeline`)

## Recent merges

See the history of the repository.
"""
INDEX = """\
## Active

| Slug | Title | Maturity | Last activity | Owner |
|------|-------|----------|---------------|-------|
| `webhook-delivery` | Webhook delivery | refining | 2026-04-02T13:30:00Z | ines |

## In review

| Slug | Title | Maturity | Last activity | Owner |
|------|-------|----------|---------------|-------|
| `ready` | Ready | locking | 2026-05-01T08:00:00Z | mara |

## Parked

| Slug | Title | Maturity | Last activity | Owner |
|------|-------|----------|---------------|-------|
| `later` | Later | refining | 2026-05-02T06:00:00Z | mara \\| ines |
| `earlier` | Earlier | exploring | 2026-04-30 | mara |

## Archived

| Slug | Title | Maturity | Last activity | Owner |
|------|-------|----------|---------------|-------|
| `auth-foundations` | Foundations of sign-in | — | 2026-02-20T09:00:00Z | mara |
"""
PARKED = {"status": "parked", "parked_by": "mara"}
BRAIN = (
    add("threads/ready/thread.md", thread("ready", status="in-review", maturity="locking",
        tree_prs='["https://example.org/1", "https://example.org/2"]')),
    add("threads/later/thread.md", thread("later", **PARKED, parked_at="2026-05-02T08:00:00+02:00",
        parked_reason="no time", unpark_trigger="after the summer", owner='"mara | ines"')),
    add("threads/earlier/thread.md", thread("earlier", **PARKED, parked_at="2026-04-30", parked_reason="no money",
        maturity="exploring")),
    edit(DEPLOY, STATUS, "status: building\nimpl_thread: webhook-delivery"),
)  # fmt: skip


def made(brain: Path) -> dict[str, str]:
    return {path.name: new.decode() for path, (_, new) in rebuild(brain).items()}


def write(brain: Path) -> None:
    for path, (_, new) in rebuild(brain).items():
        store.write_atomic(path, new)


def test_exact_text(demo: Path) -> None:
    """Groups by status, the latest first, times in UTC; what is building; what a parked thread waits for."""
    apply(demo, BRAIN)
    files = made(demo)
    assert files["current-state.md"] == STATE
    assert files["thread-index.md"].partition("the latest first.\n\n")[2] == INDEX


def test_what_we_write_is_in_order(demo: Path) -> None:
    """The new files pass every rule, and our strict reader takes them; a second rebuild changes nothing."""
    apply(
        demo,
        (
            *BRAIN,
            edit(CONVENTIONS, 'title: "Parcel Desk conventions"', "title: 'A \"b\": c | d'\nproject_title: 'P: \"q\"'"),
        ),
    )
    write(demo)
    assert [v for v in check(demo).errors if v.file != CONVENTIONS] == []
    front = front_matter.read((demo / "thread-index.md").read_bytes(), "thread-index.md")
    assert front.text("title") == 'P: "q" — Thread Index'
    changes = rebuild(demo)
    assert diff(changes) == "" and all(old == new for old, new in changes.values())


def test_diff(demo: Path) -> None:
    """A unified diff; a new file against /dev/null, a missing line end named."""
    write(demo)
    index = demo / "thread-index.md"
    index.write_bytes(index.read_bytes().replace(b"refining", b"locking").rstrip(b"\n"))
    drop_last = diff(rebuild(demo)).splitlines()
    assert drop_last[:2] == ["--- a/thread-index.md", "+++ b/thread-index.md"]
    assert [line for line in drop_last[2:] if line[0] in "+-\\"] == [
        "-| `webhook-delivery` | Webhook delivery | locking | 2026-04-02T13:30:00Z | ines |",
        "+| `webhook-delivery` | Webhook delivery | refining | 2026-04-02T13:30:00Z | ines |",
        "-| `auth-foundations` | Foundations of sign-in | — | 2026-02-20T09:00:00Z | mara |",
        "\\ No newline at end of file",
        "+| `auth-foundations` | Foundations of sign-in | — | 2026-02-20T09:00:00Z | mara |",
    ]
    index.unlink()
    assert diff(rebuild(demo)).startswith("--- /dev/null\n+++ b/thread-index.md\n@@ -0,0 +1,")


def test_only_the_five_latest(demo: Path) -> None:
    """current-state.md names five active threads; of one time, by id; thread-index.md all."""
    apply(demo, tuple(add(f"threads/t-{n}/thread.md", thread(f"t-{n}")) for n in range(7)))
    files = made(demo)
    assert [n for n in range(7) if f"(`t-{n}`)" in files["current-state.md"]] == [0, 1, 2, 3, 4]
    assert all(f"| `t-{n}` |" in files["thread-index.md"] for n in range(7))
    assert "Threads: 8 active" in files["current-state.md"]


def test_empty(demo: Path) -> None:
    """A brain without threads: every section says so."""
    apply(demo, (drop("threads"), drop("archive"), drop("tree")))
    files = made(demo)
    assert files["thread-index.md"].count("_None._") == 4
    assert "Newest time in the sources: none\n" in files["thread-index.md"]


@pytest.mark.parametrize(
    ("edits", "code", "file"),
    [
        ((edit(HOOKS, "# Webhook", "# Hook"),), "V-01", HOOKS),
        ((edit(HOOKS, 'owner: "ines"\n', ""),), "V-06", HOOKS),
        ((edit(HOOKS, "---\n", ""),), "V-06", HOOKS),
        ((edit(HOOKS, '"refining"', '"done"'),), "V-07", HOOKS),
        ((edit(DONE, '  - "2026-02-17T14:40:00Z"\n', ""),), "V-08", DONE),
        ((edit(HOOKS, '"active"', "parked"),), "V-12", HOOKS),
        ((edit(BACKUP, 'owner: "ines"\n', ""),), "V-06", BACKUP),
    ],
)
def test_refused(demo: Path, edits: tuple[tuple[str, ...], ...], code: str, file: str) -> None:
    """Broken sources are not copied into the index: exit 1, naming the first; nothing is written."""
    apply(demo, edits)
    with pytest.raises(Unsound) as error:
        rebuild(demo)
    assert (error.value.violations[0].code, error.value.path, error.value.exit_code) == (code, file, 1)
    assert not (demo / "thread-index.md").exists()


def test_other_rules_do_not_matter(demo: Path) -> None:
    """A leaf with a wrong domain or a broken link does not keep the index from being made."""
    apply(demo, (edit(DEPLOY, '"ops"', '"x"'), add("tree/ops/new.md", leaf("new", "ops"))))
    assert set(made(demo)) == {"thread-index.md", "current-state.md"}


def test_an_index_elsewhere(demo: Path) -> None:
    """A link that leads out of the brain is not followed."""
    apply(demo, (link("thread-index.md", "../../elsewhere.md"),))
    with pytest.raises(Refused, match="escapes"):
        rebuild(demo)


def test_values_of_any_type(demo: Path) -> None:
    """Numbers, dates and lists where text is due are shown or left out; nothing ends in a traceback."""
    odd = thread(
        "odd",
        owner="0x" + "f" * 5000,
        last_modified_at="[a]",
        tree_prs="{a: b}",
        created_at="0001-01-01T00:00:00+05:00",
    )
    apply(
        demo,
        (add("threads/odd/thread.md", odd), add("threads/one/thread.md", thread("one", last_modified_at='"soon"'))),
    )
    files = made(demo)
    assert "| `odd` | Odd | refining | 0001-01-01T00:00:00+05:00 |  |" in files["thread-index.md"]
    assert "- **One** (`one`) — last touched soon" in files["current-state.md"]
