# cmake/sbom.cmake -- The software bill of materials (CycloneDX 1.5): the libraries that become part of what is built, by version.
# SPDX-License-Identifier: Apache-2.0

# The value of a macro of strings or numbers in a header; "unknown" without either.
function(vitune_macro_of header macro variable)
  set(${variable} unknown PARENT_SCOPE)
  if(EXISTS "${header}")
    file(STRINGS "${header}" line REGEX "^ *# *define +${macro} +" LIMIT_COUNT 1)
    if(line MATCHES "${macro} +\"?([0-9.]+)")
      set(${variable} ${CMAKE_MATCH_1} PARENT_SCOPE)
    endif()
  endif()
endfunction()

# The version that a header says in three macros.
function(vitune_version_of header prefix variable)
  set(parts "")
  foreach(part MAJOR MINOR RELEASE)
    vitune_macro_of("${header}" ${prefix}_VERSION_${part} number)
    list(APPEND parts ${number})
  endforeach()
  list(JOIN parts "." version)
  set(${variable} ${version} PARENT_SCOPE)
endfunction()

# Appends a component to VITUNE_COMPONENTS.
macro(vitune_component_of name version licence)
  if(VITUNE_COMPONENTS)
    string(APPEND VITUNE_COMPONENTS ",\n")
  endif()
  string(APPEND VITUNE_COMPONENTS "    {\"type\": \"library\", \"name\": \"${name}\", \"version\": \"${version}\", "
         "\"licenses\": [{\"license\": {\"id\": \"${licence}\"}}]}")
endmacro()

vitune_macro_of("${VITUNE_SQLITE3_INCLUDE}/sqlite3.h" SQLITE_VERSION sqlite_version)
vitune_component_of(sqlite ${sqlite_version} blessing)
vitune_component_of(openssl ${OPENSSL_VERSION} Apache-2.0)
vitune_version_of("${VITUNE_ZSTD_INCLUDE}/zstd.h" ZSTD zstd_version)
vitune_component_of(zstd ${zstd_version} BSD-3-Clause)
vitune_version_of("${VITUNE_XXHASH_INCLUDE}/xxhash.h" XXH xxhash_version)
vitune_component_of(xxhash ${xxhash_version} BSD-2-Clause)
vitune_component_of(fmt ${fmt_VERSION} MIT)
vitune_component_of(nlohmann-json ${nlohmann_json_VERSION} MIT)
if(VITUNE_BUILD_COMMAND)
  vitune_component_of(boost-program-options ${Boost_VERSION_STRING} BSL-1.0)
  vitune_component_of(spdlog ${spdlog_VERSION} MIT)
endif()
if(TARGET vitune_torch)
  vitune_component_of(pytorch-headers 2.11.0 BSD-3-Clause)
endif()
vitune_component_of(gcc-runtime ${CMAKE_CXX_COMPILER_VERSION} GPL-3.0-with-GCC-exception)
configure_file(cmake/sbom.cdx.json.in package/vitune.cdx.json @ONLY)
