#!/bin/sh
# benchmarks/lab/run_linear_gate.sh -- Runs the linear gate on a GPU machine, from the folder that build_linear_gate.py made.
#
# Usage: run.sh [TILE ...]; all tiles unless some are named. Each tile is a process of its own with a limit of its own; one
# that fails goes on with the problem after, three times at most. No tile is begun after $LIMIT seconds (90). All lines go
# to $OUT/linear_gate.txt, or beside this file; a summary and what failed are printed too. $CUBLASLT names the library.
# SPDX-License-Identifier: Apache-2.0
cd "$(dirname "$0")" || exit 1
OUT=${OUT:-.}
log=$OUT/linear_gate.txt
program=./linear_gate
begin=$(date +%s)
[ -x $program ] || { cp linear_gate /tmp/linear_gate && chmod +x /tmp/linear_gate && program=/tmp/linear_gate; }
: > "$log"
say() { echo "$@" | tee -a "$log"; }

show_clocks() {
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,power.draw,power.limit,temperature.gpu \
    --format=csv,noheader 2>&1 | tee -a "$log"
}

run_tile() {
  first=0
  rm -f "$OUT/progress"
  for try in 1 2 3 4; do
    timeout -k 5 40 $program tile . "$1" $first "$OUT/progress" > "$OUT/part.txt" 2>&1
    code=$?
    cat "$OUT/part.txt" >> "$log"
    grep -v ' OK ' "$OUT/part.txt"
    at=$(cat "$OUT/progress" 2> /dev/null)
    [ "$at" = done ] && return
    say "K $1: problem ${at:-?} ended with code $code (try $try)"
    [ -n "$at" ] || return
    first=$((at + 1))
  done
}

# Of each problem the three tiles of the least early times, and that of the first tile.
summary() {
  grep '^K .* OK .* early ' "$log" | sed 's/^K \([^ ]*\) *\([^ ]*\) *\([^ ]*\) *\([^ ]*\) .* warm \([0-9.]*\) us.* early \([0-9.]*\) us \([0-9]*\) TF.s\(.*\)$/\2 \3 \4 \6 \5 \7 \1\8/' |
    sort -k1,1 -k3,3 -k4,4n | awk '{ key = $1 " " $3; if (key != last) { n = 0; last = key; printf "%-10s %-15s %s\n", $1, $2, $3 }
      if (n++ < 3 || $7 == "coop_192x192_pair") printf "    %8.2f us (warm %.2f) %4d TF/s %s %s %s\n", $4, $5, $6, $7, $8, $9 }'
  grep '^L ' "$log"
}

show_clocks
timeout 20 $program device 2>&1 | tee -a "$log"
library=${CUBLASLT:-$(python3 -c 'import glob, sysconfig
paths = glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/**/libcublasLt.so.1[0-9]", recursive=True)
print(paths[0] if paths else "")' 2> /dev/null)}
[ -n "$library" ] || library=$(find /usr/local /usr/lib /opt -name 'libcublasLt.so.1[0-9]' 2> /dev/null | head -1)
timeout -k 5 60 $program cublaslt "${library:-libcublasLt.so.13}" >> "$log" 2>&1 || say "L ended with code $?"
for tile in ${*:-$(cut -d' ' -f1 variants.txt | uniq)}; do
  [ $(($(date +%s) - begin)) -lt "${LIMIT:-90}" ] || { say "K $tile: left out, time is up"; continue; }
  run_tile "$tile"
done
show_clocks
rm -f "$OUT/progress" "$OUT/part.txt"
summary
say "lines OK: $(grep -c ' OK ' "$log"), lines WRONG, FAIL or ended: $(grep -c 'WRONG\|FAIL\|ended with' "$log"), seconds: $(($(date +%s) - begin))"
exit 0
