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

# step NAME COMMAND...: runs a command with its output in build/logs/NAME.log; on failure shows the log's end and where
# the log is, and ends the script with the command's exit status.
step() {
  local name=$1 log="$LOGS/$1.log" start=$SECONDS status=0
  shift
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if ((status)); then
    tail -n 40 "$log" >&2
    printf 'error: %s failed (exit status %d): %s\nThe whole log is in %s\n' "$name" "$status" "$*" "$log" >&2
    exit "$status"
  fi
  if ((SECONDS - start > 1)); then say "  $name: $((SECONDS - start)) s"; fi
}
