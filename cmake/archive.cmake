# cmake/archive.cmake -- `make archive`, or cpack: the installed tree as one .tar.gz to unpack anywhere.
# SPDX-License-Identifier: Apache-2.0
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_VENDOR "The vitune authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_RESOURCE_FILE_README ${PROJECT_SOURCE_DIR}/README.md)
string(TOLOWER ${CMAKE_SYSTEM_NAME} vitune_system)
set(CPACK_PACKAGE_FILE_NAME vitune-${PROJECT_VERSION}-${vitune_system}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
set(CPACK_STRIP_FILES ON)
include(CPack)
