# cmake/embed_templates.cmake -- Puts the text of templates/ and db/schema/ into the binary, and what images are packed with.
#
# Each text becomes one raw string in a generated .cpp that is rewritten only when a file changes.
# SPDX-License-Identifier: Apache-2.0
set(VITUNE_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/embed_files.cmake)

function(vitune_embed target function_name header pattern root)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${root}/${pattern})
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${function_name}.cpp)
  # Rewritten when a file comes or goes: one that is gone is newer than nothing.
  file(GENERATE OUTPUT ${output}.files CONTENT "${files}")
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DROOT=${root} -DPATTERN=${pattern}
            -DFUNCTION=${function_name} -DHEADER=${header} -P ${VITUNE_EMBED_SCRIPT}
    DEPENDS ${files} ${output}.files ${VITUNE_EMBED_SCRIPT}
    COMMENT "Embedding ${pattern} of ${root}" VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

function(vitune_embed_templates target)
  vitune_embed(${target} embedded_templates generator/source.h *.cuh
               ${CMAKE_CURRENT_SOURCE_DIR}/templates)
endfunction()

function(vitune_embed_schema target)
  vitune_embed(${target} embedded_schema db/schema.h *.sql ${CMAKE_CURRENT_SOURCE_DIR}/db/schema)
endfunction()

# vitune_embed_bytes(target function_name header file): a .cpp whose function gives the file's bytes.
function(vitune_embed_bytes target function_name header file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  cmake_path(GET file FILENAME name)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${function_name}.cpp)
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT "// Generated from ${name}; do not edit.
#include \"${header}\"

std::span<const unsigned char> vitune::${function_name}() {
  static constexpr unsigned char bytes[] = {${bytes}};
  return bytes;
}
")
  target_sources(${target} PRIVATE ${output})
endfunction()
