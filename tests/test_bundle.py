"""Bundles: what install.sh refuses before it touches anything, and what make.py writes. Nothing is fetched."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools" / "bundle"
VERSION = "{}.{}".format(*sys.version_info)
FLAGS = "flags\t\t: fpu sse4_2 avx avx2\n"
NEEDS = {
    "version": "0.1.0", "target": "cpu", "platform": "manylinux_2_28_x86_64", "python": VERSION,
    "machine": platform.machine(), "glibc": "", "libstdcxx": "", "baseline": "x86-64-v3", "cpu_flags": "avx avx2",
}  # fmt: skip


def module(name: str) -> ModuleType:
    """A script of tools/bundle, loaded."""
    spec = importlib.util.spec_from_file_location(f"bundle_{name}", TOOLS / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    sys.modules[f"bundle_{name}"] = found  # dataclasses look their module up
    spec.loader.exec_module(found)
    return found


parts = module("parts")


def wheel(folder: Path, name: str, metadata: str, library: bytes = b"", tag: str = "py3-none-any") -> Path:
    """A tiny wheel, with a library when there are bytes for one."""
    path = folder / f"{name}-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(
            f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{metadata}"
        )
        if library:
            file.writestr(f"{name}/lib/x.so.0", library)
    return path


def bundle(folder: Path, **changed: str) -> Path:
    """A bundle of tiny files. changed: lines of bundle.txt."""
    (folder / "wheels").mkdir(parents=True)
    (folder / "models").mkdir()
    for name in ("install.sh", "check.py"):
        (folder / name).write_bytes((TOOLS / name).read_bytes())
    wheel(folder / "wheels", "tiny", "")
    (folder / "requirements.lock").write_text(parts.lock([parts.wheel(p) for p in folder.glob("wheels/*.whl")]))
    (folder / "models/tiny.gguf").write_text("weights")
    (folder / "models/tiny.yaml").write_text("name: tiny")
    (folder / "bundle.txt").write_text("".join(f"{k}={v}\n" for k, v in (NEEDS | changed).items()))
    (folder / "SHA256SUMS").write_text(parts.sums(folder))
    (folder.parent / "cpuinfo").write_text(FLAGS)
    return folder


def install(folder: Path, *args: str, python: str | None = sys.executable) -> tuple[int, str]:
    """Run install.sh; its exit code and what it says."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder.parent / "home"), "CPUINFO": str(folder.parent / "cpuinfo")}
    chosen = [] if python is None else ["--python", python]
    done = subprocess.run(
        ["sh", str(folder / "install.sh"), *chosen, *args], capture_output=True, text=True, check=False, env=env
    )
    return done.returncode, done.stderr


def tree(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


# ---- install.sh ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bundle", "a bundle's [copy] & more"])
def test_check(tmp_path, name):
    """A whole bundle on a machine that fits, from a folder of any name: 0, and nothing is written."""
    folder = bundle(tmp_path / name)
    before = tree(tmp_path)
    code, says = install(folder, "--check")
    assert (code, says) == (
        0, f"install.sh: the bundle is whole, and this machine fits: cpu, Python {VERSION}, manylinux_2_28_x86_64\n",
    )  # fmt: skip
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "file", ["wheels/tiny-1.0-py3-none-any.whl", "models/tiny.gguf", "requirements.lock", "check.py"]
)
@pytest.mark.parametrize("how", ["changed", "missing"])
@pytest.mark.parametrize("args", [("--check",), ("new",)])
def test_a_file_that_is_another(tmp_path, file, how, args, monkeypatch):
    """A file that is changed or missing is named, and nothing is installed: 5."""
    folder = bundle(tmp_path / "bundle")
    monkeypatch.chdir(tmp_path)
    if how == "changed":
        (folder / file).write_bytes((folder / file).read_bytes() + b"x")
    else:
        (folder / file).unlink()
    says = f"install.sh: missing, or not what it was: {file} - copy the bundle again\n"
    assert install(folder, *args) == (5, says)
    assert not (tmp_path / "new").exists()


def test_sums(tmp_path):
    """Without sums, with sums that are none, with files that are in no sums: 5 each."""
    folder = bundle(tmp_path / "bundle")
    whole = (folder / "SHA256SUMS").read_text()
    (folder / "wheels/more (1).whl").write_text("planted")
    (folder / "models/link.gguf").symlink_to("tiny.gguf")
    code, says = install(folder, "--check")
    assert code == 5 and says.startswith("install.sh: not in SHA256SUMS: ")
    assert "wheels/more (1).whl" in says and "models/link.gguf" in says
    (folder / "wheels/more (1).whl").unlink()
    (folder / "models/link.gguf").unlink()
    (folder / "SHA256SUMS").write_text("")
    assert install(folder, "--check") == (5, "install.sh: SHA256SUMS cannot be checked: copy the bundle again\n")
    (folder / "SHA256SUMS").unlink()
    assert install(folder, "--check") == (5, "install.sh: SHA256SUMS is missing: copy the bundle again\n")
    (folder / "SHA256SUMS").write_text(whole)
    assert install(folder, "--check")[0] == 0


MACHINES = {
    "python": ({"python": "3.99"}, f"for CPython 3.99, and {sys.executable} is CPython {VERSION}: give one"),
    "machine": ({"machine": "riscv64"}, f"this bundle is for linux riscv64, and this is linux {platform.machine()}"),
    "glibc": ({"glibc": "2.999"}, "and the bundle needs 2.999"),
    "libstdc++": ({"libstdcxx": "GLIBCXX_9.9.9"}, "libstdc++.so.6 with GLIBCXX_9.9.9 is needed"),
    "cpu": ({"cpu_flags": "avx fma avx512f"}, "this CPU lacks avx512f fma, and the engine was built for x86-64-v3"),
}  # fmt: skip


@pytest.mark.parametrize("case", MACHINES)
def test_a_machine_that_does_not_fit(tmp_path, case, monkeypatch):
    """What does not fit is told with both values, before anything is written: 1."""
    changed, why = MACHINES[case]
    folder = bundle(tmp_path / "bundle", **changed)
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    for args in (("--check",), ("new",)):
        code, says = install(folder, *args)
        assert code == 1 and says.startswith("install.sh: ") and why in says
    assert tree(tmp_path) == before


def test_everything_that_does_not_fit(tmp_path):
    """All of it at once, a line each."""
    folder = bundle(tmp_path / "bundle", python="3.99", machine="riscv64", cpu_flags="amx")
    assert len(install(folder, "--check")[1].splitlines()) == 3


def test_no_such_python(tmp_path):
    """A Python that is not there, named or looked for."""
    folder = bundle(tmp_path / "bundle", python="3.99")
    code, says = install(folder, "--check", python=str(tmp_path / "none"))
    assert (code, says) == (
        1, f"install.sh: {tmp_path}/none cannot be run, or is too old: name another with --python\n",
    )  # fmt: skip
    assert install(folder, "--check", python=None)[0] == 1


def test_a_folder_of_somebody(tmp_path):
    """A folder with other things in it is not made into an environment."""
    folder = bundle(tmp_path / "bundle")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter").write_text("dear")
    code, says = install(folder, str(tmp_path / "mine"))
    assert (code, says) == (
        1, f"install.sh: {tmp_path}/mine is neither empty nor a virtual environment: give another folder\n",
    )  # fmt: skip
    assert tree(tmp_path / "mine") == {"letter"}


def test_a_model_of_somebody(tmp_path):
    """Another file where the model would go stays, and stops the installation before it begins."""
    folder = bundle(tmp_path / "bundle")
    (tmp_path / "store").mkdir()
    (tmp_path / "store/tiny.gguf").write_text("another")
    code, says = install(folder, "--models", str(tmp_path / "store"), str(tmp_path / "new"))
    assert (code, says) == (
        5, f"install.sh: {tmp_path}/store/tiny.gguf is another file than the model's: move it away\n",
    )  # fmt: skip
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("args", [(), ("--wrong", "new"), ("a", "b"), ("--models",)])
def test_usage(tmp_path, args):
    """Wrong usage is 2; --help is 0."""
    folder = bundle(tmp_path / "bundle")
    assert install(folder, *args)[0] == 2
    assert install(folder, "--help", python=None)[0] == 0


# ---- what make.py writes -------------------------------------------------------------------------------------------


def test_lock(tmp_path):
    """One hash for each package, sorted without regard to case."""
    wheels = [parts.wheel(wheel(tmp_path, name, "")) for name in ("Beta", "alpha")]
    assert [line.split(" --hash=sha256:")[0] for line in parts.lock(wheels).splitlines()] == ["alpha==1.0", "Beta==1.0"]
    assert all(len(line.split(":")[1]) == 64 for line in parts.lock(wheels).splitlines())


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ("License-Expression: MIT\nLicense: other\n", "MIT"),
        ("License: BSD-3-Clause\n", "BSD-3-Clause"),
        (
            "License: A licence text\n of many lines\nClassifier: License :: OSI Approved :: MIT License\n",
            "MIT License",
        ),
        ("License: " + "long " * 20 + "\n", ("long " * 12)),
        ("", "not stated"),
    ],
)
def test_licences(tmp_path, metadata, expected):
    """The expression, else a short field, else the classifiers, else the text's beginning."""
    found = parts.wheel(wheel(tmp_path, "a", metadata))
    assert found.licence == expected
    assert f"| a | 1.0 | {expected} |" in parts.licences([found], None)


def test_the_model_among_the_licences():
    """Read from the manifest that goes along."""
    manifest = (TOOLS.parents[1] / "models/smollm2-135m-instruct.yaml").read_text()
    row = "| smollm2-135m-instruct (model) | SmolLM2-135M-Instruct.Q4_1.gguf | Apache-2.0 |\n"
    assert parts.licences([], manifest).endswith(row)


def test_what_the_libraries_need(tmp_path):
    """The newest symbol versions of all libraries, by number and not by letter; and what the tags promise."""
    raw = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBCXX_3.4.9\0GLIBCXX_3.4.29\0GLIBC_PRIVATE\0"
    built = parts.wheel(wheel(tmp_path, "a", "", raw))
    fetched = parts.wheel(
        wheel(tmp_path, "b", "", b"\0GLIBC_2.17\0", "cp311-cp311-manylinux_2_17_x86_64.manylinux_2_28_x86_64")
    )
    plain = parts.wheel(wheel(tmp_path, "c", ""))
    assert (built.glibc, built.libstdcxx, fetched.glibc) == ((2, 34), (3, 4, 29), (2, 17))
    assert (parts.glibc([fetched, built, plain]), parts.libstdcxx([fetched, built])) == ("2.34", "GLIBCXX_3.4.29")
    assert (parts.glibc([plain]), parts.libstdcxx([plain])) == ("", "")


def test_platform_tags(monkeypatch):
    """pip is told every older tag too, by name and by year, down to manylinux1."""
    monkeypatch.syspath_prepend(str(TOOLS))
    make = module("make")
    args = make.arguments(["--target", "core", "--platform", "manylinux_2_28_aarch64", "--python", "3.12"])
    options = make.platform_options(args)
    assert options[:4] == ["--only-binary=:all:", "--implementation=cp", "--python-version=3.12", "--abi=cp312"]
    tags = [o.removeprefix("--platform=") for o in options[4:]]
    assert tags[0] == "manylinux_2_28_aarch64" and tags[-1] == "linux_aarch64" and len(tags) == 24 + 3 + 1
    assert {"manylinux2014_aarch64", "manylinux_2_17_aarch64"} <= set(tags)


def test_no_torch_of_the_cpu_in_a_gpu_bundle(monkeypatch):
    """What a folder of wheels on this machine may slip in is refused; the real one is not."""
    monkeypatch.syspath_prepend(str(TOOLS))
    make = module("make")
    make.check_torch(["torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl", "torchaudio-2.11.0+cpu-py3-none-any.whl"])
    with pytest.raises(make.CannotError, match=r"gives torch-2\.13\.0\+cpu"):
        make.check_torch(["torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl"])


def test_the_engine_is_not_built_for_another_machine(monkeypatch):
    """cpu for a platform that is not ours: refused with what to do."""
    monkeypatch.syspath_prepend(str(TOOLS))
    make = module("make")
    other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    args = make.arguments(["--target", "cpu", "--platform", f"manylinux_2_28_{other}"])
    with pytest.raises(make.CannotError, match="has no wheel and must be built"):
        make.llama_wheel(args)
