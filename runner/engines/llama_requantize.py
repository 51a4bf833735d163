"""Weights in a type that this CPU computes quickly.

llama.cpp multiplies a batch of tokens with whole blocks of Q8_0 weights at once; for Q4_1, Q5_0 and Q5_1 it has only
one dot product after the other. The same weights written as Q8_0 (eight bits hold what four or five held) read a
prompt twice as fast. So a copy is made once, in the user's cache, and used in the place of the file.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import llama_cpp.llama_cpp as C

from runner import store
from runner.config import xdg
from runner.engines.llama_vocab import quiet
from runner.errors import RunnerError

_UNFINISHED = ".making-"
_STALE_S = 3600.0  # what a killed process left is removed after this


@contextmanager
def as_q8_0(path: Path, sha256: str) -> Iterator[Path]:
    """The file with its weights as Q8_0, for as long as it takes to load it. sha256: of `path`, already checked.

    RunnerError when a copy can be written neither to the cache nor to the folder for temporary files.
    """
    folder = xdg("CACHE") / "weights"
    known = _known(folder, sha256)
    if known is None:
        try:
            store.make_folder(folder)
            known = _made(path, sha256, folder)
        except (RunnerError, OSError):  # a cache that cannot be written: a copy for this time only
            with tempfile.TemporaryDirectory(prefix="debate-runner-") as once:
                yield _made(path, sha256, Path(once))
            return
    yield known


def _known(folder: Path, sha256: str) -> Path | None:
    """A copy made before. Its own sha256 is part of its name, so one that was changed is removed and made again."""
    for found in sorted(folder.glob(f"{sha256[:16]}-*.gguf")):
        if found.stem.partition("-")[2] == _sha256(found):
            return found
        with suppress(OSError):
            found.unlink()
    return None


def _made(path: Path, sha256: str, folder: Path) -> Path:
    """Written beside and renamed when it is whole: a kill leaves nothing under the final name."""
    for old in folder.glob(f"{_UNFINISHED}*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > _STALE_S:
                old.unlink()
    descriptor, name = tempfile.mkstemp(prefix=_UNFINISHED, dir=folder)
    try:
        _requantize(path, name)
        os.fsync(descriptor)
        made = folder / f"{sha256[:16]}-{_sha256(Path(name))}.gguf"
        Path(name).replace(made)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
    finally:
        os.close(descriptor)
    return made


def _requantize(path: Path, target: str) -> None:
    quiet()
    p = C.llama_model_quantize_default_params()
    p.ftype, p.allow_requantize, p.nthread = C.LLAMA_FTYPE_MOSTLY_Q8_0, True, len(os.sched_getaffinity(0))
    if C.llama_model_quantize(os.fsencode(path), os.fsencode(target), ctypes.byref(p)) != 0:
        raise RunnerError(
            "llama.cpp could not write the weights as Q8_0", path=str(path), code="disk",
            hint="make room in the cache folder, or set `requantize: false` in the profile",
        )  # fmt: skip


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
