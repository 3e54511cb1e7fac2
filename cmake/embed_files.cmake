# cmake/embed_files.cmake -- Script: writes OUTPUT, a .cpp whose FUNCTION() returns every file below
# ROOT that matches PATTERN as {path, text}, sorted by path.
file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${PATTERN})
list(SORT files)
set(text "// Generated from ${PATTERN}; do not edit.\n#include \"${HEADER}\"\n\nnamespace vitune {\n\n")
string(APPEND text "std::span<const EmbeddedFile> ${FUNCTION}() {\n  static constexpr EmbeddedFile files[] = {\n")
foreach(path IN LISTS files)
  file(READ ${ROOT}/${path} content)
  # A string literal is limited to 64 KiB by some compilers; templates are far smaller.
  string(APPEND text "      {\"${path}\", R\"~~(${content})~~\"},\n")
endforeach()
string(APPEND text "  };\n  return files;\n}\n\n}  // namespace vitune\n")
file(WRITE ${OUTPUT} "${text}")
