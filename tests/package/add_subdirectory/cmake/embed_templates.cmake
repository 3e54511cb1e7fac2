# tests/package/add_subdirectory/cmake/embed_templates.cmake -- Must not be read: vitune has a file of this name.
# SPDX-License-Identifier: Apache-2.0
message(FATAL_ERROR "vitune included the surrounding project's embed_templates.cmake")
