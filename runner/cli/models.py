"""debate models list, verify, path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from runner.errors import EXIT_DONE, RunnerError, worst

app = typer.Typer(help="The models on this machine.", no_args_is_help=True, rich_markup_mode=None)
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@app.command("list")
def list_(as_json: Json = False) -> int:
    """List the models that have a manifest."""
    from runner import manifests

    rows = []
    for name, source in manifests.manifests(Path.cwd()).items():
        try:
            path, problem = str(manifests.find_model(name, Path.cwd()).path), ""
        except RunnerError as e:
            path, problem = "", e.message
        rows.append({"name": name, "manifest": str(source), "path": path, "problem": problem})
    if as_json:
        print(json.dumps({"schema": "models/1", "ok": True, "models": rows}, ensure_ascii=False))  # noqa: T201
        return EXIT_DONE
    for row in rows:
        typer.echo(f"{row['name']}  {row['path'] or 'NOT FOUND: ' + row['problem']}")
    return EXIT_DONE


@app.command()
def verify(names: Annotated[list[str] | None, typer.Argument(help="Models; default: all.")] = None) -> int:
    """Compare the files of models with their manifests; exit 5 when one differs."""
    from runner import manifests

    codes = []
    for name in names or list(manifests.manifests(Path.cwd())):
        try:
            sha256 = manifests.verify_model(manifests.find_model(name, Path.cwd()))
            typer.echo(f"{name}: ok, sha256 {sha256}")
        except RunnerError as e:
            typer.echo(f"{name}: {e}", err=True)
            codes.append(e.exit_code)
    return worst(codes)


@app.command()
def path(name: Annotated[str, typer.Argument(help="A model.")] = "smollm2-135m-instruct") -> int:
    """Print where a model's file lies."""
    from runner import manifests

    typer.echo(str(manifests.find_model(name, Path.cwd()).path))
    return EXIT_DONE
