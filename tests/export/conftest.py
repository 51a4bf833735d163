"""The mark of tests that need a browser."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: opens a report in Chromium; skipped, in capitals, where there is none")
