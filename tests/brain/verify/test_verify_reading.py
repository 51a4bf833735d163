"""What a report says and where; what cannot be checked; that nothing a file holds ends in a traceback."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from verify_broken import AUTH, CONVENTIONS, HARD, HOOKS, LINKS, SESSION, TOKENS, add, apply, drop, edit, rounds, to

from runner.brain.verify import Violation, check, output, page
from runner.brain.verify.page_rules import is_slug
from runner.errors import RunnerError, UsageError


@pytest.fixture(autouse=True)
def no_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    """No aliases but those of the brain."""
    for name in ("PROJECT_BRAIN_CONFIG", "PROJECT_BRAIN_PROJECTS_YAML"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")


def lines(brain: Path, **scope: str) -> list[str]:
    return output.lines(check(brain, **scope))


def test_nothing_to_say(demo: Path) -> None:
    """The example brain is in order; CONVENTIONS.md counts once."""
    assert lines(demo) == ["0 errors, 0 warnings (15 files read)"]


@pytest.mark.parametrize(
    ("edits", "line"),
    [
        ((edit(SESSION, "# Session", "# Sessions"),),
         f"{SESSION}:15: [V-01] the heading 'Sessions store' differs from the title 'Session store'"),
        ((edit(SESSION, '"auth"', '"ops"'),),
         f"{SESSION}:11: [V-02] the domain is 'ops', but the leaf lies in tree/auth"),
        ((edit(SESSION, LINKS, to("/none.md")),), f"{SESSION}:9: [V-03] the link '/none.md' leads nowhere"),
        ((drop("config.yaml"), edit(SESSION, LINKS, to("b:x"))),
         f"{SESSION}:9: [V-03] warning: the link 'b:x' cannot be checked: no config.yaml, and no projects.yaml"),
        ((edit(SESSION, LINKS, to("b:x")),),
         f"{SESSION}:9: [V-03] the alias b is neither in config.yaml nor in projects.yaml"),
        ((edit(AUTH, "- [Token rotation](token-rotation.md)", ""),),
         f"{AUTH}:0: [V-04] 'token-rotation.md' is not linked below `## Leaves`"),
        ((edit(AUTH, "- [Token", "- [New](new.md)\n- [Token"),), f"{AUTH}:19: [V-05] the link 'new.md' leads nowhere"),
        ((edit(SESSION, 'owner: "mara"', "owner:"),),
         f"{SESSION}:5: [V-06] the field owner is empty; every leaf needs it"),
        ((edit(SESSION, 'owner: "mara"\n', ""),),
         f"{SESSION}:1: [V-06] the field owner is missing; every leaf needs it"),
        ((edit(HOOKS, '"active"', '"open"'),),
         f"{HOOKS}:13: [V-07] the status must be one of active, parked, in-review, archived, not 'open'"),
        ((edit(HOOKS, '"active"', '"in-review"'),),
         f"{HOOKS}:14: [V-07] the maturity of a thread that is in-review must be locking, not 'refining'"),
        ((HARD,), f"{SESSION}:9: [V-09] the leaf is hardening, but has no debate/ folder"),
        ((edit(AUTH, '"decided"', "draft"),), f"{AUTH}:7: [V-10] the status of a NODE.md must be decided, not 'draft'"),
        ((edit(HOOKS, '"active"', "parked"),),
         f"{HOOKS}:1: [V-12] a parked thread needs parked_at and parked_by and parked_reason"),
        ((edit(SESSION, LINKS, to(f"/{TOKENS}")),),
         f"{TOKENS}:0: [V-15] soft links go in a circle: {TOKENS} -> {SESSION} -> {TOKENS}"),
        (rounds("threads/webhook-delivery/debate", "round-02"),
         f"{HOOKS}:0: [V-19] the rounds in debate do not go up by one: 'round-02'"),
        ((edit(HOOKS, '"webhook-delivery"', '"W"'),),
         f"{HOOKS}:2: [N-01] warning: the id 'W' is no slug "
         "(2 to 40 characters, lower case, single hyphens between words)"),
    ],
)  # fmt: skip
def test_where_and_what(demo: Path, edits: tuple[tuple[str, ...], ...], line: str) -> None:
    """The line of the key, link or heading; 0 for a whole file."""
    apply(demo, edits)
    assert line in lines(demo)


@pytest.mark.parametrize(
    ("front", "problem", "line"),
    [
        ("", "there is no front matter: the file must begin with a line ---", 1),
        ("\ufeff---\n---\n", "a byte-order mark stands before the front matter; save the file without it", 1),
        ("<!-- a", "the comment at the top of the file is never closed", 1),
        ("<!-- a\n-->\n---\nid: a\n", "the front matter is never closed by a line ---", 3),
        ("---\nid: a\nb: 'c\n---\n", "the front matter is not readable YAML: found unexpected end of stream", 3),
        ("---\n- a\n---\n", "the front matter is not a list of `key: value` lines", 2),
        ("---\na: 2026-13-45\n---\n", "the front matter is not readable YAML: month must be in 1..12", 2),
    ],
)
def test_front_matter_that_cannot_be_read(front: str, problem: str, line: int) -> None:
    """One sentence each, at its line."""
    found = page.parse(front.encode(), "tree/a.md")
    assert (found.problem, found.problem_line, found.fields) == (problem, line, {})


def test_lines_after_a_banner() -> None:
    """Lines are counted from the top of the file, also with CRLF."""
    found = page.parse(b"<!-- a\r\n-->\r\n\r\n---\r\nid: x\r\n---\r\n\r\n# X\r\n", "tree/a.md")
    assert (found.line("id"), found.line("none"), found.heading, found.heading_line) == (5, 4, "X", 8)


def test_merges_that_would_never_end() -> None:
    """Each level doubles what is merged; that is refused instead of computed."""
    levels = "\n".join(f"k{n}: &k{n}\n  <<: [*k{n - 1}, *k{n - 1}]" for n in range(1, 60))
    found = page.parse(f"---\nk0: &k0 {{a: 1}}\n{levels}\n---\n".encode(), "tree/a.md")
    assert found.problem == "the front matter merges too many aliases"


def test_an_alias_that_stands_for_millions(demo: Path) -> None:
    """A message never spells such a value out."""
    levels = "\n".join(f"k{n}: &k{n} [*k{n - 1}, *k{n - 1}]" for n in range(1, 60))
    apply(demo, (edit(HOOKS, 'status: "active"', f"k0: &k0 [a, b]\n{levels}\nstatus: *k59\npromoted_to: *k59"),))
    assert [line.partition("] ")[2] for line in lines(demo) if "V-07" in line] == [
        "the status must be one of active, parked, in-review, archived, not a list"
    ]


@pytest.mark.parametrize("text", ["[" * 5000, "- " * 5000, "? " * 5000, "{a: " * 5000])
def test_deep_nesting_is_a_problem_not_a_crash(text: str) -> None:
    """However deep, the page says that it cannot be read."""
    assert page.parse(f"---\n{text}\n---\n".encode(), "tree/a.md").problem != ""


def test_a_pipe_is_not_read(demo: Path) -> None:
    """What is no regular file is never opened; reading a pipe would wait for ever."""
    os.mkfifo(demo / "tree/ops/pipe.md")
    assert "tree/ops/pipe.md:0: [V-06] not a regular file" in lines(demo)


def test_every_file_is_read_once(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One read per markdown file, whatever the number of rules and references."""
    read: list[str] = []
    load = page.load
    monkeypatch.setattr("runner.brain.verify.rules.load", lambda path, rel: read.append(rel) or load(path, rel))
    monkeypatch.setattr("runner.brain.verify.model.load", lambda path, rel: read.append(rel) or load(path, rel))
    check(demo)
    read.remove(CONVENTIONS)  # looked at first: without it nothing can be said
    assert sorted(read) == sorted(str(p.relative_to(demo)) for p in demo.rglob("*.md"))


def test_no_rules_of_a_brain_are_run(demo: Path) -> None:
    """The pack runs scripts/verify-tree.d/*.py of the brain; we never run what a brain brings along."""
    apply(demo, (add("scripts/verify-tree.d/x.py", "raise SystemExit(7)"),))
    assert lines(demo) == ["0 errors, 0 warnings (15 files read)"]


def test_an_alias_in_the_users_registry(demo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """projects.yaml is asked when config.yaml does not know the alias."""
    registry = tmp_path / "projects.yaml"
    registry.write_text(f"b: {demo}\n")
    monkeypatch.setenv("PROJECT_BRAIN_PROJECTS_YAML", str(registry))
    apply(demo, (edit(SESSION, LINKS, to("b:thread/webhook-delivery", "b:/tree/none.md")),))
    assert lines(demo)[:-1] == [f"{SESSION}:10: [V-03] the link leads to {demo}/tree/none.md, which is not there"]


def test_names_that_are_no_text(demo: Path) -> None:
    """Control characters and stray bytes in names are spelled out: one violation, one line."""
    apply(demo, (add("tree/ops/a\n\x1b[31m\udcff.md", "x"),))
    text = "\n".join(lines(demo))
    text.encode()
    assert "tree/ops/a\\n\\x1b[31m\\udcff.md:1: [V-06] there is no front matter" in text


@pytest.mark.parametrize(
    ("scope", "message"),
    [
        ({"thread": "none"}, "--thread=none: neither threads/ nor archive/ has a folder of that name"),
        ({"thread": ".."}, "--thread=..: neither threads/ nor archive/ has a folder of that name"),
        ({"path": "none"}, "--path=none: is not there"),
        ({"path": "tree/../../x"}, "--path=tree/../../x: lies outside the brain"),
        ({"thread": "a", "path": "b"}, "--thread and --path cannot be given together"),
    ],
)
def test_a_scope_that_is_none(demo: Path, scope: dict[str, str], message: str) -> None:
    """Nothing could be checked: exit 2, not a clean report."""
    with pytest.raises(UsageError) as error:
        check(demo, **scope)
    assert (error.value.message, error.value.exit_code) == (message, 2)


def test_conventions_that_cannot_be_read(demo: Path) -> None:
    """Without them nothing can be said: exit 2, with file and line."""
    apply(demo, (edit(CONVENTIONS, 'owner: "mara"', 'owner: "mara'),))
    with pytest.raises(RunnerError) as error:
        check(demo)
    assert (error.value.exit_code, error.value.path, error.value.line) == (2, CONVENTIONS, 6)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(["---", "\n", "# a", "id: ", "title: ", "status: ", "soft_links:\n - uri: ", "[", "{", "'", '"',
                         "\t", "é", "|", "*a", "&a ", "!!int ", "<!--", "-->", "\r", "\x00", "2026-99-99", "- ", "b:c"])
        | st.text(max_size=3)
    )
)  # fmt: skip
def test_no_text_ends_in_a_traceback(parts: list[str]) -> None:
    """Any text is a page, and a page with a problem has no fields."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "tree").mkdir()
        (root / "threads" / "x").mkdir(parents=True)
        (root / CONVENTIONS).write_text("---\nid: a\n---\n")
        for name in ("tree/a.md", "tree/NODE.md", "threads/x/thread.md"):
            (root / name).write_text("---\n" + "".join(parts), "utf-8", "surrogatepass")
        "\n".join(lines(root)).encode()
    found = page.parse("".join(parts).encode("utf-8", "surrogatepass"), "tree/a.md")
    assert not (found.problem and found.fields)


@given(st.lists(st.text("abcé旅1", min_size=1, max_size=5), min_size=1, max_size=9))
def test_slugs(words: list[str]) -> None:
    """Words joined by single hyphens are a slug when 2 to 40 long; any capital or doubled hyphen spoils it."""
    name = "-".join(words)
    assert is_slug(name) is (2 <= len(name) <= 40)
    assert not any(map(is_slug, (f"{name}-", f"-{name}", f"{name}--a", f"{name}A", f"{name} ", f"{name}/")))


def test_json() -> None:
    """{errors, warnings, summary}."""
    from runner.brain.verify import Report

    report = Report((Violation("a\x07.md", 3, "V-01", "m"),), (Violation("b", 0, "N-01", "n", True),), 2)
    assert output.to_json(report) == {
        "schema": "verify/1",
        "ok": False,
        "errors": [{"code": "V-01", "file": "a\\x07.md", "line": 3, "message": "m"}],
        "warnings": [{"code": "N-01", "file": "b", "line": 0, "message": "n"}],
        "summary": {"errors": 1, "warnings": 1, "files": 2},
    }
