"""debate harden: a round on many artifacts. debate report merge: the reports of shards joined."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runner.cli import common, gating
from runner.cli.common import out, warn
from runner.errors import EXIT_DONE, EXIT_INCOMPLETE, Refused, RunnerError, UsageError, worst

if TYPE_CHECKING:
    from runner.bulk.harden import Bulk, Row
    from runner.bulk.select import Found, Selection
    from runner.cli.overall import Overall
    from runner.settings import Settings

report = typer.Typer(help="Reports of bulk runs.", no_args_is_help=True, rich_markup_mode=None)


def harden(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH|GLOB|@LIST]...", help="What to review; default: the brain.")
    ] = None,
    changed_since: Annotated[str | None, typer.Option("--changed-since", help="Only what differs from REF.")] = None,
    status: Annotated[str | None, typer.Option("--status", help="decided,specified: only these.")] = None,
    domain: Annotated[str | None, typer.Option("--domain", help="Only this domain.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=0, help="The first N of the list.")] = None,
    shard: Annotated[str | None, typer.Option("--shard", help="i/n: one part of n, the same on every machine.")] = None,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast/--keep-going", help="Begin nothing new after a failure.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="What is not eligible counts: exit 1.")] = False,
    scratch: Annotated[
        Path | None, typer.Option("--scratch", help="Rounds go to DIR; the brain stays as it is.")
    ] = None,
    report_file: Annotated[Path | None, typer.Option("--report", help="Write all results to this JSON file.")] = None,
    progress: Annotated[str, typer.Option("--progress", help="auto, tty, lines, json or none.")] = "auto",
    personas: common.Personas = None,
    persona: common.Persona = None,
    reviewers: common.Reviewers = None,
    feedback: common.Feedback = None,
    synthesizer: common.Synthesizer = None,
    review_mode: common.ReviewMode = "full",
    min_reviewers: common.MinReviewers = None,
    profile: common.ProfileOpt = None,
    model: common.ModelOpt = None,
    engine: common.EngineOpt = None,
    claim: common.ClaimOpt = None,
    seed: common.Seed = None,
    allow_dirty: common.AllowDirty = False,
    wait_s: common.WaitS = None,
    fail_on: common.FailOn = "none",
    known: common.Known = None,
    dry_run: common.DryRun = False,
    brain: common.Brain = None,
    as_json: common.Json = False,
    quiet: common.Quiet = False,
) -> int:
    """Open a round on each of many artifacts. Running it again goes on where it stopped."""
    from runner import settings as settings_of
    from runner.brain import root as roots
    from runner.bulk import select
    from runner.bulk.harden import Bulk
    from runner.cli.opening import own_claims
    from runner.rounds.plan import Options

    root = roots.find_root(_first_path(paths), brain, Path.cwd())
    wanted = select.Selection(
        tuple(paths or ()), changed_since, common.words(status), domain, limit,
        None if shard is None else select.shard_of(shard),
    )  # fmt: skip
    _check_progress(progress)
    gate = gating.wanted(fail_on, known)
    settings = settings_of.settings(
        profile, model, root.parent, seed=seed, engine=engine, plan_only=dry_run, wait_s=wait_s
    )
    told = common.text_of("--feedback", feedback) or settings.profile.feedback or ""
    if not told.strip():
        raise Refused(
            "missing: feedback", code="missing",
            hint='--feedback "what should these rounds address?" (or @file, or -), or `feedback:` in the profile',
        )  # fmt: skip
    options = Options(
        personas=common.words(personas), ad_hoc=tuple(persona or ()), reviewers=reviewers, review_mode=review_mode,
        feedback=told, synthesizer=synthesizer, min_reviewers=min_reviewers, allow_dirty=allow_dirty, dry_run=dry_run,
        claims=own_claims(claim),
    )  # fmt: skip
    _check_options(options.personas, options.ad_hoc, review_mode, root)
    bulk = Bulk(options, None if scratch is None else scratch.resolve(), strict, fail_fast)
    found = select.select(root, wanted, Path.cwd())
    if not found and not dry_run:
        return _nothing(root, settings, report_file, as_json)
    if dry_run:
        return _planned(found, settings, as_json)
    return _run(root, found, bulk, settings, wanted, report_file, "none" if quiet else progress, gate, as_json)


def _first_path(paths: list[str] | None) -> str | None:
    return next((p for p in paths or () if not p.startswith("@") and not set(p) & set("*?[")), None)


def _check_progress(word: str) -> None:
    known = ("auto", "tty", "lines", "json", "none")
    if word not in known:
        raise UsageError(f"--progress must be one of {', '.join(known)}, not {word!r}")


def _check_options(names: tuple[str, ...], own: tuple[str, ...], review_mode: str, root: Path) -> None:
    """What would be wrong for every artifact is said once, before the first."""
    from runner.brain.personas import roster

    if review_mode not in ("full", "delta"):
        raise UsageError(f"--review-mode must be full or delta, not {review_mode!r}")
    if not names and not own:
        listed = roster(root)
        hint = f"--personas with names of § 10.2 ({', '.join(listed)})" if listed else '--persona "name:charter"'
        raise Refused("missing: personas", hint=hint, code="missing")


def _nothing(root: Path, settings: Settings, report_file: Path | None, as_json: bool) -> int:
    """The report is written all the same: an empty shard is not one that crashed."""
    from runner.bulk import report as reports

    if report_file is not None:
        reports.write(report_file, root, [], reports.head(settings, 0.0, reports.counts([]), EXIT_DONE))
    if as_json:
        common.out_json({"schema": "bulk/1", "ok": True, "exit": 0, "artifacts": []})
    else:
        out("nothing to do")
    return EXIT_DONE


def _planned(found: list[Found], settings: Settings, as_json: bool) -> int:
    """The list as it would be worked through; no file, no engine, no git data beyond --changed-since is touched."""
    if as_json:
        listed = [{"path": f.path, "why": f.why} for f in found]
        common.out_json({"schema": "bulk-plan/1", "ok": True, "artifacts": listed})
        return EXIT_DONE
    from runner.cli.planning import model_lines

    for line in model_lines(settings):
        out(line)
    for f in found:
        out(common.one_line(f.path if not f.why else f"{f.path}: skipped: {f.why}"))
    out(f"{len(found)} selected")
    return EXIT_DONE


def _run(
    root: Path, found: list[Found], bulk: Bulk, settings: Settings, wanted: Selection, report_file: Path | None,
    progress: str, gate: gating.Wanted, as_json: bool,
) -> int:  # fmt: skip
    from runner.bulk import report as reports
    from runner.bulk.harden import harden as harden_all
    from runner.cli.overall import Overall

    start = time.monotonic()

    def report_of(rows: list[Row], code: int) -> dict[str, Any]:
        head = reports.head(settings, time.monotonic() - start, reports.counts(rows), code)
        if report_file is not None:
            reports.write(report_file, root, rows, head)
        return head

    with common.audited_bulk("harden", root, [f.path for f in found]) as notes:
        so_far: list[Row] = []
        report_of(_unfinished(found, so_far, "not reached"), EXIT_INCOMPLETE)  # no earlier one stays, come what may
        try:
            with Overall(progress, len(found)) as shown:
                rows = harden_all(
                    root, found, bulk, settings, observe=shown.observe, ended=lambda row: _both(so_far, row, shown)
                )
        except BaseException as error:
            with suppress(RunnerError):  # the error under way is the one to report
                why, code = "the run was stopped", EXIT_INCOMPLETE
                if isinstance(error, RunnerError):
                    why, code = error.message, error.exit_code
                report_of(_unfinished(found, so_far, f"not finished: {why}"), code)
            raise
        records = [row.round / ".run" / "record.json" for row in rows if row.round is not None]
        reviewed = worst([row.exit for row in rows])  # the report says what was reviewed; the gate is the caller's
        head = report_of(rows, reviewed)
        code = notes["exit"] = gating.code(gate, records, reviewed)
    if as_json:
        common.out_json(head | {"artifacts": [reports.row_json(root, r) for r in rows]})
    else:
        for row in rows:
            out(_line(row))
        out(", ".join(f"{n} {word}" for word, n in head["counts"].items() if n) + f"; {head['wall_s']:.0f} s")
    _advise(rows)
    return code


def _both(so_far: list[Row], row: Row, shown: Overall) -> None:
    so_far.append(row)
    shown.ended(row)


def _unfinished(found: list[Found], so_far: list[Row], why: str) -> list[Row]:
    """The rows of a run that has not come to its end, in the order given."""
    from runner.bulk.harden import Row

    ended = {row.path: row for row in so_far}
    return [ended.get(f.path) or Row(f.path, "failed", why, exit=EXIT_INCOMPLETE) for f in found]


def _line(row: Row) -> str:
    what = f"{row.claims} claims, {row.conceded} conceded" if row.status in ("done", "partial") else ""
    why = common.one_line(row.why)
    again = " (there before)" if row.resumed and row.status == "done" else ""
    return (
        f"{row.status:<8} {common.one_line(row.path)}{again}"
        + (f": {what}" if what else "")
        + (f": {why}" if why else "")
    )


def _advise(rows: list[Row]) -> None:
    if any(row.status in ("partial", "failed") for row in rows):
        n = sum(row.status in ("partial", "failed") for row in rows)
        warn(f"debate: incomplete: {n} of {len(rows)} artifacts have no whole round")
        warn("hint: the same command goes on with them; `debate resume PATH --only-failed` asks one again")


@report.command()
def merge(
    files: Annotated[list[Path], typer.Argument(help="Reports written with --report.")],
    out_file: Annotated[Path | None, typer.Option("--out", help="Write here; default: stdout.")] = None,
) -> int:
    """Join the reports of shards into one, which `debate export` reads like any other; exit as the whole."""
    from runner import store
    from runner.bulk import report as reports

    joined = reports.merge(files)
    text = json.dumps(joined, ensure_ascii=False, indent=1) + "\n"
    if out_file is None:
        out(text.rstrip("\n"))
    else:
        store.make_folder(out_file.resolve().parent)
        store.write_atomic(out_file, text.encode("utf-8", "surrogatepass"))
    return int(joined["exit"])
