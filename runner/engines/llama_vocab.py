"""Tokens for llama.cpp: the chat template, and segments turned into token ids.

A prompt is cut into pieces (template text and segments) and each piece is tokenised on its own: our text with
control tokens parsed, foreign text without, so that no control token can come out of a document, and a prefix that
two prompts share in text is shared in tokens. Opens the vocabulary only; a loaded model lends its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import llama_cpp.llama_cpp as C

from runner.engines.chat_template import CHATML, ChatTemplate
from runner.errors import Integrity, RunnerError, UsageError
from runner.values import Message, Segment


@C.llama_log_callback  # type: ignore[untyped-decorator]
def _silence(_level: int, _text: bytes, _data: Any) -> None:
    """llama.cpp writes to stderr by itself; errors reach the user as return codes instead."""


def quiet() -> None:
    """Errors reach the user as return codes, not as llama.cpp's own lines."""
    C.llama_log_set(_silence, ctypes.c_void_p(0))


def open_model(path: str, *, vocab_only: bool) -> Any:
    """Load a GGUF file (or its vocabulary alone). Integrity when llama.cpp refuses it."""
    quiet()
    C.llama_backend_init()
    params = C.llama_model_default_params()
    params.vocab_only = vocab_only
    params.n_gpu_layers = 0
    model = C.llama_model_load_from_file(path.encode(), params)
    if not model:
        raise Integrity(
            "llama.cpp cannot load this file", path=path, hint="is it a GGUF file? `debate models verify` checks it"
        )
    return model


_TYPES = {"f16": C.GGML_TYPE_F16, "q8_0": C.GGML_TYPE_Q8_0}


def open_context(
    model: object, n_ctx: int, threads: int, flash: bool, n_seq_max: int, n_batch: int, type_k: str = "f16"
) -> ctypes.c_void_p:
    """A context with one unified pool. type_k: how keys are stored; f16 where the model's heads do not fit the type."""
    p = C.llama_context_default_params()
    p.n_ctx, p.n_batch, p.n_ubatch, p.n_seq_max = n_ctx, n_batch, n_batch, n_seq_max
    p.kv_unified = True
    p.flash_attn_type = int(flash)
    p.n_threads = p.n_threads_batch = threads
    p.type_k = _TYPES[type_k]
    ctx: ctypes.c_void_p = C.llama_init_from_model(model, p)
    if not ctx and type_k != "f16":
        p.type_k = _TYPES["f16"]
        ctx = C.llama_init_from_model(model, p)
    if not ctx:
        raise RunnerError(
            f"no memory for a context of {n_ctx} tokens", code="engine", hint="lower context_tokens in the profile"
        )
    return ctx


class Vocab:
    """The vocabulary and chat template of a loaded model. The model must outlive it."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.ptr = C.llama_model_get_vocab(model)
        self.size: int = C.llama_vocab_n_tokens(self.ptr)
        self.eog: list[int] = [t for t in range(self.size) if C.llama_vocab_is_eog(self.ptr, t)]
        self.end: int = next((t for t in _ends(self.ptr) if t >= 0), self.eog[0] if self.eog else 0)
        raw = C.llama_model_chat_template(model, None)
        self.chat = self.chat_template(raw.decode() if raw else CHATML)
        self._pieces = lru_cache(maxsize=4096)(self._tokenise)

    def chat_template(self, source: str) -> ChatTemplate:
        """A template with this vocabulary's own first and last tokens."""
        return ChatTemplate(source, self.text(C.llama_vocab_bos(self.ptr)), self.text(C.llama_vocab_eos(self.ptr)))

    def text(self, token: int) -> str:
        if token < 0:  # a vocabulary without this token; llama.cpp would end the process
            return ""
        raw = C.llama_vocab_get_text(self.ptr, token)
        return raw.decode() if raw else ""

    def bytes_of(self, token: int) -> bytes:
        """The bytes a token stands for; nothing for a control token."""
        buffer = ctypes.create_string_buffer(256)
        n = C.llama_token_to_piece(self.ptr, token, buffer, 256, 0, False)
        if n < 0:  # the buffer was too small: the call says how much it needs
            buffer = ctypes.create_string_buffer(-n)
            n = C.llama_token_to_piece(self.ptr, token, buffer, -n, 0, False)
        return buffer.raw[: max(n, 0)]

    def _tokenise(self, text: str, trusted: bool) -> tuple[int, ...]:
        raw = text.encode()
        n_max = len(raw) + 8
        out = (C.llama_token * n_max)()
        n = C.llama_tokenize(self.ptr, raw, len(raw), out, n_max, False, trusted)
        if n < 0:  # the buffer was too small: the call says how much it needs
            out = (C.llama_token * -n)()
            n = C.llama_tokenize(self.ptr, raw, len(raw), out, -n, False, trusted)
        return tuple(out[:n])

    def tokens(self, piece: Segment) -> tuple[int, ...]:
        return self._pieces(piece.text, piece.trusted)

    def pieces(self, messages: Sequence[Message]) -> tuple[list[Segment], list[int]]:
        """See ChatTemplate.pieces."""
        return self.chat.pieces(messages)


def _ends(vocab: Any) -> tuple[int, int]:
    """What a finished reply ends with, the likeliest first; -1 where the vocabulary has no such token."""
    return C.llama_vocab_eos(vocab), C.llama_vocab_eot(vocab)


class LlamaTokenizer:
    """Counts tokens without loading weights. See engines.base.Tokenizer."""

    def __init__(self, path: str, context_tokens: int | None = None) -> None:
        self._model = open_model(path, vocab_only=True)
        self.vocab = Vocab(self._model)
        known = context_tokens or _meta_context(self._model)
        if not known:
            raise UsageError("the file does not say its context length", path=path, hint="set context_tokens")
        self.context_tokens: int = known

    def count(self, messages: Sequence[Message]) -> int:
        return sum(len(self.vocab.tokens(p)) for p in self.vocab.pieces(messages)[0])

    def count_text(self, text: str) -> int:
        return len(self.vocab.tokens(Segment(text, False)))

    def close(self) -> None:
        if self._model is not None:
            C.llama_model_free(self._model)
            self._model = None


def meta(model: Any, key: str) -> str | None:
    """A GGUF metadata value as text."""
    buffer = ctypes.create_string_buffer(1 << 16)
    n = C.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return None if n < 0 else buffer.value.decode(errors="replace")


def _meta_context(model: Any) -> int:
    # llama_model_n_ctx_train is 0 for a vocabulary opened alone, so the metadata is read instead.
    arch = meta(model, "general.architecture")
    value = meta(model, f"{arch}.context_length") if arch else None
    return int(value) if value else 0
