"""Delta reviews, long documents, a dirty tree, and a brain's own prompt templates, on whole rounds."""

from __future__ import annotations

import hashlib

import pytest
from dulwich import porcelain
from helpers import AT, LEAF, THREAD, abort, close, load, open_, plan, record, replace, resume, write
from helpers import profile as make_profile

from runner.errors import Refused
from runner.rounds import inputs
from runner.values import Claim


def prompt_of(root, path=LEAF, name="fake", **options):
    """The first reviewer's prompt."""
    from runner.protocols.round import reviewer_request

    planned = plan(root, path, name, **options)
    return "".join(m.text for m in reviewer_request(planned.inputs.review, None, 0).messages)


# ---- delta ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [LEAF, THREAD])
def test_delta_quotes_changed_text_alone(root, path):
    """Baseline at close; the next round marks what changed and takes quotes from it only."""
    open_(root, path)
    close(root, path, "applied")
    closed = (root / path).read_bytes()
    replace(root / path, "two seconds", "nine seconds")
    opened = open_(root, path, review_mode="delta")
    folder = opened.place.folder
    assert (folder.parent / "round-01/baseline.md").read_bytes() == closed
    assert (folder / "baseline.md").read_bytes() == closed
    assert 'review_mode: "delta"\n' in (folder / "personas.yaml").read_text()
    assert "| delta |" in (folder.parent / "index.md").read_text()
    quotes = {c["quote"] for c in record(opened.place)["claims"] if c["raised_by"] != "carry-forward"}
    changed = "A request may take nine seconds. After that the caller gets an error and tries again at once."
    assert quotes and all(
        q in f"{changed}\nThe limit is the same for all shops. Nobody has measured whether it is enough."
        for q in quotes
    )
    sha = hashlib.sha256(closed).hexdigest()
    assert (
        f"- {AT} delta review: baseline sha256 {sha}, artifact sha256 {opened.inputs.before}\n"
        in (folder / "transcript.md").read_text()
    )
    close(root, path, "partial")
    assert (folder / "baseline.md").read_bytes() == (root / path).read_bytes()


def test_delta_prompt_marks_the_differences(root):
    """Removed and added lines, in delimiters of their own; the whole document all the same."""
    open_(root)
    close(root, LEAF, "rejected")
    replace(root / LEAF, "two seconds", "nine seconds")
    text = prompt_of(root, review_mode="delta")
    assert "\n- A request may take two seconds. After" in text and "\n+ A request may take nine seconds. After" in text
    assert text.index("[end of document") < text.index("[changes ") < text.index("[end of changes ")
    assert "Since the last review" not in prompt_of(root)


def test_delta_without_a_prior_round_is_full_with_a_notice(root):
    """Round-01: a warning, a line in the transcript, and the mode that ran."""
    opened = open_(root, review_mode="delta")
    notice = "delta review needs a prior closed round; this is round-01, so the review is full"
    assert opened.inputs.warnings == (notice,) and opened.inputs.mode == "full"
    assert f"warning: {notice}\n" in (opened.place.folder / "transcript.md").read_text()
    assert 'review_mode: "full"\n' in (opened.place.folder / "personas.yaml").read_text()


@pytest.mark.parametrize("content", [None, b"no front matter", b"---\na: [\n---\nx"])
def test_delta_without_a_usable_baseline_is_full_with_a_notice(root, content):
    """Missing (a round of the pack's) or unreadable."""
    open_(root)
    place = close(root, LEAF, "applied").place
    (place.folder / "baseline.md").unlink()
    if content is not None:
        write(place.folder / "baseline.md", content)
    replace(root / LEAF, "two seconds", "nine seconds")
    planned = plan(root, review_mode="delta")
    assert planned.inputs.mode == "full" and planned.inputs.baseline is None
    assert planned.inputs.warnings[0].endswith("so the review is full")
    assert "round-01/baseline.md" in planned.inputs.warnings[0]


def test_delta_without_a_change_is_refused(root):
    """There is nothing to review."""
    open_(root)
    close(root, LEAF, "applied")
    with pytest.raises(Refused, match="nothing has changed since round-01 was closed"):
        plan(root, review_mode="delta")


# ---- long documents ------------------------------------------------------------------------------------------------


def long_leaf(root):
    """A leaf of about 30 sections."""
    text = (root / LEAF).read_text()
    parts = [
        f"## Part {i}\n\nThis part says how step {i} of the work is done by hand. Nobody checks it.\n\n"
        for i in range(30)
    ]
    (root / LEAF).write_text(text + "\n" + "".join(parts))


def test_a_long_document_is_reviewed_in_windows(root):
    """Every byte is shown to every persona, quotes come from all windows, and it says so."""
    long_leaf(root)
    name = make_profile(root, "small", claims=2, context_tokens=1750)
    opened = open_(root, name=name)
    data = record(opened.place)
    assert data["complete"] and len(opened.inputs.review.windows) > 1
    body = load(root).body
    for persona in data["coverage"]["personas"]:
        seen = bytearray(len(body))
        for w in persona["windows"]:
            assert hashlib.sha256(body[w["start"] : w["end"]]).hexdigest() == w["sha256"]
            seen[w["start"] : w["end"]] = b"x" * (w["end"] - w["start"])
        assert set(seen) == {ord("x")}
    assert len({c["start"] // 600 for c in data["claims"] if c["start"] is not None}) > 1
    n = len(opened.inputs.review.windows)
    transcript = (opened.place.folder / "transcript.md").read_text()
    assert f"warning: the document is long: reviewed in {n} windows\n" in transcript
    assert (
        f"coverage: {len(body)} of {len(body)} bytes of the body shown to every reviewer, in {n} windows\n"
        in transcript
    )


def test_a_window_that_fails_is_named_and_the_round_is_partial(root):
    """Coverage lists what was not shown; the rest stands; resume asks only for that."""
    long_leaf(root)
    name = make_profile(root, "small", claims=2, context_tokens=1750, faults={"reviewer/red-team/w2*": "timeout"})
    opened = open_(root, name=name)
    assert opened.result.exhausted == ("reviewer/red-team/w2",)
    missing = record(opened.place)["coverage"]["not_shown"]
    assert [m["persona"] for m in missing] == ["red-team"] and missing[0]["start"] > 0
    transcript = (opened.place.folder / "transcript.md").read_text()
    assert "NOT ALL OF IT (window 2: timeout)" in transcript
    assert "coverage: red-team did not read characters " in transcript
    assert "did not read part of it: window 2: timeout" in (opened.place.folder / "tryouts/red-team.md").read_text()
    before = record(opened.place)["claims"]
    make_profile(root, "small", claims=2, context_tokens=1750)
    again = resume(root, name=name)
    assert again.result.exhausted == () and record(again.place)["coverage"]["not_shown"] == []
    assert record(again.place)["claims"][: len(before)] == before


# ---- a dirty tree --------------------------------------------------------------------------------------------------


def test_uncommitted_changes_are_refused_and_named(root):
    """Precondition 7; --allow-dirty goes on and says so."""
    project = str(root.parent)
    porcelain.init(project)
    files = [str(p) for p in root.rglob("*") if p.is_file()]
    porcelain.add(project, files)
    porcelain.commit(project, message=b"x", author=b"a <a@b>", committer=b"a <a@b>")
    assert plan(root).inputs.notes == ()
    replace(root / LEAF, "two seconds", "nine seconds")
    with pytest.raises(Refused, match=f"uncommitted changes: project-brain/{LEAF}") as caught:
        plan(root)
    assert caught.value.hint == "commit them, or give --allow-dirty"
    assert plan(root, allow_dirty=True).inputs.notes == ("working tree not checked (--allow-dirty)",)
    assert plan(root, dry_run=True).inputs.notes == ()


def test_outside_a_work_tree_the_check_is_skipped_and_said(root):
    """One line in the transcript."""
    assert plan(root).inputs.notes == ("working tree not checked: the brain is in no git work tree",)


# ---- a brain's own prompts -----------------------------------------------------------------------------------------


def test_a_brains_reviewer_prompt_replaces_the_task(root):
    """After the shared part; names filled in once, the wrapped charter where it says, foreign to the last word."""
    own = "# For {{PERSONA_NAME}} of {{SUBJECT_TITLE}}\n\n{{PERSONA_CHARTER}}\n\n"
    own += "Look at {{x y}} and {{ROUND_NO}}{{NOBODY}}.\n"
    write(root / "assets/debate-templates/reviewer-prompt.md", own.encode())
    planned = plan(root, ad_hoc=("ops:{{ROUND_NO}} stays",), personas=(), reviewers=1)
    assert planned.inputs.warnings[0] == "reviewer-prompt.md: unknown placeholder {{NOBODY}} becomes empty"
    from runner.protocols.round import reviewer_request

    (_, user) = reviewer_request(planned.inputs.review, None, 0).messages
    text = user.text
    assert "# For ops of Limits\n\nYou are performing a peer review of a project-brain artifact." in text
    assert "--- BEGIN PERSONA CHARTER (advisory) ---\n{{ROUND_NO}} stays\n--- END PERSONA CHARTER ---" in text
    assert text.endswith("Look at {{x y}} and 01.\n")
    assert all(not s.trusted for s in user.segments if "# For ops" in s.text or "Look at" in s.text)


def test_a_reviewer_prompt_without_the_charter_is_refused(root):
    """The charter must reach the reviewer."""
    write(root / "assets/debate-templates/reviewer-prompt.md", b"Just review.\n")
    with pytest.raises(Refused, match=r"this prompt template has no \{\{PERSONA_CHARTER\}\}"):
        plan(root)


def test_the_defender_and_the_synthesizer_get_the_brains_words_too(root, engines):
    """Before our own question; a whole round runs on them."""
    for role in ("defender", "synthesizer"):
        write(root / f"assets/debate-templates/{role}-prompt.md", b"House rule of round {{ROUND_NO}}.\n")
    opened = open_(root, synthesizer=True)
    assert opened.result.synthesis is not None
    stored = inputs.load(opened.place.run)
    assert stored is not None and set(stored.review.tasks) == {"defender", "synthesizer"}


# ---- claims of a person --------------------------------------------------------------------------------------------


def test_a_persons_claims_go_through_the_same_defender(root):
    """raised_by human, anchored, with a verdict like any other."""
    quote = "Nobody has measured whether it is enough."
    own = Claim("", "human", quote, "other", "Measure it first.", "major", "replace", "We measured it in May.")
    opened = open_(root, claims=(own,))
    first = record(opened.place)["claims"][0]
    assert (first["id"], first["raised_by"], first["quote"], first["anchor"]) == ("C-01", "human", quote, "exact")
    assert record(opened.place)["verdicts"][0]["claim"] == "C-01"


def test_an_interrupted_delta_round_can_be_aborted(root):
    """Everything it wrote goes, the baseline too."""
    open_(root)
    close(root, LEAF, "rejected")
    replace(root / LEAF, "two seconds", "nine seconds")
    before = sorted(p for p in root.rglob("*") if p.is_file())
    name = make_profile(root, "bad", faults={"reviewer/*": "timeout"})
    with pytest.raises(Exception, match="reviewers answered"):
        open_(root, name=name, review_mode="delta")
    abort(root)
    assert sorted(p for p in root.rglob("*") if p.is_file()) == before
