"""A round on every selected artifact, all on one scheduler and one engine; each flips as it finishes.

An artifact is planned when its turn comes and forgotten when its round has ended, so a thousand of them take no more
memory than the few that run. One that cannot be reviewed is a line of the result, never the end of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from runner import runs, scheduler, settings
from runner.brain import artifact as artifacts
from runner.brain import history
from runner.brain.artifact import Artifact
from runner.brain.root import kind
from runner.bulk.select import Found
from runner.errors import EXIT_DONE, EXIT_INCOMPLETE, EXIT_REFUSED, Incomplete, RunnerError
from runner.journal import Journal
from runner.rounds import conduct, inputs
from runner.rounds.folder import Files, Round, load_record, sha256
from runner.rounds.plan import Options, Plan, check_status
from runner.settings import Settings

Named = tuple[str, Generator[Any, Any, None]]  # a flow with its id
Status = Literal["done", "partial", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one artifact. resumed: its round was there before. exit: what it counts as in the exit code.

    round: the round's folder; None without one. claims, conceded: of its record. why: of anything but done.
    """

    path: str
    status: Status
    why: str = ""
    round: Path | None = None
    resumed: bool = False
    exit: int = EXIT_DONE
    claims: int = 0
    conceded: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bulk:
    """How a bulk run goes about it. scratch: rounds go there and the brain stays as it is. strict: what is not eligible
    counts as refused. fail_fast: after the first failure nothing new begins."""

    options: Options
    scratch: Path | None = None
    strict: bool = False
    fail_fast: bool = False


def harden(
    root: Path, found: Sequence[Found], bulk: Bulk, s: Settings, *, observe: runs.Observe | None = None,
    ended: Callable[[Row], None] = lambda _: None, clock: runs.Clock = runs.now,
) -> list[Row]:  # fmt: skip
    """Review them all; a row for each, in the order given. ended: called as each ends. The engine is opened when the
    first artifact needs one, and not at all when none does."""
    run = _Run(root, bulk, s, clock, ended)
    waiting = _Ahead(run.flows(found))
    if waiting.first is not None:
        with settings.engine_of(s) as engine:
            outcomes = scheduler.run(
                waiting, engine, run.journal, run.files.publish, observe, settings.at_once(s.profile),
                manifest_sha256=s.manifest_sha256,
            )  # fmt: skip
        run.settle({flow: o.error for flow, o in outcomes.items() if o.error is not None})
    return [run.rows[f.path] for f in found if f.path in run.rows]


class _Ahead(Iterator[Named]):
    """An iterator whose first element is known."""

    def __init__(self, flows: Iterator[Named]) -> None:
        self._flows = flows
        self.first = next(flows, None)
        self._given = False

    def __next__(self) -> Named:
        if not self._given and self.first is not None:
            self._given = True
            return self.first
        return next(self._flows)


class _Run:
    """One bulk run: its rows so far, and the flows still to come."""

    def __init__(self, root: Path, bulk: Bulk, s: Settings, clock: runs.Clock, ended: Callable[[Row], None]) -> None:
        self.root, self.bulk, self.s, self.clock, self.ended = root, bulk, s, clock, ended
        self.journal = Journal(clock)
        self.files = Files(self.journal)
        self.rows: dict[str, Row] = {}
        self.paths: dict[str, str] = {}  # of a flow
        self.failed = False
        self.planner = runs.Planner(s, root.parent)

    def note(self, row: Row) -> None:
        self.rows[row.path] = row
        self.failed |= row.exit != EXIT_DONE and row.status == "failed"
        self.ended(row)

    def flows(self, found: Sequence[Found]) -> Iterator[Named]:
        """What is still to be reviewed, planned as it is asked for; everything else becomes a row."""
        try:
            for one in found:
                if self.failed and self.bulk.fail_fast:
                    self.note(Row(one.path, "skipped", "not begun: --fail-fast"))
                    continue
                try:
                    flow = self._flow(one)
                except RunnerError as error:
                    self.note(self._failed(one.path, error))
                    continue
                if flow is not None:
                    yield flow
        finally:
            self.planner.close()

    def _flow(self, one: Found) -> Named | None:
        """The flow to run; None when there is nothing to do, and then a row says why."""
        if one.why:
            self.note(
                Row(one.path, "failed", one.why, exit=EXIT_REFUSED) if one.broken else self._skipped(one.path, one.why)
            )
            return None
        artifact = artifacts.load(self.root, self.root / one.path, None)
        folder = self._folder(artifact)
        known = kind(folder) != "missing"
        state = history.state(artifact, folder, scratch=self.bulk.scratch is not None) if known else None
        place = None if state is None or state.number is None else Round(folder, state.number, artifact.relative)
        match None if state is None else state.state:
            case "open" if place is not None:
                self.note(self._open(one.path, artifact, place))
                return None
            case "interrupted" if place is not None:
                return self._resumed(artifact, place)
            case "closing" | "aborting" as word:
                self.note(self._skipped(one.path, f"its round is half {'closed' if word == 'closing' else 'aborted'}"))
                return None
        return self._opened(one.path, artifact, folder)

    def _folder(self, artifact: Artifact) -> Path:
        if self.bulk.scratch is None:
            return history.history_folder(artifact)
        return self.bulk.scratch / Path(artifact.relative).with_suffix("")

    # ---- what there is to do ---------------------------------------------------------------------------------------

    def _opened(self, path: str, artifact: Artifact, folder: Path) -> Named | None:
        scratch = folder if self.bulk.scratch is not None else None
        if scratch is None:
            try:
                check_status(artifact)
            except RunnerError as error:
                self.note(self._skipped(path, error.message))
                return None
        planned = self.planner.plan(artifact, replace(self.bulk.options, scratch=scratch), self.clock())
        place = Round(planned.history, planned.number, planned.inputs.path)
        return self._begun(path, place, conduct.open_round(planned, self.journal, self.files), planned, resumed=False)

    def _resumed(self, artifact: Artifact, place: Round) -> Named:
        stored = inputs.load(place.run)
        if stored is None:
            raise RunnerError("its round was stopped before its inputs were stored", hint="debate abort, then again")
        stored = runs.going_on(stored, self.s)
        conduct.check_body(stored, artifact)
        flow = conduct.resume_round(place, stored, artifact, self.journal, self.files)
        return self._begun(artifact.relative, place, flow, None, resumed=True)

    def _begun(self, path: str, place: Round, flow: conduct.Steps, planned: Plan | None, *, resumed: bool) -> Named:
        self.paths[place.flow] = path
        warnings = () if planned is None else planned.inputs.warnings
        return place.flow, self._whole(path, place, flow, warnings, resumed)

    def _whole(
        self, path: str, place: Round, flow: conduct.Steps, warnings: tuple[str, ...], resumed: bool
    ) -> Generator[Any, Any, None]:
        """The round's flow; what it came to is a row, and nothing else of it stays in memory."""
        try:
            opened = yield from flow
            partial = bool(opened.result.exhausted)
            self.note(
                Row(
                    path, "partial" if partial else "done",
                    why="no usable answer to " + ", ".join(opened.result.exhausted) if partial else "",
                    round=place.folder, resumed=resumed, exit=EXIT_INCOMPLETE if partial else EXIT_DONE,
                    claims=len(opened.result.claims), conceded=_conceded(v.verdict for v in opened.result.verdicts),
                    warnings=warnings,
                )
            )  # fmt: skip
        except RunnerError as error:
            self.note(replace(self._failed(path, error), round=place.folder if place.folder.exists() else None))
        self.journal.forget(place.flow)
        self.files.forget(place.flow)

    def settle(self, errors: dict[str, RunnerError]) -> None:
        """What ended outside the flows themselves."""
        for flow, error in errors.items():
            path = self.paths[flow]
            if path not in self.rows:
                self.note(self._failed(path, error))

    # ---- rows ------------------------------------------------------------------------------------------------------

    def _open(self, path: str, artifact: Artifact, place: Round) -> Row:
        """A round that is open already: done, as its record says, when it is about this body."""
        record = load_record(place)
        if record is None:
            return self._skipped(path, "a round is open that this program did not make")
        if record["artifact"]["sha256_body"] != sha256(artifact.body):
            return self._skipped(path, "body changed, close first")
        partial = not record["complete"]
        return Row(
            path, "partial" if partial else "done",
            why="no usable answer to " + ", ".join(record["exhausted"]) if partial else "",
            round=place.folder, resumed=True, exit=EXIT_INCOMPLETE if partial else EXIT_DONE,
            claims=len(record["claims"]), conceded=_conceded(v["verdict"] for v in record["verdicts"]),
        )  # fmt: skip

    def _skipped(self, path: str, why: str) -> Row:
        return Row(path, "skipped", why, exit=EXIT_REFUSED if self.bulk.strict else EXIT_DONE)

    def _failed(self, path: str, error: RunnerError) -> Row:
        why = f"{error.reason}: {error.message}" if isinstance(error, Incomplete) else error.message
        return Row(path, "failed", why, exit=error.exit_code)


def _conceded(verdicts: Iterator[str]) -> int:
    return sum(v in ("CONCEDE", "CONCEDE-IN-PART") for v in verdicts)
