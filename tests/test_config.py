"""Profiles, manifests and models: what is read, from where, and every refusal word for word."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from runner import config, manifests
from runner.errors import Integrity, UsageError
from runner.values import Sampling

SHA = hashlib.sha256(b"weights").hexdigest()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own: user folders and project in a temporary place; the checkout's data are the bundled ones."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("DEBATE_MODELS", raising=False)
    return tmp_path


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(kind: type[Exception], call, *args) -> str:
    with pytest.raises(kind) as caught:
        call(*args)
    return str(caught.value)


# ---- profiles ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cpu", "ci", "fake"])
def test_bundled_profiles(home, name):
    """Each is read by its name, from where it lies."""
    profile, source = config.profile(name)
    assert profile.engine == ("fake" if name == "fake" else "llama.cpp")
    assert source == str(config.bundled("configs") / f"{name}.yaml")


def test_defaults(home):
    """A profile that says nothing is the default one."""
    write(home / "p.yaml", "{}\n")
    profile, _ = config.profile(str(home / "p.yaml"))
    assert profile == config.Profile()
    assert (profile.roles, profile.claims, profile.deadline_s) == ({"default": "smollm2-135m-instruct"}, 4, None)


def test_profile_of_the_project_wins(home):
    """First hit wins: the project's, then the user's, then ours."""
    user = write(home / "config/debate-runner/configs/cpu.yaml", "claims: 1\n")
    assert config.profile("cpu", home / "project") == (config.Profile(claims=1), str(user))
    own = write(home / "project/configs/cpu.yaml", "claims: 2\n")
    assert config.profile("cpu", home / "project") == (config.Profile(claims=2), str(own))
    assert config.profile("cpu")[1] == str(user)


def test_profile_by_path(home, monkeypatch):
    """A slash or the ending makes it a path, relative to the working directory."""
    write(home / "mine.yaml", "claims: 3\n")
    monkeypatch.chdir(home)
    for name in ("mine.yaml", "./mine.yaml", str(home / "mine.yaml")):
        assert config.profile(name) == (config.Profile(claims=3), str(Path(name)))


def test_unknown_profile(home):
    """With the nearest name, or all names when none is near."""
    assert refusal(UsageError, config.profile, "cpuu") == "no config named 'cpuu'\nhint: did you mean 'cpu'?"
    every = ", ".join(sorted(p.stem for p in config.bundled("configs").glob("*.yaml")))
    assert refusal(UsageError, config.profile, "zzz") == f"no config named 'zzz'\nhint: known: {every}"
    assert refusal(UsageError, config.profile, "no/such.yaml") == "no/such.yaml: no such file"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("temperture: 1\n", "unknown key 'temperture'\nhint: known: allow_hosts, batch_tokens, cache_type_k, claims, "
         "context_tokens, deadline_s, engine, fake, feedback, flash_attention, floor, kv_unified, margin, max_running, "
         "memory_gib, requantize, roles, sampling, server, threads, vllm, wait_s"),
        ("marginn: 0.1\n", "unknown key 'marginn'\nhint: did you mean 'margin'?"),
        ("claims: 5\n", "claims: Input should be less than or equal to 4"),
        ("claims: many\n", "claims: Input should be a valid integer, unable to parse string as an integer"),
        ("engine: vlllm\n", "engine: Input should be 'llama.cpp', 'vllm', 'server', 'fake' or 'none'"),
        ("context_tokens: 10\n", "context_tokens: Input should be greater than or equal to 512"),
        ("margin: 2\n", "margin: Input should be less than or equal to 1"),
        ("margin: .nan\n", "margin: Input should be less than or equal to 1"),
        ("floor: 0\n", "floor: Input should be greater than 0"),
        ("deadline_s: 0\n", "deadline_s: Input should be greater than 0"),
        ("sampling: {seed: x}\n", "sampling.seed: Input should be a valid number, unable to parse string as a number"),
        ("1: 2\n", "1: Keys should be strings"),
        ("- a\n", "expected keys and values"),
        ("", "expected keys and values"),
        ("just words\n", "expected keys and values"),
    ],
)  # fmt: skip
def test_wrong_profile(home, text, message):
    """File, key and what is wrong with it."""
    path = write(home / "p.yaml", text)
    assert refusal(UsageError, config.profile, str(path)) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ("claims: 3\nroles: [a\n", ":3"), ("claims: 3\n\tx: 1\n", ":2"), ("a: b: c\n", ":1"),
        ("a: !!python/tuple [1]\n", ":1"),
        (b"a: \xff\n", ""), (b"a: \x00\n", ""), ("[" * 3000, ""),
    ],
)  # fmt: skip
def test_not_yaml(home, data, line):
    """What YAML refuses, with its line where it says one; never a traceback."""
    path = write(home / "p.yaml", data)
    assert refusal(UsageError, config.profile, str(path)) == f"{path}{line}: not readable as YAML"


# ---- folders and texts ---------------------------------------------------------------------------------------------


def test_folders(home):
    """Project, user, ours; without a project the other two."""
    user, ours = home / "config/debate-runner/prompts", config.bundled("prompts")
    assert config.folders("prompts", home / "p") == (home / "p/prompts", user, ours)
    assert config.folders("prompts", None) == (user, ours)


def test_bundled_data(home):
    """The checkout's folders hold what a wheel carries."""
    assert (config.bundled("prompts") / "review" / "shared.md.j2").is_file()
    assert (config.bundled("models") / "smollm2-135m-instruct.yaml").is_file()


@pytest.mark.parametrize("kind", ["CONFIG", "DATA", "CACHE", "STATE"])
def test_xdg(monkeypatch, tmp_path, kind):
    """The variable, or the standard place below the home folder when it is unset or empty."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / "x"))
    assert config.xdg(kind) == tmp_path / "x" / "debate-runner"
    monkeypatch.setenv(f"XDG_{kind}_HOME", "")
    place = {"CONFIG": ".config", "DATA": ".local/share", "CACHE": ".cache", "STATE": ".local/state"}[kind]
    assert config.xdg(kind) == tmp_path / place / "debate-runner"


def test_texts_file_by_file(home):
    """A project's template replaces ours of that name; the others stay."""
    write(home / "project/prompts/review/system.md.j2", "mine\n")
    write(home / "config/debate-runner/prompts/review/system.md.j2", "user's\n")
    write(home / "config/debate-runner/prompts/review/verdict.md.j2", "user's\n")
    found = config.texts("prompts/review", "*.md.j2", home / "project")
    assert found["system.md.j2"] == "mine\n"
    assert found["verdict.md.j2"] == "user's\n"
    assert found["shared.md.j2"] == (config.bundled("prompts") / "review/shared.md.j2").read_text()
    assert sorted(found) == sorted(p.name for p in (config.bundled("prompts") / "review").glob("*.md.j2"))


def test_text_that_is_not_utf8(home):
    """The file is named."""
    path = write(home / "project/prompts/review/system.md.j2", b"\xff")
    text = refusal(UsageError, config.texts, "prompts/review", "*.md.j2", home / "project")
    assert text == f"{path}: not UTF-8 text"


# ---- models --------------------------------------------------------------------------------------------------------


def manifest(name: str = "m", **more: object) -> str:
    lines = [f"name: {name}", "files:", "  - path: m.gguf", f"    sha256: {more.pop('sha256', SHA)}"]
    lines += [f"    bytes: {more.pop('bytes', 7)}", *(f"{k}: {v}" for k, v in more.items())]
    return "\n".join(lines) + "\n"


def test_bundled_model(home):
    """The manifest of the model that `make setup` installs, and its file in the installed package."""
    model = manifests.find_model("smollm2-135m-instruct")
    assert model.path.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert model.path.stat().st_size == model.manifest.files[0].bytes
    raw = Path(model.source).read_bytes()
    assert model.manifest_sha256 == hashlib.sha256(raw).hexdigest()


@pytest.mark.model
def test_bundled_model_is_the_one(home):
    """Its sha256 is the manifest's."""
    model = manifests.find_model("smollm2-135m-instruct")
    assert manifests.verify_model(model) == model.manifest.files[0].sha256


def test_order_of_model_folders(home, monkeypatch):
    """$DEBATE_MODELS, a path list, then the project's, the user's, ours, XDG data; the first manifest wins."""
    monkeypatch.setenv("DEBATE_MODELS", f"{home / 'e1'}:{home / 'e2'}:")
    assert manifests.model_folders(home / "p") == (
        home / "e1", home / "e2", home / "p/models", home / "config/debate-runner/models", config.bundled("models"),
        home / "data/debate-runner/models",
    )  # fmt: skip
    for folder in (home / "data/debate-runner/models", home / "p/models", home / "e2"):
        write(folder / "m.gguf", b"weights")
        path = write(folder / "m.yaml", manifest())
        assert manifests.find_model("m", home / "p").source == str(path)
        assert manifests.find_model("m", home / "p").path == folder / "m.gguf"


def test_weights_elsewhere(home, monkeypatch):
    """A manifest in the project, the file in XDG data: found, beside the manifest first."""
    path = write(home / "p/models/m.yaml", manifest())
    far = write(home / "data/debate-runner/models/m.gguf", b"weights")
    assert manifests.find_model("m", home / "p").path == far
    near = write(home / "p/models/m.gguf", b"weights")
    assert manifests.find_model("m", home / "p").path == near
    assert manifests.find_model("m", home / "p").source == str(path)


def test_missing_weights(home):
    """An Integrity error that names the file, the manifest and every place where it was looked for."""
    path = write(home / "p/models/m.yaml", manifest())
    places = ", ".join(map(str, manifests.model_folders(home / "p")))
    assert refusal(Integrity, manifests.find_model, "m", home / "p") == (
        f"{path}: the model file m.gguf is missing\n"
        f"hint: `make setup` installs the bundled model; else put the file into one of: {places}"
    )


@pytest.mark.parametrize("package", ["no_such_package_here", "no_such.package", "json", "json.x", ""])
def test_missing_package(home, package):
    """A package that is not installed, or has no such file, is a missing file."""
    text = f"name: m\nfiles:\n  - package: '{package}'\n    file: m.gguf\n"
    path = write(home / "p/models/m.yaml", text)
    message = refusal(Integrity, manifests.find_model, "m", home / "p")
    assert message.startswith(f"{path}: the model file m.gguf is missing\n")


def test_unknown_model(home):
    """The nearest name is offered."""
    assert refusal(UsageError, manifests.find_model, "smollm2-135m") == (
        "no model named 'smollm2-135m'\nhint: did you mean 'smollm2-135m-instruct'?"
    )


@pytest.mark.parametrize("name", ["org/name", "HuggingFaceTB/SmolLM2-135M-Instruct", "gone.gguf", "gone/"])
def test_hub_name(home, name, monkeypatch):
    """Nothing is ever fetched: what looks like a name on a hub is a path that does not exist."""
    monkeypatch.chdir(home)
    assert refusal(UsageError, manifests.find_model, name) == (
        f"{name}: no such model file\nhint: models are local files: give the path of a .gguf file, "
        "or put it under $DEBATE_MODELS with a manifest"
    )


def test_model_by_path(home):
    """Without a manifest the file describes itself by its hash."""
    path = write(home / "some.Q4.gguf", b"weights")
    model = manifests.find_model(str(path))
    file = manifests.ModelFile(path="some.Q4.gguf", bytes=7, sha256=SHA)
    assert model == manifests.Model(manifests.Manifest(name="some.Q4", files=[file]), str(path), path, SHA)
    assert manifests.verify_model(model) == SHA


def test_model_by_path_with_a_manifest(home):
    """A manifest beside it counts."""
    path, beside = write(home / "m.gguf", b"weights"), write(home / "m.yaml", manifest("Em", context_tokens=99))
    model = manifests.find_model(str(path))
    assert (model.source, model.manifest.name, model.manifest.context_tokens) == (str(beside), "Em", 99)


def test_altered_model(home):
    """Another length, or another hash: Integrity, with both values."""
    path = write(home / "m.gguf", b"weightz")
    write(home / "m.yaml", manifest())
    found = hashlib.sha256(b"weightz").hexdigest()
    assert refusal(Integrity, manifests.verify_model, manifests.find_model(str(path))) == (
        f"{path}: the model file is not the one its manifest describes: sha256 {found}, expected {SHA}\n"
        "hint: copy or install the file again; do not use this one"
    )
    path.write_bytes(b"weigh")
    assert refusal(Integrity, manifests.verify_model, manifests.find_model(str(path))) == (
        f"{path}: the model file has 5 bytes, its manifest says 7\nhint: copy or install the file again"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("files: []\n", "name: Field required"),
        ("name: m\n", "files: Field required"),
        ("name: m\nfiles: []\n", "files: List should have at least 1 item after validation, not 0"),
        ("name: m\nfiles:\n  - path: m\n    sha265: 1\n", "unknown key 'files.0.sha265'\nhint: did you mean 'sha256'?"),
        ("name: m\nfiles: [{path: m}]\nlicense: x\n", "unknown key 'license'\nhint: did you mean 'licence'?"),
        ("name: m\nfiles: [{path: m}]\nformat: onnx\n", "format: Input should be 'gguf' or 'safetensors'"),
    ],
)
def test_wrong_manifest(home, text, message):
    """File, key and what is wrong with it, also for a key inside a list."""
    path = write(home / "p/models/m.yaml", text)
    assert refusal(UsageError, manifests.find_model, "m", home / "p") == f"{path}: {message}"


# ---- sampling ------------------------------------------------------------------------------------------------------


def test_sampling_order():
    """The profile's settings over the model's over ours."""
    model = manifests.Manifest(name="m", files=[{"path": "m"}], sampling={"temperature": 0.2, "top_k": 9})
    profile = config.Profile(sampling={"temperature": 0.9, "seed": 5})
    assert manifests.sampling(profile, model, "x") == Sampling(temperature=0.9, top_k=9, seed=5)
    assert manifests.sampling(config.Profile(), None, "x") == Sampling()


def test_sampling_types():
    """Counts are whole numbers, whatever YAML made of them."""
    made = manifests.sampling(config.Profile(sampling={"top_k": 20.0, "temperature": 1}), None, "x")
    assert (made.top_k, type(made.top_k), type(made.temperature)) == (20, int, float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temprature": 1}, "unknown key 'sampling.temprature'\nhint: did you mean 'temperature'?"),
        ({"temperature": 9}, "sampling.temperature: Input should be less than or equal to 5"),
        ({"top_p": 0}, "sampling.top_p: Input should be greater than 0"),
        ({"top_k": 1.5}, "sampling.top_k: Input should be a valid integer, got a number with a fractional part"),
    ],
)
def test_wrong_sampling(values, message):
    """As any other key."""
    profile = config.Profile(sampling=values)
    assert refusal(UsageError, manifests.sampling, profile, None, "p.yaml") == f"p.yaml: {message}"


def test_sampling_config_is_sampling():
    """Every knob can be set, and nothing else; the defaults are the same."""
    assert config.SamplingConfig().model_dump() == {n: getattr(Sampling(), n) for n in Sampling.__slots__}
