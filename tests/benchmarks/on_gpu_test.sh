#!/usr/bin/env bash
# tests/benchmarks/on_gpu_test.sh -- on_gpu.sh and pack_for_gpu.sh with stand-ins for all programs.
#
# Usage: on_gpu_test.sh FOLDER. Looks at what each part asks of which program, and at what is packed.
# SPDX-License-Identifier: Apache-2.0
set -u
root=$(cd "$(dirname "$0")/../.." && pwd) folder=$1
rm -rf "$folder" && mkdir -p "$folder"/{bin,build/tests,build/benchmarks} || exit 1

fail() {
  echo "on_gpu_test.sh: $*" >&2
  exit 1
}
has() { grep -qF -- "$1" "$2" || fail "no '$1' in $2: $(head -c 2000 "$2")"; }
stub() {  # stub FILE: a program that says how it was called
  printf '#!/bin/bash\necho "$(basename "$0")" "gpu=${CUDA_VISIBLE_DEVICES:-}" "db=${VITUNE_DB:-}" "$@"\n' > "$1"
  chmod +x "$1"
}

printf '#!/bin/bash\ncase "$*" in *=index*) printf "0\\n1\\n" ;; *) echo GPU ;; esac\n' > "$folder/bin/nvidia-smi"
chmod +x "$folder/bin/nvidia-smi"
stub "$folder/bin/python3"
stub "$folder/bin/compute-sanitizer"
for name in vitune tests/vitune_{tuner,probe}_test benchmarks/vitune_bench_{reference,operators,dispatch,cold_start}; do
  stub "$folder/build/$name"
done
touch "$folder/build/libvitune.so.0.1.0"
parts() {  # parts NAME...: runs them, the table to $folder/table
  PATH=$folder/bin:$PATH BUILD=$folder/build OUT=$folder/out RESUME=$folder/none MODELS_CACHE=$folder/cache \
    "$root/benchmarks/on_gpu.sh" "$@" > "$folder/table" 2>&1
}

parts random ceilings peers drawn ladder first_calls operators models || fail "status $?: $(cat "$folder/table")"
for row in ceilings peers drawn_tune drawn ladder_tune reference reference_peers first_calls operators models; do
  grep -qE "^$row +ok " "$folder/table" || fail "no row of $row: $(cat "$folder/table")"
done
out=$folder/out
has "--from data/drawn_problems.json --device 0 --db $out/drawn.db" "$out/drawn_tune.log"
has "--db $out/drawn.db --from data/drawn_problems.json" "$out/drawn.log"
for gpu in 0 1; do has "gpu=$gpu " "$out/random.log"; done
for seed in 31 35; do has "--gtest_random_seed=$seed" "$out/random.log"; done
has "thousand right, 0 failed" "$folder/table"
has "db=$out/ladder.db" "$out/reference.log"
has "--out $out/reference.json" "$out/reference.log"
has "--problem bf16 b=1 h=16 n=8192 d=64" "$out/ladder_tune.log"
has "--from data/reference_problems.json" "$out/reference_peers.log"
has "--json $out/reference_peers.json" "$out/reference_peers.log"
has "--first-calls $out/first_calls.json" "$out/first_calls.log"
has "vitune_bench_operators gpu= db=data/winners.db --rounds 15 --benchmark_filter=. --benchmark_out=$out/bench_operators.json" \
  "$out/operators.log"
OPERATORS_FILTER='^linear/.*/warm' parts operators || fail "status $?: $(cat "$folder/table")"
has "--benchmark_filter=^linear/.*/warm" "$out/operators.log"
has "models/run.py --library $folder/build/libvitune.so.0 --db data/winners.db --limit 520 --cache $folder/cache" "$out/models.log"
has "--json $out/models.json" "$out/models.log"
grep -qF -- "--resume" "$out/models.log" && fail "models went on with what no earlier call left"
# The caches of a call go on in the next: 20 MB that do not compress are two pieces.
mkdir -p "$folder/earlier" "$folder/cache/triton" && touch "$folder/earlier/models.json"
head -c 20000000 /dev/urandom > "$folder/cache/triton/kernel" && sum=$(md5sum < "$folder/cache/triton/kernel")
parts models || fail "status $?: $(cat "$folder/table")"
mv "$out"/models_cache.tgz.0[01] "$folder/earlier" || fail "the caches are not in two pieces"
ROWS='^vit b32$' PATH=$folder/bin:$PATH BUILD=$folder/build OUT=$folder/resumed RESUME=$folder/earlier MODELS_CACHE=$folder/cache2 \
  "$root/benchmarks/on_gpu.sh" models > "$folder/table" 2>&1 || fail "status $?: $(cat "$folder/table")"
has "--json $folder/resumed/models.json --resume --rows ^vit b32$" "$folder/resumed/models.log"
[ "$(md5sum < "$folder/cache2/triton/kernel")" = "$sum" ] || fail "the caches were not taken over"
[ -L "$folder/build/libvitune.so.0" ] || fail "the library has not the name that loaders ask for"

# Training steps: a process for each GPU with a share of the rows, then one document of theirs.
mv "$folder/bin/python3" "$folder/python3"
cat > "$folder/bin/python3" <<'EOF'
#!/bin/bash
[[ "$*" == *--merge* ]] || touch "$(sed 's/.*--json \([^ ]*\).*/\1/' <<< "$*")"
echo python3 "gpu=${CUDA_VISIBLE_DEVICES:-}" "threads=${TORCHINDUCTOR_COMPILE_THREADS:-}" "$@"
[[ "$*" != *--merge* ]] || echo "2 rows, ${LEFT:-0} tasks unfinished"
EOF
chmod +x "$folder/bin/python3"
train() { TRAIN_CACHE=$folder/train_cache LOGS=$folder/logs parts train_models || fail "status $?: $(cat "$folder/table")"; }
TRAIN_ARGS="--losses --only=^vit" train
grep -qE "^train_models +ok .*2 rows" "$folder/table" || fail "no row of train_models: $(cat "$folder/table")"
for gpu in 0 1; do
  has "gpu=$gpu threads=" "$folder/logs/train_models.$gpu.log"
  has "--resume --shard $gpu/2 --limit 520 --cache $folder/train_cache/$gpu --cache-mb 64 --json $folder/logs/train_models.$gpu.json --losses --only=^vit" \
    "$folder/logs/train_models.$gpu.log"
done
has "--json $out/train_models.json --losses --only=^vit --merge $folder/logs/train_models.0.json $folder/logs/train_models.1.json" \
  "$folder/logs/train_models.log"
[ ! -e "$out/train_cache.tgz.00" ] || fail "caches were packed though nothing is left to do"
LEFT=3 CUDA_VISIBLE_DEVICES=1 TRAIN_LIMIT=100 train
has "--shard 0/1 --limit 100" "$folder/logs/train_models.0.log"
[ -s "$out/train_cache.tgz.00" ] || fail "what was compiled is not carried to the next call"
mv "$folder/python3" "$folder/bin/python3"

# Linear layers: without a library's winner, then with one, whose place vitune's own kernels take.
parts linears || fail "status $?: $(cat "$folder/table")"
for row in linears_tune linears; do grep -qE "^$row +ok " "$folder/table" || fail "no row of $row: $(cat "$folder/table")"; done
has "tune --from data/linear_problems.json --device 0 --db $out/h200.db --objective warm --budget 3s" "$out/linears_tune.log"
has "db export $out/linear_own.tuned.json --db $out/h200.db" "$out/linears_own.log"
has "--db $out/h200.db --from data/linear_problems.json --budget 260 --row-seconds 15 --resume --json $out/peers_linear.json" "$out/linears.log"
mv "$folder/bin/python3" "$folder/python3"
printf '#!/bin/bash\ncase $1 in *own_winners.py) touch "$3" ;; *) exec "%s" "$@" ;; esac\n' "$folder/python3" > "$folder/bin/python3"
chmod +x "$folder/bin/python3"
mv "$folder/build/vitune" "$folder/build/vitune_stub"
printf '#!/bin/bash\n[ "$1 $2" != "db import" ] || touch "$5"\nexec "%s" "$@"\n' "$folder/build/vitune_stub" > "$folder/build/vitune"
chmod +x "$folder/build/vitune"
rm "$out/linears_tune.log"
LINEARS_TUNE=none LINEARS_BUDGET=500 LINEARS_ARGS="--peers vitune,eager" parts linears || fail "status $?: $(cat "$folder/table")"
[ ! -e "$out/linears_tune.log" ] || fail "linears tuned though it was told not to"
has "verify --db $out/linear_own.db --device 0 --from data/linear_problems.json --objective warm" "$out/linears_own.log"
has "--db $out/h200.db --own-db $out/linear_own.db --from data/linear_problems.json --budget 500" "$out/linears.log"
has "--peers vitune,eager" "$out/linears.log"
mv "$folder/python3" "$folder/bin/python3"
mv "$folder/build/vitune_stub" "$folder/build/vitune"
rm "$out/h200.db"

TOOLS=racecheck SHARDS=2 parts sanitize || fail "status $?: $(cat "$folder/table")"
has "--tool racecheck" "$out/racecheck.log"
has "*AttentionFeatureGpu*.OneLaunch*:*HeldReferenceGpu*" "$out/racecheck.log"
for gpu in 0 1; do has "gpu=$gpu " "$out/racecheck.log"; done
CUDA_VISIBLE_DEVICES=1 TOOLS=racecheck SHARDS=2 parts sanitize || fail "status $?: $(cat "$folder/table")"
grep -qF "gpu=0 " "$out/racecheck.log" && fail "a GPU was used that is not visible"
CASES=Some.Case TOOLS=racecheck SHARDS=2 parts sanitize || fail "status $?: $(cat "$folder/table")"
has "--gtest_filter=Some.Case" "$out/racecheck.log"
[ ! -e "$out/memcheck.log" ] || fail "a tool ran that was not asked for"
SHARDS=2 parts sanitize
for tool in memcheck initcheck synccheck; do has "--tool $tool" "$out/$tool.log"; done

touch "$out/h200.db"  # winners of this call come before the shipped ones
parts first_calls || fail "status $?: $(cat "$folder/table")"
has "--db $out/h200.db" "$out/first_calls.log"
LOGS=$folder/logs parts ceilings random || fail "status $?: $(cat "$folder/table")"
tar -xzOf "$out/logs.tgz" ./random.log | grep -qF vitune_tuner_test || fail "logs.tgz lacks a log"
[ ! -e "$out/logs.tgz.part" ] || fail "a part of logs.tgz was left"
for row in ceilings random; do grep -qE "^$row " "$out/table.txt" || fail "no row of $row in table.txt"; done

# Two GPUs, as far as there are CPUs for both.
if [ "$(nproc)" -ge 2 ]; then
  PATH=$folder/bin:$PATH BUILD=$folder/build OUT=$folder/both RESUME=$folder/none \
    "$root/benchmarks/on_gpus.sh" "ceilings" "peers first_calls" > "$folder/tables" 2>&1 ||
    fail "status $?: $(cat "$folder/tables")"
  grep -qE '^ceilings +ok ' "$folder/both/gpu0/table.txt" || fail "GPU 0 has no row of ceilings"
  for row in peers first_calls; do grep -qE "^$row +ok " "$folder/tables" || fail "no row of $row"; done
  [ -s "$folder/both/gpu1/logs.tgz" ] || fail "GPU 1 has no logs"
  BUILD=$folder/build OUT=$folder/both "$root/benchmarks/on_gpus.sh" "ladders" > "$folder/tables" 2>&1 &&
    fail "a list with a part that is none was accepted"
  has "no part 'ladders'" "$folder/tables"
fi
"$root/benchmarks/on_gpus.sh" > "$folder/tables" && fail "no list was accepted"
has "benchmarks/on_gpus.sh" "$folder/tables"

parts ladders && fail "a part that is none was accepted"
has "no part 'ladders'" "$folder/table"

# Each packed file must be a program that strip understands.
for name in vitune tests/vitune_{core,tuner,probe,runtime}_test tests/vitune_serve libvitune.so.0.1.0 \
  benchmarks/vitune_bench_{dispatch,cold_start,operators,reference,variants}; do
  cp "$(type -P true)" "$folder/build/$name"
done
"$root/benchmarks/pack_for_gpu.sh" "$folder/build" "$folder/packed" > "$folder/pack.txt" 2>&1 || fail "packing: $(cat "$folder/pack.txt")"
for name in vitune benchmarks/vitune_bench_operators; do [ -x "$folder/packed/$name" ] || fail "$name is not packed"; done
[ "$(readlink "$folder/packed/data")" = ../../data ] || fail "the programs would not find their data"
echo "on_gpu_test.sh: ok"
