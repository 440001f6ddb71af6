# SPDX-License-Identifier: MIT
# How scripts/wheel builds for WEFT_WHEEL_MACHINE, with the libraries of WEFT_WHEEL_ROOT (variables of
# the environment): gcc compiles, since it vectorises the arithmetic of rows best, and zig links, since
# it knows the symbols of glibc 2.28.

set(machine $ENV{WEFT_WHEEL_MACHINE})
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${machine})
set(CMAKE_C_COMPILER ${machine}-linux-gnu-gcc)
set(CMAKE_C_STANDARD_INCLUDE_DIRECTORIES $ENV{WEFT_WHEEL_ROOT}/usr/include)

# zig's own runtime library would also bring a slower memcpy than that of the C library.
execute_process(COMMAND ${CMAKE_C_COMPILER} -print-libgcc-file-name
  OUTPUT_VARIABLE libgcc OUTPUT_STRIP_TRAILING_WHITESPACE)
set(link "$ENV{WEFT_WHEEL_ZIG} cc -target ${machine}-linux-gnu.2.28 -s <LINK_FLAGS> <OBJECTS> -o <TARGET>")
string(APPEND link " <LINK_LIBRARIES> $ENV{WEFT_WHEEL_ROOT}/older_libc.o ${libgcc}")
set(CMAKE_C_LINK_EXECUTABLE "${link}")
set(CMAKE_C_CREATE_SHARED_LIBRARY "${link} -shared -Wl,-soname,<TARGET_SONAME>")
set(CMAKE_C_CREATE_SHARED_MODULE "${link} -shared")

set(CMAKE_LIBRARY_ARCHITECTURE ${machine}-linux-gnu)
set(CMAKE_FIND_ROOT_PATH $ENV{WEFT_WHEEL_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
