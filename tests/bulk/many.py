"""Brains of many leaves."""

from __future__ import annotations

from pathlib import Path

from helpers import BODY, write


def leaf(root: Path, path: str, status: str = "decided", title: str = "A leaf") -> Path:
    """Another leaf of the brain."""
    domain = str(Path(path).parent.relative_to("tree"))
    head = f'id: "{Path(path).stem}"\ntitle: "{title}"\nstatus: "{status}"\ndomain: "{domain}"\n'
    write(root / path, f"---\n{head}---\n{BODY.format(title=title)}".encode())
    return root / path
