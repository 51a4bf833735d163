"""Tokens for vLLM: the same rules as for llama.cpp, read from a model folder without its weights and without vllm.

Each piece of a prompt is tokenised on its own: our text with control tokens parsed, foreign text by a copy of the
tokenizer that knows none, so that no control token can come out of a document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from runner.engines.chat_template import CHATML, ChatTemplate
from runner.errors import UsageError
from runner.values import Message, Segment


class VllmTokenizer:
    """See engines.base.Tokenizer. path: a model folder with tokenizer.json. context_tokens: None: the model's own.

    stops: ids that end a reply; end: the first of them.
    """

    def __init__(self, path: Path, context_tokens: int | None = None) -> None:
        raw = _json(path / "tokenizer.json", needed=True)
        special = [t for t in raw.get("added_tokens") or [] if t.get("special")]
        self._control = {int(t["id"]) for t in special}
        self._inside = _inside([str(t["content"]) for t in special])
        self._parsing, self._plain = _tokenizers(raw, path)
        named, config = _json(path / "tokenizer_config.json"), _json(path / "config.json")
        bos, eos = _content(named.get("bos_token")), _content(named.get("eos_token"))
        self._template = ChatTemplate(_template(path, named), bos, eos)
        known = [self._parsing.token_to_id(eos) if eos else None]
        known += _ids(_json(path / "generation_config.json").get("eos_token_id")) + _ids(config.get("eos_token_id"))
        self.stops: tuple[int, ...] = tuple(dict.fromkeys(t for t in known if t is not None))
        self.end: int = self.stops[0] if self.stops else 0
        limit = context_tokens or trained_context(config)
        if not limit:
            raise UsageError("the model does not say its context length", path=str(path), hint="set context_tokens")
        self.context_tokens: int = limit
        self._pieces = lru_cache(maxsize=4096)(self._tokenise)

    def tokens(self, piece: Segment) -> tuple[int, ...]:
        return self._pieces(piece.text, piece.trusted)

    def prompt(self, messages: Sequence[Message], n_segments: int | None = None) -> list[int]:
        """Token ids of the whole prompt, or of what stands up to the end of its first n_segments segments."""
        pieces, ends = self._template.pieces(messages)
        kept = pieces if n_segments is None else pieces[: ends[n_segments]]
        return list(chain.from_iterable(map(self.tokens, kept)))

    def count(self, messages: Sequence[Message]) -> int:
        return sum(len(self.tokens(p)) for p in self._template.pieces(messages)[0])

    def count_text(self, text: str) -> int:
        return len(self.tokens(Segment(text, False)))

    def text(self, tokens: Sequence[int]) -> str:
        """The text of a reply; nothing for a control token."""
        return str(self._parsing.decode(list(tokens), skip_special_tokens=True))

    def _tokenise(self, text: str, trusted: bool) -> tuple[int, ...]:
        if trusted:
            return tuple(self._parsing.encode(text, add_special_tokens=False).ids)
        ids = self._foreign(text)
        if not self._control.isdisjoint(ids):
            # A vocabulary can spell a control token with pieces of plain text; so its name is cut in two.
            ids = [i for part in self._inside.split(text) for i in self._foreign(part)]
        if not self._control.isdisjoint(ids):
            raise UsageError("this tokenizer makes a control token out of plain text", code="model", hint="use another")
        return tuple(ids)

    def _foreign(self, text: str) -> list[int]:
        return list(self._plain.encode(text, add_special_tokens=False).ids)


def trained_context(config: dict[str, Any]) -> int:
    """Tokens the model was trained for, by its config.json; 0 when it does not say."""
    known = config.get("max_position_embeddings") or config.get("text_config", {}).get("max_position_embeddings")
    return int(known or 0)


def _tokenizers(raw: dict[str, Any], path: Path) -> tuple[Any, Any]:
    """One that parses control tokens, and one that knows no added token but runs of blanks."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise missing("tokenizers") from None
    blanks = [t for t in raw.get("added_tokens") or [] if not str(t["content"]).strip()]
    try:
        return tuple(Tokenizer.from_str(json.dumps(raw | {"added_tokens": a})) for a in (raw["added_tokens"], blanks))
    except Exception as e:  # the library raises Exception itself
        raise UsageError(f"this tokenizer cannot be used: {e}", path=str(path / "tokenizer.json")) from None


def missing(package: str) -> UsageError:
    return UsageError(
        f"the vllm engine is not installed ({package} is missing)", hint="pip install 'debate-runner[vllm]'"
    )


def _inside(names: Iterable[str]) -> re.Pattern[str]:
    """The place after the first character of each name."""
    cuts = [f"(?<={re.escape(n[0])})(?={re.escape(n[1:])})" for n in names if len(n) > 1]
    return re.compile("|".join(cuts) or "(?!)")


def _template(path: Path, named: dict[str, Any]) -> str:
    """The chat template: a file of its own, or in tokenizer_config.json, one or several by name."""
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    found = named.get("chat_template")
    if isinstance(found, list):
        found = {t.get("name"): t.get("template") for t in found}.get("default")
    return str(found) if found else CHATML


def _json(path: Path, *, needed: bool = False) -> dict[str, Any]:
    if not path.is_file() and not needed:
        return {}
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        hint = "vLLM models are folders with config.json, tokenizer.json and *.safetensors"
        raise UsageError(f"the model folder has no {path.name}", path=str(path.parent), hint=hint) from None
    except ValueError:
        raise UsageError("not readable as JSON", path=str(path)) from None
    if not isinstance(found, dict):
        raise UsageError("expected keys and values", path=str(path))
    return found


def _content(token: Any) -> str:
    return str(token.get("content", "") if isinstance(token, dict) else token or "")


def _ids(value: Any) -> list[int | None]:
    return [int(v) for v in value] if isinstance(value, list) else [] if value is None else [int(value)]
