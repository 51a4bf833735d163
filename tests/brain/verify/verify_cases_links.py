"""Cases: V-14 to V-22, N-01 to N-04, several at once, scopes. See verify_broken.py."""

from __future__ import annotations

from verify_broken import (
    AUTH,
    BACKUP,
    CONVENTIONS,
    DEPLOY,
    DONE,
    HOOKS,
    LINKS,
    SESSION,
    SPEC,
    STATUS,
    TOKENS,
    Case,
    add,
    auth,
    drop,
    edit,
    folder,
    leaf,
    link,
    listed,
    move,
    page,
    rounds,
    thread,
    to,
)

ACTIVE = 'status: "active"'
TITLE = 'title: "Session store"'
PROMOTED = 'promoted_to:\n  - "tree/auth/session-store.md"\n  - "tree/auth/token-rotation.md"\n'
TIMES = 'promoted_at:\n  - "2026-02-03T10:15:00Z"\n  - "2026-02-17T14:40:00Z"\n'
ART = "threads/webhook-delivery/artifacts/measured.md"


def artifact(source: str | None, **fields: object) -> str:
    return page(
        "measured", status=None, owner=None, primary_project=None, kind="artifact", source_thread=source, **fields
    )


CASES: tuple[Case, ...] = (
    # ---- V-14
    Case("V-14 unknown thread", (edit(SESSION, '"auth-foundations"', '"auth-basics"'),)),
    Case("V-14 thread gone", (drop("archive/auth-foundations"),)),
    Case("V-14 without thread.md", (move(DONE, "archive/auth-foundations/notes.md"),)),
    Case("V-14 by id", (move("archive/auth-foundations", "archive/foundations"),)),
    Case("V-14 id of a leaf", (edit(SESSION, '"auth-foundations"', '"token-rotation"'),)),
    Case(
        "V-14 hidden thread",
        (
            move("archive/auth-foundations", "archive/.auth-foundations"),
            edit(SESSION, '"auth-foundations"', '".auth-foundations"'),
        ),
    ),
    Case("V-14 odd spelling", (edit(SESSION, '"auth-foundations"', '"./auth-foundations"'),)),
    Case("V-14 as a path", (edit(SESSION, '"auth-foundations"', '"archive/auth-foundations"'),)),
    Case("V-14 number", (edit(SESSION, '"auth-foundations"', "12"),)),
    # ---- V-15
    Case("V-15 two", (edit(SESSION, LINKS, to("/tree/auth/token-rotation.md")),)),
    Case(
        "V-15 three",
        (
            edit(SESSION, LINKS, to("/tree/ops/deploy-pipeline.md")),
            edit(DEPLOY, "/tree/storage/backup-policy/backup-policy.md", "/tree/auth/token-rotation.md"),
        ),
    ),
    Case("V-15 with a thread", (edit(SESSION, LINKS, to("/threads/webhook-delivery/thread.md")),)),
    Case(
        "V-15 through a node",
        (edit(SESSION, LINKS, to("/tree/auth")), edit(AUTH, STATUS, STATUS + "\n" + to(f"/{SESSION}"))),
    ),
    Case(
        "V-15 through the conventions",
        (
            edit(SESSION, LINKS, to("/CONVENTIONS.md")),
            edit(CONVENTIONS, 'owner: "mara"', 'owner: "mara"\n' + to(f"/{SESSION}")),
        ),
    ),
    Case(
        "V-15 two ways back",
        (
            edit(SESSION, LINKS, to(f"/{TOKENS}", f"/{DEPLOY}")),
            edit(DEPLOY, "/tree/storage/backup-policy/backup-policy.md", f"/{SESSION}"),
        ),
    ),
    Case("V-15 old name", (edit(SESSION, LINKS, to("/thoughts/tree/auth/token-rotation.md")),)),
    Case("V-15 not through dots", (edit(SESSION, LINKS, to("/tree/ops/../auth/token-rotation.md")),)),
    # ---- V-16
    Case("V-16 self", (edit(SESSION, LINKS, to(f"/{SESSION}")),)),
    Case("V-16 self, no slash", (edit(SESSION, LINKS, to(SESSION)),)),
    Case("V-16 self, twice", (edit(SESSION, LINKS, to(SESSION, f"//{SESSION}")),)),
    Case("V-16 node by folder", (edit(AUTH, STATUS, STATUS + "\n" + to("/tree/auth/")),)),
    Case("V-16 thread", (edit(HOOKS, "/tree/ops/deploy-pipeline.md", f"/{HOOKS}"),)),
    # ---- V-17
    Case("V-17 twice", (edit(DONE, "token-rotation.md", "session-store.md"),)),
    Case("V-17 three times", (edit(DONE, PROMOTED + TIMES, "promoted_to: [a, a, a]\npromoted_at: [a, a, a]\n"),)),
    Case("V-17 numbers", (edit(DONE, PROMOTED, "promoted_to: [1, 1.0]\n"),)),
    Case("V-17 null", (edit(DONE, PROMOTED, "promoted_to: [~, ~]\n"),)),
    Case("V-17 only nearly", (edit(DONE, "tree/auth/token-rotation.md", "/tree/auth/session-store.md"),)),
    Case(
        "V-17 a mapping",
        (edit(DONE, PROMOTED, "promoted_to: [{a: 1}, b]\n"),),
        ours=(("V-17", DONE),),
        why="the pack ends in a traceback (exit 2)",
    ),
    # ---- V-18
    Case("V-18 backwards", (edit(DONE, "2026-02-17T14", "2026-01-17T14"),)),
    Case("V-18 plain times", (edit(DONE, TIMES, "promoted_at: [2026-02-17T14:40:00Z, 2026-02-03T10:15:00Z]\n"),)),
    Case("V-18 mixed", (edit(DONE, TIMES, 'promoted_at: ["2026-02-03T10:15:00Z", 2026-02-03T10:15:00Z]\n'),)),
    Case("V-18 equal", (edit(DONE, TIMES, "promoted_at: [2026-02-03T10:15:00Z, 2026-02-03T10:15:00Z]\n"),)),
    Case("V-18 dates", (edit(DONE, TIMES, "promoted_at: [2026-02-17, 2026-02-03]\n"),)),
    Case(
        "V-18 around a date",
        (edit(DONE, PROMOTED + TIMES, "promoted_to: [a, b, c]\npromoted_at: [b, 2026-02-03, a]\n"),),
    ),
    Case(
        "V-18 other zone", (edit(DONE, TIMES, 'promoted_at: ["2026-02-03T10:00:00+09:00", "2026-02-03T09:00:00Z"]\n'),)
    ),
    # ---- V-19 and N-04
    Case("V-19 gap", rounds("threads/webhook-delivery/debate", "round-01", "round-03")),
    Case("V-19 starts at two", rounds("threads/webhook-delivery/debate", "round-02")),
    Case("V-19 one digit", rounds("threads/webhook-delivery/debate", "round-1")),
    Case("V-19 unfinished", rounds("threads/webhook-delivery/debate", "round-01", "round-02.tmp")),
    Case("V-19 hidden", rounds("threads/webhook-delivery/debate", "round-01", ".round-02")),
    Case("V-19 shared by leaves", rounds("tree/auth/debate", "round-02")),
    Case("V-19 of a stem", rounds("tree/auth/session-store.debate", "round-02")),
    Case("V-19 of a slug", rounds("tree/auth/debate/session-store", "round-02")),
    Case("V-19 a file", (add("threads/webhook-delivery/debate/round-x.md", "x"),)),
    Case("V-19 in order", rounds("threads/webhook-delivery/debate", "round-01", "round-02", "round-03")),
    Case("N-04 three digits", rounds("threads/webhook-delivery/debate", "round-01", "round-002")),
    Case("N-04 word", rounds("archive/auth-foundations/debate", "round-one")),
    Case("N-04 anywhere", rounds("tree/debate", "round-02", "round-03")),
    Case("N-04 hidden folder", rounds(".old/debate", "round-02")),
    Case("N-04 other digits", rounds("threads/webhook-delivery/debate", "round-٠١")),
    Case(
        "N-04 linked round",
        (
            *rounds("elsewhere", "round-07"),
            link("threads/webhook-delivery/debate/round-02", "../../../elsewhere/round-07"),
        ),
    ),
    # ---- V-20
    Case("V-20 missing", (edit(SESSION, STATUS, STATUS + "\nsource_debate: debate/round-01"),)),
    Case(
        "V-20 there",
        (edit(SESSION, STATUS, STATUS + "\nsource_debate: debate/round-01"), *rounds("tree/auth/debate", "round-01")),
    ),
    Case(
        "V-20 old name",
        (edit(SESSION, STATUS, STATUS + "\nsource_debate: thoughts/round-01"), *rounds("thoughts", "round-01")),
    ),
    Case("V-20 not a round", (edit(SESSION, STATUS, STATUS + "\nsource_debate: ../auth"),)),
    Case(
        "V-20 from the root",
        (
            edit(SESSION, STATUS, STATUS + "\nsource_debate: /tree/auth/debate/round-01"),
            *rounds("tree/auth/debate", "round-01"),
        ),
    ),
    Case(
        "V-20 a file",
        (edit(SESSION, STATUS, STATUS + "\nsource_debate: debate/round-01"), add("tree/auth/debate/round-01", "")),
    ),
    Case(
        "V-20 slash after",
        (
            edit(SESSION, STATUS, STATUS + "\nsource_debate: ./debate/round-01/"),
            *rounds("tree/auth/debate", "round-01"),
        ),
    ),
    # ---- V-21
    Case("V-21 blank", (*auth("new one")[:1], listed("new one.md"))),
    Case("V-21 colon", auth("new:one")),
    Case("V-21 folder", (add("tree/new domain/a.md", leaf("a-leaf", "new domain")),)),
    Case("V-21 reserved", auth("what?")),
    Case("V-21 backslash", (add("threads/webhook-delivery/a\\b.md", "x"),)),
    Case("V-21 line break", (add("threads/webhook-delivery/a\nb.md", "x"),)),
    Case("V-21 wide blank", (add("threads/webhook-delivery/a\u3000b.md", "x"),)),
    Case("V-21 other script", (add("threads/webhook-delivery/旅行.md", "x"),)),
    Case("V-21 bytes", (add("threads/webhook-delivery/\udcff.md", "x"),)),
    Case("V-21 only markdown", (add("threads/webhook-delivery/a b.txt", "x"),)),
    # ---- V-22
    Case("V-22 in order", (add(ART, artifact("webhook-delivery")),)),
    Case("V-22 other thread", (add(ART, artifact("auth-foundations")),)),
    Case("V-22 no thread", (add(ART, artifact(None)),)),
    Case("V-22 folder without thread.md", (add("threads/lost/artifacts/measured.md", artifact("lost")),)),
    Case("V-22 archived", (add("archive/auth-foundations/artifacts/m.md", artifact("webhook-delivery")),)),
    Case("V-22 below", (add("threads/webhook-delivery/artifacts/a/m.md", artifact("x")),)),
    Case("V-22 elsewhere", (add("tree/artifacts/m.md", artifact("x")),)),
    # ---- N-01
    Case("N-01 capital", (edit(SESSION, 'id: "session-store"', 'id: "Session-store"'),)),
    Case("N-01 blank", (edit(SESSION, 'id: "session-store"', 'id: "session store"'),)),
    Case("N-01 hyphens", (edit(SESSION, 'id: "session-store"', 'id: "session--store"'),)),
    Case("N-01 short", (edit(SESSION, 'id: "session-store"', 'id: "s"'),)),
    Case("N-01 long", (edit(SESSION, 'id: "session-store"', f'id: "{"s" * 41}"'),)),
    Case("N-01 forty", (edit(SESSION, 'id: "session-store"', f'id: "{"s" * 40}"'),)),
    Case("N-01 underscore and script", (edit(SESSION, 'id: "session-store"', 'id: "旅行_2"'),)),
    Case("N-01 empty", (edit(HOOKS, 'id: "webhook-delivery"', 'id: ""'),)),
    Case("N-01 number", (edit(HOOKS, 'id: "webhook-delivery"', "id: 12"),)),
    Case("N-01 node", (edit(AUTH, 'id: "auth"', 'id: "auth/x"'),)),
    # ---- N-02
    Case("N-02 node", (move(AUTH, "tree/auth/node.md"),)),
    Case("N-02 thread", (move(HOOKS, "threads/webhook-delivery/Thread.md"),)),
    Case("N-02 ending", (move(HOOKS, "threads/webhook-delivery/thread.MD"),)),
    Case("N-02 read me", (add("readme.md", "x"), add("threads/webhook-delivery/Index.md", "x"))),
    Case("N-02 index", (add("Thread-Index.md", "x"),)),
    Case("N-02 ending of a leaf", (move(DEPLOY, "tree/ops/deploy-pipeline.MD"),)),
    Case("N-02 spec in capitals", (move(SPEC, "tree/storage/backup-policy/impl-spec.MD"),)),
    # ---- N-03
    Case("N-03 tree", (add("Tree/a/x.md", "x"),)),
    Case("N-03 debate", rounds("threads/webhook-delivery/Debate", "round-01")),
    Case("N-03 hidden", (folder(".cache/Threads"),)),
    Case("N-03 empty", (folder("threads/webhook-delivery/ATTACHMENTS"), folder("Archive"))),
    Case("N-03 linked", (link("Project-Brain", "tree"),)),
    # ---- several at once, and scopes
    Case(
        "many", (edit(SESSION, TITLE, 'title: ""'), edit(HOOKS, ACTIVE, "status: parked"), drop(TOKENS), folder("Tree"))
    ),
    Case(
        "attachments",
        (add("threads/webhook-delivery/attachments/a.md", "x"), add("tree/auth/attachments/NODE.md", "x")),
    ),
    Case("transcripts", (add("threads/webhook-delivery/transcript.md", "x"), add("tree/x/transcript.md", "x"))),
    Case("in the archive", (add("archive/auth-foundations/decisions-candidates.md", "x"), add("archive/a.md", "x"))),
    Case("spec anywhere", (add("notes.md", page("n", kind="impl-spec")),)),
    Case("hidden files", (add(".x/tree/a.md", "x"), add("tree/.x/a.md", "x"), add(".a.md", "x"))),
    Case("new thread", (add("threads/new/thread.md", thread("new")),)),
    Case(
        "one thread",
        (edit(SESSION, TITLE, 'title: ""'), edit(HOOKS, ACTIVE, "status: x"), folder("Tree")),
        thread="webhook-delivery",
    ),
    Case("one archived thread", (edit(DONE, TIMES, ""),), thread="auth-foundations"),
    Case("one folder", (edit(SESSION, TITLE, 'title: ""'), edit(HOOKS, ACTIVE, "status: x")), path="tree/auth"),
    Case("one file", (edit(SESSION, TITLE, 'title: ""'), edit(AUTH, STATUS, "status: x")), path=SESSION),
    Case("one file that is none", (edit(SESSION, TITLE, 'title: ""'),), path="config.yaml"),
    Case(
        "one folder, threads outside",
        (
            edit(SESSION, '"auth-foundations"', "none"),
            edit(DEPLOY, STATUS, "status: building\nimpl_thread: webhook-delivery"),
        ),
        path="tree",
    ),
    Case(
        "one folder, spec outside",
        (edit(BACKUP, "tree/storage/backup-policy/impl-spec.md", TOKENS),),
        path="tree/storage",
    ),
    Case("hidden folder by name", (add(".x/tree/thread.md", "x"),), path=".x"),
)
