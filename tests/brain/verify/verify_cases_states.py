"""Cases: V-07 to V-13. See verify_broken.py."""

from __future__ import annotations

from verify_broken import (
    AUTH,
    BACKUP,
    DEPLOY,
    DONE,
    HARD,
    HOOKS,
    ROOT,
    SESSION,
    SPEC,
    STATUS,
    TOKENS,
    Case,
    add,
    drop,
    edit,
    folder,
    leaf,
    page,
    rounds,
)

ARCHIVED = 'status: "archived"'
ACTIVE = 'status: "active"'
PROMOTED = 'promoted_to:\n  - "tree/auth/session-store.md"\n  - "tree/auth/token-rotation.md"\n'
TIMES = 'promoted_at:\n  - "2026-02-03T10:15:00Z"\n  - "2026-02-17T14:40:00Z"\n'

CASES: tuple[Case, ...] = (
    # ---- V-07
    Case("V-07 unknown status", (edit(HOOKS, ACTIVE, 'status: "open"'),)),
    Case("V-07 a leaf's status", (edit(HOOKS, ACTIVE, 'status: "decided"'),)),
    Case("V-07 no status", (edit(HOOKS, ACTIVE + "\n", ""),)),
    Case("V-07 no maturity", (edit(HOOKS, 'maturity: "refining"\n', ""),)),
    Case("V-07 unknown maturity", (edit(HOOKS, '"refining"', '"done"'),)),
    Case("V-07 in review too early", (edit(HOOKS, ACTIVE, 'status: "in-review"'),)),
    Case("V-07 archived with maturity", (edit(HOOKS, ACTIVE, 'status: "archived"'),)),
    Case("V-07 archived, empty maturity", (edit(DONE, ARCHIVED, ARCHIVED + '\nmaturity: ""'),)),
    Case("V-07 archived, null maturity", (edit(DONE, ARCHIVED, ARCHIVED + "\nmaturity: ~"),)),
    Case("V-07 other case", (edit(HOOKS, '"active"', '"Active"'),)),
    Case(
        "V-07 a list",
        (edit(HOOKS, '"active"', "[active]"),),
        ours=(("V-07", HOOKS),),
        why="the pack ends in a traceback (exit 2)",
    ),
    # ---- V-08
    Case("V-08 one time less", (edit(DONE, '  - "2026-02-17T14:40:00Z"\n', ""),)),
    Case("V-08 one path less", (edit(DONE, '  - "tree/auth/token-rotation.md"\n', ""),)),
    Case("V-08 no times", (edit(DONE, TIMES, ""),)),
    Case("V-08 no list", (edit(DONE, PROMOTED, 'promoted_to: "tree/auth/session-store.md"\n'),)),
    Case("V-08 mapping", (edit(DONE, TIMES, "promoted_at: {a: 1, b: 2}\n"),)),
    Case("V-08 both empty", (edit(DONE, PROMOTED + TIMES, "promoted_to: []\npromoted_at: ''\n"),)),
    # ---- V-09
    Case("V-09 in review without requests", (edit(TOKENS, STATUS, 'status: "in-review"'),)),
    Case(
        "V-09 in review",
        (edit(TOKENS, STATUS, 'status: "in-review"'), edit(DONE, ARCHIVED, ARCHIVED + "\ntree_prs: [a]")),
    ),
    Case("V-09 in review, no thread", (edit(DEPLOY, STATUS, 'status: "in-review"'),)),
    Case("V-09 decided in staging", (add("tree-staging/auth/new.md", leaf("new", "auth")),)),
    Case("V-09 decided in a thread", (add("threads/webhook-delivery/tree-staging/ops/new.md", leaf("new", "ops")),)),
    Case("V-09 draft in a thread", (add("threads/webhook-delivery/tree-staging/n.md", leaf("n", "", status="draft")),)),
    Case("V-09 hardening without rounds", (HARD,)),
    Case("V-09 hardening", (HARD, *rounds("tree/auth/debate/session-store", "round-01"))),
    Case("V-09 hardening, shared rounds", (HARD, *rounds("tree/auth/debate", "round-01"))),
    Case("V-09 hardening, empty round", (HARD, folder("tree/auth/debate/session-store/round-01"))),
    Case(
        "V-09 hardening, second round empty",
        (
            HARD,
            *rounds("tree/auth/debate/session-store", "round-01"),
            folder("tree/auth/debate/session-store/round-02"),
        ),
    ),
    Case(
        "V-09 hardening, no round",
        (HARD, folder("tree/auth/session-store.debate"), *rounds("tree/auth/debate", "round-01")),
    ),
    Case("V-09 specified without spec", (edit(BACKUP, "impl_spec:", "x:"),)),
    Case("V-09 specified, spec gone", (drop(SPEC),)),
    Case("V-09 specified, spec elsewhere", (edit(BACKUP, "tree/storage/backup-policy/impl-spec.md", "impl-spec.md"),)),
    Case(
        "V-09 specified, spec by id", (edit(BACKUP, "tree/storage/backup-policy/impl-spec.md", "backup-policy-impl"),)
    ),
    Case("V-09 specified, spec with slash", (edit(BACKUP, '"tree/storage', '"/tree/storage'),)),
    Case("V-09 specified, spec a draft", (edit(SPEC, '"ready"', '"draft"'),)),
    Case("V-09 building without thread", (edit(DEPLOY, STATUS, "status: building"),)),
    Case("V-09 building, thread archived", (edit(DEPLOY, STATUS, "status: building\nimpl_thread: auth-foundations"),)),
    Case("V-09 building", (edit(DEPLOY, STATUS, "status: building\nimpl_thread: webhook-delivery"),)),
    Case("V-09 building, no such thread", (edit(DEPLOY, STATUS, "status: building\nimpl_thread: none"),)),
    Case("V-09 built without proof", (edit(DEPLOY, STATUS, "status: built"),)),
    Case("V-09 built by a number", (edit(DEPLOY, STATUS, "status: built\nbuilt_in: 1234567"),)),
    Case("V-09 built", (edit(DEPLOY, STATUS, "status: built\nbuilt_in: a1b2c3d"),)),
    Case("V-09 superseded by nothing", (edit(DEPLOY, STATUS, "status: superseded"),)),
    Case("V-09 superseded by what is not", (edit(DEPLOY, STATUS, "status: superseded\nsuperseded_by: x"),)),
    Case("V-09 superseded by an older one", (edit(DEPLOY, STATUS, f"status: superseded\nsuperseded_by: {SESSION}"),)),
    Case("V-09 superseded", (edit(SESSION, STATUS, f"status: superseded\nsuperseded_by: /{DEPLOY}"),)),
    Case(
        "V-09 superseded by one as old",
        (
            edit(DEPLOY, STATUS, f"status: superseded\nsuperseded_by: {SESSION}"),
            edit(SESSION, "2026-02-03T10:15:00Z", "2026-03-24T11:00:00Z"),
        ),
    ),
    Case("V-09 a folder called staging", (add("tree/ops/tree-staging/new.md", leaf("new", "ops/tree-staging")),)),
    Case("V-09 unknown status", (edit(DEPLOY, STATUS, "status: finished"),)),
    # ---- V-10
    *(
        Case(f"V-10 {word}", (edit(AUTH, STATUS, f"status: {word}"),))
        for word in ("draft", "hardening", "Decided", "~")
    ),
    Case("V-10 root", (edit(ROOT, STATUS, "status: built"),)),
    Case("V-10 below threads", (add("threads/webhook-delivery/NODE.md", page("n", status="draft")),)),
    # ---- V-11
    Case("V-11 specified, spec building", (edit(SPEC, '"ready"', "building"),)),
    Case("V-11 building, spec ready", (edit(BACKUP, '"specified"', "building\nimpl_thread: webhook-delivery"),)),
    Case("V-11 built, spec ready", (edit(BACKUP, '"specified"', "built\nbuilt_in: x"),)),
    Case(
        "V-11 superseded, spec building",
        (edit(BACKUP, '"specified"', f"superseded\nsuperseded_by: {DEPLOY}"), edit(SPEC, '"ready"', "building")),
    ),
    Case(
        "V-11 superseded, spec stale",
        (edit(BACKUP, '"specified"', f"superseded\nsuperseded_by: {DEPLOY}"), edit(SPEC, '"ready"', "stale")),
    ),
    Case("V-11 decided, spec anything", (edit(BACKUP, '"specified"', "decided"), edit(SPEC, '"ready"', "x"))),
    Case(
        "V-11 hardening, spec draft",
        (
            edit(BACKUP, '"specified"', "hardening\npre_hardening_status: specified"),
            edit(SPEC, '"ready"', "draft"),
            *rounds("tree/storage/backup-policy/debate", "round-01"),
        ),
    ),
    Case("V-11 no status", (edit(BACKUP, 'status: "specified"\n', ""),)),
    Case("V-11 a thread as spec", (edit(BACKUP, "tree/storage/backup-policy/impl-spec.md", "webhook-delivery"),)),
    # ---- V-12
    Case("V-12 parked without fields", (edit(HOOKS, ACTIVE, "status: parked"),)),
    Case(
        "V-12 parked without reason",
        (edit(HOOKS, ACTIVE, 'status: parked\nparked_at: "2026-05-01T08:00:00Z"\nparked_by: a'),),
    ),
    Case(
        "V-12 parked, empty reason",
        (edit(HOOKS, ACTIVE, "status: parked\nparked_at: x\nparked_by: a\nparked_reason: ' '"),),
    ),
    Case(
        "V-12 parked", (edit(HOOKS, ACTIVE, "status: parked\nparked_at: 2026-05-01\nparked_by: a\nparked_reason: b"),)
    ),
    Case("V-12 active with reason", (edit(HOOKS, ACTIVE, ACTIVE + "\nparked_reason: b"),)),
    Case("V-12 archived with time", (edit(DONE, ARCHIVED, ARCHIVED + "\nparked_at: 2026-05-01"),)),
    Case("V-12 active with empty reason", (edit(HOOKS, ACTIVE, ACTIVE + "\nparked_reason: ''\nparked_by:"),)),
    Case("V-12 active with a blank", (edit(HOOKS, ACTIVE, ACTIVE + "\nparked_reason: ' '"),)),
    # ---- V-13
    Case("V-13 decided", (edit(SESSION, STATUS, STATUS + "\npre_hardening_status: decided"),)),
    Case("V-13 decided, empty", (edit(SESSION, STATUS, STATUS + "\npre_hardening_status: ''"),)),
    Case("V-13 decided, null", (edit(SESSION, STATUS, STATUS + "\npre_hardening_status:"),)),
    Case(
        "V-13 hardening without", (edit(SESSION, STATUS, "status: hardening"), *rounds("tree/auth/debate", "round-01"))
    ),
    Case(
        "V-13 hardening from draft",
        (
            edit(SESSION, STATUS, "status: hardening\npre_hardening_status: draft"),
            *rounds("tree/auth/debate", "round-01"),
        ),
    ),
    Case(
        "V-13 specified before",
        (
            edit(SESSION, STATUS, "status: hardening\npre_hardening_status: specified"),
            *rounds("tree/auth/debate", "round-01"),
        ),
    ),
)
