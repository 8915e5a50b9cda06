# Writes the page's files into a C++ source, as raw strings.
# usage: cmake -DOUT=FILE -DDOCUMENT=FILE "-DSTYLES=FILE FILE" "-DSCRIPTS=FILE FILE" -P embed.cmake
function(literal file)
  file(READ "${file}" text)
  string(REGEX REPLACE "(//|/\\*)# sourceMappingURL=[^\n]*" "" text "${text}") # A browser would look for that file.
  string(FIND "${text}" ")PAGE\"" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "${file} holds what ends a raw string")
  endif()
  file(APPEND "${OUT}" "R\"PAGE(${text})PAGE\"")
endfunction()

function(literals name files)
  separate_arguments(files)
  file(APPEND "${OUT}" "const std::vector<std::string_view> ${name} = {\n")
  foreach(file ${files})
    literal("${file}")
    file(APPEND "${OUT}" ",\n")
  endforeach()
  file(APPEND "${OUT}" "};\n")
endfunction()

file(WRITE "${OUT}" "#include \"client/page/files.h\"\n\nnamespace plumbline::page_files {\n")
file(APPEND "${OUT}" "const std::string_view kDocument = ")
literal("${DOCUMENT}")
file(APPEND "${OUT}" ";\n")
literals(kStyles "${STYLES}")
literals(kScripts "${SCRIPTS}")
file(APPEND "${OUT}" "}  // namespace plumbline::page_files\n")
