"""What is refused before vLLM loads anything: folders that hold code, settings that cannot be, too little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from runner.config import VllmConfig
from runner.engines import vllm_settings as settings
from runner.errors import RunnerError, UsageError

GIB = 1 << 30
CONFIG = {
    "num_attention_heads": 8, "num_key_value_heads": 2, "num_hidden_layers": 4, "head_dim": 64, "hidden_size": 512,
    "max_position_embeddings": 4096,
}  # fmt: skip


def folder_of(path: Path, **files: str) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(CONFIG))
    (path / "model.safetensors").write_bytes(b"x" * 1000)
    for name, text in files.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text)
    return path


# ---- the model folder ----------------------------------------------------------------------------------------------


def test_a_plain_folder_is_good(tmp_path):
    """Safetensors and JSON are all that is needed; other texts do no harm."""
    settings.check_folder(folder_of(tmp_path / "m", **{"README.md": "# auto_map", "vocab.json": "[1]"}))


@pytest.mark.parametrize(
    "name",
    ["pytorch_model.bin", "model.pt", "model.PTH", "a.pkl", "a.pickle", "a.ckpt", "modeling_x.py", "deep/extra.bin"],
)
def test_files_that_could_hold_code(tmp_path, name):
    """A pickle, or Python, anywhere in the folder is refused by name, beside safetensors too."""
    folder = folder_of(tmp_path / "m", **{name: "x"})
    with pytest.raises(UsageError) as caught:
        settings.check_folder(folder)
    assert str(caught.value) == (
        f"{folder / name}: this file could hold code and is never loaded\n"
        "hint: use a copy with *.safetensors only, without this file"
    )


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "processor_config.json"])
def test_models_with_code_of_their_own(tmp_path, name):
    """auto_map in any of the folder's files is refused: trust_remote_code is never set."""
    folder = folder_of(tmp_path / "m", **{name: json.dumps({"auto_map": {"AutoConfig": "x.Y"}})})
    with pytest.raises(UsageError, match=r"this model brings its own code \(auto_map\)\nhint: trust_remote_code"):
        settings.check_folder(folder)


def test_not_a_folder_and_no_weights(tmp_path):
    """A GGUF file is pointed to the tool that converts it; a folder without safetensors is no model."""
    gguf = tmp_path / "m.gguf"
    gguf.write_bytes(b"GGUF")
    with pytest.raises(UsageError, match=r"not a model folder\nhint: .*tools/convert_gguf\.py"):
        settings.check_folder(gguf)
    folder = folder_of(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"no \*\.safetensors in the model folder"):
        settings.check_folder(folder)


@pytest.mark.parametrize(("text", "message"), [(None, "has no config.json"), ("{", "not readable as JSON")])
def test_config_that_cannot_be_read(tmp_path, text, message):
    """Said with the folder or the file."""
    folder = folder_of(tmp_path / "m")
    (folder / "config.json").unlink() if text is None else (folder / "config.json").write_text(text)
    with pytest.raises(UsageError, match=message):
        settings.read_config(folder)


# ---- parallel settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensor_parallel_size": 3}, "vllm: the model has 8 attention heads, not divisible by tensor_parallel_size 3"),
        ({"pipeline_parallel_size": 5}, "vllm: the model has 4 layers, fewer than pipeline_parallel_size 5"),
        ({"tensor_parallel_size": 2, "distributed_executor_backend": "uni"},
         "vllm: uni runs one process, and these sizes ask for 2"),
        ({"distributed_executor_backend": "ray"}, "vllm: ray is not installed, and the backend is ray"),
        ({"max_num_batched_tokens": 256, "max_num_seqs": 300},
         "vllm: max_num_batched_tokens is below max_num_seqs: 256"),
    ],
)  # fmt: skip
def test_impossible_settings(changes, message):
    """Each in our words, with a hint, before anything starts."""
    with pytest.raises(UsageError) as caught:
        settings.check_parallel(VllmConfig(**changes), CONFIG, ray=False)
    assert caught.value.message == message
    assert caught.value.hint.endswith("(in the profile)")


def test_ray_and_data_parallel():
    """Ray places the workers of one engine; several engines are several processes."""
    options = VllmConfig(distributed_executor_backend="ray", data_parallel_size=2)
    with pytest.raises(UsageError, match=r"^vllm: data_parallel_size cannot go with ray; it is 2\n"):
        settings.check_parallel(options, CONFIG, ray=True)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tensor_parallel_size": 8, "pipeline_parallel_size": 4, "data_parallel_size": 2},
        {"distributed_executor_backend": "ray", "tensor_parallel_size": 4},
        {"distributed_executor_backend": "uni"},
        {"distributed_executor_backend": "mp", "tensor_parallel_size": 2},
    ],
)
def test_possible_settings(changes):
    """What can be is let through; a config that says nothing of heads and layers is too."""
    settings.check_parallel(VllmConfig(**changes), CONFIG, ray=True)
    settings.check_parallel(VllmConfig(**changes), {}, ray=True)


def test_more_gpus_than_there_are():
    """The product is compared with the machine's GPUs, in numbers; with ray they may be on other machines."""
    options = VllmConfig(tensor_parallel_size=4, pipeline_parallel_size=2, data_parallel_size=2)
    with pytest.raises(UsageError) as caught:
        settings.check_gpus(options, 8)
    assert str(caught.value) == (
        "vllm: tensor × pipeline × data parallel = 4 × 2 × 2 = 16 GPUs, but there are 8\n"
        "hint: lower one of the sizes in the profile"
    )
    settings.check_gpus(options, 16)
    settings.check_gpus(VllmConfig(tensor_parallel_size=16, distributed_executor_backend="ray"), 0)
    with pytest.raises(UsageError, match="1 × 1 × 1 = 1 GPUs, but there are 0"):
        settings.check_gpus(VllmConfig(), 0)


def test_cpu_build():
    """Tensor and data parallel run on a CPU too; pipeline parallel does not."""
    settings.check_cpu(VllmConfig(tensor_parallel_size=3, data_parallel_size=2))
    with pytest.raises(UsageError, match=r"^vllm: without a GPU there is no pipeline_parallel_size 2\n"):
        settings.check_cpu(VllmConfig(pipeline_parallel_size=2))


# ---- memory --------------------------------------------------------------------------------------------------------


def test_gpu_in_use():
    """Less free than gpu_memory_utilization asks for: how much of each, and what would fit."""
    with pytest.raises(RunnerError) as caught:
        settings.check_memory(VllmConfig(), [(79 * GIB, 80 * GIB), (20 * GIB, 80 * GIB)], GIB, GIB)
    assert caught.value.code == "memory"
    assert str(caught.value) == (
        "GPU 1 has 20.0 GiB free of 80.0, and gpu_memory_utilization 0.9 asks for 72.0\n"
        "hint: end what else uses the GPU, or lower gpu_memory_utilization to 0.25 in the profile"
    )


def test_model_too_large():
    """Weights and one context are more than the budget: both sizes, for each GPU."""
    with pytest.raises(RunnerError) as caught:
        settings.check_memory(VllmConfig(tensor_parallel_size=2), [(24 * GIB, 24 * GIB)] * 2, 44 * GIB, 4 * GIB)
    assert str(caught.value) == (
        "the model needs 22.0 GiB for weights and 2.0 GiB for the KV cache on GPU 0, more than its 21.6 GiB\n"
        "hint: use a smaller or quantised model, more GPUs (tensor_parallel_size), or a lower context_tokens"
    )
    settings.check_memory(VllmConfig(tensor_parallel_size=4), [(24 * GIB, 24 * GIB)] * 4, 44 * GIB, 4 * GIB)


def test_kv_cache_as_the_profile_says():
    """kv_cache_gib counts in the place of one context."""
    gpus = [(24 * GIB, 24 * GIB)]
    settings.check_memory(VllmConfig(kv_cache_gib=5), gpus, 16 * GIB, 40 * GIB)
    with pytest.raises(RunnerError, match=r"6\.0 GiB for the KV cache"):
        settings.check_memory(VllmConfig(kv_cache_gib=6), gpus, 16 * GIB, 0)


def test_cache_of_one_context():
    """Key and value, layers, heads, width, two bytes; four for float32; nothing when config.json does not say."""
    assert settings.cache_bytes(CONFIG, 1000, "auto") == 2 * 4 * 2 * 64 * 2 * 1000
    assert settings.cache_bytes(CONFIG, 1000, "float32") == 2 * 4 * 2 * 64 * 4 * 1000
    assert settings.cache_bytes({k: v for k, v in CONFIG.items() if k != "head_dim"}, 1, "auto") == 2 * 4 * 2 * 64 * 2
    assert settings.cache_bytes({}, 1000, "auto") == 0


def test_host_memory():
    """A CPU build is checked against the machine's memory; its KV cache holds two contexts, 2 GiB at least."""
    assert settings.host_cache_bytes(VllmConfig(), 1) == 2 * GIB
    assert settings.host_cache_bytes(VllmConfig(), 3 * GIB) == 6 * GIB
    assert settings.host_cache_bytes(VllmConfig(kv_cache_gib=0.5), 3 * GIB) == GIB // 2
    settings.check_host(8 * GIB, 4 * GIB, 4 * GIB)
    with pytest.raises(RunnerError, match=r"^the model needs 4\.0 GiB .* 4\.0 GiB .* 7\.9 GiB of memory are free\n"):
        settings.check_host(8 * GIB - GIB // 10, 4 * GIB, 4 * GIB)
    assert settings.available_bytes() > 0


def test_weights_are_the_safetensors(tmp_path):
    """Their sizes, in sub-folders too, and nothing else's."""
    folder = folder_of(tmp_path / "m", **{"deep/b.safetensors": "y" * 24, "c.json": "{}"})
    assert settings.weights_bytes(folder) == 1024


# ---- what vLLM is given --------------------------------------------------------------------------------------------


def test_arguments(tmp_path):
    """The profile's settings by vLLM's names; guidance without whitespace; prefix caching; no code of the model's."""
    options = VllmConfig(
        dtype="float16", quantization="fp8", tensor_parallel_size=2, pipeline_parallel_size=2, kv_cache_gib=1.5,
        distributed_executor_backend="ray", gpu_memory_utilization=0.8, max_num_seqs=9, max_num_batched_tokens=512,
        enforce_eager=True,
    )  # fmt: skip
    assert settings.engine_args(options, tmp_path, 1000, 4096, 0) == {
        "model": str(tmp_path), "tokenizer": str(tmp_path), "trust_remote_code": False, "load_format": "safetensors",
        "generation_config": "vllm", "max_model_len": 1001, "enable_prefix_caching": True, "disable_log_stats": True,
        "structured_outputs_config": {"backend": "guidance", "disable_any_whitespace": True}, "seed": 0,
        "use_tqdm_on_load": False, "dtype": "float16", "quantization": "fp8", "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2, "distributed_executor_backend": "ray", "gpu_memory_utilization": 0.8,
        "max_num_seqs": 9, "max_num_batched_tokens": 512, "enforce_eager": True, "kv_cache_memory_bytes": 3 * GIB // 2,
    }  # fmt: skip


def test_data_parallel_engines_have_gpus_of_their_own(tmp_path):
    """Each rank the next so many; one engine alone is told nothing. The context never exceeds the model's."""
    options = VllmConfig(tensor_parallel_size=2, data_parallel_size=3)
    found = [settings.engine_args(options, tmp_path, 4096, 4096, rank) for rank in range(3)]
    assert [args["device_ids"] for args in found] == [[0, 1], [2, 3], [4, 5]]
    assert [args["max_model_len"] for args in found] == [4096] * 3
    assert "device_ids" not in settings.engine_args(VllmConfig(), tmp_path, 10, 0, 0)
    assert settings.local_gpus(options, 8) == 6
    assert settings.local_gpus(VllmConfig(distributed_executor_backend="ray"), 8) == 8


def test_vllm_is_not_installed(tmp_path):
    """The extra is named, whichever of its packages is missing."""
    code = (
        "import sys; sys.modules['tokenizers'] = None\n"
        "from pathlib import Path; from runner.config import VllmConfig; from runner.engines.vllm import Vllm\n"
        "try: Vllm(Path(sys.argv[1]), context_tokens=9, options=VllmConfig())\n"
        "except Exception as e: print(type(e).__name__, e)"
    )
    folder = folder_of(tmp_path / "m", **{"tokenizer.json": '{"added_tokens": []}'})
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "UsageError the vllm engine is not installed (tokenizers is missing)\nhint: pip install 'debate-runner[vllm]'\n"
    )
