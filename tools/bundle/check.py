"""Does this machine fit the bundle? Reads bundle.txt; exit 0, or 1 with a line for each thing that does not fit.

Run by install.sh, before anything is written: python check.py BUNDLE [CPUINFO]. Any Python from 3.6 on can read it.
"""

import ctypes
import os
import platform
import re
import sys
from pathlib import Path


def main(folder, cpuinfo="/proc/cpuinfo"):
    lines = Path(folder, "bundle.txt").read_text(encoding="utf-8").splitlines()
    needs = dict(line.split("=", 1) for line in lines if "=" in line)
    wrong = [*_python(needs), *_system(needs), *_cpu(needs, Path(cpuinfo))]
    for line in wrong:
        sys.stderr.write(f"install.sh: {line}\n")
    return 1 if wrong else 0


def _python(needs):
    kind, version = platform.python_implementation(), ".".join(platform.python_version_tuple()[:2])
    if (kind, version) != ("CPython", needs["python"]):
        wanted = needs["python"]
        yield f"this bundle is for CPython {wanted}, and {sys.executable} is {kind} {version}: give one with --python"
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as e:
        yield f"{sys.executable} cannot make virtual environments ({e}): install your system's python venv package"


def _system(needs):
    machine, libc, libstdcxx = needs["machine"], needs["glibc"], needs["libstdcxx"]
    if (sys.platform, platform.machine()) != ("linux", machine):
        yield f"this bundle is for linux {machine}, and this is {sys.platform} {platform.machine()}"
        return
    has = _glibc()
    if libc and not has:
        yield f"this system has no glibc, and the bundle needs {libc}: its wheels do not run here"
    elif libc and _numbers(has) < _numbers(libc):
        yield f"glibc here is {has}, and the bundle needs {libc} or newer"
    elif libstdcxx and not _has_libstdcxx(libstdcxx):
        yield f"libstdc++.so.6 with {libstdcxx} is needed: install your system's C++ runtime"


def _glibc():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    except (ValueError, OSError, AttributeError, IndexError):
        return ""


def _numbers(version):
    return [int(n) for n in version.split(".")]


def _has_libstdcxx(wanted):
    """Is the library there, and new enough? Its symbol versions are texts in the file."""
    try:
        ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return False
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    path = next(line.split(None, 5)[5] for line in maps if "libstdc++.so" in line)
    return re.search(b"\0" + re.escape(wanted.encode()) + b"\0", Path(path).read_bytes()) is not None


def _cpu(needs, cpuinfo):
    missing = sorted(set(needs["cpu_flags"].split()) - _flags(cpuinfo))
    if missing:
        lacks, built = " ".join(missing), needs["baseline"]
        yield f"this CPU lacks {lacks}, and the engine was built for {built}: make the bundle with a lower BASELINE"


def _flags(cpuinfo):
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), set())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
