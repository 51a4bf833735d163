#!/usr/bin/env bash
# The pre-commit hook `debate-review`: options of `debate harden`, then --, then the files. docs/ci.md shows its use.
#
# Rounds go to a folder that is removed at the end, so nothing of an earlier run can pass for this one's. The exit code
# is debate's.
set -euo pipefail

options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  options+=("$1")
  shift
done
if [ $# = 0 ]; then
  printf '%s\n' 'hook.sh: there is no -- before the files' 'hint: args: [--personas=…, --feedback=…, --]' >&2
  exit 2
fi
shift
[ $# -gt 0 ] || exit 0 # no argument means the whole brain to debate; here it means no file

files=()
for file in "$@"; do
  case $file in
    /*) files+=("$file") ;;
    *) files+=("./$file") ;; # a name that begins with @ is a file too, not a list
  esac
done
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
code=0
debate harden --scratch="$scratch/rounds" --report="$scratch/bulk.json" "${options[@]}" -- "${files[@]}" || code=$?
if [ -f "$scratch/bulk.json" ]; then
  shown=0
  debate export markdown "$scratch/bulk.json" || shown=$?
  case $shown in
    0 | 4) ;;                              # 4: incomplete, which harden's own code says as well
    *) [ "$code" != 0 ] || code=$shown ;; # findings that nobody can see are no pass
  esac
fi
exit "$code"
