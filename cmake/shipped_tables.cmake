# SPDX-License-Identifier: MIT
# Tables of algorithms that the library has with it (src/coll/tuning.h).

# weft_ship_tables(SOURCES DEVICE FILE...): a C file with all of them, which is appended to the list SOURCES.
function(weft_ship_tables sources)
  set(texts)
  set(rows)
  set(tables ${ARGN})
  while(tables)
    list(POP_FRONT tables device file)
    cmake_path(GET file FILENAME name)
    string(MAKE_C_IDENTIFIER ${name} symbol)
    file(READ ${file} bytes HEX)
    # Made anew when the file changes.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(APPEND texts "static const char ${symbol}[] = {${bytes}0};\n")
    string(APPEND rows "    {\"${device}\", \"${name}\", ${symbol}},\n")
  endwhile()
  set(made ${CMAKE_CURRENT_BINARY_DIR}/shipped_tables.c)
  file(CONFIGURE OUTPUT ${made} @ONLY CONTENT "/* Made by cmake/shipped_tables.cmake. */
#include \"coll/tuning.h\"

${texts}
const struct weft__shipped_table weft__shipped_tables[] = {
${rows}    {0},
};
")
  set(${sources} ${${sources}} ${made} PARENT_SCOPE)
endfunction()
