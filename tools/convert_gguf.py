"""Make a folder of safetensors, and its manifest, of a GGUF model: `python tools/convert_gguf.py MODEL.gguf FOLDER`.

Needs torch, transformers, gguf and accelerate. The manifest is written beside the folder, as FOLDER.yaml, with the
path, size and sha256 of every file; licence, prose and sampling are taken from the manifest given with --like. The
folder appears when it is complete. Exit codes: 0 made (or already there), 2 cannot be converted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

# How llama.cpp splits text before merging, by the GGUF's word for it; transformers assumes the first for all.
_DIGITS = {"type": "Digits", "individual_digits": True}
_SPLITS: dict[str, list[dict[str, Any]]] = {"default": [], "gpt-2": [], "smollm": [_DIGITS], "starcoder": [_DIGITS]}
_KEPT = ("licence", "thinking", "prose", "sampling", "context_tokens", "architecture")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="a GGUF file")
    parser.add_argument("folder", type=Path, help="the folder to make")
    parser.add_argument("--like", type=Path, help="the manifest of the GGUF model")
    args = parser.parse_args()
    if manifest_of(args.folder).is_file():
        return 0
    try:
        convert(args.source, args.folder, args.like)
    except (OSError, ValueError) as e:
        print(f"convert_gguf: {args.source}: {e}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


def manifest_of(folder: Path) -> Path:
    return folder.parent / f"{folder.name}.yaml"


def convert(source: Path, folder: Path, like: Path | None) -> None:
    """Both under names of their own first, so that a stopped run leaves nothing that looks whole."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    split = _split_of(source)
    unfinished = folder.parent / f".{folder.name}.part"
    for old in (unfinished, folder):
        shutil.rmtree(old, ignore_errors=True)
    unfinished.mkdir(parents=True)
    _write_model(source, unfinished)
    _mend_tokenizer(unfinished, split)
    unfinished.rename(folder)
    known = yaml.safe_load(like.read_bytes()) if like else {}
    text = yaml.safe_dump(describe(folder, known), sort_keys=False, allow_unicode=True)
    part = manifest_of(unfinished)
    part.write_text(text, encoding="utf-8")
    part.rename(manifest_of(folder))


def describe(folder: Path, known: dict[str, Any]) -> dict[str, Any]:
    """The manifest. known: that of the GGUF model, of which some words still hold."""
    files = sorted((p for p in folder.rglob("*") if p.is_file()), key=lambda p: (len(p.parts), p))
    listed = [
        {"path": str(p.relative_to(folder.parent)), "bytes": p.stat().st_size, "sha256": _sha256(p)} for p in files
    ]
    kept = {k: known[k] for k in _KEPT if k in known}
    template = folder / "chat_template.jinja"
    more = {"chat_template_sha256": _sha256(template)} if template.is_file() else {}
    return {"name": folder.name, "format": "safetensors", "files": listed, "quantisation": "bfloat16"} | kept | more


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _split_of(source: Path) -> list[dict[str, Any]]:
    """What stands before the byte-level splitter. ValueError when we do not know, or for another tokenizer."""
    from gguf import GGUFReader

    fields = GGUFReader(source).fields
    words = {k: fields[k].contents() if k in fields else None for k in ("tokenizer.ggml.model", "tokenizer.ggml.pre")}
    kind, pre = words.values()
    if kind != "gpt2" or (pre or "default") not in _SPLITS:
        raise ValueError(f"tokenizer {kind} with {pre} splitting is not known to this tool")
    return _SPLITS[pre or "default"]


def _write_model(source: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where = {"gguf_file": source.name, "local_files_only": True}
    AutoTokenizer.from_pretrained(source.parent, **where).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16, **where
    )
    model.save_pretrained(folder)


def _mend_tokenizer(folder: Path, split: list[dict[str, Any]]) -> None:
    """Put back the splitter that the conversion loses, let `<|endoftext|>` end a reply too, and let all read it."""
    path = folder / "tokenizer.json"
    data = json.loads(path.read_bytes())
    data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*split, data["pre_tokenizer"]]}
    path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    ends = [t["id"] for t in data["added_tokens"] if t["content"] == "<|endoftext|>"]
    path = folder / "generation_config.json"
    config = json.loads(path.read_bytes())
    config["eos_token_id"] = list(dict.fromkeys([config["eos_token_id"], *ends]))
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    config_path = folder / "config.json"
    config = json.loads(config_path.read_bytes())
    config.pop("_name_or_path", None)
    config_path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    for file in folder.iterdir():
        file.chmod(0o644)


if __name__ == "__main__":
    sys.exit(main())
