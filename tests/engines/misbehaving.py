"""A server that does wrong on purpose: an OpenAI-compatible one, a vLLM or a llama-server, as far as the engine asks.

    with Misbehaving("llama", script=["500", "ok"]) as server:
        server.url, server.asked

Each call for a reply takes the next word of the script (`ok` when it is used up); everything else is answered well,
unless `refuse` names its path. A token is a character, but for the two control tokens.
"""

from __future__ import annotations

import contextlib
import json
import re
import socketserver
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

CONTROL = {"<|im_start|>": 2_000_001, "<|im_end|>": 2_000_002}
_WORDS = {number: word for word, number in CONTROL.items()}
_TOKEN = re.compile(r"<\|im_start\|>|<\|im_end\|>|.", re.DOTALL)
REPLY = '{"quote":"The cache is never invalidated.","kind":"risk","sure":true}'
REPLY_PATHS = ("/v1/chat/completions", "/v1/completions", "/completion")
TYPES = {400: "invalid_request_error", 429: "rate_limit_error", 500: "server_error", 503: "unavailable_error"}


def encode(text: str, special: bool = True) -> list[int]:
    if not special:
        return [ord(c) for c in text]
    return [CONTROL.get(word) or ord(word) for word in _TOKEN.findall(text)]


def decode(tokens: list[int]) -> str:
    return "".join(_WORDS.get(t) or chr(t) for t in tokens)


def template(messages: list[dict[str, str]]) -> str:
    turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return turns + "<|im_start|>assistant\n"


class Misbehaving:
    """kind: openai, vllm or llama. asked: bodies of the calls for a reply, in order; calls: (method, path) of all.

    socket: path of a unix socket, else a free port is taken. n_ctx: the context it claims. slots: of a llama-server;
    saves: can it save them? gate: calls for a reply that are answered only when so many are there.
    """

    def __init__(
        self, kind: str = "openai", script: list[str] = (), *, socket: Path | None = None, n_ctx: int = 8192,
        slots: int = 4, saves: bool = False, gate: int = 1, models: tuple[str, ...] = ("tiny",), text: str = REPLY,
        port: int = 0, refuse: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.kind, self.n_ctx, self.slots, self.saves, self.models, self.text = kind, n_ctx, slots, saves, models, text
        self.script = deque(script)
        self.refuse = refuse or {}
        self.asked: list[dict] = []
        self.calls: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        self.most = 0
        self.written = 0
        self.released = threading.Event()
        self._now = 0
        self._gate = threading.Barrier(gate)
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"owner": self})
        if socket is None:
            self._server = _Server(("127.0.0.1", port), handler)
            self.port = self._server.server_address[1]
            self.url = f"http://127.0.0.1:{self.port}"
        else:
            self._server = _UnixServer(str(socket), handler)
            self.url = f"unix:{socket}"
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Misbehaving:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """No new connection, and those that hang are let go."""
        self.released.set()
        self._gate.abort()
        self._server.shutdown()
        self._server.server_close()

    def reply_calls(self) -> int:
        return len(self.asked)

    def enter(self, body: dict) -> str:
        """Note a call for a reply; the word that says how it is answered."""
        with self._lock:
            self.asked.append(body)
            self._now += 1
            self.most = max(self.most, self._now)
            word = self.script.popleft() if self.script else "ok"
        with contextlib.suppress(threading.BrokenBarrierError):
            self._gate.wait(10)
        return word

    def leave(self) -> None:
        with self._lock:
            self._now -= 1


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that goes away is what these tests are about."""


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    pass


class _Handler(BaseHTTPRequestHandler):
    owner: Misbehaving
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.owner.connections += 1

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._any(None)

    def do_POST(self) -> None:
        self._any(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _any(self, body: dict | None) -> None:
        owner, path = self.owner, self.path
        owner.calls.append((self.command, path))
        owner.headers.append(dict(self.headers))
        if path in owner.refuse:
            return self._status(owner.refuse[path])
        if path in REPLY_PATHS and body is not None and body.get("n_predict") != 0:
            word = owner.enter(body)
            try:
                return self._misbehave(word, body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True
                return None
            finally:
                owner.leave()
        answer = getattr(self, f"_{owner.kind}")(path.partition("?")[0], body)
        return self._status(404) if answer is None else self._json(answer)

    # ---- answers that are well -----------------------------------------------------------------------------------

    def _openai(self, path: str, body: dict | None) -> dict | None:
        return {"data": [{"id": m} for m in self.owner.models]} if path == "/v1/models" else None

    def _vllm(self, path: str, body: dict | None) -> dict | None:
        match path:
            case "/v1/models":
                return {"data": [{"id": m, "max_model_len": self.owner.n_ctx} for m in self.owner.models]}
            case "/version":
                return {"version": "0.32.0"}
            case "/tokenize":
                tokens = encode(template(body["messages"]) if "messages" in body else body["prompt"])
                return {"tokens": tokens, "count": len(tokens), "token_strs": [decode([t]) for t in tokens]}
            case "/detokenize":
                return {"prompt": decode(body["tokens"])}
        return None

    def _llama(self, path: str, body: dict | None) -> dict | None:
        match path:
            case "/props":
                return {
                    "default_generation_settings": {"n_ctx": self.owner.n_ctx}, "total_slots": self.owner.slots,
                    "model_alias": self.owner.models[0], "build_info": "b1-abc",
                }  # fmt: skip
            case "/apply-template":
                return {"prompt": template(body["messages"])}
            case "/tokenize":
                return {"tokens": encode(body["content"], body["parse_special"])}
            case "/completion":
                return {"stop_type": "limit"}
        if path.startswith("/slots/"):
            return self._slot()
        return None

    def _slot(self) -> dict:
        known = self.owner.saves and not self.path.endswith("action=none")
        return {"n_saved": 1} if known else {"_status": 400 if self.owner.saves else 501}

    def _answer(self, body: dict, text: str, finish: str = "stop") -> dict:
        prompt = body.get("prompt")
        n = len(prompt) if prompt is not None else sum(len(m["content"]) for m in body["messages"])
        if self.owner.kind == "llama":
            return {
                "content": text, "tokens": encode(text), "stop_type": "limit" if finish == "length" else "eos",
                "tokens_predicted": len(text), "tokens_evaluated": n, "timings": {"cache_n": 3},
            }  # fmt: skip
        choice = {"text": text} if self.owner.kind == "vllm" else {"message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": n, "completion_tokens": len(text), "prompt_tokens_details": {"cached_tokens": 3}}
        return {"choices": [choice | {"finish_reason": finish}], "usage": usage}

    # ---- and those that are not ----------------------------------------------------------------------------------

    def _misbehave(self, word: str, body: dict) -> None:
        good = json.dumps(self._answer(body, self.owner.text)).encode()
        match word:
            case "ok":
                self._bytes(good)
            case "length" | "repetition":
                self._json(self._answer(body, self.owner.text[:9], word))
            case "ignores-schema":
                self._json(self._answer(body, "I would rather not."))
            case "half-character":
                self._json(self._answer(body, "a\ud800b"))
            case "not-json":
                self._bytes(b"<html>hello</html>")
            case "other-shape":
                self._json({"choices": [], "content": 7})
            case "hang":
                self.owner.released.wait(60)
                self.close_connection = True
            case "slow-body":
                self._head(200, len(good) * 1000)
                self._drip(b" ")
            case "slow-head":
                self._drip(b"x", b"HTTP/1.1 200 OK\r\nX-Long: ")
            case "cut":
                self._head(200, len(good))
                self.wfile.write(good[: len(good) // 2])
                self.close_connection = True
            case "close":
                self.close_connection = True
            case "redirect":
                self._head(302, 0, Location=f"{self.owner.url}/elsewhere")
            case "huge":
                self._huge()
            case "compressed":
                self._bytes(good, **{"Content-Encoding": "gzip"})
            case _:
                status, _, wait = word.partition(" ")
                self._status(int(status), body, **({"Retry-After": wait} if wait else {}))

    def _huge(self) -> None:
        self._head(200, 1 << 40)
        self.close_connection = True
        while not self.owner.released.is_set():
            self.wfile.write(b" " * 65536)
            self.owner.written += 65536

    def _drip(self, byte: bytes, first: bytes = b"") -> None:
        self.close_connection = True
        self.wfile.write(first)
        while not self.owner.released.wait(0.02):
            self.wfile.write(byte)

    def _status(self, status: int, body: dict | None = None, **headers: str) -> None:
        """An error that repeats the prompt, as some servers do."""
        error = {"error": {"type": TYPES.get(status, ""), "message": json.dumps(body)}}
        self._bytes(json.dumps(error).encode(), status, **headers)

    def _json(self, value: dict) -> None:
        status = value.pop("_status", 200)
        if status != 200:
            return self._status(status)
        return self._bytes(json.dumps(value).encode())

    def _bytes(self, raw: bytes, status: int = 200, **headers: str) -> None:
        self._head(status, len(raw), **headers)
        self.wfile.write(raw)

    def _head(self, status: int, size: int, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
