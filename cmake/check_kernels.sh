#!/usr/bin/env bash
# cmake/check_kernels.sh -- Compiles every shipped problem's default kernel, the probes and the ladder
# for every architecture.
#
# Usage: check_kernels.sh <vitune>. Through the command itself, without a GPU. Says so and passes where
# there is no NVRTC.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

vitune=${1:?usage: check_kernels.sh <vitune>}
checks=$("$vitune" doctor --csv -q 2>/dev/null || true)
if [[ $checks != *$'\nNVRTC,ok,'* ]]; then
  echo "kernels: NOT compiled, there is no NVRTC here"
  exit 0
fi
folder=$(mktemp -d)
list=$folder/list
trap 'kill $(jobs -rp) 2>/dev/null || true; rm -rf "$folder"' EXIT
processors=$(nproc 2>/dev/null || echo 2)
forms=0
# compile_form WHAT COUNT ARCHITECTURES CONFIG PROBLEM: begins it, one form per CPU at a time; expect_no_spill adds its
# rows, one for each of COUNT architectures, to the list.
compile_form() {
  while (($(jobs -rp | wc -l) >= processors)); do wait -n || true; done
  local rows=$folder/form$((forms++))
  { "$vitune" compile -q --csv --jobs 1 --arch "$3" --config "$4" "$5" | tail -n "$2" >"$rows" || echo "$1" >"$rows.failed"; } &
}
# collect_forms: waits for all that compile_form began.
collect_forms() {
  wait
  local form rows
  for ((form = 0; form < forms; ++form)); do
    rows=$folder/form$form
    if [[ -e $rows.failed ]]; then
      echo "kernels: $(<"$rows.failed") does not compile:" >&2
      cat "$rows" >&2
      exit 1
    fi
    cat "$rows" >>"$list"
  done
  forms=0
}
# expect_no_spill WHAT [BYTES]: of all rows of the list; or not more than so many bytes.
expect_no_spill() {
  collect_forms
  if awk -F ',sm_[0-9]*,ok,[0-9]*,' -v most="${2:-0}" 'NF < 2 || $2 + 0 > most { print; found = 1 } END { exit !found }' "$list" >&2; then
    echo "kernels: $1 spill" >&2
    exit 1
  fi
  echo "kernels: $(wc -l <"$list") forms of $1 compile without a spill${2:+ of more than $2 bytes}"
}
norms=$(dirname "${BASH_SOURCE[0]}")/../data/norm_problems.json
if ! "$vitune" compile -q --csv --preset bench --from "$norms" >"$list"; then
  echo "kernels: some do not compile:" >&2
  grep -v ',ok,' "$list" >&2 || true
  exit 1
fi
echo "kernels: $(($(wc -l <"$list") - 1)) combinations of problem and architecture compile"
# Linear layers: accesses of every width, w both ways, every part of the epilogue; and parts of k.
if ! "$vitune" compile -q --csv "linear bf16 m=6304 n=3072 k=768 bias act=gelu" \
    "linear fp16 m=197 n=768 k=3072 bias scale wt residual aux" \
    "linear bf16 m=3 n=1001 k=147 act=gelu out=fp32" \
    "linear fp16 m=197 n=772 k=3072 dact=gelu_tanh wt post" "linear bf16 m=394 n=516 k=588 scale factor=197 residual" \
    "linear bf16 m=392 n=516 k=588 bias act=silu residual period=196 rows=196+1" >"$list" ||
    ! "$vitune" compile -q --csv --arch sm_80,sm_86,sm_89,sm_100,sm_120 --config \
      "Splits=2 BlockM=64 BlockN=64 WarpM=32 WarpN=32 Stages=3" \
      "linear bf16 m=197 n=768 k=3072 bias scale residual" >>"$list"; then
  echo "kernels: some of linear layers do not compile:" >&2
  grep -v ',ok,' "$list" >&2 || true
  exit 1
fi
echo "kernels: $(($(wc -l <"$list") - 2)) combinations of linear layer and architecture compile"
# The family sm90: each schedule, pairs along n and m; products that ptxas takes one at a time and
# spills are errors.
layer="linear bf16 m=6304 n=768 k=768 norm=layer bias act=gelu"
: >"$list"
for form in "$layer;192 192 3 0 1 1 4" "$layer;128 192 2 1 2 0 5" \
    "linear fp16 m=1576 n=3072 k=768 bias scale residual;256 176 2 0 1 1 4" \
    "linear bf16 m=197 n=768 k=3072 bias residual;128 64 2 0 2 0 8" \
    "$layer;192 192 3 0 1 1 3 1" "$layer;128 256 2 0 1 1 3 1" "linear bf16 m=25216 n=768 k=3072 bias residual;128 192 2 1 0 0 4 1" \
    "linear fp16 m=1576 n=3072 k=768 bias scale residual;256 128 2 0 1 1 4 1" \
    "linear bf16 m=197 n=768 k=3072 bias residual;64 48 1 0 0 0 8" \
    "linear fp16 m=392 n=768 k=592 bias act=silu residual period=196 rows=196+1;64 80 1 0 1 0 8"; do
  read -r m n groups schedule pair lead stages wide <<<"${form#*;}"
  compile_form "a linear layer of the family sm90" 1 sm_90 "kFamily=1 kBlockM=$m kBlockN=$n kGroups=$groups \
kSchedule=$schedule kPair=$pair kLead=$lead kSplits=1 kStages=$stages kWidePanels=${wide:-0} kBlockK=0 kWarpM=0 kWarpN=0 \
kRaster=0" "${form%;*}"
done
for form in "linear bf16 m=197 n=768 k=3072 bias residual;96 4 7" "linear fp16 m=197 n=1536 k=768 norm=layer bias act=gelu scale;64 2 6" \
    "linear bf16 m=392 n=768 k=592 bias residual period=196 rows=196+1;128 2 5" "linear fp16 m=1 n=768 k=4304 act=silu;32 4 8"; do
  read -r n parts stages <<<"${form#*;}"
  compile_form "a linear layer of the family sm90_split_k" 1 sm_90 "kFamily=4 kBlockN=$n kSplits=$parts kStages=$stages \
kBlockM=0 kGroups=0 kSchedule=0 kPair=0 kLead=0 kBlockK=0 kWarpM=0 kWarpN=0 kRaster=0" "${form%;*}"
done
# Moments of rows, written and taken: pairs, turns, three warpgroups, parts of k.
for form in "linear bf16 m=6304 n=768 k=3072 bias scale residual moments=192;192 192 3 0 1 1 4" \
  "linear bf16 m=25216 n=1024 k=768 bias residual moments=128;256 128 2 0 1 1 4" "linear fp16 m=197 n=768 k=768 bias residual moments=32;64 32 1 0 0 0 8" \
  "linear bf16 m=23328 n=1152 k=1152 bias residual moments=192;128 192 2 1 1 0 5" \
  "linear bf16 m=6304 n=3072 k=768 norm=moments:192 bias act=gelu params=fp32;192 192 3 0 1 1 4"; do
  read -r m n groups schedule pair lead stages <<<"${form#*;}"
  compile_form "a linear layer with moments of rows" 1 sm_90 "kFamily=1 kBlockM=$m kBlockN=$n kGroups=$groups \
kSchedule=$schedule kPair=$pair kLead=$lead kSplits=1 kStages=$stages kWidePanels=0 kBlockK=0 kWarpM=0 kWarpN=0 \
kRaster=0" "${form%;*}"
done
compile_form "a linear layer with moments of rows by parts of k" 1 sm_90 "kFamily=4 kBlockN=96 kSplits=4 kStages=7 kBlockM=0 \
kGroups=0 kSchedule=0 kPair=0 kLead=0 kBlockK=0 kWarpM=0 kWarpN=0 kRaster=0" "linear bf16 m=197 n=768 k=3072 bias residual moments=32"
# Layers that training asks: w as [k, n], derivatives with and without the function, a second result, a stream of fp32, factors of rows.
for tile in "128 128 2 0 2 1 5" "128 192 2 1 2 0 4" "192 192 3 0 1 1 3" "128 256 2 0 2 1 3" "256 128 2 0 1 1 3"; do
  read -r m n groups schedule pair lead stages <<<"$tile"
  for layer in "n=3072 k=768 wt" "n=768 k=3072 wt residual" "n=3072 k=768 dact=gelu wt" "n=3072 k=768 dact=gelu wt post" \
    "n=3072 k=768 bias act=gelu aux" "n=768 k=3072 bias factor=197 residual out=fp32"; do
    compile_form "a linear layer for training" 1 sm_90 "kFamily=1 kBlockM=$m kBlockN=$n kGroups=$groups kSchedule=$schedule \
kPair=$pair kLead=$lead kSplits=1 kStages=$stages kWidePanels=0 kBlockK=0 kWarpM=0 kWarpN=0 kRaster=0" "linear bf16 m=12608 $layer"
  done
done
for layer in "wt residual" "dact=gelu wt post" "bias act=gelu aux" "factor=197 wt residual out=fp32"; do
  compile_form "a linear layer for training by parts of k" 1 sm_90 "kFamily=4 kBlockN=64 kSplits=2 kStages=4 kBlockM=0 kGroups=0 \
kSchedule=0 kPair=0 kLead=0 kBlockK=0 kWarpM=0 kWarpN=0 kRaster=0" "linear fp16 m=197 n=768 k=3072 $layer"
done
expect_no_spill "linear layers of the families sm90 and sm90_split_k"
# Two computing warpgroups leave 24 registers to the warps that merge moments beside the products.
: >"$list"
for form in "norm=moments:192 bias params=fp32;256 128 2 0 1 1 4" "norm=moments:192 bias act=gelu params=fp32;128 192 2 1 2 0 4" \
  "norm=moments:32 bias params=fp32;192 128 2 1 0 0 4"; do
  read -r m n groups schedule pair lead stages <<<"${form#*;}"
  compile_form "a linear layer that takes moments of rows" 1 sm_90 "kFamily=1 kBlockM=$m kBlockN=$n kGroups=$groups \
kSchedule=$schedule kPair=$pair kLead=$lead kSplits=1 kStages=$stages kWidePanels=0 kBlockK=0 kWarpM=0 kWarpN=0 \
kRaster=0" "linear bf16 m=6304 n=2304 k=768 ${form%;*}"
done
expect_no_spill "linear layers that take moments" 16
# Weight gradients: accesses of every width, every word; the family sm90 with all its tiles and pairs.
if ! "$vitune" compile -q --csv "linear_weight_grad bf16 m=12608 n=3072 k=768 bias out=fp32" \
    "linear_weight_grad fp16 m=21984 n=1024 k=1024 bias scale params=fp32 add" \
    "linear_weight_grad bf16 m=197 n=1001 k=147 bias scale add out=fp32" "linear_weight_grad bf16 m=3 n=64 k=96 align=4" >"$list"; then
  echo "kernels: some of weight gradients do not compile:" >&2
  grep -v ',ok,' "$list" >&2 || true
  exit 1
fi
echo "kernels: $(($(wc -l <"$list") - 1)) combinations of weight gradient and architecture compile"
: >"$list"
gradient="linear_weight_grad bf16 m=12608 n=3072 k=768 bias out=fp32"
for form in "$gradient;192 192 3 1 2 4" "$gradient;128 256 2 2 1 4" "$gradient;256 128 2 1 5 4" "linear_weight_grad bf16 m=12608 n=768 k=768 bias add;128 128 1 1 7 6" \
    "linear_weight_grad fp16 m=12608 n=768 k=768 bias scale add out=fp32;192 192 3 2 8 4" "linear_weight_grad bf16 m=4608 n=384 k=384 bias out=fp32;64 64 1 0 11 8" \
    "linear_weight_grad bf16 m=25216 n=384 k=384 bias out=fp32;192 64 3 0 22 6" "linear_weight_grad bf16 m=200704 n=288 k=96 bias out=fp32;256 64 2 0 66 4"; do
  read -r m n groups pair splits stages <<<"${form#*;}"
  compile_form "a weight gradient of the family sm90" 1 sm_90 "kFamily=1 kBlockM=$m kBlockN=$n kGroups=$groups kPair=$pair kSplits=$splits kStages=$stages kSharedRowSums=0" "${form%;*}"
done
for form in "linear_weight_grad bf16 m=1576 n=384 k=1536 bias out=fp32;128 192 2 4 5 0" "linear_weight_grad bf16 m=1576 n=384 k=1536 bias out=fp32;192 128 3 6 5 1" \
    "linear_weight_grad bf16 m=1576 n=1536 k=384 bias add;128 256 2 3 4 0" "linear_weight_grad fp16 m=4728 n=768 k=768 bias out=fp32;256 64 2 4 5 1" \
    "linear_weight_grad bf16 m=12608 n=3072 k=768 bias out=fp32;192 192 3 2 4 1" "linear_weight_grad bf16 m=1576 n=384 k=384 bias out=fp32;64 192 1 5 5 0"; do
  read -r m n groups splits stages shares <<<"${form#*;}"
  compile_form "a weight gradient of the family sm90_split_m" 1 sm_90 \
    "kFamily=4 kBlockM=$m kBlockN=$n kGroups=$groups kPair=0 kSplits=$splits kStages=$stages kSharedRowSums=$shares" "${form%;*}"
done
expect_no_spill "weight gradients of the families sm90 and sm90_split_m"
# Maps: what vision transformers ask for; every word.
mapfile -t maps < <(python3 -c 'import json, sys; [print(each["problem"]) for each in json.load(open(sys.argv[1]))["problems"]]' "$(dirname "$0")/../data/map_problems.json")
if ! "$vitune" compile -q --csv "${maps[@]}" "map n=4096 a=fp32 b=bool c=fp16 x=where(b,add(sin(cos(exp(a))),log(abs(div(a,sub(a,2))))),min(erf(tanh(a)),sqrt(rsqrt(sigmoid(neg(c)))))) out=fp32" \
    "map n=64 over=96 a=u8 x=max(lt(a,7),relu(gelu(gelu_tanh(quick_gelu(silu(hardswish(a))))))) max out=fp16" >"$list"; then
  echo "kernels: some of maps do not compile:" >&2
  grep -v ',ok,' "$list" >&2 || true
  exit 1
fi
echo "kernels: $(($(wc -l <"$list") - 1)) combinations of map and architecture compile"
# Gradients of norms: every word and type, accesses of every width, the widest rows; the shipped shapes without a spill.
if ! "$vitune" compile -q --csv "norm_backward fp16 m=394 d=200 rms weight frozen x=fp32@208 residual second=fp16 factor=197 stats" \
    "norm_backward fp32 m=394 d=197 weight bias params=bf16" "norm_backward bf16 m=197 d=8192 weight bias residual" \
    "norm_backward bf16 m=3 d=64 align=4" >"$list"; then
  echo "kernels: some of norms' gradients do not compile:" >&2
  grep -v ',ok,' "$list" >&2 || true
  exit 1
fi
echo "kernels: $(($(wc -l <"$list") - 1)) combinations of a norm's gradients and architecture compile"
"$vitune" compile -q --csv --from "$(dirname "${BASH_SOURCE[0]}")/../data/norm_backward_problems.json" | tail -n +2 >"$list"
expect_no_spill "norms' gradients" 32
# Gradients of attention: every word, accesses of every width; the shapes of the list on the family sm80.
if ! "$vitune" compile -q --csv "attention_backward fp16 b=2 h=4 hkv=2 nq=40 nk=77 d=24 causal align=2" \
    "attention_backward bf16 b=2 h=4 n=33 d=16 align=4 bias=fp32:2x1x33x33 mask=bool:2x1x33x33 dbias=bf16" \
    "attention_backward bf16 b=2 h=2 n=20 d=120 align=8 bias=bf16:2x1x1x20" >"$list"; then
  echo "kernels: some of attention's gradients do not compile:" >&2
  grep -v ',ok,' "$list" >&2 || true
  exit 1
fi
echo "kernels: $(($(wc -l <"$list") - 1)) combinations of attention's gradients and architecture compile"
: >"$list"
for problem in "b=4 h=16 n=4096 d=128" "b=32 h=16 n=257 d=80" "b=32 h=12 n=197 d=64 bias=bf16:1x12x197x197 dbias"; do
  compile_form "a gradient of attention" 2 sm_80,sm_89 kFamily=0 "attention_backward bf16 $problem"
done
compile_form "a gradient of attention" 2 sm_80,sm_89 "kFamily=0 kDqWarps=4 kDqKeys=64 kDqStages=2 kDqInRegisters=1 kDkvWarps=4 kDkvGroups=2 kDkvRows=32 kDkvStages=2 kDkvInRegisters=0 kDbiasKeys=64 \
kDbiasStages=2 kGroups=0 kKeyStep=0 kQueryStep=0 kStages=0 kWarps=0 kBuffers=0 kMinCtas=0" "attention_backward bf16 b=2048 h=3 n=49 d=32 bias=bf16:1x3x49x49 dbias"
expect_no_spill "gradients of attention" 32
# With a bias on wgmma: defaults of each type and broadcast, head sizes of each swizzle.
: >"$list"
for problem in "b=32 h=12 n=197 d=64 bias=bf16:1x12x197x197 dbias" "b=512 h=4 n=144 d=32 bias=fp32:1x4x144x144 dbias" \
    "b=8 h=4 nq=70 nk=333 d=72 bias=fp16:2x1x70x333" "b=4 h=2 n=160 d=128 bias=bf16:1x2x160x160 dbias=fp32"; do
  compile_form "a gradient of attention with a bias" 1 sm_90 kFamily=2 "attention_backward bf16 $problem"
done
expect_no_spill "gradients of attention with a bias" 32
# Short rows, in one pass: the shapes of the list, every word, one group of keys and several.
: >"$list"
for form in "4 1 4;b=256 h=12 n=50 d=64" "2 1 4;b=256 h=12 n=50 d=64" "2 2 2;b=2048 h=4 n=49 d=32" "5 1 2;b=256 h=8 n=77 d=64 causal" "4 1 3;b=2048 h=3 n=49 d=32 bias=bf16:1x3x49x49 dbias" \
  "2 1 4;b=2048 h=3 n=49 d=32 bias=bf16:1x3x49x49 dbias" "4 1 2;b=64 h=3 n=49 d=32 bias=fp32:1x3x49x49 mask=bool:64x1x49x49 dbias=bf16" "2 1 2;b=4 h=2 nq=33 nk=20 d=120 align=4 mask=bool:33x20"; do
  read -r warps buffers ctas <<<"${form%;*}"
  compile_form "a gradient of short rows" 2 sm_90,sm_100 "family=sm80_short kWarps=$warps kBuffers=$buffers kMinCtas=$ctas" "attention_backward bf16 ${form#*;}"
done
for problem in "b=256 h=12 n=50 d=64" "b=2048 h=3 n=49 d=32 bias=bf16:1x3x49x49 dbias"; do
  compile_form "a gradient of short rows" 4 sm_80,sm_86,sm_89,sm_120 "family=sm80_short" "attention_backward bf16 $problem"
done
expect_no_spill "gradients of short rows" 64
# Attention with dropout and its gradients: the sizes of models that train with it, steps of every kind, copies of every width.
if ! "$vitune" compile -q --csv "attention bf16 b=64 h=6 n=576 d=64 dropout=0.1 lse" "attention_backward bf16 b=64 h=6 n=576 d=64 dropout=0.1" \
    "attention fp16 b=32 h=12 n=197 d=64 dropout=0.1 lse" "attention_backward fp16 b=32 h=12 n=197 d=64 dropout=0.1" \
    "attention bf16 b=2 h=4 hkv=2 nq=40 nk=77 d=24 causal align=2 dropout=0.5 lse" \
    "attention_backward bf16 b=2 h=4 hkv=2 nq=40 nk=77 d=24 causal align=2 dropout=0.5" \
    "attention bf16 b=8 h=16 n=1024 d=128 dropout=0.1 lse" "attention_backward bf16 b=8 h=16 n=1024 d=128 dropout=0.1" | tail -n +2 >"$list"; then
  echo "kernels: some of attention with dropout do not compile:" >&2
  grep -v ',ok,' "$list" >&2 || true
  exit 1
fi
expect_no_spill "attention with dropout" 192
# In one pass: warps that sum deltas spill, and those that compute spill addresses that a block of keys needs once.
: >"$list"
for problem in "b=32 h=12 n=197 d=64" "b=32 h=16 n=257 d=80" "b=32 h=16 n=729 d=72" "b=32 h=12 n=577 d=64"; do
  compile_form "a gradient of attention in one pass" 1 sm_90 kFamily=4 "attention_backward bf16 $problem"
done
expect_no_spill "gradients of attention in one pass" 320
# Windows in place: Swin's two, padding, MaxViT's grid, head sizes that are no power of two.
if ! "$vitune" compile -q --csv "window_attention bf16 b=32 image=56 window=7 h=3 d=32 bias=bf16:1x3x49x49" \
    "window_attention bf16 b=8 image=24 window=12 shift=6 h=4 d=32 bias=bf16:4x4x144x144" \
    "window_attention fp16 b=2 image=9x5 window=4 shift=2 h=2 d=24 padding bias=fp32:6x2x16x16" \
    "window_attention bf16 b=8 image=56 window=7 h=2 d=32 grid layout=interleaved" >"$list"; then
  echo "kernels: some of windows do not compile:" >&2
  grep -v ',ok,' "$list" >&2 || true
  exit 1
fi
echo "kernels: $(($(wc -l <"$list") - 1)) combinations of windows and architecture compile"
# Their gradients: a shifted image with its table, padding and half steps, large windows with a bias of each.
: >"$list"
for problem in "b=32 image=56 window=7 shift=3 h=3 d=32 bias=bf16:64x3x49x49 dtable=169" \
    "b=2 image=50 window=7x5 h=2 d=40 layout=interleaved padding" \
    "b=32 image=24 window=12 shift=6 h=16 d=32 bias=bf16:4x16x144x144 dbias"; do
  if ! "$vitune" compile -q --csv --arch sm_80,sm_90,sm_120 "window_attention_backward bf16 $problem" | tail -n 3 >>"$list"; then
    echo "kernels: some gradients of windows do not compile:" >&2
    cat "$list" >&2
    exit 1
  fi
done
expect_no_spill "gradients of windows" 32
: >"$list"
for form in "4 1 3;b=32 image=56 window=7 shift=3 h=3 d=32 bias=bf16:64x3x49x49 dtable=169" "2 1 4;b=64 image=56 window=7 h=2 d=32 grid bias=bf16:1x2x49x49 dbias" \
  "2 2 3;b=32 image=56 window=7 h=2 d=32 layout=interleaved" "4 1 2;b=2 image=32 window=8 h=2 d=64 bias=fp32:1x2x64x64"; do
  read -r warps buffers ctas <<<"${form%;*}"
  compile_form "a gradient of windows of few pixels" 2 sm_90,sm_100 "kBlockN=0 kKeepsScores=0 kWarps=$warps kBuffers=$buffers kMinCtas=$ctas" "window_attention_backward bf16 ${form#*;}"
done
compile_form "a gradient of windows of few pixels" 3 sm_80,sm_86,sm_120 "kBlockN=0" "window_attention_backward bf16 b=32 image=56 window=7 shift=3 h=3 d=32 bias=bf16:64x3x49x49 dtable=169"
expect_no_spill "gradients of windows of few pixels" 96
# Packed sequences: short and long ones, each head size of multimodal towers, causal masks.
if ! "$vitune" compile -q --csv "packed_attention bf16 tokens=4096 longest=64 sequences=64 h=16 d=80" \
    "packed_attention bf16 tokens=16384 longest=16384 sequences=1 h=16 d=72" \
    "packed_attention bf16 tokens=5949 longest=256 sequences=32 h=12 d=64 lse" \
    "packed_attention fp16 tokens=300 longest=200 sequences=2 tokens_k=3000 longest_k=2000 h=32 hkv=8 d=128 causal" \
    >"$list"; then
  echo "kernels: some of packed sequences do not compile:" >&2
  grep -v ',ok,' "$list" >&2 || true
  exit 1
fi
tail -n +2 "$list" >"$list.rows" && mv "$list.rows" "$list"
expect_no_spill "packed sequences" 192
# Group norms by clusters of CTAs: few and many CTAs and threads, tails.
: >"$list"
for form in "kChunks=2 kThreads=640 kPieces=2;group_norm bf16 n=2 c=320 l=4096 g=32 weight bias silu" \
  "kChunks=2 kThreads=512 kPieces=1;group_norm bf16 n=2 c=320 l=4096 g=32 weight bias silu" \
  "kChunks=8 kThreads=128 kPieces=1;group_norm bf16 n=2 c=320 l=4096 g=32 weight bias silu" \
  "kChunks=4 kThreads=128 kPieces=4;group_norm bf16 n=2 c=20 l=4100 g=2 weight bias mish"; do
  compile_form "a group norm by clusters" 2 sm_90,sm_100 "kCluster=1 kGroups=1 kEarlyStart=1 kStreaming=1 ${form%;*}" "${form#*;}"
done
expect_no_spill "group norms by clusters"
# Group norms by all CTAs of the device, in turns: both layouts. Where turns are a loop, what the last one needs waits in local memory, a few words a call.
: >"$list"
large="c=512 l=65536 g=32 weight bias" turns="kCluster=0 kEarlyStart=1 kStreaming=1"
for form in "kChunks=16 kGroups=1 kPieces=2 kThreads=1024 kTurns=4;group_norm bf16 n=1 $large silu" "kChunks=16 kGroups=1 kPieces=4 kThreads=512 kTurns=4;group_norm fp16 n=1 $large mish" \
  "kChunks=128 kGroups=8 kPieces=4 kThreads=512 kTurns=4;group_norm bf16 n=1 $large nhwc silu" "kChunks=64 kGroups=1 kPieces=4 kThreads=512 kTurns=16;group_norm fp32 n=1 c=256 l=262144 g=32"; do
  compile_form "a group norm in turns" 1 sm_90 "$turns ${form%;*}" "${form#*;}"
done
expect_no_spill "group norms in turns"
: >"$list"
for form in "kChunks=128 kGroups=8 kPieces=4 kThreads=512 kTurns=8;group_norm fp16 n=2 $large nhwc mish" "kChunks=16 kGroups=1 kPieces=4 kThreads=512 kTurns=8;group_norm bf16 n=2 $large silu"; do
  compile_form "a group norm in many turns" 2 sm_90,sm_100 "$turns ${form%;*}" "${form#*;}"
done
expect_no_spill "group norms in many turns" 48
if ! "$vitune" compile -q --csv --probes >"$list"; then
  echo "kernels: some probes or kernels of the ladder do not compile:" >&2
  grep -v ',ok,' "$list" >&2 || true
  exit 1
fi
echo "kernels: $(($(wc -l <"$list") - 1)) combinations of probe or ladder kernel and architecture compile"
