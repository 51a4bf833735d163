"""The servers we know, and how each is asked.

llama-server and vLLM take a prompt as token ids, so the prompt is built here, piece by piece, as the llama.cpp engine
builds its own: the server renders the chat template over holes, each piece is tokenised alone, and no text of a
document ever meets the template or a tokenizer that parses control tokens. That also makes a shared prefix the same
tokens in every request, which is what a prefix cache compares.

- llama-server: /apply-template, /tokenize with `parse_special` off for foreign text, /completion.
- vLLM: its /tokenize always parses control tokens, so foreign text is cut inside whatever the server turned into a
  token that looks like one (`<` and `|im_end|>`), and the parts are tokenised again; /v1/completions.
- any other: /v1/chat/completions takes strings. Nothing can be protected there, so text that holds something of a
  control token's shape is refused, unless that was allowed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from runner.engines.server_http import Failed
from runner.engines.server_prompts import (
    CONTROL_LIKE,
    About,
    Call,
    Prompt,
    TokenPrompts,
    cut,
    find,
    get,
    numbers,
    text_of,
    whole,
)
from runner.errors import UsageError
from runner.values import Finish, Message, Request, Sampling, Segment


@dataclass(frozen=True, slots=True)
class Answer:
    """out: token ids of the reply, where the server gives them."""

    text: str
    finish: Finish
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    out: tuple[int, ...] = ()


class Kind(Protocol):
    """A kind of server. protects: foreign text cannot become a control token."""

    about: About
    protects: bool

    def prompt(self, call: Call, messages: Sequence[Message], shared: Sequence[int] = ()) -> Prompt: ...

    def count_text(self, call: Call, text: str) -> int: ...

    def body(self, request: Request, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        """Path and body of the call that asks for a reply."""

    def read(self, answer: Any) -> Answer:
        """Failed when the answer has not the shape it should have."""


# ---- which one is it? ----------------------------------------------------------------------------------------------


def discover(call: Call, named: str | None) -> Kind:
    """Ask a server what it is. Failed when it does not answer; UsageError when it has not the model that was named."""
    props = _optional(call, "/props")
    if isinstance(props, dict) and isinstance(props.get("default_generation_settings"), dict):
        return _llama(call, props, named)
    models = _models(call)
    known = [m["id"] for m in models]
    if named is None and len(known) != 1:
        raise UsageError("the server has several models" if known else "the server has no model", hint=_set(known))
    if named is not None and named not in known:
        raise UsageError(f"the server has no model {named!r}", hint=_set(known))
    card = next(m for m in models if m["id"] == (named or known[0]))
    context = card.get("max_model_len")
    version = _optional(call, "/version")
    build = version.get("version") if isinstance(version, dict) else None
    if isinstance(build, str) and isinstance(context, int):
        return Vllm(About("vLLM", build, card["id"], context))
    return Plain(About("an OpenAI-compatible server", "", card["id"], context if isinstance(context, int) else None))


def _set(known: Sequence[str]) -> str:
    return "set server.model in the profile to one of: " + ", ".join(known) if known else "load one, then try again"


def _optional(call: Call, path: str) -> Any:
    """What a server that has this path says there; None when it has not."""
    try:
        return call("GET", path, None)
    except Failed as e:
        if e.status in (200, 400, 404, 405, 501):
            return None
        raise


def _models(call: Call) -> list[dict[str, Any]]:
    answer = call("GET", "/v1/models", None)
    cards = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(cards, list):
        raise Failed("does not list its models at /v1/models", again=False)
    return [c for c in cards if isinstance(c, dict) and isinstance(c.get("id"), str)]


def _llama(call: Call, props: dict[str, Any], named: str | None) -> Kind:
    # Without --alias it is the file's path, which is nobody's business.
    name = str(props.get("model_alias") or props.get("model_path") or "").rpartition("/")[2]
    if named is not None and named.rpartition("/")[2] != name:
        raise UsageError(f"the server has no model {named!r}", hint=_set([name]))
    context = props["default_generation_settings"].get("n_ctx")
    about = About(
        "llama-server", str(props.get("build_info", "")), name, context if isinstance(context, int) else None,
        whole(props.get("total_slots") or 1), _saves(call),
    )  # fmt: skip
    kind = LlamaServer(about)
    try:
        kind.prompt(call, (Message("user", (Segment("a", False),)),))
    except (Failed, UsageError) as e:
        if isinstance(e, Failed) and e.status is None:
            raise
        return Plain(about)  # one that is too old for this
    return kind


def _saves(call: Call) -> bool:
    """A server without --slot-save-path says 501 whatever is asked; one with it refuses this action alone."""
    try:
        call("POST", "/slots/0?action=none", {})
    except Failed as e:
        return e.status == 400
    return False


# ---- the three -----------------------------------------------------------------------------------------------------


class LlamaServer(TokenPrompts):
    """llama-server, through its own API."""

    def _render(self, call: Call, messages: list[dict[str, str]]) -> str:
        body = {"messages": messages, "chat_template_kwargs": {"enable_thinking": False}}
        return str(get(call("POST", "/apply-template", body), "prompt"))

    def _tokenise(self, call: Call, text: str, trusted: bool, first: bool) -> tuple[int, ...]:
        body = {"content": text, "add_special": first, "parse_special": trusted}
        return numbers(get(call("POST", "/tokenize", body), "tokens"))

    def body(self, request: Request, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        s = request.sampling
        body: dict[str, Any] = _common(s) | {
            "prompt": list(prompt.ids or ()), "n_predict": request.max_tokens, "cache_prompt": True,
            "repeat_penalty": s.repeat_penalty, "return_tokens": True,
            "response_fields": ["content", "tokens", "stop_type", "tokens_predicted", "tokens_evaluated", "timings"],
        }  # fmt: skip
        if s.dry_multiplier:
            body |= {"dry_multiplier": s.dry_multiplier, "dry_base": s.dry_base, "dry_allowed_length": s.dry_allowed}
        if request.format is not None:
            body["json_schema"] = json.loads(request.format.json_schema)
        return "/completion", body

    def read(self, answer: Any) -> Answer:
        finish: Finish = "length" if get(answer, "stop_type") == "limit" else "stop"
        tokens_in, tokens_out = whole(get(answer, "tokens_evaluated")), whole(get(answer, "tokens_predicted"))
        cached = min(whole(find(answer, "timings", "cache_n") or 0), tokens_in)
        text = text_of(get(answer, "content"))
        return Answer(text, finish, tokens_in, cached, tokens_out, numbers(find(answer, "tokens") or []))


class Vllm(TokenPrompts):
    """`vllm serve`, through its completions API."""

    def _render(self, call: Call, messages: list[dict[str, str]]) -> str:
        body = {
            "model": self.about.model, "messages": messages, "add_generation_prompt": True,
            "chat_template_kwargs": {"enable_thinking": False},
        }  # fmt: skip
        tokens = numbers(get(call("POST", "/tokenize", body), "tokens"))
        back = {"model": self.about.model, "tokens": list(tokens)}
        return str(get(call("POST", "/detokenize", back), "prompt"))

    def _tokenise(self, call: Call, text: str, trusted: bool, first: bool) -> tuple[int, ...]:
        parts = [text]
        for _ in range(4):
            results = [self._one(call, part) for part in parts]
            words = set() if trusted else {w for (_, found), part in zip(results, parts, strict=True)
                                           for w in found if CONTROL_LIKE.fullmatch(w) and w in part}  # fmt: skip
            if not words:
                return tuple(t for ids, _ in results for t in ids)
            parts = [half for part in parts for half in cut(part, words)]
        raise UsageError("the document holds text that this server always takes for control tokens")

    def _one(self, call: Call, text: str) -> tuple[tuple[int, ...], list[str]]:
        body = {
            "model": self.about.model, "prompt": text, "add_special_tokens": False, "return_token_strs": True,
        }  # fmt: skip
        answer = call("POST", "/tokenize", body)
        return numbers(get(answer, "tokens")), [str(w) for w in get(answer, "token_strs") or ()]

    def body(self, request: Request, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        body: dict[str, Any] = _common(request.sampling) | {
            "model": self.about.model, "prompt": list(prompt.ids or ()), "max_tokens": request.max_tokens,
            "repetition_penalty": request.sampling.repeat_penalty, "add_special_tokens": False,
        }  # fmt: skip
        return "/v1/completions", body | _response_format(request)

    def read(self, answer: Any) -> Answer:
        return _openai(answer, text_of(get(answer, "choices", 0, "text")))


class Plain:
    """Any other server: chat messages as strings, and no tokenizer."""

    protects = False

    def __init__(self, about: About) -> None:
        self.about = about

    def prompt(self, call: Call, messages: Sequence[Message], shared: Sequence[int] = ()) -> Prompt:
        return Prompt(sum(self.count_text(call, m.text) for m in messages))

    def count_text(self, call: Call, text: str) -> int:
        return -(-len(text.encode()) // 4)

    def body(self, request: Request, prompt: Prompt) -> tuple[str, dict[str, Any]]:
        body: dict[str, Any] = _common(request.sampling) | {
            "model": self.about.model,
            "messages": [{"role": m.role, "content": m.text} for m in request.messages],
            "max_tokens": request.max_tokens,
            "repeat_penalty": request.sampling.repeat_penalty,  # servers that do not know one of the two ignore it
            "repetition_penalty": request.sampling.repeat_penalty,
        }
        return "/v1/chat/completions", body | _response_format(request)

    def read(self, answer: Any) -> Answer:
        return _openai(answer, text_of(get(answer, "choices", 0, "message", "content")))


def _common(s: Sampling) -> dict[str, Any]:
    return {
        "temperature": s.temperature, "top_k": s.top_k, "top_p": s.top_p, "min_p": s.min_p,
        "seed": s.seed % 0xFFFFFFFF, "stream": False,  # llama-server's largest seed asks for a random one
    }  # fmt: skip


def _response_format(request: Request) -> dict[str, Any]:
    if request.format is None:
        return {}
    schema = {"name": "reply", "strict": True, "schema": json.loads(request.format.json_schema)}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


_FINISHES: dict[str, Finish] = {"length": "length", "repetition": "degenerate", "abort": "error", "error": "error"}


def _openai(answer: Any, text: str) -> Answer:
    finish = _FINISHES.get(str(get(answer, "choices", 0, "finish_reason")), "stop")
    tokens_in = whole(find(answer, "usage", "prompt_tokens") or 0)
    cached = min(whole(find(answer, "usage", "prompt_tokens_details", "cached_tokens") or 0), tokens_in)
    return Answer(text, finish, tokens_in, cached, whole(find(answer, "usage", "completion_tokens") or 0))
