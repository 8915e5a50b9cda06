# Shared by deploy/setup, deploy/quickstart and tests/run. Source it; it sets ROOT, VENV, PYTHON and LOGS.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
VENV=$ROOT/.venv
# Not used here but by whoever sources this file.
# shellcheck disable=SC2034
PYTHON=$VENV/bin/python
LOGS=$ROOT/build/logs
mkdir -p "$LOGS"

say() { printf '%s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# How far ninja, which writes into this log, is ("120/309"); empty: it has not said.
done_of_all() { grep -o '^\[[0-9]*/[0-9]*\]' "$1" 2>/dev/null | tail -n 1 | tr -d '[]' || true; }

# progress LOG: until it is killed, one line on a terminal that tells how far a build is, and how long it may take yet.
progress() {
  local start=$SECONDS at count all left
  while sleep 1; do
    at=$(done_of_all "$1")
    [[ $at ]] || continue
    count=${at%/*} all=${at#*/}
    left=$(((SECONDS - start) * (all - count) / (count ? count : 1)))
    printf '\033[K  %s of %s files, about %d:%02d left\r' "$count" "$all" $((left / 60)) $((left % 60))
  done
}

# build_step NAME COMMAND...: as step, with a line of progress, on a terminal.
build_step() {
  if [[ ! -t 1 ]]; then
    step "$@"
    return
  fi
  : >"$LOGS/$1.log"
  progress "$LOGS/$1.log" &
  local shower=$! status=0
  (step "$@") || status=$?
  kill "$shower" 2>/dev/null || true
  wait "$shower" 2>/dev/null || true
  printf '\033[K'
  ((status == 0)) || exit "$status"
}

# configure_release [OPTION OF CMAKE]...: where nobody has configured before, several files are compiled at a time, so that
# headers are read once for all of them. Who edits calls cmake first, or says -DCMAKE_UNITY_BUILD=OFF once.
configure_release() {
  local unity=
  [[ -f $ROOT/build/release/CMakeCache.txt ]] || unity=-DCMAKE_UNITY_BUILD=ON
  step configure cmake -S "$ROOT" --preset release ${unity:+"$unity"} "$@"
}

# step NAME COMMAND...: runs a command with its output in build/logs/NAME.log; on failure shows the log's end and where
# the log is, and ends the script with the command's exit status.
step() {
  local name=$1 log="$LOGS/$1.log" start=$SECONDS status=0
  shift
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [[ -t 1 ]]; then printf '\033[K'; fi
  if ((status)); then
    tail -n 40 "$log" >&2
    printf 'error: %s failed (exit status %d): %s\nThe whole log is in %s\n' "$name" "$status" "$*" "$log" >&2
    exit "$status"
  fi
  if ((SECONDS - start > 1)); then say "  $name: $((SECONDS - start)) s"; fi
}
