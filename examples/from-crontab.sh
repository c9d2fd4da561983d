#!/bin/sh
# Prints a `drover loop add` line for each simple line of a crontab on standard input. Runs nothing.
#
#   crontab -l | examples/from-crontab.sh
#
# Variables, @reboot and lines with % are printed as comments: look at them yourself.
set -eu

number=0
while IFS= read -r line; do
  case $line in
  '' | \#*) continue ;;
  [A-Za-z_]*=* | @reboot* | *%*)
    printf '# by hand: %s\n' "$line"
    continue
    ;;
  esac
  number=$((number + 1))
  case $line in
  @*) fields=1 ;;
  *) fields=5 ;;
  esac
  when=$(printf '%s\n' "$line" | awk -v n="$fields" '{ for (i = 1; i <= n; i++) printf "%s%s", $i, (i < n ? " " : "") }')
  what=$(printf '%s\n' "$line" | awk -v n="$fields" '{ for (i = 1; i <= n; i++) sub(/^[ \t]*[^ \t]+[ \t]*/, ""); print }')
  # cron hands the rest of the line to a shell, so drover does too; a quote inside becomes '\''.
  quoted=$(printf '%s' "$what" | sed "s/'/'\\\\''/g")
  printf "drover loop add cron-%s --cron \"%s\" --cwd \"\$HOME\" --shell '%s'\n" "$number" "$when" "$quoted"
done
