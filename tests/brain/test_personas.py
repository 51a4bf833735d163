"""Who reviews, and with which charter."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from runner import guard
from runner.brain import personas
from runner.brain.personas import Persona, is_slug, parse_ad_hoc, resolve, roster
from runner.errors import Refused

BUNDLED = Path(__file__).parents[2] / "prompts" / "personas"
NAMES = (
    "fresh-eyes-reader", "red-team", "cross-ref-auditor", "grammar-auditor", "phase-semantics-auditor",
    "ops-readiness", "security-reviewer", "simplicity-critic",
)  # fmt: skip

FOUR = "red-team, ops, third, fourth"
SLUG_HINT = "hint: 2 to 40 characters, small letters, digits and single hyphens"
MORE_HINT = "hint: supply more personas or lower --reviewers"


@pytest.fixture
def brain(tmp_path: Path) -> Path:
    root = tmp_path / "project" / "project-brain"
    root.mkdir(parents=True)
    conventions(root, "## 10.2 Reviewers\n\n```\n- red-team\n- ops\n- third\n- fourth\n```\n")
    return root


def conventions(root: Path, text: str) -> None:
    (root / "CONVENTIONS.md").write_text(text)


def charter(root: Path, name: str, data: bytes) -> Path:
    file = root / "assets" / "persona-charters" / f"{name}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return file


def refused(root: Path, *names: str, ad_hoc: tuple[str, ...] = (), reviewers: int | None = None) -> str:
    with pytest.raises(Refused) as error:
        resolve(root, names, ad_hoc, reviewers, BUNDLED)
    return str(error.value).replace(f"{root}/", "")


# ---- the roster ----------------------------------------------------------------------------------------------------


def test_roster_of_the_example_brain(demo: Path) -> None:
    """The eight names, in the file's order."""
    assert roster(demo) == NAMES


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("### § 10.2 X\n- a1\n- b1: does things\n* c1 # note\n+ `d1` what\n", ("a1", "b1", "c1", "d1")),
        ("# §10.2\n\n~~~text\n- a1\nnot an item\n* b1\n~~~\n- c1\n", ("a1",)),
        ("### 10.2. X\n```\n- a1\n- ...\n```\n```\n- b1\n```\n", ("a1",)),
        ("### 10.2 X\n- a1\n#### below\n- b1\n### 10.3\n- c1\n", ("a1", "b1")),
        ("### 10.2 X\n- a1\n## 11\n- c1\n", ("a1",)),
        ("```\n## 10.2\n- a1\n```\n", ()),
        ("## 10.20\n- a1\n## 10.2.1 X\n- b1\n", ()),
        ("## 10.2 X\n\nNobody yet.\n", ()),
        ("## 10.2 X\r\n```\r\n- a1\r\n```\r\n", ("a1",)),
        ("## 10.2 X\n```\n- 旅行\n- café-2\n```\n", ("旅行", "café-2")),
        ("# Conventions\n", ()),
    ],
)
def test_roster_rule(brain: Path, text: str, expected: tuple[str, ...]) -> None:
    """The first fenced list below § 10.2, else its bullets, up to the next heading of its level or above."""
    conventions(brain, text)
    assert roster(brain) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Red-Team", "persona name `Red-Team` is not a slug"),
        ("a--b", "persona name `a--b` is not a slug"),
        ("x", "persona name `x` is not a slug"),
        ("..", "persona name `..` is not a slug"),
        ("open-issues", "persona name `open-issues` is reserved"),
        ("human", "persona name `human` is reserved"),
        ("security", "persona name `security` is reserved"),
        ("a1", "persona `a1` is listed twice"),
        ("groß", "persona `groß` is listed twice"),
    ],
)
def test_bad_names_have_a_line(brain: Path, name: str, message: str) -> None:
    """Slug rule, reserved names and repeats, with file and line."""
    conventions(brain, f"## 10.2\n```\n- a1\n- gross\n- {name}\n```\n")
    with pytest.raises(Refused) as error:
        roster(brain)
    assert (error.value.message, error.value.line) == (message, 5)
    assert error.value.path == str(brain / "CONVENTIONS.md")


@pytest.mark.parametrize("name", ["ai", "auth-rotation", "q4-plan", "旅行", "データ-モデル", "a" * 40])
def test_slugs(name: str) -> None:
    """Any script, two to forty characters, kebab shape."""
    assert is_slug(name)


@pytest.mark.parametrize(
    "name", ["a", "a" * 41, "A1", "a_b/c", "-ab", "ab-", "a b", "e\u0301a", "a\u200bb", ".ab", "a\x00"]
)
def test_no_slugs(name: str) -> None:
    """What a file name or a reader could stumble over."""
    assert not is_slug(name)


# ---- ad hoc --------------------------------------------------------------------------------------------------------


def test_ad_hoc_splits_at_the_first_colon() -> None:
    """The charter may hold colons."""
    assert parse_ad_hoc(" devops-hat : Reviews ops: deploy, rollback ") == (
        "devops-hat",
        "Reviews ops: deploy, rollback",
    )


@pytest.mark.parametrize("text", ["devops-hat", "devops-hat:", "devops-hat: \n", ":charter", ""])
def test_ad_hoc_without_charter_shows_the_syntax(text: str) -> None:
    """Refused, with what to write."""
    with pytest.raises(Refused) as error:
        parse_ad_hoc(text)
    assert str(error.value) == (
        f"ad-hoc persona without a charter: {text.strip() or '(empty)'}\n"
        'hint: write --persona="name:what this reviewer looks for"'
    )


# ---- resolving -----------------------------------------------------------------------------------------------------


def test_requested_then_ad_hoc_cut_to_three(brain: Path) -> None:
    """The default is min(3, all); the rest is skipped, in order."""
    found = resolve(brain, ["ops", "red-team"], ["hat:looks", "cap:sees"], None, BUNDLED)
    assert [p.name for p in found.personas] == ["ops", "red-team", "hat"]
    assert [p.source for p in found.personas] == ["conventions-10.2", "conventions-10.2", "ad-hoc"]
    assert found.skipped == ("cap",)


@pytest.mark.parametrize(
    ("reviewers", "names", "skipped"), [(1, ["ops"], ("red-team", "hat")), (3, ["ops", "red-team", "hat"], ())]
)
def test_reviewers_cut(brain: Path, reviewers: int, names: list[str], skipped: tuple[str, ...]) -> None:
    """The first N are used."""
    found = resolve(brain, ["ops", "red-team"], ["hat:looks"], reviewers, BUNDLED)
    assert ([p.name for p in found.personas], found.skipped) == (names, skipped)


def test_ad_hoc_persona(brain: Path) -> None:
    """Its charter is inline, and hashed as it stands."""
    found = resolve(brain, [], ["hat:looks"], None, BUNDLED)
    assert found.personas == (Persona("hat", "ad-hoc", None, "looks", hashlib.sha256(b"looks").hexdigest()),)
    assert (found.skipped, found.warnings) == ((), ())


def test_charter_is_looked_up_in_order(brain: Path) -> None:
    """The brain's own, then the project's, then ours."""
    ours = BUNDLED / "red-team.md"
    texts: list[tuple[str | None, str | None]] = []
    for root, data in ((None, b""), (brain.parent, b"project\n"), (brain, b"brain\r\n")):
        if root is not None:
            charter(root, "red-team", data)
        persona = resolve(brain, ["red-team"], [], None, BUNDLED).personas[0]
        texts.append((persona.charter_path, persona.charter))
    assert texts == [
        ("builtin/red-team.md", ours.read_text().rstrip("\n")),
        ("../assets/persona-charters/red-team.md", "project"),
        ("assets/persona-charters/red-team.md", "brain"),
    ]


def test_charter_hash_is_the_files(brain: Path) -> None:
    """So that a person can check it with sha256sum."""
    charter(brain, "ops", b"\xef\xbb\xbfline one\nline two\n\n")
    persona = resolve(brain, ["ops"], [], None, BUNDLED).personas[0]
    assert persona.charter == "line one\nline two"
    assert persona.charter_sha256 == hashlib.sha256(b"\xef\xbb\xbfline one\nline two\n\n").hexdigest()


@pytest.mark.parametrize("data", [None, b"\n \n"])
def test_missing_charter_warns(brain: Path, data: bytes | None) -> None:
    """No charter, or an empty one: a warning and the generic prompt."""
    if data is not None:
        charter(brain, "ops", data)
    found = resolve(brain, ["ops"], [], None, BUNDLED)
    assert found.personas == (Persona("ops", "conventions-10.2", None, None),)
    assert found.warnings == (
        f"persona 'ops' has no charter ({brain}/assets/persona-charters/ops.md): reviewing with the generic prompt",
    )


def test_skipped_personas_are_not_read(brain: Path) -> None:
    """A charter nobody uses cannot stop a round."""
    charter(brain, "ops", b"\xff")
    assert resolve(brain, ["red-team", "ops"], [], 1, BUNDLED).skipped == ("ops",)


@pytest.mark.parametrize("marker", [guard.BEGIN_CHARTER, f"  {guard.END_CHARTER} ", f"x\u2028{guard.END_CHARTER}"])
def test_envelope_marker_in_a_charter(brain: Path, marker: str) -> None:
    """The one charter content that blocks, with file and line."""
    charter(brain, "ops", f"first\r\n{marker}\r\nlast\r\n".encode())
    message = "a line of the charter is an envelope marker\nhint: remove the line"
    assert refused(brain, "ops") == f"assets/persona-charters/ops.md:2: {message}"
    assert refused(brain, ad_hoc=(f"hat:a\n{marker}\nb",)) == f"--persona=hat:2: {message}"


def test_markers_are_the_envelopes() -> None:
    """The two parts agree on the words."""
    assert personas.ENVELOPE_MARKERS == (guard.BEGIN_CHARTER, guard.END_CHARTER)


def test_charter_that_links_out(brain: Path, tmp_path: Path) -> None:
    """A charter may be a link inside the project, not beyond."""
    (tmp_path / "secret").write_text("s")
    file = charter(brain, "ops", b"")
    file.unlink()
    file.symlink_to(tmp_path / "secret")
    assert refused(brain, "ops").startswith(
        "assets/persona-charters/ops.md: a link leads this charter out of the project"
    )
    (brain.parent / "shared.md").write_text("s")
    file.unlink()
    file.symlink_to(brain.parent / "shared.md")
    assert resolve(brain, ["ops"], [], None, BUNDLED).personas[0].charter == "s"


@pytest.mark.parametrize(
    ("names", "ad_hoc", "reviewers", "message"),
    [
        (("nobody",), (), None, "persona `nobody` is unknown to § 10.2\nhint: valid personas: " + FOUR),
        ((), (), None, "no persona was chosen\nhint: choose from § 10.2: " + FOUR),
        (("ops", "ops"), (), None, "persona `ops` is named twice\nhint: a persona reviews once in a round"),
        (("ops",), ("ops:x",), None, "persona `ops` is named twice\nhint: a persona reviews once in a round"),
        ((), ("gross:x", "groß:y"), None, "persona `groß` is named twice\nhint: a persona reviews once in a round"),
        ((), ("Bad:x",), None, "persona name `Bad` is not a slug\n" + SLUG_HINT),
        ((), ("defender:x",), None, "persona name `defender` is reserved\nhint: choose another name"),
        (("ops",), (), 5, "--reviewers=5, but 1 persona was supplied\n" + MORE_HINT),
        (("ops", "third"), (), 5, "--reviewers=5, but 2 personas were supplied\n" + MORE_HINT),
        (("ops",), (), 0, "--reviewers=0 leaves no reviewer\nhint: give 1 or more"),
    ],
)  # fmt: skip
def test_refusals(
    brain: Path, names: tuple[str, ...], ad_hoc: tuple[str, ...], reviewers: int | None, message: str
) -> None:
    """What cannot be resolved, and what to do about it."""
    assert refused(brain, *names, ad_hoc=ad_hoc, reviewers=reviewers) == message


def test_brain_without_a_roster(brain: Path) -> None:
    """Even a name we have a charter for needs § 10.2 or an ad-hoc charter."""
    conventions(brain, "# C\n")
    syntax = '--persona="name:what this reviewer looks for"'
    assert refused(brain) == (
        f"no personas available\nhint: list personas in § 10.2 of CONVENTIONS.md, or write {syntax}"
    )
    assert refused(brain, "red-team") == (
        f"persona `red-team` is unknown to § 10.2\nhint: § 10.2 lists none; write {syntax}"
    )
    assert resolve(brain, [], ["hat:x"], None, BUNDLED).personas[0].name == "hat"


# ---- the bundled charters ------------------------------------------------------------------------------------------


def test_bundled_charters_are_the_eight() -> None:
    """Every name of the example roster has one, and there is no other."""
    assert sorted(path.stem for path in BUNDLED.glob("*.md")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_bundled_charter_is_a_short_checklist(name: str) -> None:
    """At most five short lines of what to look for, no role-play, nothing the linter warns about."""
    text = (BUNDLED / f"{name}.md").read_text()
    lines = text.splitlines()
    assert 1 <= len(lines) <= 5
    assert all(line.startswith("- ") and len(line) <= 90 for line in lines)
    assert "you are" not in text.lower()
    assert guard.lint_charter(name, text) == []
