"""Settings of a run: what the guard is told before anything is asked of another host."""

from __future__ import annotations

import pytest

from runner import offline, settings
from runner.config import Profile


@pytest.mark.parametrize("opening", ["open_tokenizer", "open_engine"])
def test_the_guard_knows_the_allowed_hosts_first(monkeypatch, opening):
    """A plan counts tokens on the server before the engine is opened: both tell the guard, and check the endpoints."""
    told = []
    monkeypatch.setattr(offline, "allow", lambda hosts: told.append(list(hosts)))
    monkeypatch.setattr(offline, "check_endpoints", lambda endpoints: told.append(list(endpoints)))
    monkeypatch.setattr("runner.engines.server.open_tokenizer", lambda *_: told.append("asked"))
    monkeypatch.setattr("runner.engines.server.Server", lambda *_, **__: told.append("asked"))
    profile = Profile(engine="server", allow_hosts=["gpu.lan"], server={"endpoints": ["http://gpu.lan:8080"]})
    getattr(settings, opening)(settings.Settings(profile, "x", {}, {}))
    assert told == [["gpu.lan"], ["http://gpu.lan:8080"], "asked"]
