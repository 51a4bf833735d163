"""Headless Chromium over its DevTools pipe: two file descriptors and JSON with a NUL after it. No packages."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb", "--mute-audio",
)  # fmt: skip


class Page:
    """One tab. events: everything the browser told since the last `go`: requests, console lines, exceptions."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._buffer, self._count = b"", 0
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if hasattr(self, "_session"):
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            got = self._next()
            if got.get("id") == self._count:
                assert "error" not in got, got["error"]
                result: dict[str, Any] = got["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._receive, 1 << 20)
            if not data:
                raise RuntimeError("the browser is gone")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        got: dict[str, Any] = json.loads(line)
        if "id" not in got:
            self.events.append(got)
        return got

    def size(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media="", features=features)

    def go(self, url: str) -> None:
        """Load from scratch and wait until the report has drawn itself."""
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.js(
            "new Promise(done => { const look = () => document.documentElement?.dataset.ready && "
            "location.href !== 'about:blank' ? done(1) : setTimeout(look, 5); look(); })"
        )

    def js(self, text: str) -> Any:
        """The value of an expression; promises are waited for."""
        got = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def press(self, key: str) -> None:
        """A key, as a person presses it; afterwards everything is drawn."""
        text = {} if len(key) > 1 and key != "Enter" else {"text": "\r" if key == "Enter" else key}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.drawn()

    def drawn(self) -> None:
        self.js("new Promise(done => requestAnimationFrame(() => setTimeout(() => requestAnimationFrame(done))))")

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    @property
    def requests(self) -> list[str]:
        """What was asked for since `go`."""
        sent = [e for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [e["params"]["request"]["url"] for e in sent]

    @property
    def errors(self) -> list[str]:
        """Console lines, exceptions, and what the page's policy refused."""
        self.call("Runtime.evaluate", expression="1")
        words = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.loadingFailed")
        return [json.dumps(e["params"])[:400] for e in self.events if e["method"] in words]


@contextmanager
def page() -> Iterator[Page]:
    """A fresh browser with one tab; it is gone afterwards, with its profile."""
    assert CHROMIUM is not None
    to_read, to_send = os.pipe()
    from_read, from_send = os.pipe()

    def descriptors() -> None:
        os.dup2(to_read, 63)
        os.dup2(from_send, 64)
        os.dup2(63, 3)
        os.dup2(64, 4)

    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        command = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            command, preexec_fn=descriptors, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=os.environ | {"HOME": profile, "DBUS_SESSION_BUS_ADDRESS": "disabled:"},
        )  # fmt: skip
        os.close(to_read)
        os.close(from_send)
        try:
            yield Page(to_send, from_read)
        finally:
            os.close(to_send)
            process.terminate()
            process.wait(20)
            os.close(from_read)
