"""debate bench: the round it measures, the floor it is held against, and settings written into a profile."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner import cli, config
from runner.bench import tune
from runner.bench.floor import Shapes, floor_s, shapes
from runner.bench.workload import Measured, bench_review, document, phase_of, whole_round
from runner.engines.fake import FakeEngine
from runner.errors import UsageError
from runner.settings import settings
from runner.values import Reply


def test_a_whole_round():
    """Reviewers, priors, verdicts and the synthesizer are measured, each in its phase; phases add up to the round."""
    s = settings("fake", None, None)
    measured = whole_round(FakeEngine(), bench_review(s, 5, document()), s.manifest_sha256)
    assert sum(phase_of(r.key) == "reviewers" for r in measured.requests) == 5 + 2
    assert {p for p in ("reviewers", "judging", "synthesis") if measured.of(p)} == {"reviewers", "judging", "synthesis"}
    assert sum(measured.phases.values()) == pytest.approx(measured.wall_s, abs=0.05)
    assert len(measured.result.verdicts) == len(measured.result.claims) > 0


@pytest.mark.parametrize("n", [0, 99])
def test_reviewers_there_are(n):
    """As many as there are bundled personas."""
    with pytest.raises(UsageError, match="--reviewers must be 1 to "):
        bench_review(settings("fake", None, None), n, "x")


def test_the_floor():
    """Prompt and forced tokens at the rate of prefill, sampled ones at the rate of their phase's width."""

    rates = SimpleNamespace(prefill=100.0, decode={1: 10.0, 2: 20.0, 4: 40.0})
    measured = Measured(decoded=1000)
    measured.replies = [
        Reply("reviewer/a", "", "stop", tokens_out=60, forced=10),
        Reply("reviewer/b", "", "stop", tokens_out=50),
        *(Reply(f"defender/C-0{i}", "", "stop", tokens_out=20) for i in range(4)),
        Reply("defender/C-01/order-1", "", "stop"),
        Reply("synthesizer", "", "stop", tokens_out=30),
    ]
    found = shapes(measured, wasted=40)
    assert found == Shapes(
        1000 - 40 - 210, {"reviewers": 100, "judging": 80, "synthesis": 30},
        {"reviewers": 2, "judging": 4, "synthesis": 1},
    )  # fmt: skip
    assert floor_s(found, rates) == pytest.approx(7.5 + 100 / 20 + 80 / 40 + 30 / 10)


def test_json(capsys):
    """One document; the fake engine calls no model, so nothing is said about the machine."""
    assert cli.run(["bench", "--profile", "fake", "--reviewers", "2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["schema"], said["ok"], said["reviewers"], said["overhead"]) == ("bench/2", True, 2, None)
    assert "floor_s" not in said


def test_own_document(tmp_path, capsys):
    """--document is reviewed in the place of ours; one that cannot be read is named."""
    own = tmp_path / "own.md"
    own.write_text("# Own\n\nWe deploy on Fridays. Nobody watches the rollout at night.\n")
    assert cli.run(["bench", "--profile", "fake", "--reviewers", "1", "--document", str(own)]) == 0
    assert "1 reviewers" in capsys.readouterr().out
    assert cli.run(["bench", "--profile", "fake", "--document", "gone.md"]) == 2
    assert capsys.readouterr().err.startswith("debate: gone.md: --document: cannot be read")


# ---- tune ----------------------------------------------------------------------------------------------------------

BEST = {"threads": 2, "flash_attention": True, "batch_tokens": 256}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "engine: llama.cpp\nthreads: 0   # all\nroles:\n  default: m\n",
            "engine: llama.cpp\nthreads: 2   # all\nroles:\n  default: m\nflash_attention: true\nbatch_tokens: 256\n",
        ),
        ("threads: 8", "threads: 2\nflash_attention: true\nbatch_tokens: 256\n"),
        (
            "# c\r\nflash_attention: false\r\nthreads:\r\n",
            "# c\r\nflash_attention: true\r\nthreads: 2\r\nbatch_tokens: 256\r\n",
        ),
        ("vllm:\n  threads: 1\n", "vllm:\n  threads: 1\nthreads: 2\nflash_attention: true\nbatch_tokens: 256\n"),
    ],
)
def test_only_these_keys_change(tmp_path, before, after):
    """Every other byte of the profile stays: comments, line ends, keys of the same name further in."""
    path = tmp_path / "mine.yaml"
    path.write_bytes(before.encode())
    assert tune.write(path, BEST) == path
    assert path.read_bytes() == after.encode()


def test_a_bundled_profile_is_not_changed(tmp_path, monkeypatch):
    """The user's own copy is, and wins from then on; a second time it is that copy that changes."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    ours = config.bundled("configs") / "cpu.yaml"
    before = ours.read_bytes()
    written = tune.write(ours, BEST)
    assert written == tmp_path / "debate-runner/configs/cpu.yaml"
    assert ours.read_bytes() == before
    loaded, source = config.profile("cpu")
    assert (loaded.threads, loaded.flash_attention, loaded.batch_tokens, source) == (2, True, 256, str(written))
    assert tune.write(written, BEST | {"threads": 1}) == written
    assert config.profile("cpu")[0].threads == 1


def test_candidates():
    """Each setting of threads with three ways of attention and two batch sizes, none twice."""
    found = [tuple(c.values()) for c in tune.candidates(2)]
    assert len(found) == len(set(found)) == 12
    assert {c[0] for c in tune.candidates(1) for c in [tuple(c.values())]} == {1}


@pytest.mark.model
def test_tune(tmp_path, monkeypatch, capsys):
    """The fastest setting is written into the profile that was named."""
    path = tmp_path / "mine.yaml"
    path.write_text("threads: 1\n")
    monkeypatch.setattr(tune, "candidates", lambda cores: iter([BEST | {"threads": 1}]))
    monkeypatch.setattr(tune, "PREFIX", 64)
    monkeypatch.setattr(tune, "WIDTHS", (1, 5, 12))
    assert cli.run(["bench", "--tune", "--profile", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["schema"], said["best"]["batch_tokens"], said["profile"]) == ("tune/1", 256, str(path))
    assert set(said["tried"][0]["decode"]) == {"1", "5", "12"}
    assert Path(path).read_text() == "threads: 1\nflash_attention: true\nbatch_tokens: 256\n"


def test_tune_is_for_llama(capsys):
    """Other engines have nothing to try."""
    assert cli.run(["bench", "--tune", "--profile", "fake"]) == 2
    assert "--tune is for the llama.cpp engine" in capsys.readouterr().err
