#!/usr/bin/env bash
# shellcheck disable=SC2329 # traps call what seems unused
#
# A CI job's review: `debate harden`, every report, the gate, and the job's result. docs/ci.md says how to use it.
#
# Inputs are the variables DEBATE_CI_<name>, names below; none comes from the command line, an empty one is not given.
# The exit code is debate's: 0, 1, 2, 3 (the gate), 4 (incomplete), 5, or 128 + n of a signal; the worst of all steps.
# Nothing here reaches a network. Whatever happens, no process that was started here is left behind.
set -Eeuo pipefail

INPUTS=' BASE BRAIN DEBATE EVENT_BASE FAIL_ON FEEDBACK ISOLATE KNOWN MODEL MODEL_DIR OUT PATHS PERSONAS PROFILE
 REPORTS SCOPE SHARD WAIT_S '
readonly GRACE=4 LEFT=2 # seconds for debate, then for others, to end by itself; a cancelled GitHub step has 10 in all
github=${GITHUB_ACTIONS:-false}
[ "$github" != true ] || exec 2>&1 # one stream: the runner reads two in no order, and the last line of a fence counts
exec 3>&2
result=0 out='' work='' token='' isolated=false selected=0 tripped=false counts=(0 0 0 0) reports=''
mark=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')

say() { printf 'review.sh: %s\n' "$*" >&3; }
stop() { say "$1" && say "hint: $2" && exit 2; } # MESSAGE HINT: wrong usage
shown() { printf '%q' "$1"; } # foreign text on one line

# ---- the result ----------------------------------------------------------------------------------------------------

rank() { # worst: a signal, then 5, 2, 4, 3, 1, 0; what debate does not have counts as 2
  case $1 in
    0 | 1 | 5) echo "$1" ;;
    3 | 4) echo $(($1 - 1)) ;;
    *) if [ "$1" -ge 128 ]; then echo 6; else echo 4; fi ;;
  esac
}

note() { # CODE: the worst counts; a code that debate does not have is an unexpected error
  local code=$1
  [ "$(rank "$code")" != 4 ] || code=2
  [ "$(rank "$code")" -le "$(rank "$result")" ] || result=$code
}

meaning() {
  case $1 in
    0) if [ "$selected" = 0 ]; then echo 'nothing was selected'; else echo 'done'; fi ;;
    1) echo 'refused, a precondition does not hold' ;;
    2) echo 'wrong usage or an unexpected error' ;;
    3) echo 'the gate tripped' ;;
    4) echo 'incomplete: not everything was reviewed' ;;
    5) echo 'integrity: a model or a document is not what it was, or something called out' ;;
    129 | 130 | 143) echo 'stopped by a signal' ;;
    *) echo 'debate was killed, perhaps for memory; nothing was decided' ;;
  esac
}

# ---- processes -----------------------------------------------------------------------------------------------------

# A step that is killed outright takes debate with it, where the system has a way to say so.
tied=()
if setpriv --pdeathsig TERM true 2>/dev/null; then tied=(setpriv --pdeathsig TERM); fi

run() { # FILE COMMAND...: in a process group of its own, what it prints in FILE; sets `code`
  local file=$1
  shift
  set -m # without it a background process ignores SIGINT
  DEBATE_RUN_MARK=$mark ${tied[@]+"${tied[@]}"} "$@" </dev/null >"$file" 3>&- &
  set +m
  code=0
  wait $! || code=$?
}

marked() { # everything that run started and that still runs, in whatever session it is by now
  grep -lzxs "DEBATE_RUN_MARK=$mark" /proc/[0-9]*/environ | tr -dc '0-9\n' || :
}

end_all() { # called on the way out, without -e and -u
  local group=$! i pid
  [ -n "$group" ] || return
  for ((i = 0; i < GRACE * 10; i++)); do
    kill -0 -- "-$group" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL -- "-$group" 2>/dev/null
  for ((i = 0; i < LEFT * 10; i++)); do # an engine ends when it sees that debate has
    [ -n "$(marked)" ] || return
    sleep 0.1
  done
  for pid in $(marked); do
    say "killed: process $pid was left"
    kill -KILL "$pid" 2>/dev/null
  done
}

on_signal() { # NAME CODE: told once, passed on once
  trap '' INT TERM HUP
  set +u
  [ -z "$!" ] || kill -s "$1" "$!" 2>/dev/null || :
  exit "$2"
}

on_exit() {
  local code=$?
  trap '' INT TERM HUP
  trap - EXIT ERR
  set +eu
  end_all
  open_log
  if ! tell "$code"; then
    say 'the outputs or the summary cannot be written'
    [ "$code" != 0 ] || code=2
  fi
  say "exit $code: $(meaning "$code")"
  [ -z "$work" ] || rm -rf -- "$work"
  exit "$code"
}

on_error() { say "unexpected failure in line $1" && exit 2; }

trap 'on_error $LINENO' ERR
trap on_exit EXIT
trap 'on_signal INT 130' INT
trap 'on_signal TERM 143' TERM
trap 'on_signal TERM 129' HUP

# ---- what a job sees -----------------------------------------------------------------------------------------------

fence_log() { # from here on no line of the log is a workflow command, whatever a document says
  [ "$github" = true ] || return 0
  token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  printf '::stop-commands::%s\n' "$token" >&3
}

open_log() {
  [ -n "$token" ] || return 0
  printf '\n::%s::\n' "$token" >&3
  token=''
}

output() { # NAME VALUE
  printf '%s<<%s\n%s\n%s\n' "$1" "$mark" "$2" "$mark"
}

outputs() {
  output exit "$1"
  output tripped "$tripped"
  output isolated "$isolated"
  output out "$out"
  local n i=0
  for n in 'done' partial failed skipped; do output "num-$n" "${counts[i++]}"; done
  for n in 'report bulk.json' 'findings findings.json' 'sarif debate.sarif' 'junit junit.xml' \
    'codequality codequality.json' 'html report.html' 'summary summary.md'; do
    if [ -f "$out/${n#* }" ]; then output "${n% *}" "$out/${n#* }"; else output "${n% *}" ''; fi
  done
}

summary() {
  printf '**debate-runner: exit %s, %s.** Isolated: %s.\n\n' "$1" "$(meaning "$1")" "$isolated"
  if [ -n "$reports" ]; then cat -- "$out/summary.md"; else printf 'There is no report.\n'; fi
}

tell() { # CODE
  [ -z "${GITHUB_OUTPUT:-}" ] || outputs "$1" >>"$GITHUB_OUTPUT" || return 1 # a bare return, in a trap, is another's
  [ -z "${GITHUB_STEP_SUMMARY:-}" ] || summary "$1" >>"$GITHUB_STEP_SUMMARY"
}

# ---- inputs --------------------------------------------------------------------------------------------------------

check_inputs() {
  local name
  for name in "${!DEBATE_CI_@}"; do
    case " ${INPUTS//[[:space:]]/ } " in
      *" ${name#DEBATE_CI_} "*) ;;
      *) stop "no input is named $name" "inputs: ${INPUTS//[[:space:]]/ }" ;;
    esac
  done
  for name in $INPUTS; do # each is a variable of its own name in lower case
    local from=DEBATE_CI_$name
    declare -g "${name,,}=${!from:-}"
  done
  debate=${debate:-debate} scope=${scope:-changed} brain=${brain:-project-brain}
  isolate=${isolate:-auto} fail_on=${fail_on:-none}
  command -v -- "$debate" >/dev/null ||
    stop "no program $(shown "$debate")" 'install debate-runner, or name its path: debate'
  [[ $isolate =~ ^(auto|true|false)$ ]] ||
    stop "isolate must be auto, true or false, not $(shown "$isolate")" 'auto isolates where the system allows it'
  [[ $scope =~ ^(changed|all)$ ]] ||
    stop "scope must be changed or all, not $(shown "$scope")" 'changed is what differs from base'
  [ -z "$known" ] || [ -f "$known" ] ||
    stop "known: no file $(shown "$known")" 'give an earlier export: findings.json, debate.sarif or codequality.json'
  [ -z "$reports" ] || [ -z "$paths$base$shard" ] ||
    stop 'reports are joined; paths, base and shard do not go with them' 'leave them empty'
  joined=$reports reports=''
  check_base
  check_models
}

check_base() {
  if [ "$scope" = all ] || [ -n "$joined" ]; then
    [ -z "$base" ] || stop 'base goes with scope: changed' 'leave one of them out'
    return 0
  fi
  base=${base:-$event_base}
  [[ ! $base =~ ^0+$ ]] || base='' # the push that makes a branch has nothing before it
  [ -n "$base" ] || stop 'there is no base to compare with' 'give base, or scope: all to review everything in paths'
}

check_models() {
  [ -n "$model_dir" ] || return 0
  local folder folders
  IFS=: read -r -a folders <<<"$model_dir"
  for folder in "${folders[@]}"; do
    [ -d "$folder" ] || stop "model-dir: no folder $(shown "$folder")" 'is the store mounted on this runner?'
  done
  export DEBATE_MODELS=$model_dir
}

make_out() { # an earlier run's rounds and reports must never pass for this one's
  work=$(mktemp -d -- "${RUNNER_TEMP:-${TMPDIR:-/tmp}}/debate-work-XXXXXX")
  if [ -z "$out" ] && [ "$github" = true ]; then
    out=$(mktemp -d -- "${RUNNER_TEMP:-/tmp}/debate-report-XXXXXX")
  fi
  out=${out:-debate-report}
  mkdir -p -- "$out" || stop "out: no folder can be made: $(shown "$out")" 'give a new or empty folder'
  [ -z "$(ls -A -- "$out")" ] || stop "out: $(shown "$out") is not empty" 'give a new or empty folder'
  out=$(cd -- "$out" && pwd)
}

# ---- the review ----------------------------------------------------------------------------------------------------

empty_report() {
  printf '{"schema": "bulk/1", "ok": true, "exit": 0, "counts": {"done": 0, "partial": 0, "failed": 0, "skipped": 0}, '
  printf '"wall_s": 0, "settings": {}, "artifacts": [\n]}\n'
}

export_as() { # FORMAT REPORT FILE; sets `code`
  local more=()
  [ -z "$known" ] || more=("--known=$known")
  more+=(--brain="$brain" --fail-on="$fail_on" --out="$3")
  run "$work/stdout" "$debate" export "${more[@]}" -- "$1" "$2" 2>"$work/stderr"
}

check_gate() { # now, not after the hours that a review may take
  empty_report >"$work/empty.json"
  export_as json "$work/empty.json" "$work/empty.out"
  [ "$code" = 0 ] || { show "$work/stderr" && exit "$code"; }
}

show() { # FILE: into the log, fenced
  [ -s "$1" ] || return 0
  fence_log
  cat -- "$1" >&3
  open_log
}

lines() { # TEXT: those that are not empty, in `listed`
  local all line
  mapfile -t all <<<"${1//$'\r'/}"
  listed=()
  for line in "${all[@]}"; do [ -z "$line" ] || listed+=("$line"); done
}

harden_command() {
  command=("$debate" harden --scratch="$out/rounds" --report="$out/bulk.json" --progress=lines --brain="$brain")
  [ "$scope" = all ] || command+=("--changed-since=$base")
  local name
  for name in personas feedback profile model shard; do [ -z "${!name}" ] || command+=("--$name=${!name}"); done
  [ -z "$wait_s" ] || command+=("--wait-s=$wait_s")
  lines "$paths"
  selection=(-- "${listed[@]}")
}

choose_isolation() { # does the same command, about nothing, run isolated? auto: if only isolation fails, go on without
  if [ "$isolate" = false ]; then
    say 'NOT ISOLATED (isolate: false): only the guard in the process refuses connections'
    return
  fi
  run "$work/stdout" "${command[@]}" --isolate --limit=0 "${selection[@]}" 2>"$work/isolated"
  if [ "$code" = 0 ]; then
    command+=(--isolate) isolated=true
    return
  fi
  [ "$isolate" != true ] || { show "$work/isolated" && exit "$code"; }
  run "$work/stdout" "${command[@]}" --limit=0 "${selection[@]}" 2>"$work/stderr"
  [ "$code" = 0 ] || { show "$work/stderr" && exit "$code"; }
  show "$work/isolated"
  say 'NOT ISOLATED: this system refuses it, see above; only the guard in the process refuses connections'
  [ "$github" != true ] ||
    echo '::warning title=debate-runner::not isolated: this runner allows no network namespace' >&3
}

review() {
  harden_command
  choose_isolation
  fence_log
  run "$work/stdout" "${command[@]}" "${selection[@]}"
  cat -- "$work/stdout" >&3
  open_log
  note "$code"
  if [ "$code" = 0 ] && [ ! -f "$out/bulk.json" ]; then
    [ "$(cat -- "$work/stdout")" = 'nothing to do' ] ||
      stop 'debate ended well and left no report' 'this is a fault; report it'
    empty_report >"$out/bulk.json"
  fi
}

join() { # the reports of a matrix; one that is missing is an error
  lines "$joined"
  fence_log
  run "$work/stdout" "$debate" report merge --out="$out/bulk.json" -- "${listed[@]}"
  open_log
  note "$code"
}

read_counts() { # from the report's head, whatever follows it
  local n=', *"[a-z]*": \([0-9]*\)' head
  head=$(head -c 2000 -- "$out/bulk.json" | tr '\n' ' ')
  local before='{ *"schema": "bulk\/1", *"ok": [a-z]*, *"exit": [0-9]*, *"counts": { *"done": \([0-9]*\)'
  read -r -a counts < <(sed -n "s/^$before$n$n$n *}.*/\1 \2 \3 \4/p" <<<"$head") ||
    stop 'the counts of the report cannot be read' 'this script and debate are of different versions'
  selected=$((counts[0] + counts[1] + counts[2] + counts[3]))
  say "${counts[0]} done, ${counts[1]} partial, ${counts[2]} failed, ${counts[3]} skipped"
}

write_reports() {
  local one
  for one in 'markdown summary.md' 'sarif debate.sarif' 'junit junit.xml' 'codequality codequality.json' \
    'html report.html' 'annotations annotations.txt' 'json findings.json'; do
    export_as "${one% *}" "$out/bulk.json" "$out/${one#* }"
    [[ $code =~ ^[034]$ ]] || { say "the ${one% *} report cannot be written" && show "$work/stderr"; }
    note "$code"
  done
  [ ! -f "$out/summary.md" ] || reports=yes
  ! grep -q '^--fail-on ' "$work/stderr" || tripped=true # the last one said which rules failed
  show "$work/stderr"
  if [ "$github" = true ] && [ -f "$out/annotations.txt" ]; then cat -- "$out/annotations.txt" >&3; fi
}

main() {
  check_inputs
  make_out
  check_gate
  if [ -n "$joined" ]; then join; else review; fi
  if [ -f "$out/bulk.json" ]; then
    read_counts
    write_reports
    [ "$selected" != 0 ] || say 'nothing was selected: there is nothing to review'
  else
    [ "$result" != 0 ] || note 2 # no report is never a pass
  fi
  exit "$result"
}

main
