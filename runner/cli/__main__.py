"""python -m runner.cli: the same as `debate`."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by its path, as `--isolate` does
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from runner.cli import main

if __name__ == "__main__":
    main()
