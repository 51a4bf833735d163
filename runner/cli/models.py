"""debate models list, add, verify, path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner.cli import common
from runner.errors import EXIT_DONE, Refused, RunnerError, UsageError, worst

if TYPE_CHECKING:
    from runner.manifests import Manifest
    from runner.model_facts import Facts

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
def add(
    path: Annotated[str, typer.Argument(help="A .gguf file, or a folder of safetensors.")],
    name: Annotated[str | None, typer.Option("--name", help="Default: the file's or the folder's name.")] = None,
    to: Annotated[str | None, typer.Option("--to", help="Where the manifest goes; default: beside the model.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a manifest that is there.")] = False,
    as_json: Json = False,
) -> int:
    """Write the manifest of a model from what its files say; the files stay where they are."""
    from runner import manifest_text, manifests, model_facts, store

    model = _real(Path(path).expanduser())
    name = manifest_text.checked_name(name or manifests.model_name(model))
    target = (model.parent if to is None else Path(to).expanduser().resolve()) / f"{name}.yaml"
    if not target.parent.is_dir():
        raise UsageError("no such folder", path=str(target.parent), hint="make it first, or leave out --to")
    if target.exists() and not force:
        raise Refused("there is a manifest already", path=str(target), hint="--force writes over it")
    facts = model_facts.of_path(model, name, _hashing)
    manifest = _placed(facts.manifest, model, target)
    store.write_atomic(target, manifest_text.render(manifest, facts.parameters).encode())
    warnings = [*facts.warnings, *_shadowed(name, target)]
    _report(facts, target, model, warnings, as_json)
    return EXIT_DONE


def _real(path: Path) -> Path:
    """Without links on the way; a link at the end is kept, to be refused."""
    return path.parent.resolve() / path.name if path.is_symlink() else path.resolve()


def _hashing(file: Path) -> str:
    from runner import manifests

    size = file.stat().st_size
    if size >= 1 << 30:
        common.warn(f"reading {file.name}, {size / (1 << 30):.1f} GiB, for its sha256")
    return manifests.hash_file(file)


def _placed(manifest: Manifest, model: Path, target: Path) -> Manifest:
    """The manifest with paths under which its files will be found. UsageError when they would not be."""
    from runner import manifests

    for base in (target.parent, *manifests.model_folders(Path.cwd())):
        base = base.resolve()
        if not model.is_relative_to(base):
            continue
        within = model.parent.relative_to(base)
        files = [f.model_copy(update={"path": (within / (f.path or "")).as_posix()}) for f in manifest.files]
        placed = manifest.model_copy(update={"files": files})
        found = manifests.weights(placed, target, Path.cwd())
        expected = model if model.is_dir() else model.parent / (manifest.files[0].path or "")
        if found.samefile(expected):
            return placed
    folders = ", ".join(str(f) for f in manifests.model_folders(Path.cwd()))
    raise UsageError(
        f"with its manifest in {target.parent} this model would not be found",
        path=str(model),
        hint=f"leave out --to, or put the model into that folder or a models folder ($DEBATE_MODELS, {folders})",
    )


def _shadowed(name: str, target: Path) -> list[str]:
    from runner import manifests

    first = manifests.manifests(Path.cwd()).get(name)
    if first is None or first.samefile(target):
        return []
    return [f"`--model {name}` takes another manifest, which is found first: {first}"]


def _report(facts: Facts, target: Path, model: Path, warnings: list[str], as_json: bool) -> None:
    from runner import manifests

    known = manifests.manifests(Path.cwd()).get(target.stem)
    use = target.stem if known is not None and known.samefile(target) else str(model)
    if as_json:
        shown = facts.manifest.model_dump(exclude={"files"})
        common.out_json({"schema": "model/1", "ok": True, "manifest": str(target), "model": shown, "use": use,
                         "parameters": facts.parameters, "warnings": warnings})  # fmt: skip
        return
    for warning in warnings:
        common.warn(f"warning: {warning}")
    common.out(common.one_line(f"Wrote {target}: {_summary(facts)}. Use it with --model {use}"))


def _summary(facts: Facts) -> str:
    m = facts.manifest
    said = (
        m.architecture, m.quantisation, m.context_tokens and f"{m.context_tokens:,} tokens of context",
        facts.parameters and f"{facts.parameters / 1e9:.2f} B parameters", m.licence,
    )  # fmt: skip
    return ", ".join(word for word in said if word) or "nothing but its files is known"


@app.command()
def verify(names: Annotated[list[str] | None, typer.Argument(help="Models; default: all.")] = None) -> int:
    """Compare the files of models, and their chat templates, with their manifests; exit 5 when one differs."""
    from runner import manifests, model_facts

    codes = []
    for name in names or list(manifests.manifests(Path.cwd())):
        try:
            model = manifests.find_model(name, Path.cwd())
            sha256 = manifests.verify_model(model)
            for warning in model_facts.compare(model):
                common.warn(f"warning: {name}: {warning}")
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
