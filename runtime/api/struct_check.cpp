// runtime/api/struct_check.cpp -- Checks the size of a caller's struct, and what lies beyond ours.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/struct_check.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/format.h"
#include "vitune/vitune.h"

namespace vitune {
namespace {

void check_struct(const char* name, std::size_t size, std::size_t least) {
  if (size >= least && size <= kMaxStructBytes) return;
  throw Error(ErrorCode::kUsage,
              formatted("{}.size is {}, which is no size of that struct ({} bytes at least): "
                        "initialise it with its ..._INIT macro",
                        name, size, least));
}

}  // namespace

void check_input_struct(const char* name, const void* data, std::size_t size, std::size_t least,
                        std::size_t ours) {
  check_struct(name, size, least);
  const auto* bytes = static_cast<const unsigned char*>(data);
  if (size <= ours || std::all_of(bytes + ours, bytes + size, [](auto b) { return b == 0; }))
    return;
  throw Error(ErrorCode::kUnsupported,
              formatted("{} was made for a newer version of libvitune: {} bytes with something set "
                        "beyond the {} that version {}.{}.{} knows; install the newer library",
                        name, size, ours, VITUNE_VERSION_MAJOR, VITUNE_VERSION_MINOR,
                        VITUNE_VERSION_PATCH));
}

void check_output_struct(const char* name, void* data, std::size_t size, std::size_t least,
                         std::size_t ours) {
  check_struct(name, size, least);
  if (size > ours) std::memset(static_cast<unsigned char*>(data) + ours, 0, size - ours);
}

}  // namespace vitune
