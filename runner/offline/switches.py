"""What the libraries below an engine read from the environment, so that they call no one."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

SWITCHES = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1", "VLLM_DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1", "RAY_USAGE_STATS_ENABLED": "0",
    "VLLM_USE_MODELSCOPE": "0", "VLLM_PLUGINS": "",
    "VLLM_HOST_IP": "127.0.0.1", "VLLM_LOOPBACK_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo",
    "VLLM_HAS_FLASHINFER_CUBIN": "1",  # else vLLM asks a server on the internet whether it could download them
}  # fmt: skip
_CACHES = {
    "VLLM_CACHE_ROOT": "vllm", "VLLM_CONFIG_ROOT": "vllm/config", "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
}  # fmt: skip
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy")


def switches(environ: MutableMapping[str, str] = os.environ) -> None:
    """Set every offline and telemetry switch, whatever the user has set; cache folders only where none is named.

    Proxies are taken away: a call to one on this machine would pass the guard and leave the machine.
    """
    environ.update(SWITCHES)
    for name in _proxies(environ):
        del environ[name]
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "debate-runner"
    for name, folder in _CACHES.items():
        environ.setdefault(name, str(cache / folder))


def wrong(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The variables that are not as `switches` sets them."""
    return (*(name for name, value in SWITCHES.items() if environ.get(name) != value), *_proxies(environ))


def _proxies(environ: Mapping[str, str]) -> list[str]:
    return [name for name in environ if name.lower() in _PROXIES]
