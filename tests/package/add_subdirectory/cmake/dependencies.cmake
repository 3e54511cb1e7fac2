# tests/package/add_subdirectory/cmake/dependencies.cmake -- Must not be read: vitune has a file of this name.
# SPDX-License-Identifier: Apache-2.0
message(FATAL_ERROR "vitune included the surrounding project's dependencies.cmake")
