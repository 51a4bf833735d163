#!/bin/sh
# Install debate-runner from this bundle, without a network. Everything is checked before anything is written.
set -u
LC_ALL=C
export LC_ALL

usage() {
  cat <<'TEXT'
usage: install.sh --check [--python PYTHON]
       install.sh [--python PYTHON] [--models FOLDER | --no-models] DIR

--check      verify every file of the bundle, and this machine; write nothing
DIR          the virtual environment to make, or to upgrade
--python     the Python to use; default: the environment's own, else the version this bundle is for
--models     where the model goes; default: the data folder of this user, where `debate` finds it by itself.
             For another folder, set DEBATE_MODELS to it. A model that is already there is left alone.
--no-models  copy no model
Exit codes: 0 done; 1 this machine does not fit, nothing was written; 2 wrong usage, or the installation failed;
5 a file of the bundle, or a model in the folder, is not what it must be.
TEXT
}

say() { printf 'install.sh: %s\n' "$*" >&2; }
stop() { code=$1; shift; say "$@"; exit "$code"; }
need() { sed -n "s/^$1=//p" "$here/bundle.txt"; }

check=no dir='' python='' store='' models=yes
while [ $# -gt 0 ]; do
  case $1 in
    --check) check=yes ;;
    --no-models) models=no ;;
    --python | --models)
      [ $# -gt 1 ] || stop 2 "$1 needs a value"
      if [ "$1" = --python ]; then python=$2; else store=$2; fi
      shift ;;
    -h | --help) usage; exit 0 ;;
    -*) usage >&2; stop 2 "unknown option: $1" ;;
    *) [ -z "$dir" ] || stop 2 "one DIR only, and there are two: $dir, $1"; dir=$1 ;;
  esac
  shift
done
[ "$check" = yes ] || [ -n "$dir" ] || { usage >&2; exit 2; }
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 2
start=$(pwd)
absolute() { case $1 in /*) printf '%s\n' "$1" ;; *) printf '%s\n' "$start/$1" ;; esac; }

# ---- the files ----

sums() {
  if command -v sha256sum >/dev/null 2>&1; then sha256sum "$@"; else shasum -a 256 "$@"; fi
}

check_files() {
  cd -- "$here" || exit 2
  [ -f SHA256SUMS ] || stop 5 "SHA256SUMS is missing: copy the bundle again"
  bad=$(sums -c SHA256SUMS 2>/dev/null | sed -n 's/: FAILED.*//p')
  [ -z "$bad" ] || stop 5 "missing, or not what it was: $(echo "$bad" | tr '\n' ' ')- copy the bundle again"
  sums -c SHA256SUMS >/dev/null 2>&1 || stop 5 "SHA256SUMS cannot be checked: copy the bundle again"
  # A file that nobody listed could be anything, a link too.
  extra=$(find . ! -type d ! -path ./SHA256SUMS | sed 's|^\./||' | while IFS= read -r file; do
    grep -q "^[0-9a-f]\{64\} [ *]$(printf '%s' "$file" | sed 's/[].[\*^$]/\\&/g')\$" SHA256SUMS || printf '%s ' "$file"
  done)
  [ -z "$extra" ] || stop 5 "not in SHA256SUMS: ${extra}- remove it, or copy the bundle again"
  for file in bundle.txt check.py requirements.lock; do
    [ -f "$file" ] || stop 5 "$file is missing: copy the bundle again"
  done
  cd -- "$start" || exit 2
}

# ---- this machine ----

find_python() {
  [ -z "$python" ] || return 0
  if [ -n "$dir" ] && [ -x "$dir/bin/python" ]; then python=$dir/bin/python; return 0; fi
  for python in "python$(need python)" python3; do
    command -v "$python" >/dev/null 2>&1 && return 0
  done
  stop 1 "there is no python$(need python): install it, or name one with --python"
}

check_machine() {
  find_python
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 6))' 2>/dev/null ||
    stop 1 "$python cannot be run, or is too old: name another with --python"
  # CPUINFO: for trying this with the flags of another machine.
  "$python" -I -B "$here/check.py" "$here" "${CPUINFO:-/proc/cpuinfo}" || exit 1
}

check_dir() {
  [ -z "$dir" ] && return 0
  dir=$(absolute "$dir")
  [ ! -e "$dir" ] || [ -f "$dir/pyvenv.cfg" ] || [ -z "$(ls -A -- "$dir" 2>/dev/null || echo no)" ] ||
    stop 1 "$dir is neither empty nor a virtual environment: give another folder"
}

# ---- the model ----

find_store() {
  if [ "$models" = no ] || [ ! -d "$here/models" ] || [ -z "$dir" ]; then models=no; return 0; fi
  if [ -n "$store" ]; then store=$(absolute "$store"); return 0; fi
  [ -n "${XDG_DATA_HOME:-}${HOME:-}" ] || stop 2 "neither HOME nor XDG_DATA_HOME is set: give --models FOLDER"
  store=${XDG_DATA_HOME:-$HOME/.local/share}/debate-runner/models
}

same() { cmp -s -- "$1" "$2"; }

check_store() {
  [ "$models" = yes ] || return 0
  for file in "$here"/models/*; do
    there=$store/${file##*/}
    case $file in *.yaml) continue ;; esac
    [ ! -e "$there" ] || same "$file" "$there" || stop 5 "$there is another file than the model's: move it away"
  done
}

copy_models() {
  [ "$models" = yes ] || return 0
  for file in "$here"/models/*; do
    there=$store/${file##*/}
    if [ -e "$there" ]; then
      same "$file" "$there" || say "left as it is: $there (a manifest of yours)"
      continue
    fi
    mkdir -p -- "$store" && cp -- "$file" "$there.part.$$" && mv -- "$there.part.$$" "$there" ||
      { rm -f -- "$there.part.$$"; stop 2 "cannot write into $store: give another with --models"; }
  done
}

# ---- the program ----

install() {
  [ -x "$dir/bin/python" ] || "$python" -m venv "$dir" || stop 2 "no virtual environment can be made in $dir"
  installed=$dir/debate-runner.lock
  if cmp -s -- "$here/requirements.lock" "$installed" && "$dir/bin/python" -m pip --isolated check >/dev/null 2>&1; then
    say "all packages are there already"
    return 0
  fi
  # Reinstalled, all of them: another build of an engine has the same version.
  "$dir/bin/python" -m pip --isolated --disable-pip-version-check --no-input install -q --no-index \
    --find-links "$here/wheels" --no-deps --force-reinstall --require-hashes -r "$here/requirements.lock" ||
    stop 2 "pip has failed; the same command again goes on"
  "$dir/bin/python" -m pip --isolated --disable-pip-version-check check >/dev/null ||
    say "warning: packages that this bundle does not know are in $dir and want other versions (pip check)"
  cp -- "$here/requirements.lock" "$installed" || stop 2 "cannot write $installed"
}

try_it() {
  cd -- "$dir" || exit 2
  if [ "$models" = yes ]; then
    DEBATE_MODELS=$store${DEBATE_MODELS:+:$DEBATE_MODELS} bin/debate doctor || stop 2 "installed, but it does not work here"
  else
    bin/debate --version || stop 2 "installed, but it does not work here"
  fi
}

check_files
check_machine
check_dir
find_store
check_store
if [ "$check" = yes ]; then
  say "the bundle is whole, and this machine fits: $(need target), Python $(need python), $(need platform)"
  exit 0
fi
install
copy_models
try_it
say "done: $dir/bin/debate"
if [ "$models" = yes ] && [ "$store" != "${XDG_DATA_HOME:-${HOME:-}/.local/share}/debate-runner/models" ]; then
  say "set DEBATE_MODELS=$store, where the model lies"
fi
