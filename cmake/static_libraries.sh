#!/usr/bin/env bash
# cmake/static_libraries.sh -- Builds the libraries that vitune links, as static ones, where no package has them.
#
# Usage: static_libraries.sh FOLDER. For the manylinux_2_28 image, whose distribution has none of them new enough.
# Afterwards CMAKE_PREFIX_PATH=FOLDER/installed/x64-linux-release makes CMake find them. By vcpkg at a release of
# its own, so that equal sources give equal libraries.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
folder=${1:?usage: static_libraries.sh FOLDER}
release=2024.06.15

dnf -y -q install curl git ninja-build perl-IPC-Cmd tar unzip zip
git clone --quiet --depth 1 --branch "$release" https://github.com/microsoft/vcpkg "$folder"
"$folder/bootstrap-vcpkg.sh" -disableMetrics
"$folder/vcpkg" install --triplet x64-linux-release --host-triplet x64-linux-release --clean-after-build \
  boost-program-options fmt nlohmann-json openssl spdlog sqlite3 xxhash zstd
