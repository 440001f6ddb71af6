# SPDX-License-Identifier: MIT
# Target programs-cuda: every warp program compiled by nvcc for the supported GPUs, so that none of
# them leaves the common subset of C and CUDA C++. Not part of the library yet.

find_program(NVCC nvcc PATHS /usr/local/cuda/bin)
if(NOT NVCC)
  message(STATUS "No nvcc: target programs-cuda and its test are left out")
  return()
endif()

execute_process(COMMAND ${NVCC} --list-gpu-code OUTPUT_VARIABLE known_gpus)
foreach(gpu 80 90 100)
  if(known_gpus MATCHES "sm_${gpu}\n")
    list(APPEND gpu_flags -gencode arch=compute_${gpu},code=sm_${gpu})
  else()
    message(STATUS "This nvcc does not know sm_${gpu}: programs-cuda leaves it out")
  endif()
endforeach()

file(GLOB programs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/programs/*.c)
foreach(program ${programs})
  cmake_path(GET program STEM name)
  set(fatbin ${PROJECT_BINARY_DIR}/programs-cuda/${name}.fatbin)
  add_custom_command(
    OUTPUT ${fatbin}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/programs-cuda
    COMMAND ${NVCC} -x cu -std=c++17 -O3 --fmad=false -Werror all-warnings ${gpu_flags} -fatbin
      -I${PROJECT_SOURCE_DIR}/src/machine/cuda
      -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src
      -MMD -MF ${fatbin}.d -o ${fatbin} ${program}
    DEPENDS ${program}
    DEPFILE ${fatbin}.d
    COMMENT "Compiling program ${name} for CUDA"
    VERBATIM)
  list(APPEND fatbins ${fatbin})
endforeach()
add_custom_target(programs-cuda DEPENDS ${fatbins})
# Sanitizers change nothing about it: once is enough.
if(NOT WEFT_SANITIZE)
  add_test(NAME build/programs-cuda
    COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --target programs-cuda)
  set_tests_properties(build/programs-cuda PROPERTIES TIMEOUT 300 LABELS build)
endif()
