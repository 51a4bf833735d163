"""What a path names, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.brain.artifact import Artifact, is_leaf, load
from runner.errors import Refused

SPEC = "tree/storage/backup-policy/impl-spec.md"


def here(root: Path, path: str, scope: str | None = None) -> Artifact:
    return load(root, Path(path), scope, cwd=root)


def refused(root: Path, path: str, scope: str | None = None) -> str:
    with pytest.raises(Refused) as error:
        here(root, path, scope)
    return str(error.value).replace(f"{root}/", "")


def write(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_flat_leaf(demo: Path) -> None:
    """A leaf file, with everything a round needs to know of it."""
    leaf = here(demo, "tree/auth/session-store.md")
    assert (leaf.scope, leaf.relative, leaf.slug) == ("leaf", "tree/auth/session-store.md", "session-store")
    assert (leaf.title, leaf.status, leaf.maturity) == ("Session store", "decided", None)
    assert (leaf.root, leaf.directory) == (demo, demo / "tree/auth")
    assert leaf.raw == (demo / leaf.relative).read_bytes()
    assert leaf.body.startswith(b"\n# Session store\n")
    assert (leaf.companions, leaf.impl_spec) == ((), None)


@pytest.mark.parametrize("end", ["", "/backup-policy.md", "/../backup-policy/"])
def test_leaf_as_folder(demo: Path, end: str) -> None:
    """The leaf's folder and its file are the same artifact; its impl-spec comes along."""
    leaf = here(demo, "tree/storage/backup-policy" + end)
    assert (leaf.relative, leaf.slug) == ("tree/storage/backup-policy/backup-policy.md", "backup-policy")
    assert leaf.impl_spec == (SPEC, (demo / SPEC).read_text())


@pytest.mark.parametrize("written", ["/" + SPEC, "impl-spec.md", "backup-policy-impl"])
def test_impl_spec_by_path_or_id(demo: Path, written: str) -> None:
    """`impl_spec` is a path from the root or the leaf's folder, or an id."""
    file = demo / "tree/storage/backup-policy/backup-policy.md"
    file.write_text(file.read_text().replace(f'impl_spec: "{SPEC}"', f"impl_spec: {written}"))
    found = here(demo, str(file)).impl_spec
    assert found is not None
    assert found[0] == SPEC


def test_impl_spec_that_does_not_resolve(demo: Path) -> None:
    """That is for `verify` to say: the leaf is read without it."""
    (demo / SPEC).unlink()
    assert here(demo, "tree/storage/backup-policy").impl_spec is None


@pytest.mark.parametrize("path", ["threads/webhook-delivery", "threads/webhook-delivery/thread.md"])
def test_thread(demo: Path, path: str) -> None:
    """A thread comes with its companions, in a fixed order."""
    thread = here(demo, path)
    assert (thread.scope, thread.slug, thread.status, thread.maturity) == (
        "thread", "webhook-delivery", "active", "refining",
    )  # fmt: skip
    assert [name for name, _ in thread.companions] == ["decisions-candidates.md", "open-questions.md", "proposal.md"]
    assert thread.companions[2][1] == (demo / "threads/webhook-delivery/proposal.md").read_text()


def test_archived_thread_is_read(demo: Path) -> None:
    """So that the refusal can name its status."""
    assert here(demo, "archive/auth-foundations").status == "archived"


def test_relative_paths_count_from_the_working_directory_then_the_root(demo: Path) -> None:
    """The path the specification shows, `tree/…`, works from the project folder too."""
    assert load(demo, Path("session-store.md"), None, cwd=demo / "tree/auth").slug == "session-store"
    assert load(demo, Path("tree/auth/session-store.md"), None, cwd=demo.parent).slug == "session-store"


def test_title_falls_back_to_heading_then_slug(demo: Path) -> None:
    """A leaf without `title` has the title of its first H1, or its slug."""
    write(demo, "tree/ops/a.md", "---\nstatus: decided\n---\n\n# From the heading\r\n")
    write(demo, "tree/ops/b.md", "---\nstatus: decided\n---\ntext\n")
    assert here(demo, "tree/ops/a.md").title == "From the heading"
    assert here(demo, "tree/ops/b.md").title == "b"


def test_missing_status_is_empty(demo: Path) -> None:
    """The caller's status refusal has something to show."""
    write(demo, "tree/ops/a.md", "---\ntitle: A\n---\n# A\n")
    assert here(demo, "tree/ops/a.md").status == ""


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("tree/auth/none.md", "tree/auth/none.md: no such file"),
        ("tree/auth/NODE.md", "tree/auth/NODE.md: not an artifact: a folder's list of leaves, not a leaf"),
        (SPEC, f"{SPEC}: not an artifact: an impl-spec, not a leaf\nhint: review its leaf: backup-policy"),
        ("CONVENTIONS.md", "CONVENTIONS.md: not an artifact: neither a leaf below tree/ nor threads/<slug>/thread.md"),
        (
            "threads/webhook-delivery/proposal.md",
            "threads/webhook-delivery/proposal.md: not an artifact: a file beside a thread\n"
            "hint: name threads/webhook-delivery/thread.md",
        ),
        (
            "tree/auth",
            "tree/auth: a folder that is neither a leaf's nor a thread's\n"
            "hint: name one of its leaves: session-store.md, token-rotation.md",
        ),
        (
            "threads",
            "threads: a folder that is neither a leaf's nor a thread's\nhint: name a leaf below tree/ or a thread",
        ),
        ("threads/none", "threads/none: not an artifact: neither a leaf below tree/ nor threads/<slug>/thread.md"),
    ],
)
def test_not_an_artifact(demo: Path, path: str, message: str) -> None:
    """Precondition 4, with the reason."""
    assert refused(demo, path) == message


def test_thread_folder_without_its_file(demo: Path) -> None:
    """A thread's folder needs a thread.md."""
    (demo / "threads/empty").mkdir()
    assert refused(demo, "threads/empty") == "threads/empty/thread.md: no such file"


def test_files_of_a_debate_are_no_leaves(demo: Path) -> None:
    """Round files lie below tree/ without being leaves."""
    write(demo, "tree/auth/debate/round-01/defender.md", "---\na: b\n---\n")
    assert refused(demo, "tree/auth/debate/round-01/defender.md").endswith(
        "not an artifact: a file of a debate, not a leaf"
    )
    write(demo, "tree/auth/notes.txt", "---\na: b\n---\n")
    assert refused(demo, "tree/auth/notes.txt") == "tree/auth/notes.txt: not an artifact: not a markdown file"


def test_domain_must_be_the_folder(demo: Path) -> None:
    """A leaf that was moved without its `domain` is refused with the line."""
    write(demo, "tree/ops/a.md", "---\nid: a\ndomain: auth\n---\n")
    assert refused(demo, "tree/ops/a.md") == (
        "tree/ops/a.md:3: domain `auth` is not the leaf's folder below tree/, `ops`"
    )


@pytest.mark.parametrize(
    ("path", "said", "found"),
    [("tree/auth/session-store.md", "thread", "leaf"), ("threads/webhook-delivery/thread.md", "leaf", "thread")],
)
def test_scope_must_fit(demo: Path, path: str, said: str, found: str) -> None:
    """An explicit --scope is checked, never believed."""
    assert refused(demo, path, said) == f"{path}: --scope={said} does not fit: this is a {found}"
    assert here(demo, path, found).scope == found


def test_links_out_are_refused_everywhere(demo: Path, tmp_path: Path) -> None:
    """Artifact, folder's file and companion: none may lead out of the brain."""
    outside = write(tmp_path, "outside.md", "---\nstatus: decided\n---\n")
    message = f"artifact_path escapes brain_path: {outside}"
    (demo / "tree/ops/link.md").symlink_to(outside)
    assert refused(demo, "tree/ops/link.md") == message
    (demo / "tree/ops/x").mkdir()
    (demo / "tree/ops/x/x.md").symlink_to(outside)
    assert refused(demo, "tree/ops/x") == message
    (demo / "threads/webhook-delivery/proposal.md").unlink()
    (demo / "threads/webhook-delivery/proposal.md").symlink_to(outside)
    assert refused(demo, "threads/webhook-delivery") == message


def test_link_inside_is_its_target(demo: Path) -> None:
    """A link to a leaf is that leaf."""
    (demo / "latest.md").symlink_to(demo / "tree/auth/session-store.md")
    assert here(demo, "latest.md").relative == "tree/auth/session-store.md"


def test_unreadable_bytes_have_a_line(demo: Path) -> None:
    """Invalid UTF-8 in a companion is refused like in the artifact."""
    (demo / "threads/webhook-delivery/proposal.md").write_bytes(b"a\n\xff\n")
    assert refused(demo, "threads/webhook-delivery").startswith(
        "threads/webhook-delivery/proposal.md:2: not valid UTF-8"
    )


def test_what_counts_as_a_leaf(demo: Path) -> None:
    """Lists of leaves, impl-specs, transcripts, hidden and other files do not; an unreadable leaf does."""
    folder = demo / "tree/storage/backup-policy"
    write(folder, "NODE.md", "x")
    write(folder, "broken.md", "no front matter")
    write(folder, ".hidden.md", "x")
    write(folder, "transcript.md", "x")
    write(folder, "notes.txt", "x")
    assert [path.name for path in sorted(folder.iterdir()) if is_leaf(path)] == ["backup-policy.md", "broken.md"]
