"""The plans of dry runs, printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.common import one_line, out
from runner.errors import EXIT_DONE, Refused

if TYPE_CHECKING:
    from runner.brain.artifact import Artifact
    from runner.rounds.folder import Round
    from runner.rounds.plan import Options
    from runner.runs import Settings


def show_open(artifact: Artifact, options: Options, settings: Settings) -> int:
    """Print what `open` would do. Nothing is written, no engine loaded, no git data read."""
    from runner import runs
    from runner.cli import report
    from runner.rounds import dry

    facts = [*_registry(), *model_lines(settings), *_verified(artifact)]
    planned = runs.open_plan(artifact, options, settings)
    n = len(planned.inputs.review.reviewers)
    who = f"{n} reviewer{'' if n == 1 else 's'}"
    name = planned.inputs.review.about.round
    commit = report.commit(
        artifact, f"debate({artifact.slug}): {name} open — scope={artifact.scope} {who}, <verdict summary>"
    )
    for line in dry.open_lines(planned, facts, commit, bool(planned.tokens)):
        out(one_line(line))
    return EXIT_DONE


def show_close(place: Round, artifact: Artifact, status: str) -> int:
    """Print what `close` would do."""
    from runner.cli import report
    from runner.rounds import dry

    facts = [*_registry(), *_verified(artifact)]
    commit = report.commit(artifact, f"debate({artifact.slug}): {place.name} close — scope={artifact.scope} {status}")
    for line in dry.close_lines(place, artifact, status, facts, commit):
        out(one_line(line))
    return EXIT_DONE


def _registry() -> list[str]:
    """projects.yaml is read for aliases only; a missing one is a line, never a failure."""
    import os

    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    folder = Path(os.environ.get("PROJECT_BRAIN_CONFIG") or Path(base) / "project-brain")
    path = Path(os.environ.get("PROJECT_BRAIN_PROJECTS_YAML") or folder / "projects.yaml")
    return [f"projects.yaml: {path if path.is_file() else 'none (only needed for aliases)'}"]


def model_lines(settings: Settings) -> list[str]:
    if settings.problem:
        return [f"model: {line}" for line in settings.problem.splitlines()]
    if settings.none:
        return ["engine: none (scaffold mode)"]
    if settings.model is None:
        return [f"engine: {settings.profile.engine}"]
    return [
        f"model{'' if role == 'default' else f' of {role}'}: {model.manifest.name}, {model.path}"
        for role, model in settings.models.items()
    ]


def _verified(artifact: Artifact) -> list[str]:
    """The rebuild-index dry run: violations in the artifact, its history or the index files fail the plan."""
    from runner.brain import history, verify

    found = verify.check(artifact.root)
    lead = history.history_folder(artifact).relative_to(artifact.root).as_posix() + "/"
    own = {artifact.relative, "thread-index.md", "current-state.md"}
    mine = [v for v in found.errors if v.file in own or v.file.startswith(lead)]
    if mine:
        listed = "; ".join(f"{v.file}:{v.line}: [{v.code}] {v.message}" for v in mine)
        raise Refused(f"verify --rebuild-index would fail: {listed}", hint="repair these first: debate verify")
    return [f"verify: nothing in the artifact; {len(found.errors)} violations elsewhere"]
