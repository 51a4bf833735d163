"""debate models add and verify: manifests drafted from what models say, every refusal, both streams, exit codes."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import gguf_files as make
import pytest
from gguf_files import F32, STRING, U32

from runner import cli, manifest_text, manifests, model_facts
from runner.config import load
from runner.manifests import Manifest

TEMPLATE = hashlib.sha256(make.CHATML.encode()).hexdigest()
HEAD = "# Drafted by `debate models add` from what the model's files say: read it once. It has 0.00 B parameters.\n"
THINKING = "# does the chat template know thinking? it is always switched off here"
PROSE = "# strict: sentences only, which a model below about 0.5 B parameters needs; else free"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory; no models but those of the test and ours."""
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "xdg" / name))
    monkeypatch.delenv("DEBATE_MODELS", raising=False)
    (tmp_path / "store").mkdir()
    monkeypatch.chdir(tmp_path / "store")
    return tmp_path


def debate(*argv: str) -> int:
    return cli.run(["models", *argv])


def drafted(path: Path) -> Manifest:
    return load(Manifest, path.read_bytes(), str(path))


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The warnings and errors, a line each."""
    return capsys.readouterr().err.splitlines()


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ---- GGUF ----------------------------------------------------------------------------------------------------------


def test_the_manifest_of_a_gguf_file(capsys):
    """Beside the file, byte for byte; one line on stdout, nothing to warn about."""
    path = make.gguf(Path("tiny.Q4.gguf"))
    assert debate("add", "tiny.Q4.gguf") == 0
    assert Path("tiny.Q4.yaml").read_text() == HEAD + (
        "name: tiny.Q4\n"
        "format: gguf\n"
        "files:\n"
        "  - path: tiny.Q4.gguf\n"
        f"    bytes: {path.stat().st_size}\n"
        f"    sha256: {sha(path)}\n"
        "context_tokens: 8192\n"
        "architecture: llama\n"
        "quantisation: Q4_K_M\n"
        f"chat_template_sha256: {TEMPLATE}\n"
        "licence: Apache-2.0\n"
        f"thinking: false  {THINKING}\n"
        f"prose: strict  {PROSE}\n"
    )
    where = Path.cwd()
    assert capsys.readouterr() == (
        f"Wrote {where}/tiny.Q4.yaml: llama, Q4_K_M, 8,192 tokens of context, 0.00 B parameters, Apache-2.0. "
        f"Use it with --model {where}/tiny.Q4.gguf\n",
        "",
    )
    assert manifests.verify_model(manifests.find_model(str(where / "tiny.Q4.gguf"))) == sha(path)


def test_the_bundled_model_says_what_our_manifest_says():
    """Drafted from the file alone: the facts of models/smollm2-135m-instruct.yaml."""
    ours = manifests.find_model("smollm2-135m-instruct")
    facts = model_facts.of_path(ours.path, ours.manifest.name)
    files = [(f.bytes, f.sha256) for f in facts.manifest.files]
    assert files == [(f.bytes, f.sha256) for f in ours.manifest.files]
    told_by_people = {"files", "sampling", "tested_with"}
    assert facts.manifest.model_dump(exclude=told_by_people) == ours.manifest.model_dump(exclude=told_by_people)
    assert facts.warnings == ()


def test_warnings(capsys):
    """A thinking template, a small context, no licence, a setting out of bounds: each is told with what it means."""
    changed = {
        "tokenizer.chat_template": (STRING, "{% if enable_thinking %}<think>{% endif %}"),
        "llama.context_length": (U32, 2048), "general.license": None,
        "general.sampling.temp": (F32, 0.6), "general.sampling.top_p": (F32, 1.5), "general.sampling.top_k": (U32, 20),
    }  # fmt: skip
    make.gguf(Path("t.gguf"), changed)
    assert debate("add", "t.gguf") == 0
    assert told(capsys) == [
        "warning: its chat template knows thinking: enable_thinking=False is passed, and the grammar of a reply admits "
        "no thinking text; a model that must think first answers worse here",
        "warning: its context has 2,048 tokens, less than 4,096: prompts with a document need more, and long documents "
        "are cut into many windows",
        "warning: it names no licence: find out what you may do with it, and write it into the manifest",
        "warning: its top_p of 1.5 is left out: outside our limits",
    ]
    manifest = drafted(Path("t.yaml"))
    assert manifest.thinking and manifest.sampling == {"temperature": 0.6, "top_k": 20}
    assert "# licence: unknown\n" in Path("t.yaml").read_text()


@pytest.mark.parametrize("word", ["<think>", "enable_thinking", "reasoning_content"])
def test_thinking_words(word):
    """Each of the three words is enough."""
    path = make.gguf(Path("t.gguf"), {"tokenizer.chat_template": (STRING, f"{{{{ {word!r} }}}}")})
    assert model_facts.of_path(path, "t").manifest.thinking


def test_no_template_and_no_context(capsys):
    """What is not said is not guessed, and told."""
    make.gguf(Path("t.gguf"), {"tokenizer.chat_template": None, "llama.context_length": None})
    assert debate("add", "t.gguf") == 0
    assert [line.split(":")[1] for line in told(capsys)] == [
        " it has no chat template", " it does not say how long its context is",
    ]  # fmt: skip
    manifest = drafted(Path("t.yaml"))
    assert (manifest.context_tokens, manifest.chat_template_sha256, manifest.thinking) == (None, None, False)


@pytest.mark.parametrize(("shape", "prose"), [((1000, 499_999), "strict"), ((1000, 500_000), "free")])
def test_prose(shape, prose):
    """strict below half a billion parameters, counted from the tensors."""
    facts = model_facts.of_path(make.gguf(Path("t.gguf"), shape=shape), "t", hashing=lambda _: "0" * 64)
    assert (facts.manifest.prose, facts.parameters) == (prose, shape[0] * shape[1])


@pytest.mark.parametrize(
    ("said", "name", "expected"),
    [("mit", None, "MIT"), ("llama3.2", None, "llama3.2"), ("other", "Some Licence 1.0", "Some Licence 1.0"),
     ("other", None, None), ("a\nb: c", None, None)],
)  # fmt: skip
def test_licences(said, name, expected):
    """The usual identifiers in their usual spelling; what is no plain word is not believed."""
    changed = {"general.license": (STRING, said), "general.license.name": None if name is None else (STRING, name)}
    assert model_facts.of_path(make.gguf(Path("t.gguf"), changed), "t").manifest.licence == expected


def test_split(capsys):
    """All parts are listed, whichever is given; the manifest is found by the path of any part, and verified whole."""
    parts = [make.gguf(Path(f"big-0000{i}-of-00003.gguf")) for i in (1, 2, 3)]
    assert debate("add", str(parts[1])) == 0
    manifest = drafted(Path("big.yaml"))
    assert [f.path for f in manifest.files] == [p.name for p in parts]
    model = manifests.find_model(f"./{parts[2]}")
    assert model.path == parts[0].absolute()
    assert model.files == tuple(p.absolute() for p in parts)
    parts[2].write_bytes(parts[2].read_bytes()[:-1] + b"x")
    assert debate("verify", f"./{parts[0]}") == 5
    parts[2].unlink()
    capsys.readouterr()
    assert debate("add", str(parts[0]), "--force") == 5
    assert told(capsys)[0] == f"debate: {parts[2].absolute()}: part 3 of 3 of the model is missing"


# ---- folders -------------------------------------------------------------------------------------------------------


def test_the_manifest_of_a_folder(capsys):
    """The weights first, then every other file; facts from config.json, the tokenizer and the README."""
    folder = make.folder(Path("m"))
    assert debate("add", "m/") == 0
    manifest = drafted(Path("m.yaml"))
    assert [f.path for f in manifest.files] == [
        "m/model.safetensors", "m/README.md", "m/config.json", "m/generation_config.json", "m/tokenizer.json",
        "m/tokenizer_config.json",
    ]  # fmt: skip
    assert all(f.sha256 == sha(Path(f.path)) for f in manifest.files)
    assert manifest.model_dump(exclude={"files"}) == {
        "name": "m", "format": "safetensors", "context_tokens": 8192, "architecture": "llama",
        "quantisation": "bfloat16", "chat_template_sha256": TEMPLATE, "licence": "Apache-2.0", "thinking": False,
        "prose": "strict", "sampling": {"temperature": 0.6, "top_k": 20, "top_p": 0.9}, "tested_with": None,
    }  # fmt: skip
    assert told(capsys) == []
    assert manifests.verify_model(manifests.find_model(str(folder.absolute()))) == manifest.files[0].sha256


def test_other_ways_to_say_it():
    """A template file goes before the tokenizer's; nested configs; quantised weights; a licence file."""
    folder = make.folder(
        Path("m"), max_position_embeddings=None, text_config={"max_position_embeddings": 4096},
        quantization_config={"quant_method": "awq", "bits": 4},
    )  # fmt: skip
    (folder / "chat_template.jinja").write_text("other")
    (folder / "README.md").unlink()
    (folder / "LICENSE").write_text("  Apache License\n  Version 2.0\n")
    m = model_facts.of_path(folder, "m").manifest
    assert (m.context_tokens, m.quantisation, m.licence) == (4096, "awq 4-bit", "Apache-2.0")
    assert m.chat_template_sha256 == hashlib.sha256(b"other").hexdigest()


def test_a_template_among_several():
    """Of several templates by name, the default one."""
    folder = make.folder(Path("m"))
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": make.CHATML}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert model_facts.of_path(folder, "m").manifest.chat_template_sha256 == TEMPLATE


def spoil(folder: Path, how: str) -> None:
    """Make the folder one that is refused."""
    weights = folder / "model.safetensors"
    if how == "pickle":
        (folder / "deep").mkdir()
        (folder / "deep/pytorch_model.bin").write_bytes(b"\x80")
    elif how == "code":
        (folder / "config.json").write_text('{"auto_map": {"AutoModel": "x.Y"}}')
    elif how == "link":
        weights.rename(folder.parent / "blob")
        weights.symlink_to("../blob")
    elif how == "empty":
        weights.unlink()
    elif how == "gguf":
        weights.rename(folder / "m.gguf")
    elif how == "below":
        (folder / "deep").mkdir()
        weights.rename(folder / "deep/model.safetensors")
    elif how == "config":
        (folder / "config.json").unlink()
    elif how == "json":
        (folder / "config.json").write_text("[" * 100_000)
    elif how == "cut":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif how == "header":
        weights.write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    elif how == "shard":
        (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-00002.safetensors"}}')
    elif how == "tensor":
        header = b'{"w": {"dtype": "F32"}}'
        weights.write_bytes(struct.pack("<Q", len(header)) + header)


REFUSED = {
    "pickle": (2, "deep/pytorch_model.bin: this file could hold code and is never loaded"),
    "code": (2, "config.json: this model brings its own code (auto_map)"),
    "link": (2, "model.safetensors: a link in a model folder"),
    "empty": (2, " no *.safetensors in the model folder"),
    "gguf": (2, " a folder of GGUF files"),
    "below": (2, " no *.safetensors in the model folder"),
    "config": (2, " the model folder has no config.json"),
    "json": (2, " a JSON file is nested too deeply"),
    "cut": (5, "its tensors need "),
    "header": (5, "damaged or cut off safetensors file: a header of 1152921504606846976 bytes in a file of 10"),
    "shard": (5, "a file of weights is missing: model-00002.safetensors"),
    "tensor": (5, "a tensor without shape or place"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_refused_folders(how, capsys):
    """Pickles, code, links, and what is not whole: where, why, a hint, the exit code; no manifest."""
    spoil(make.folder(Path("m")), how)
    code, why = REFUSED[how]
    assert debate("add", "m") == code
    message, hint = told(capsys)
    assert message.startswith(f"debate: {Path.cwd()}/m") and why in message and hint.startswith("hint: ")
    assert not Path("m.yaml").exists()


# ---- where it goes -------------------------------------------------------------------------------------------------


def test_never_over_a_manifest(capsys):
    """A manifest that is there stays, unless --force is given."""
    make.gguf(Path("t.gguf"))
    Path("t.yaml").write_text("mine")
    assert debate("add", "t.gguf") == 1
    assert told(capsys) == [f"debate: {Path.cwd()}/t.yaml: there is a manifest already", "hint: --force writes over it"]
    assert Path("t.yaml").read_text() == "mine"
    assert debate("add", "t.gguf", "--force") == 0
    assert drafted(Path("t.yaml")).name == "t"


def test_to_a_folder(home, capsys, monkeypatch):
    """Elsewhere only when the model is found from there: below that folder, or below a models folder."""
    make.folder(home / "store/deep/m")
    make.gguf(home / "far.gguf")
    assert debate("add", "deep/m", "--to", ".") == 0
    assert drafted(Path("m.yaml")).files[0].path == "deep/m/model.safetensors"
    assert debate("add", "../far.gguf", "--to", ".") == 2
    assert "with its manifest in" in told(capsys)[0] and not Path("far.yaml").exists()
    monkeypatch.setenv("DEBATE_MODELS", str(home))
    (home / "xdg/DATA/debate-runner/models").mkdir(parents=True)
    assert (
        debate("add", str(home / "far.gguf"), "--to", str(home / "xdg/DATA/debate-runner/models"), "--name", "f") == 0
    )
    assert manifests.find_model("f").path == home / "far.gguf"
    assert capsys.readouterr().out.endswith("Use it with --model f\n")
    assert debate("add", "deep/m", "--to", "gone") == 2


def test_another_file_of_that_name_comes_first(home, capsys, monkeypatch):
    """Where another file would be found under the same path, the manifest is not written."""
    make.gguf(home / "store/t.gguf")
    (home / "other").mkdir()
    make.gguf(home / "other/t.gguf")
    monkeypatch.setenv("DEBATE_MODELS", str(home / "other"))
    assert debate("add", str(home / "other/t.gguf"), "--to", ".") == 2
    assert debate("add", "t.gguf") == 0


def test_a_manifest_that_is_found_first(home, capsys, monkeypatch):
    """A name that another manifest has already: told, and the path is named instead."""
    monkeypatch.setenv("DEBATE_MODELS", str(home / "store"))
    make.gguf(Path("t.gguf"))
    assert debate("add", "t.gguf") == 0
    (home / "more").mkdir()
    make.gguf(home / "more/t.gguf")
    capsys.readouterr()
    assert debate("add", str(home / "more/t.gguf")) == 0
    out, err = capsys.readouterr()
    assert err == f"warning: `--model t` takes another manifest, which is found first: {home}/store/t.yaml\n"
    assert out.endswith(f"Use it with --model {home}/more/t.gguf\n")


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "x.gguf", "x.yaml", "a\nb", "", "x" * 101])
def test_names(name, capsys):
    """A name is that of a file too."""
    make.gguf(Path("t.gguf"))
    code = debate("add", "t.gguf", "--name", name)
    assert (code, Path("t.yaml").exists()) == ((2, False) if name else (0, True))


def test_not_models(home, capsys):
    """A link, nothing, something else, a damaged file: each with its own word and exit code."""
    make.gguf(home / "real.gguf")
    Path("link.gguf").symlink_to(home / "real.gguf")
    Path("text.gguf").write_text("no")
    whole = make.gguf(Path("cut.gguf")).read_bytes()
    Path("cut.gguf").write_bytes(whole[:-1])
    assert [debate("add", f) for f in ("link.gguf", "gone.gguf", "text.gguf", "cut.gguf")] == [2, 2, 2, 5]
    lines = told(capsys)
    assert [line for line in lines if not line.startswith("hint: ")] == [
        f"debate: {Path.cwd()}/link.gguf: a link, not a model",
        f"debate: {Path.cwd()}/gone.gguf: no such model",
        f"debate: {Path.cwd()}/text.gguf: not a GGUF file",
        f"debate: {Path.cwd()}/cut.gguf: the model file is cut off: it has {len(whole) - 1} bytes, and its tensors "
        f"need {len(whole)}",
    ]
    assert lines[1] == f"hint: give the file that it leads to: {home}/real.gguf"


def test_json(capsys):
    """One document, warnings in it."""
    make.gguf(Path("t.gguf"), {"llama.context_length": (U32, 512)})
    assert debate("add", "t.gguf", "--json") == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["schema"], found["ok"], found["parameters"], err) == ("model/1", True, 32, "")
    assert (found["manifest"], found["use"]) == (f"{Path.cwd()}/t.yaml", f"{Path.cwd()}/t.gguf")
    assert found["model"]["context_tokens"] == 512 and len(found["warnings"]) == 1


@pytest.mark.parametrize("name", ["yes", "1e3", "a: b", "a #b", "modèle 🦙", "x'y\"z", "- a", "0x10", "a  b"])
def test_text_loads_as_it_was(name):
    """Whatever a file is called: the YAML loads as the same manifest."""
    manifest = Manifest.model_validate(
        {"name": name, "files": [{"path": f"{name}.gguf", "bytes": 3, "sha256": "0" * 64}],
         "sampling": {"temperature": 1e-05, "top_k": 3}}
    )  # fmt: skip
    assert load(Manifest, manifest_text.render(manifest, None).encode(), "m.yaml") == manifest


# ---- verify --------------------------------------------------------------------------------------------------------


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_verify_the_chat_template(capsys):
    """A template that is another is exit 5, although the file is the one whose sha256 is stated."""
    make.gguf(Path("t.gguf"))
    debate("add", "t.gguf")
    capsys.readouterr()
    assert debate("verify", "./t.gguf") == 0
    assert capsys.readouterr() == (f"./t.gguf: ok, sha256 {sha(Path('t.gguf'))}\n", "")
    edit(Path("t.yaml"), TEMPLATE, "f" * 64)
    assert debate("verify", "./t.gguf") == 5
    assert told(capsys)[0] == (
        f"./t.gguf: {Path.cwd()}/t.gguf: the chat template is not the one its manifest describes: sha256 {TEMPLATE}, "
        f"expected {'f' * 64}"
    )


def test_verify_a_folder(capsys):
    """The same for a folder, also when there is no template any more."""
    folder = make.folder(Path("m"))
    debate("add", "m")
    capsys.readouterr()
    path = str(folder.absolute())
    assert debate("verify", path) == 0
    tokenizer = folder / "tokenizer_config.json"
    old = sha(tokenizer), tokenizer.stat().st_size
    tokenizer.write_text("{}")
    edit(Path("m.yaml"), old[0], sha(tokenizer))
    edit(Path("m.yaml"), f"bytes: {old[1]}", "bytes: 2")
    assert debate("verify", path) == 5
    assert "the chat template is not the one its manifest describes: the model has none" in told(capsys)[0]


def test_verify_the_context(capsys):
    """A manifest that promises more than the model has: a warning with both numbers; less is fine."""
    make.gguf(Path("t.gguf"))
    debate("add", "t.gguf")
    capsys.readouterr()
    edit(Path("t.yaml"), "context_tokens: 8192", "context_tokens: 16384")
    assert debate("verify", "./t.gguf") == 0
    assert told(capsys) == ["warning: ./t.gguf: the manifest promises 16,384 tokens of context, the model has 8,192"]
    edit(Path("t.yaml"), "context_tokens: 16384", "context_tokens: 4096")
    assert debate("verify", "./t.gguf") == 0
    assert told(capsys) == []
