"""A manifest as YAML text, with the comments that a person who edits it needs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from runner.errors import UsageError
from runner.manifests import Manifest, ModelFile

_PLAIN = re.compile(r"[A-Za-z][\w./+-]*(?: [\w./+-]+)*", re.ASCII)
_HASH = re.compile(r"(?=.*[a-df])[0-9a-f]{64}")  # without such a letter YAML could take it for a number
_NOT_TEXT = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}  # words that YAML reads as something else
_NAME = re.compile(r"[^\W_][^/\\]{0,99}")
_COMMENTS = {
    "thinking": "does the chat template know thinking? it is always switched off here",
    "prose": "strict: sentences only, which a model below about 0.5 B parameters needs; else free",
}


def checked_name(name: str) -> str:
    """The name, which is that of a file too. UsageError when it cannot be."""
    if not _NAME.fullmatch(name) or not name.isprintable() or name.endswith((".gguf", ".yaml", ".yml")):
        hint = "give one with --name: letters, digits, blanks, . _ and -, without a suffix"
        raise UsageError(f"{name!r} cannot be the name of a model", hint=hint)
    return name


def render(manifest: Manifest, parameters: int | None) -> str:
    """YAML that loads as this manifest. Texts are on one line, quoted unless they are plain words.

    UsageError: the name of a file holds what no text file can.
    """
    size = "" if parameters is None else f" It has {parameters / 1e9:.2f} B parameters."
    head = "# Drafted by `debate models add` from what the model's files say: read it once." + size
    return "\n".join([head, *_lines(manifest)]) + "\n"


def _lines(manifest: Manifest) -> Iterator[str]:
    for key in Manifest.model_fields:
        value = getattr(manifest, key)
        comment = f"  # {_COMMENTS[key]}" if key in _COMMENTS else ""
        if key == "files":
            yield "files:"
            for file in manifest.files:
                yield from _file(file)
        elif key == "sampling" and value:
            yield "sampling:"
            yield from (f"  {name}: {_scalar(number)}" for name, number in value.items())
        elif value is None or value == {}:
            yield from [f"# {key}: unknown"] if key in ("context_tokens", "licence") else []
        else:
            yield f"{key}: {_scalar(value)}{comment}"


def _file(file: ModelFile) -> Iterator[str]:
    if not (file.path or "").isprintable():
        hint = "rename the file or the folder, then run this again"
        raise UsageError(f"this name cannot be written into a manifest: {file.path!r}", hint=hint)
    said = [(key, value) for key in ModelFile.model_fields if (value := getattr(file, key)) is not None]
    for i, (key, value) in enumerate(said):
        yield f"  {'- ' if i == 0 else '  '}{key}: {_scalar(value)}"


def _scalar(value: str | float | bool) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if (
        isinstance(value, str)
        and (_HASH.fullmatch(value) or _PLAIN.fullmatch(value))
        and value.lower() not in _NOT_TEXT
    ):
        return value
    return json.dumps(value, ensure_ascii=False)
