"""Aliases of other brains, for soft links such as `billing:tree/api/limits.md`.

The brain's own `config.yaml` (`aliases:`) comes first, then the user's `projects.yaml`. Neither is required.
"""

# Paths are text here: thousands of Path objects would cost more than the rules.
# ruff: noqa: PTH111, PTH118
from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.brain.verify.model import exists


@dataclass(frozen=True, slots=True)
class Layer:
    """One file of aliases. folder: what a relative path in it starts from."""

    folder: Path
    entries: dict[Any, Any]


def layers(root: str) -> tuple[Layer, ...]:
    """The files that are there, the brain's own first; one that cannot be read counts, without entries."""
    config = Path(os.environ.get("PROJECT_BRAIN_CONFIG") or Path(root, "config.yaml")).expanduser()
    xdg = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config")
    registry = Path(
        os.environ.get("PROJECT_BRAIN_PROJECTS_YAML") or xdg / "project-brain" / "projects.yaml"
    ).expanduser()
    found = []
    if config.is_file():
        aliases = _mapping(config).get("aliases")
        found.append(Layer(config.parent, aliases if isinstance(aliases, dict) else {}))
    if registry.is_file():
        found.append(Layer(registry.parent, _mapping(registry)))
    return tuple(found)


def problem(layers: tuple[Layer, ...], uri: str) -> str:
    """Why a link with an alias leads nowhere, or the empty string. There must be at least one layer."""
    alias, _, rest = uri.partition(":")
    layer = next((layer for layer in layers if alias in layer.entries), None)
    if layer is None:
        return f"the alias {alias} is neither in config.yaml nor in projects.yaml"
    home = _home(layer.entries[alias])
    if home is None:
        return f"the alias {alias} has no `brain:` or `root:` path"
    rest = rest.lstrip("/")
    if rest.startswith("thread/"):
        rest = f"threads/{rest.removeprefix('thread/')}/thread.md"
    target = os.path.join(layer.folder, os.path.expanduser(home), rest)
    return "" if exists(target) else f"the link leads to {target}, which is not there"


def _home(entry: Any) -> str | None:
    if isinstance(entry, dict):
        entry = entry.get("brain") or entry.get("root")
    return entry if isinstance(entry, str) else None


def _mapping(path: Path) -> dict[Any, Any]:
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
