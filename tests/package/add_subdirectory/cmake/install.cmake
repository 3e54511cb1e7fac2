# tests/package/add_subdirectory/cmake/install.cmake -- Must not be read: vitune has a file of this name.
# SPDX-License-Identifier: Apache-2.0
message(FATAL_ERROR "vitune included the surrounding project's install.cmake")
