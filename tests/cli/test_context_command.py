"""debate context as a user types it: exact text, both streams, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from runner import cli
from runner.cli import common
from runner.cli.context import context

CLOCK = "2026-05-01T10:00:00Z"
LEAF = "project-brain/tree/auth/token-rotation.md"
FOLDER = "project-brain/materialize-context/parcel-desk/token-rotation/20260501T100000Z"


@pytest.fixture
def project(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project folder of the example brain as the working directory; a cache and a clock of its own."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    app.command("context")(context)
    monkeypatch.setattr(cli, "app", app)
    monkeypatch.setattr(common, "now", lambda: CLOCK)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("PROJECT_BRAIN_VERBOSITY", raising=False)
    monkeypatch.chdir(demo.parent)
    return demo.parent


def debate(*argv: str) -> int:
    return cli.run(["context", *argv])


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_terse(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line; the document and its sidecar lie in the cache; the brain is untouched."""
    before = tree(project)
    assert debate(LEAF, "--consumer", "reviewer") == 0
    document = tmp_path / "cache" / FOLDER / "context.md"
    tokens = json.loads(document.with_suffix(".json").read_bytes())["tokens"]
    out, err = capsys.readouterr()
    assert out == f"Resolved 1 of 1 soft link, about {tokens} tokens; wrote ../cache/{FOLDER}/context.md. Done.\n"
    assert err == ""
    assert (
        "<!-- BEGIN RESOLVED CONTENT from /tree/auth/session-store.md (role: prior-decision, " in document.read_text()
    )
    assert tree(project) == before


def test_normal_lists_every_link(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With -v; a link that leads nowhere is no failure, and foreign text stays on its line."""
    leaf = project / LEAF
    text = leaf.read_text().replace("soft_links:\n", 'soft_links:\n  - "https://x.org/[red]\\n::error::x"\n')
    leaf.write_text(text)
    assert debate(LEAF, "-v") == 0
    out, _ = capsys.readouterr()
    assert out.startswith("Resolved 1 of 2 soft links, 1 unresolved, about ")
    assert "\n  https://x.org/[red]%0A::error::x (no role): unresolved, offline\n" in out
    assert "\n  /tree/auth/session-store.md (prior-decision): resolved\nDone.\n" in out


def test_json(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One document, with the counts and both paths."""
    assert debate(LEAF, "--json", "--roles", "spec,prior-decision", "--ceiling", "200") == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert err == "" and data["schema"] == "context/1" and data["ok"] is True
    assert data["context_path"] == str(tmp_path / "cache" / FOLDER / "context.md")
    assert [data[f"refs_{n}"] for n in ("total", "resolved", "unresolved", "skipped", "trimmed")] == [1, 1, 0, 0, 1]
    assert (data["ceiling"], data["ceiling_hit"], data["consumer"]) == (200, True, "author")
    assert data["token_estimate"] <= 200 and data["warnings"]


def test_warnings_go_to_stderr(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The result alone on stdout."""
    assert debate(LEAF, "--ceiling", "200") == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert err == ("warning: spec and prior-decision alone exceed the ceiling of 200 tokens: trimmed all the same\n")


def test_dry_run(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """uri, target, budget, estimate; nothing is written, not even the cache's folder."""
    before = tree(tmp_path)
    assert debate(LEAF, "--dry-run", "--consumer", "brief", "--persist") == 0
    out, err = capsys.readouterr()
    first, last = out.splitlines()
    assert first.startswith(
        "/tree/auth/session-store.md (prior-decision) -> tree/auth/session-store.md, "
        "budget: first section and headings, about "
    )
    assert last.endswith("ceiling 2000; would write project-brain/tree/auth/.context/20260501T100000Z. "
                         "Dry run: nothing was written.")  # fmt: skip
    assert err == "" and tree(tmp_path) == before and not (tmp_path / "cache").exists()


def test_persist(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the artifact, with a warning about private text; the same moment again is refused, exit 1."""
    assert debate(LEAF, "--persist") == 0
    where = "project-brain/tree/auth/.context/20260501T100000Z"
    assert capsys.readouterr().err == (
        f"warning: {where} may hold private text of other projects; keep .context/ out of commits\n"
    )
    assert sorted(p.name for p in (project / where).iterdir()) == ["context.json", "context.md"]
    assert debate(LEAF, "--persist") == 1
    assert capsys.readouterr().err == f"debate: {where}: already exists\nhint: choose a new folder\n"


def test_out(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the brain, with a warning where its rules would read it; outside both zones refused, nothing written."""
    assert debate(LEAF, "--out", "project-brain/tree/packet") == 0
    assert capsys.readouterr().err == (
        "warning: `debate verify` will read project-brain/tree/packet as part of the brain\n"
    )
    before = tree(tmp_path)
    for out in ("packet", "../packet", "project-brain/../packet", str(tmp_path / "cache/project-brain/packet")):
        assert debate(LEAF, "--out", out, "--json") == 1
        error = json.loads(capsys.readouterr().out)["error"]
        assert (error["code"], error["exit"]) == ("unsafe", 1)
    assert debate(LEAF, "--out", "project-brain/tree/packet") == 1
    assert tree(tmp_path) == before


def test_detect_stale(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only a list, on stdout and as stale-refs.md; a link is stale once its text is another."""
    assert debate(LEAF) == 0
    (project / "project-brain/tree/auth/session-store.md").write_text("# Other\n")
    capsys.readouterr()
    assert debate(LEAF, "--detect-stale") == 0
    where = f"../cache/{FOLDER}-2/stale-refs.md"
    assert capsys.readouterr().out == (
        f"/tree/auth/session-store.md | prior-decision | changed\n1 of 1 link stale; wrote {where}. Done.\n"
    )
    assert [p.name for p in (project / where).parent.iterdir()] == ["stale-refs.md"]
    assert debate(LEAF, "--detect-stale", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["schema"], data["ok"]) == ("context-stale/1", True)
    assert data["stale_refs"] == [{"uri": "/tree/auth/session-store.md", "role": "prior-decision", "reason": "changed"}]


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("--consumer", "me"), 2, "--consumer must be one of reviewer, author, brief, full, not 'me'"),
        (("--roles", "spec,x"), 2, "--roles takes some of spec, prior-decision, related-work, conversation, scratch, "
         "external-reference, not x"),
        (("--roles", ","), 2, "--roles takes some of spec, prior-decision, related-work, conversation, scratch, "
         "external-reference, not nothing"),
        (("--ceiling", "0"), 2, "--ceiling=0: give 1 or more tokens"),
        (("--brain", "nowhere"), 1, "Brain root not found: --brain=nowhere holds no CONVENTIONS.md\nhint: run inside a "
         "brain, or give the folder that holds CONVENTIONS.md with --brain=<path>"),
    ],
)  # fmt: skip
def test_refusals(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], code: int, message: str
) -> None:
    """Wrong usage is 2, a precondition 1; nothing is written."""
    before = tree(tmp_path)
    assert debate(LEAF, *argv) == code
    hint = "" if "hint: " in message else "hint: debate --help, or debate COMMAND --help, shows what can be given\n"
    assert capsys.readouterr() == ("", f"debate: {message}\n{hint}")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("path", ["project-brain/tree/auth/NODE.md", "project-brain/threads/webhook-delivery"])
def test_other_artifacts(project: Path, capsys: pytest.CaptureFixture[str], path: str) -> None:
    """A node and a thread have soft links too."""
    assert debate(path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["refs_unresolved"] == 0
