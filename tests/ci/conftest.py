"""A pull request on the example brain."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from dulwich import porcelain

sys.path.insert(0, str(Path(__file__).parent))

from steps import HOSTILE, SESSION, TEXT, Job, commit, real


@pytest.fixture
def job(demo: Path, tmp_path: Path) -> Job:
    """A pull request: a leaf changed, one renamed, one deleted, and one new with a hostile name and text."""
    project = demo.parent
    porcelain.init(str(project)).close()
    base = commit(project)
    leaf = demo / SESSION
    leaf.write_text(leaf.read_text(encoding="utf-8") + "\nOne more sentence.\n", encoding="utf-8")
    (demo / "tree/ops/deploy-pipeline.md").rename(demo / "tree/ops/deploys.md")
    (demo / "tree/auth/token-rotation.md").unlink()
    head = '---\nid: "h"\ntitle: "::error::boom"\nstatus: "decided"\ndomain: "ops"\n---\n\n'
    (demo / HOSTILE).write_text(head + TEXT, encoding="utf-8")
    commit(project)
    (tmp_path / "temp").mkdir()
    return Job(project, base, real(tmp_path / "debate"))
