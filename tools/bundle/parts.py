"""The texts of a bundle, from the wheels that lie in it: lock file, licences, sums, and what they need of a machine."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email import message_from_string
from email.message import Message
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Wheel:
    """glibc, libstdcxx: the newest symbol versions that its libraries ask for, as numbers; () for none."""

    path: Path
    name: str
    version: str
    licence: str
    glibc: tuple[int, ...]
    libstdcxx: tuple[int, ...]


def wheel(path: Path) -> Wheel:
    with zipfile.ZipFile(path) as file:
        names = file.namelist()
        metadata = next(n for n in names if n.count("/") == 1 and n.endswith(".dist-info/METADATA"))
        said = message_from_string(file.read(metadata).decode("utf-8"))
        libraries = [file.read(n) for n in names if re.search(r"\.so(\.[\d.]+)?$", n)]
    newest = [max((_newest(words, raw) for raw in libraries), default=()) for words in (rb"GLIBC", rb"GLIBCXX")]
    glibc = max(newest[0], _tag_glibc(path.name))
    return Wheel(path, said["Name"], said["Version"], _licence(said), glibc, newest[1])


def _newest(words: bytes, raw: bytes) -> tuple[int, ...]:
    found = re.findall(rb"\0" + words + rb"_(\d+(?:\.\d+)+)(?=\0)", raw)
    return max((_numbers(v.decode()) for v in found), default=())


def _tag_glibc(name: str) -> tuple[int, ...]:
    """What the wheel's own tags promise: the lowest glibc among them."""
    found = [_numbers(f"2.{minor}") for minor in re.findall(r"manylinux_2_(\d+)_", name)]
    return min(found, default=())


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in version.split("."))


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(str(n) for n in numbers)


def glibc(wheels: Sequence[Wheel]) -> str:
    """The glibc that all of them run with; empty when none needs one."""
    return _dotted(max((w.glibc for w in wheels), default=()))


def libstdcxx(wheels: Sequence[Wheel]) -> str:
    found = max((w.libstdcxx for w in wheels), default=())
    return f"GLIBCXX_{_dotted(found)}" if found else ""


def _licence(said: Message) -> str:
    """The expression, else a short licence field, else the classifiers."""
    text = said.get("License-Expression") or said.get("License") or ""
    if text and len(text) <= 60 and "\n" not in text:
        return text
    found = said.get_all("Classifier") or []
    words = [c.rsplit(" :: ", 1)[1] for c in found if c.startswith("License ::")]
    return ", ".join(words) or (text.strip().splitlines()[0][:60] if text.strip() else "not stated")


def lock(wheels: Sequence[Wheel]) -> str:
    """Requirements with the only hash that may be installed."""
    lines = [f"{w.name}=={w.version} --hash=sha256:{_sha256(w.path)}\n" for w in wheels]
    return "".join(sorted(lines, key=str.lower))


def licences(wheels: Sequence[Wheel], manifest: str | None) -> str:
    """A table from the packages' own metadata; the texts are inside the wheels. manifest: of the model, if any."""
    rows = [f"| {w.name} | {w.version} | {w.licence} |" for w in sorted(wheels, key=lambda w: w.name.lower())]
    if manifest is not None:
        said = fields(manifest)
        rows.append(f"| {said['name']} (model) | {said['file']} | {said['licence']} |")
    head = "# Licences\n\nAs the packages state them; their texts are inside the wheels (`*.dist-info`).\n\n"
    return head + "| name | version | licence |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def fields(manifest: str) -> dict[str, str]:
    """The plain `key: value` lines of a manifest with one file."""
    found = re.findall(r"(?m)^[ -]*(\w+): +([^#\n]+?)(?: +#.*)?$", manifest)
    return dict(reversed(found))


def sums(folder: Path) -> str:
    """Every file but the sums themselves, as sha256sum writes them."""
    files = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    return "".join(f"{_sha256(folder / name)}  {name}\n" for name in files if name != "SHA256SUMS")


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def readme(needs: Mapping[str, str]) -> str:
    model = "It also copies the model into a folder of models, and ends with `debate doctor`.\n"
    cpu = f"CPU      {needs['baseline']} ({needs['cpu_flags']})\n" if needs["baseline"] else ""
    return (
        f"debate-runner {needs['version']}, bundle `{needs['target']}`: installs without a network.\n\n"
        f"Python   {needs['python']}, with venv\n"
        f"system   Linux {needs['machine']}, glibc {needs['glibc'] or 'any'} or newer\n{cpu}\n"
        "    sh install.sh --check          verifies every file, and this machine; changes nothing\n"
        "    sh install.sh FOLDER           checks, then installs into a virtual environment there\n"
        "    sh install.sh --help           where the model goes, which Python is used\n\n"
        "The same command over an existing installation upgrades it; no file of yours is deleted.\n"
        f"{model if needs['target'] == 'cpu' else ''}"
        "Before you trust SHA256SUMS, compare its own sha256 with the one that `make bundle` printed.\n"
        "Exit codes: 0 done; 1 this machine does not fit, nothing was written; 2 wrong usage, or the installation\n"
        "failed; 5 a file is missing or is not what it was.\n"
    )
