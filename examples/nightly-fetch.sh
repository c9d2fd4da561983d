#!/bin/sh
# Keeps a clone fresh: adds a loop that fetches every night at 02:30, or changes it when it is there.
#
#   examples/nightly-fetch.sh [FOLDER]        the clone; this folder unless given
#
# Then: drover up, and in the morning: drover loop slots fetch-NAME
set -eu

folder=$(cd "${1:-.}" && git rev-parse --show-toplevel)
name="fetch-$(basename "$folder")"

verb=add
if drover loop show "$name" >/dev/null 2>&1; then verb=edit; fi

# No terminal is there at night: git must fail rather than ask for a password.
drover loop "$verb" "$name" \
  --cron "30 2 * * *" \
  --cwd "$folder" \
  --env GIT_TERMINAL_PROMPT=0 \
  --timeout 10m --attempts 3 --backoff 1m \
  --label git \
  -- git fetch --all --prune
