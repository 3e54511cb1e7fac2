# cmake/precompiled.cmake -- The standard library's headers, read once for many files.
#
# Reading them took more than half the time of most files. Headers of vitune are not among them: each file still
# names what it uses, and a build with CMAKE_DISABLE_PRECOMPILE_HEADERS proves it.
# SPDX-License-Identifier: Apache-2.0
set(vitune_precompiled <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <cstdint> <cstring> <filesystem>
    <functional> <limits> <map> <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread> <tuple>
    <utility> <variant> <vector>)

# vitune_precompile(target options header...): these too; targets of equal options share what the first has read.
function(vitune_precompile target options)
  get_property(first GLOBAL PROPERTY vitune_precompiled_${options})
  if(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
    return()
  endif()
  set_property(GLOBAL PROPERTY vitune_precompiled_${options} ${target})
  target_precompile_headers(${target} PRIVATE ${vitune_precompiled} ${ARGN})
endfunction()
