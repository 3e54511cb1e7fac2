// generator/nvrtc_location.h -- Where libnvrtc may be, and which build of it a file is.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/env.h"

namespace vitune {

// File names of the library in order of preference: newest major version first.
std::span<const std::string_view> nvrtc_file_names();

// Directories to look into, best first and without repetition; "" stands for the loader's own path.
// Holds the site-packages of every python3 on PATH; no program is run to find them.
std::vector<std::string> nvrtc_directories(const Environment& environment);

// Tells builds of a library apart without reading the whole file (NVRTC has 100 MB): its GNU
// build-id in hexadecimal, or its size and the SHA-256 of its first and last MiB if it has none.
// "absent" for a file that cannot be read.
std::string library_identity(const std::string& path);

// The package to install where there is no libnvrtc.
std::string_view nvrtc_install_hint();

}  // namespace vitune
