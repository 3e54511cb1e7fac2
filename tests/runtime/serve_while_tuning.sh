#!/usr/bin/env bash
# tests/runtime/serve_while_tuning.sh -- Serves problems with vitune_serve while `vitune tune` tunes
# them in the same database: no call may fail, and each new winner must be taken over.
#
#   serve_while_tuning.sh VITUNE VITUNE_SERVE DB BUDGET SECONDS PROBLEM...
#
# BUDGET is that of `vitune tune` per problem, SECONDS the most that tuning may take in all: more than
# BUDGET times the number of problems, with a few seconds each for compiling and the final race. A
# database that exists is deleted. Exit status 0 if both programs ended well and every problem, served by a
# default kernel first, was served by its own winner in the end.
# SPDX-License-Identifier: Apache-2.0
set -u
[ $# -ge 6 ] || { echo "usage: $0 VITUNE VITUNE_SERVE DB BUDGET SECONDS PROBLEM..." >&2; exit 2; }
vitune=$1 serve=$2 db=$3 budget=$4 seconds=$5
shift 5
log=$db.serve.log
rm -f "$db" "$db-journal"
: > "$log"  # an earlier run's would be taken for this one's

fail() { cat "$log"; echo "serve_while_tuning: $*"; exit 1; }

timeout -k 5 $((seconds + 120)) "$serve" "$db" $((seconds + 60)) "$@" > "$log" 2>&1 &
serving=$!
trap 'kill $serving 2>/dev/null' EXIT
for ((i = 0; i < 300; ++i)); do
  [ "$(grep -c '^at the start: default' "$log")" -eq $# ] && break
  kill -0 $serving 2>/dev/null || fail "vitune_serve ended before it began to serve"
  sleep 0.2
done
[ "$(grep -c '^at the start: default' "$log")" -eq $# ] || fail "not all problems began with a default kernel"

timeout -k 5 "$seconds" "$vitune" tune "$@" --db "$db" --device 0 --budget "$budget" --quiet
tuned=$?
for ((i = 0; tuned == 0 && i < 50; ++i)); do  # it looks for winners every second
  grep -q '^now all are exact' "$log" && break
  kill -0 $serving 2>/dev/null || break
  sleep 0.2
done
kill -TERM $serving
wait $serving
served=$?
trap - EXIT
[ $tuned -ne 124 ] || fail "vitune tune took more than $seconds s: give it a smaller budget per problem than $budget"
[ $tuned -eq 0 ] || fail "vitune tune ended with status $tuned"
[ $served -eq 0 ] || fail "vitune_serve ended with status $served"
[ "$(grep -c '^at the end: exact' "$log")" -eq $# ] || fail "not all problems ended with their winner"
cat "$log"
