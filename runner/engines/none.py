"""No engine: for rounds whose tryouts and verdicts people write. Nothing can be asked of it."""

from __future__ import annotations

from collections.abc import Sequence

from runner.engines.base import Progress
from runner.errors import RunnerError
from runner.values import Reply, Request


class NoEngine:
    """See runner.engines.base. A flow that asks it is a bug: scaffold mode ends a round before that."""

    scores = False
    identity = "none"

    def check(self, request: Request) -> None:
        raise RunnerError(f"there is no engine to ask {request.key}", code="engine")

    def submit(self, flow: str, request: Request) -> None:
        self.check(request)

    def step(self) -> Sequence[tuple[str, Reply]]:
        return ()

    def busy(self) -> bool:
        return False

    def progress(self) -> Sequence[Progress]:
        return ()

    def forget(self, flow: str, keys: Sequence[str]) -> None: ...

    def release(self, flow: str) -> None: ...

    def close(self) -> None: ...
