"""debate-runner: offline multi-agent review of markdown decisions on a local model."""

__version__ = "0.1.0"
