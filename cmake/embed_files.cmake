# cmake/embed_files.cmake -- Script: writes OUTPUT, a .cpp whose FUNCTION() returns every file below
# ROOT that matches PATTERN as {path, text, includes}, sorted by path.
#
# The lines `#include "..."` are looked for here, once: a program would have to read all texts for
# them before its first kernel. A test compares what is found with what generator/source.cpp finds.
# SPDX-License-Identifier: Apache-2.0
file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${PATTERN})
list(SORT files)
set(includes)
set(entries)
set(number 0)
foreach(path IN LISTS files)
  file(READ ${ROOT}/${path} content)
  # A string literal is limited to 64 KiB by some compilers; templates are far smaller.
  string(APPEND entries "      {\"${path}\", R\"~~(${content})~~\"")
  string(REGEX MATCHALL "(^|\n)#include \"[^\"\n]+\"" named "${content}")
  if(named)
    string(REGEX REPLACE "\n?#include (\"[^\"]+\")" "\\1" named "${named}")
    list(JOIN named ", " named)
    string(APPEND includes "  static constexpr std::string_view includes_${number}[] = {${named}};\n")
    string(APPEND entries ", includes_${number}")
  endif()
  string(APPEND entries "},\n")
  math(EXPR number "${number} + 1")
endforeach()
set(text "// Generated from ${PATTERN}; do not edit.\n#include \"${HEADER}\"\n\nnamespace vitune {\n\n")
string(APPEND text "std::span<const EmbeddedFile> ${FUNCTION}() {\n${includes}"
       "  static constexpr EmbeddedFile files[] = {\n${entries}  };\n  return files;\n}\n\n"
       "}  // namespace vitune\n")
file(WRITE ${OUTPUT} "${text}")
