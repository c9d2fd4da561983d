#!/bin/sh
# An agent as a plain command: every night it works in a worktree and a branch of its own, and what it committed stays.
#
#   examples/agent-loop.sh add NAME PROMPT_FILE     adds the loop, for the clone that you stand in
#   examples/agent-loop.sh work PROMPT_FILE         what the loop runs; try it by hand first
#
# AGENT names the command that reads a prompt on standard input: `claude -p --permission-mode acceptEdits` unless set.
set -eu

self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
agent=${AGENT:-claude -p --permission-mode acceptEdits}

case ${1:-} in
add)
  name=$2
  prompt=$(cd "$(dirname "$3")" && pwd)/$(basename "$3")
  [ -s "$prompt" ] || { echo "there is no prompt in $prompt" >&2; exit 2; }
  exec drover loop add "$name" \
    --cron "30 2 * * *" --catch-up latest --overlap skip \
    --timeout 2h --expect output \
    --label agent --env "AGENT=$agent" \
    --cwd "$(git rev-parse --show-toplevel)" \
    -- "$self" work "$prompt"
  ;;
work)
  prompt=$2
  branch="agent/${DROVER_RUN_ID:-$(date +%Y%m%d-%H%M%S)}-${DROVER_ATTEMPT:-1}"
  tree=$(mktemp -d)
  base=$(git rev-parse HEAD)
  git worktree add -q -b "$branch" "$tree/work" "$base"
  status=0
  # shellcheck disable=SC2086 # the agent's own flags are words
  (cd "$tree/work" && $agent <"$prompt") || status=$?
  commits=$(git rev-list --count "$base..$branch")
  # Refused by git while something is uncommitted: then the tree stays, and its place is said.
  if git worktree remove "$tree/work" 2>/dev/null; then
    rmdir "$tree"
    [ "$commits" -gt 0 ] || git branch -q -D "$branch"
  else
    echo "uncommitted work is left in $tree/work" >&2
  fi
  echo "$commits commits on $branch"
  [ -z "${DROVER_OUTPUT:-}" ] || printf '{"branch":"%s","commits":%s}\n' "$branch" "$commits" >"$DROVER_OUTPUT"
  exit "$status"
  ;;
*)
  sed -n '2,7s/^# \{0,1\}//p' "$0"
  exit 2
  ;;
esac
