# cmake/install.cmake -- What `make install` puts where: the library, the command, their data.
#
# The installed tree may be moved as a whole: the CMake package and vitune.pc name their folders
# relative to themselves, and the library and the command look for share/vitune from their own place.
# SPDX-License-Identifier: Apache-2.0
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
include(${CMAKE_CURRENT_LIST_DIR}/sbom.cmake)

# --- the library, its headers and how others find it
install(TARGETS vitune_shared EXPORT vitune-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET vitune_torch)
  install(TARGETS vitune_torch LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})  # Python finds it beside libvitune
endif()
install(FILES include/vitune/vitune.h include/vitune/vitune.hpp include/vitune/model.hpp
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/vitune)

set(vitune_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/vitune)
install(EXPORT vitune-targets NAMESPACE vitune:: DESTINATION ${vitune_cmake_dir})
configure_package_config_file(cmake/vitune-config.cmake.in
                              ${CMAKE_CURRENT_BINARY_DIR}/package/vitune-config.cmake
                              INSTALL_DESTINATION ${vitune_cmake_dir}
                              NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# A newer library serves programs of older ones: see "Versions" in vitune.h.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/package/vitune-config-version.cmake
                                 COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/package/vitune-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/package/vitune-config-version.cmake
        DESTINATION ${vitune_cmake_dir})

# vitune_relative(VARIABLE folder): how to get to `folder` of the prefix from the folder of vitune.pc;
# an absolute folder stays as it is.
function(vitune_relative variable folder)
  if(IS_ABSOLUTE "${folder}")
    set(${variable} "${folder}" PARENT_SCOPE)
    return()
  endif()
  file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" up "${up}")
  set(${variable} "\${pcfiledir}/${up}/${folder}" PARENT_SCOPE)
endfunction()
vitune_relative(VITUNE_PC_LIBDIR ${CMAKE_INSTALL_LIBDIR})
vitune_relative(VITUNE_PC_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
configure_file(cmake/vitune.pc.in package/vitune.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/package/vitune.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# --- the command and what both read
if(VITUNE_BUILD_COMMAND)
  install(TARGETS vitune RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY data/ DESTINATION ${CMAKE_INSTALL_DATADIR}/vitune PATTERN "*.py" EXCLUDE
        PATTERN "__pycache__" EXCLUDE)
# With share/vitune/python on PYTHONPATH the package takes library and command from this prefix.
install(DIRECTORY python/vitune DESTINATION ${CMAKE_INSTALL_DATADIR}/vitune/python FILES_MATCHING PATTERN "*.py"
        PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
# The program of `vitune report`.
install(DIRECTORY benchmarks/report DESTINATION ${CMAKE_INSTALL_DATADIR}/vitune FILES_MATCHING PATTERN "*.py"
        PATTERN "tests" EXCLUDE PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} USE_SOURCE_PERMISSIONS)
install(FILES README.md CHANGELOG.md LICENSE SECURITY.md THIRD_PARTY_NOTICES.md
        ${CMAKE_CURRENT_BINARY_DIR}/package/vitune.cdx.json DESTINATION ${CMAKE_INSTALL_DOCDIR})

# --- the same inside the Python package (pyproject.toml), and nothing else there. Not as targets: a wheel has
# no links, so the library lies there once, by its soname.
set(vitune_package vitune/_lib)
set(vitune_component COMPONENT python EXCLUDE_FROM_ALL)
install(PROGRAMS $<TARGET_FILE:vitune_shared> DESTINATION ${vitune_package}
        RENAME $<TARGET_SONAME_FILE_NAME:vitune_shared> ${vitune_component})
if(VITUNE_BUILD_COMMAND)
  install(PROGRAMS $<TARGET_FILE:vitune> DESTINATION ${vitune_package} ${vitune_component})
endif()
if(TARGET vitune_torch)
  install(PROGRAMS $<TARGET_FILE:vitune_torch> DESTINATION ${vitune_package} ${vitune_component})
endif()
install(DIRECTORY data/ DESTINATION ${vitune_package}/share/vitune ${vitune_component} PATTERN "*.py" EXCLUDE
        PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY benchmarks/report DESTINATION ${vitune_package}/share/vitune ${vitune_component}
        FILES_MATCHING PATTERN "*.py" PATTERN "tests" EXCLUDE PATTERN "__pycache__" EXCLUDE)
if(SKBUILD_METADATA_DIR)  # PEP 770
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/package/vitune.cdx.json DESTINATION ${SKBUILD_METADATA_DIR}/sboms ${vitune_component})
endif()
