// generator/gemm/source.h -- The main text of a product's kernels, and its launch on wgmma.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/device_info.h"
#include "generator/config_text.h"
#include "generator/launch_plan.h"
#include "templates/linear/geometry_sm90.cuh"

namespace vitune {

// As entry_text(), of so many threads; and of a kernel on wgmma, which is handed tensor maps too.
std::string entry_text(std::int64_t threads, std::string_view entry, std::string_view params,
                       std::string_view function);
std::string entry_text(const GemmSm90& shape, std::string_view entry, std::string_view params,
                       std::string_view maps, std::string_view function);

// Units of work, tiles or pairs of them, of a result of so many rows and columns.
std::int64_t units_of(const GemmSm90& shape, std::int64_t rows, std::int64_t columns);
// CTAs, threads and shared memory of a launch for so many units: clusters that stay, as many as the
// device holds at once, or one for each unit whose parts a cluster adds.
LaunchShape launch_shape(const GemmSm90& shape, std::int64_t units, const DeviceInfo& device,
                         std::span<const int> resident);

}  // namespace vitune
