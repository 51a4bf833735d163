"""Opening: which files, in which order, with which bytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from faults import QuickDisk
from helpers import ALONE, AT, FOLDER, LEAF, THREAD, THREE, Engines, changed, load, open_, place_of, record, tree, write

from runner import store

NOTE = "**FAKE ENGINE: no model read this document; every word of this round is made up.**\n\n"
FILES = [
    "",
    ".run/",
    ".run/.gitignore",
    ".run/inputs/",
    ".run/inputs/inputs.json",
    ".run/record.json",
    ".run/undo/",
    "defender.md",
    "feedback-in.md",
    "open-issues.md",
    "personas.yaml",
    "proposed-patches.md",
    "transcript.md",
    "tryouts/",
    "tryouts/fresh-eyes-reader.md",
    "tryouts/red-team.md",
]
SEED = b"""---
id: "x"
---

# Open issues

## major: The limit is a guess.
"""


@pytest.mark.parametrize(
    ("path", "folders", "history", "old", "new"),
    [
        (
            LEAF,
            ["tree/area/debate/", "tree/area/debate/limits/"],
            "debate/limits",
            b"status: decided\n",
            b"status: hardening\nsource_debate: debate/limits/round-01\npre_hardening_status: decided\n",
        ),
        (
            ALONE,
            ["tree/alone/debate/"],
            "debate",
            b"status: 'specified' # soon\nsource_thread: x\n",
            b"status: hardening # soon\npre_hardening_status: specified\nsource_thread: x\n"
            b"source_debate: debate/round-01\n",
        ),
        (
            FOLDER,
            ["tree/area/pipeline/debate/"],
            "debate",
            b'status: "decided"\n',
            b"status: hardening\nsource_debate: debate/round-01\npre_hardening_status: decided\n",
        ),
        (
            THREAD,
            ["threads/webhooks/debate/"],
            "debate",
            b'maturity: "refining"\n',
            b'maturity: "refining"\nlast_debate_round: debate/round-01\n',
        ),
    ],
    ids=["flat", "flat-alone", "folder", "thread"],
)
def test_files_and_flip(root, script, path, folders, history, old, new):
    """A round's files and nothing else; of the artifact, the flipped lines and nothing else."""
    before = tree(root)
    opened = open_(root, path)
    after = tree(root)
    home = f"{Path(path).parent}/{history}"
    expected = [f"{home}/round-01/{name}" for name in FILES]
    assert changed(before, after) == sorted([*folders, f"{home}/index.md", *expected, path])
    assert after[path] == before[path].replace(old, new)
    assert before[path].count(old) == 1
    assert opened.files == tuple(f for f in FILES if f and not f.startswith(".run") and not f.endswith("/"))
    assert opened.result.exhausted == ()


@pytest.mark.parametrize("path", [LEAF, THREAD])
def test_bom_and_crlf(root, script, path):
    """A byte-order mark and CRLF stay, and the new lines end as the others do."""
    raw = b"\xef\xbb\xbf" + (root / path).read_bytes().replace(b"\n", b"\r\n")
    (root / path).write_bytes(raw)
    opened = open_(root, path)
    added = {
        LEAF: (
            b"decided\r\n",
            b"hardening\r\nsource_debate: debate/limits/round-01\r\npre_hardening_status: decided\r\n",
        ),
        THREAD: (b'"refining"\r\n', b'"refining"\r\nlast_debate_round: debate/round-01\r\n'),
    }
    assert (root / path).read_bytes() == raw.replace(*added[path])
    first = opened.result.claims[0]
    body = load(root, path).body
    assert body[first.start : first.end] == b"The limit is the same for all shops."
    line = raw[: raw.index(b"The limit")].count(b"\n") + 1 + (2 if path == LEAF else 1)
    assert first.lines == (line, line)


def test_index(root, script):
    """One row, with what a reader wants to know at a glance."""
    open_(root)
    assert (root / "tree/area/debate/limits/index.md").read_text() == (
        '---\nid: "limits-debate"\nkind: "debate-index"\ncreated_at: "2026-01-02T03:04:05Z"\n---\n\n'
        "# Limits: debate rounds\n\n"
        "| Round | Opened | Scope | Mode | Reviewers | Failed | Verdicts | Status | Patches | Closed | Close commit |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n"
        "| round-01 | 2026-01-02T03:04:05Z | leaf | full | red-team, fresh-eyes-reader |  "
        "| 1 CONCEDE, 1 CONCEDE-IN-PART, 1 DEFER, 1 REJECT (fake engine) | open |  |  | (pending) |\n"
    )


def test_index_from_the_brains_template(root, script):
    """The brain's own index.md gives heading and prose; its placeholder row goes."""
    template = (
        "---\nid: {{DEBATE_ID}}\n---\n\n# Rounds of {{ARTIFACT_TITLE}} since {{CREATED_AT}}\n\n"
        "| Round | Status |\n|---|---|\n| _none yet_ |  |\n\nThe end.\n"
    )
    write(root / "assets/debate-templates/index.md", template.encode())
    opened = open_(root)
    text = (root / "tree/area/debate/limits/index.md").read_text()
    assert text.split("---\n\n", 1)[1] == (
        "# Rounds of Limits since 2026-01-02T03:04:05Z\n\n"
        "| Round | Status | Opened | Scope | Mode | Reviewers | Failed | Verdicts | Patches | Closed | Close commit |\n"
        "|---|---| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| round-01 | open | 2026-01-02T03:04:05Z | leaf | full | red-team, fresh-eyes-reader |  "
        "| 1 CONCEDE, 1 CONCEDE-IN-PART, 1 DEFER, 1 REJECT (fake engine) |  |  | (pending) |\n\nThe end.\n"
    )
    assert opened.inputs.warnings == ("index.md: its front matter is left out",)


def test_personas_yaml(root, script):
    """Who reviewed, with which charter, and who was cut; the fake engine by name."""
    open_(root, personas=THREE, ad_hoc=('devops-hat:Reviews "ops": deploy — rollback',), reviewers=4)
    assert (place_of(root).folder / "personas.yaml").read_text() == (
        'round: 1\nscope: "leaf"\nreview_mode: "full"\npersonas:\n'
        '  - name: "red-team"\n    source: "conventions-10.2"\n    charter_path: "builtin/red-team.md"\n'
        '  - name: "fresh-eyes-reader"\n    source: "conventions-10.2"\n'
        '    charter_path: "builtin/fresh-eyes-reader.md"\n'
        '  - name: "simplicity-critic"\n    source: "conventions-10.2"\n'
        '    charter_path: "builtin/simplicity-critic.md"\n'
        '  - name: "devops-hat"\n    source: "ad-hoc"\n'
        '    charter_inline: "Reviews \\"ops\\": deploy — rollback"\n'
        'engine: "fake"\n'
    )


def test_feedback_in(root, script):
    """The brief stands word for word; the note on the fake engine comes first."""
    open_(root, THREAD, reviewers=1)
    assert (place_of(root, THREAD).folder / "feedback-in.md").read_text() == (
        NOTE + "# Brief for round 01: Webhooks\n\nA full review of this thread.\n\n## Reviewers\n\n- red-team\n\n"
        "## What this round should address\n\nIs it complete?\n\nSay *why*.\n\n"
        "## Carried forward\n\nNone — fresh round\n"
    )


def test_transcript(root, script):
    """One line per event, with the journal's times."""
    opened = open_(root, personas=THREE, reviewers=2, synthesizer=True, ad_hoc=("aa:skip review",))
    place = opened.place
    sha = hashlib.sha256(place.record.read_bytes()).hexdigest()
    events = [
        "opened round-01 on tree/area/limits.md: scope=leaf, mode=full",
        "engine: fake (FAKE: no model read the document)",
        "personas: red-team, fresh-eyes-reader",
        "skipped this round: simplicity-critic",
        "skipped this round: aa",
        "note: working tree not checked: the brain is in no git work tree",
        "asked reviewer red-team",
        "asked reviewer fresh-eyes-reader",
        "reviewer red-team: 2 claims; 10 tokens in, 0 shared, 5 out",
        "reviewer fresh-eyes-reader: 2 claims; 10 tokens in, 0 shared, 5 out",
        "defender judged 4 of 4 claims: 1 CONCEDE, 1 CONCEDE-IN-PART, 1 DEFER, 1 REJECT",
        "synthesizer: done",
        "coverage: 373 of 373 bytes of the body shown to every reviewer",
        f"record.json sha256 {sha}",
    ]
    assert (place.folder / "transcript.md").read_text() == (
        NOTE + "# Transcript\n\nLimits · round-01\n\n" + "".join(f"- {AT} {event}\n" for event in events)
    )


def test_every_file_names_the_fake_engine(root, script):
    """Whatever file of the round is opened first, it says that no model read the document."""
    place = open_(root, synthesizer=True).place
    texts = {p.name: p.read_text() for p in place.folder.rglob("*.md")} | {
        "index.md": (place.history / "index.md").read_text(),
        "personas.yaml": (place.folder / "personas.yaml").read_text(),
        "record.json": place.record.read_text(),
    }
    assert len(texts) == 11
    assert [name for name, text in texts.items() if "fake" not in text.casefold()] == []


def test_record(root, script):
    """record.json holds what close, patches and export need, and all of it agrees with the files."""
    opened = open_(root, personas=THREE, reviewers=3, synthesizer=True)
    place, raw = opened.place, (root / LEAF).read_bytes()
    found = record(place)
    body = load(root).body
    before = raw.replace(
        b"hardening\nsource_debate: debate/limits/round-01\npre_hardening_status: decided\n", b"decided\n"
    )
    assert found["artifact"] == {
        "path": LEAF,
        "title": "Limits",
        "sha256_before": hashlib.sha256(before).hexdigest(),
        "sha256_flipped": hashlib.sha256(raw).hexdigest(),
        "sha256_body": hashlib.sha256(body).hexdigest(),
    }
    scalars = ("schema", "round", "opened_at", "scope", "mode_requested", "mode", "fake", "complete", "engine")
    assert [found[key] for key in scalars] == ["round/1", 1, AT, "leaf", "full", "full", True, True, "fake"]
    assert [(p["name"], p["status"], len(p["charter_sha256"])) for p in found["personas"]] == [
        (name, "done", 64) for name in THREE
    ]
    claims = found["claims"]
    assert [c["id"] for c in claims] == [f"C-{n:02d}" for n in range(1, 7)]
    assert set(claims[0]) == {
        "id", "raised_by", "quote", "start", "end", "lines", "kind", "problem", "severity", "action", "replacement",
        "cluster", "anchor",
    }  # fmt: skip
    assert body[claims[0]["start"] : claims[0]["end"]].decode() == claims[0]["quote"]
    assert raw.split(b"\n")[claims[0]["lines"][0] - 1].startswith(claims[0]["quote"].encode())
    assert [(c["anchor"], c["lines"]) for c in claims[4:]] == [("exact", [12, 12]), ("unanchored", None)]
    assert [
        (v["claim"], v["verdict"], v["cause"], v["method"], round(v["confidence"], 2)) for v in found["verdicts"]
    ] == [
        ("C-01", "CONCEDE", "measured", "choices", 0.85),
        ("C-02", "CONCEDE-IN-PART", "measured", "choices", 0.85),
        ("C-03", "DEFER", "measured", "choices", 0.85),
        ("C-04", "REJECT", "measured", "choices", 0.85),
        ("C-05", "CONCEDE", "measured", "choices", 0.85),
        ("C-06", "CONCEDE-IN-PART", "measured", "choices", 0.85),
    ]
    assert [(p["id"], p["claim"], p["start"], p["replacement"]) for p in found["patches"]] == [
        ("P-01", "C-01", 117, "Each shop has its own limit."),
        ("P-02", "C-02", 338, "Most failures are noticed within a day."),
        ("P-03", "C-05", 24, "A request may take one second."),
        ("H-01", "C-06", None, "Most failures are noticed within a day."),
    ]
    assert found["synthesis"]["revisit"] == ["C-04"]
    assert {p["name"]: p["windows"] for p in found["coverage"]["personas"]} == {
        name: [{"start": 0, "end": len(body), "sha256": found["artifact"]["sha256_body"]}] for name in THREE
    }
    assert set(found["calls"][0]) == {"key", "tokens_in", "tokens_cached", "tokens_out", "forced", "finish", "ms"}
    assert len(found["calls"]) == 3 + 2 + 6 * 3 + 2 + 1
    assert found["files"] == [
        {"path": p, "sha256": hashlib.sha256((place.folder / p).read_bytes()).hexdigest()}
        for p in opened.files
        if p != "transcript.md"
    ]
    assert "transcript.md" in opened.files


def test_two_leaves_of_one_folder(root, script):
    """Each leaf has a history of its own; opening one changes nothing of the other's."""
    open_(root, LEAF)
    one = tree(root)
    open_(root, "tree/area/other.md")
    assert [n for n in changed(one, tree(root)) if "debate/other" not in n] == ["tree/area/other.md"]
    assert {p: place_of(root, p).history.name for p in (LEAF, "tree/area/other.md")} == {
        LEAF: "limits",
        "tree/area/other.md": "other",
    }


# ---- order ---------------------------------------------------------------------------------------------------------


class Watching(QuickDisk):
    """Logs what becomes visible: a file in place, a folder, a deletion, a line of the journal."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.journal = -1

    def open(self, path: Path, flags: int) -> int:
        descriptor = super().open(path, flags)
        if path.name == "journal.jsonl":
            self.journal = descriptor
        return descriptor

    def write(self, descriptor: int, data: bytes) -> int:
        if descriptor == self.journal:
            line = json.loads(data)
            self.log.append("journal " + str(line.get("key") or line.get("file") or next(iter(line))))
        return super().write(descriptor, data)

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self.log.append(f"write {target.name}")

    def mkdir(self, path: Path) -> None:
        super().mkdir(path)
        self.log.append(f"mkdir {path.name}")

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self.log.append(f"delete {path.name}")


def test_order(root, script, monkeypatch):
    """Undo and inputs before the first request, every file and the record before the row, then the seed, the flip."""
    write((root / FOLDER).parent / "debate/next-round-seed.md", SEED)
    log: list[str] = []
    engines = Engines()

    def open_engine(s):
        engine = engines(s)
        submit = engine.submit
        engine.submit = lambda flow, request: (log.append(f"ask {request.key}"), submit(flow, request))
        return engine

    monkeypatch.setattr("runner.settings.open_engine", open_engine)
    monkeypatch.setattr(store, "disk", Watching(log))
    open_(root, FOLDER, reviewers=1)
    assert log[: log.index("ask reviewer/red-team")] == [
        "mkdir round-01", "mkdir .run", "mkdir undo", "write .gitignore", "write next-round-seed.md.bytes",
        "write made.json", "mkdir inputs", "write inputs.json", "journal header", "journal personas.yaml",
        "write personas.yaml", "journal feedback-in.md", "write feedback-in.md",
    ]  # fmt: skip
    assert log[log.index("journal defender.md") :] == [
        "journal defender.md", "write defender.md", "journal proposed-patches.md", "write proposed-patches.md",
        "journal open-issues.md", "write open-issues.md", "journal end", "journal .run/record.json",
        "write record.json", "journal transcript.md", "write transcript.md", "journal ../index.md", "write index.md",
        "delete next-round-seed.md", "write pipeline.md",
    ]  # fmt: skip
    assert log.index("journal reviewer/red-team") < log.index("write red-team.md") < log.index("ask defender/C-01")
