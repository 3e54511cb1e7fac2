#!/usr/bin/env bash
# benchmarks/pack_for_gpu.sh -- Collects what benchmarks/on_gpu.sh runs, for a machine that cannot build.
#
#   benchmarks/pack_for_gpu.sh [BUILD [TO]]      default: build/default build/gpu
#
# Copies the programs, stripped, and the shared libraries that a bare machine with a driver lacks. There:
#
#   mkdir -p build/default && cp -a build/gpu/. build/default/
#   LD_LIBRARY_PATH=$PWD/build/default/lib:$PWD/build/default BUILD=build/default benchmarks/on_gpu.sh
# SPDX-License-Identifier: Apache-2.0
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/default} to=${2:-build/gpu}
rm -rf "$to"
mkdir -p "$to/tests" "$to/benchmarks" "$to/lib"
programs=(vitune tests/vitune_{core,tuner,probe,runtime}_test tests/vitune_serve
  benchmarks/vitune_bench_{dispatch,cold_start,operators,reference,variants})
for program in "${programs[@]}" libvitune.so.0.* libvitune_torch.so; do
  for file in "$build"/$program; do
    [ -L "$file" ] || [ ! -e "$file" ] || strip -o "$to/${file#"$build"/}" "$file"
  done
done
ln -sf "$(basename "$to"/libvitune.so.0.*)" "$to/libvitune.so.0"
ln -s ../../data "$to/data"  # of the source tree, whether here or in build/default there
ldd "${programs[@]/#/$build/}" | awk '/=> \// {print $3}' | sort -u |
  grep -E 'boost|crypto|sqlite|zstd|xxhash|fmt|libbenchmark|stdc\+\+|gcc_s' | xargs -r cp -Lt "$to/lib"
du -sh "$to"
