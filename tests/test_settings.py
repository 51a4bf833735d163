"""Settings of a run: what the guard is told before anything is asked of another host, and how many run at once."""

from __future__ import annotations

import pytest

from runner import offline, settings
from runner.config import Profile
from runner.values import Message, Request, Segment


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


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ({"kv_unified": False, "threads": 2, "max_running": 4}, 2),
        ({"kv_unified": False, "threads": 8, "max_running": 4}, 4),
        ({"kv_unified": True, "threads": 2, "max_running": 4}, 4),
        ({"engine": "fake", "kv_unified": False, "threads": 1, "max_running": 4}, 4),
    ],
)
def test_artifacts_at_once(profile, expected):
    """As the profile says; with a context for each, no more than there are threads."""
    assert settings.at_once(Profile(**profile)) == expected


@pytest.mark.model
@pytest.mark.parametrize(("unified", "lanes"), [(False, 2), (True, 1)])
def test_contexts_of_a_profile(tmp_path, monkeypatch, unified, lanes):
    """kv_unified decides whether two flows get two contexts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    s = settings.settings("cpu", None, None)
    tried = s.profile.model_copy(update={"kv_unified": unified, "threads": 2, "context_tokens": 512})
    engine = settings.open_engine(settings.with_profile(s, tried))
    for flow in "ab":
        engine.submit(flow, Request("r", "default", (Message("user", (Segment("Hello", True),)),), max_tokens=4))
    assert len(engine._lanes) == lanes
    engine.close()
    assert [p.suffix for p in (tmp_path / "debate-runner/weights").iterdir()] == [".gguf"]
