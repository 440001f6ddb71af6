# SPDX-License-Identifier: MIT
# How everything in this tree is compiled: link weft_flags.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

add_library(weft_flags INTERFACE)
target_compile_definitions(weft_flags INTERFACE _GNU_SOURCE)
target_compile_options(weft_flags INTERFACE
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes
  # One rounding per operation on every machine: no fused multiply-add where none is written.
  -ffp-contract=off)
# gcc 11 takes a named field for a position if its value is a compound literal or an atomic load.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 12)
  target_compile_options(weft_flags INTERFACE -Wno-missing-field-initializers)
endif()
if(WEFT_WERROR)
  target_compile_options(weft_flags INTERFACE -Werror)
endif()

if(WEFT_SANITIZE)
  target_compile_options(weft_flags INTERFACE
    -fsanitize=${WEFT_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(weft_flags INTERFACE -fsanitize=${WEFT_SANITIZE})
  if(WEFT_SANITIZE STREQUAL "thread" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_compile_options(weft_flags INTERFACE -Wno-tsan) # fences, which it does not know: packets.c
  endif()
endif()

# Oracles go through every element: not optimised, as the rest under sanitizers, they take most of a test's time.
function(weft_optimise_oracle target)
  if(WEFT_SANITIZE)
    target_compile_options(${target} PRIVATE -O2)
  endif()
endfunction()
