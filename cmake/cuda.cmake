# SPDX-License-Identifier: MIT
# The cuda machine: nvcc compiles every warp program for the supported GPUs, and the code goes into the
# library as bytes, which the driver loads. The host side is C like the rest: nothing links with CUDA.

set(WEFT_CUDA AUTO CACHE STRING "The cuda machine: AUTO (if nvcc is found), ON or OFF")
if(NOT WEFT_CUDA)
  target_sources(weft_objects PRIVATE machine/no_cuda.c)
  return()
endif()
find_program(NVCC nvcc PATHS /usr/local/cuda/bin)
find_program(BIN2C bin2c PATHS /usr/local/cuda/bin)
if(NOT NVCC OR NOT BIN2C)
  if(NOT WEFT_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "WEFT_CUDA is ${WEFT_CUDA}, but nvcc and bin2c are not found")
  endif()
  message(STATUS "No nvcc: the library is built without the cuda machine")
  set(WEFT_CUDA OFF)
  set(WEFT_CUDA OFF PARENT_SCOPE) # for tests
  target_sources(weft_objects PRIVATE machine/no_cuda.c)
  return()
endif()
set(WEFT_CUDA ON)
set(WEFT_CUDA ON PARENT_SCOPE)

set(WEFT_GPUS "80;90;100" CACHE STRING "Compute capabilities to compile programs for")
execute_process(COMMAND ${NVCC} --list-gpu-code OUTPUT_VARIABLE known_gpus)
set(gpus)
set(gpu_flags)
foreach(gpu ${WEFT_GPUS})
  string(REGEX REPLACE "[af]$" "" listed ${gpu}) # 90a is not in the list
  if(known_gpus MATCHES "sm_${listed}\n")
    list(APPEND gpus ${gpu})
    list(APPEND gpu_flags -gencode arch=compute_${gpu},code=sm_${gpu})
    set(newest_gpu ${gpu})
  else()
    message(STATUS "This nvcc does not know sm_${gpu}: left out")
  endif()
endforeach()
if(NOT gpus)
  message(FATAL_ERROR "This nvcc knows none of the GPUs of WEFT_GPUS (${WEFT_GPUS})")
endif()
# For GPUs newer than any of them.
list(APPEND gpu_flags -gencode arch=compute_${newest_gpu},code=compute_${newest_gpu})

# The driver unpacks programs when it loads them. A library for Hopper has 4.5 MB so, and 12 MB as nvcc packs by
# default; a process on an H200 takes 19 ms longer to start (weft coll with one rank: 431 ms and 412, 2026-11-24).
execute_process(COMMAND ${NVCC} --help OUTPUT_VARIABLE nvcc_help)
set(pack_flags)
if(nvcc_help MATCHES "--compress-mode")
  set(pack_flags --compress-mode=size)
endif()

set(WEFT_NVCC_OPTIONS "" CACHE STRING "More options for nvcc, when it compiles programs")

# No fused multiply-add where none is written: results are the same on every machine.
set(WEFT_NVCC_FLAGS -x cu -std=c++17 -O3 --fmad=false -Werror all-warnings
  -I${PROJECT_SOURCE_DIR}/src/machine/cuda -I${PROJECT_SOURCE_DIR}/include
  -I${PROJECT_SOURCE_DIR}/src ${gpu_flags} ${pack_flags} ${WEFT_NVCC_OPTIONS}
  CACHE INTERNAL "How programs are compiled for GPUs")

# The symbol of a program's kernel is what C++ makes of weft::NAME, or of weft::FAMILY::dispatch where
# NAME is FAMILY_dispatch (or combine, notify): profilers show it so, and the tests that people have of
# DeepEP look for "::dispatch" there.
function(weft_kernel_symbol name out)
  set(parts weft)
  if(name MATCHES "^(.+)_(dispatch|combine|notify)$")
    list(APPEND parts ${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
  else()
    list(APPEND parts ${name})
  endif()
  set(symbol _ZN)
  foreach(part ${parts})
    string(LENGTH ${part} length)
    string(APPEND symbol ${length}${part})
  endforeach()
  set(${out} ${symbol}E PARENT_SCOPE)
endfunction()

# weft_compile_for_gpus(PROGRAM FATBIN [FLAG...]): FATBIN.c defines the bytes as
# weft__fatbin_<stem of PROGRAM>.
function(weft_compile_for_gpus program fatbin)
  cmake_path(GET program STEM name)
  cmake_path(GET fatbin PARENT_PATH folder)
  add_custom_command(
    OUTPUT ${fatbin}.c
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
    COMMAND ${NVCC} ${WEFT_NVCC_FLAGS} ${ARGN} -fatbin -MMD -MF ${fatbin}.d -MT ${fatbin}.c
      -o ${fatbin} ${program}
    COMMAND ${BIN2C} --const --name weft__fatbin_${name} ${fatbin} > ${fatbin}.c
    DEPENDS ${program}
    DEPFILE ${fatbin}.d
    COMMENT "Compiling program ${name} for GPUs"
    VERBATIM)
endfunction()

set(fatbin_dir ${PROJECT_BINARY_DIR}/fatbins)
set(cuda_program_sources)
foreach(program ${program_sources} ${network_program_sources} machine/cuda/link_rate.cu machine/cuda/network_add.cu
    machine/cuda/probe.cu)
  list(APPEND cuda_program_sources ${PROJECT_SOURCE_DIR}/src/${program})
endforeach()

set(fatbin_list "/* SPDX-License-Identifier: MIT */\n#include \"machine/cuda/fatbins.h\"\n\n")
set(fatbin_entries)
set(fatbin_objects)
# Programs in which loops stay loops, unless their source says that they are unrolled: loops over ranks and
# choices, of which there are few, and a jump to code that is in no cache takes longer than what unrolling gains. On
# an H200 low latency's dispatch has 2936 instructions for 4976 so, and a decode step of one token takes 13.1 us for
# 14.4; direct_reduce takes 5.2 us for 5.8 at 64 KiB, notify and layout 0.97 of the time, packet_exchange too. Those
# left out take 1.00 to 1.03 of the time: dispatch, combine, direct_push, packet_reduce. The option is of nvcc's
# optimiser and in no manual, so it is tried first.
set(rolled_programs "low_latency|^direct_reduce$|^notify$|^layout$|^packet_exchange$")
set(rolled -Xcicc --Xopt -Xcicc -unroll-runtime=0)
file(WRITE ${fatbin_dir}/empty.cu "")
execute_process(COMMAND ${NVCC} -ptx ${rolled} -o ${fatbin_dir}/empty.ptx ${fatbin_dir}/empty.cu
  RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
if(NOT result EQUAL 0)
  message(STATUS "This nvcc unrolls all loops: low latency is slower")
  set(rolled)
endif()

foreach(program ${cuda_program_sources})
  cmake_path(GET program STEM name)
  set(fatbin ${fatbin_dir}/${name}.fatbin)
  weft_kernel_symbol(${name} symbol)
  set(flags -DWEFT__CUDA_SYMBOL=${symbol})
  if(name MATCHES ${rolled_programs})
    list(APPEND flags ${rolled})
  endif()
  weft_compile_for_gpus(${program} ${fatbin} ${flags})
  list(APPEND fatbin_objects ${fatbin}.c)
  string(APPEND fatbin_list "extern const unsigned long long weft__fatbin_${name}[];\n")
  string(APPEND fatbin_entries "    {\"${name}\", \"${symbol}\", weft__fatbin_${name}},\n")
endforeach()
string(APPEND fatbin_list
  "\nconst struct weft__cuda_fatbin weft__cuda_fatbins[] = {\n${fatbin_entries}    {0, 0, 0},\n};\n")
file(CONFIGURE OUTPUT ${fatbin_dir}/list.c CONTENT "${fatbin_list}" @ONLY)

cmake_path(GET NVCC PARENT_PATH nvcc_dir)
cmake_path(GET nvcc_dir PARENT_PATH cuda_dir)
target_sources(weft_objects PRIVATE ${fatbin_dir}/list.c ${fatbin_objects}
  machine/cuda/blocks.c
  machine/cuda/comms.c
  machine/cuda/describe.c
  machine/cuda/gpudirect.c
  machine/cuda/gpus.c
  machine/cuda/device.c
  machine/cuda/driver.c
  machine/cuda/graph.c
  machine/cuda/heap_by_ipc.c
  machine/cuda/heap_of_device.c
  machine/cuda/kernels.c
  machine/cuda/launch.c
  machine/cuda/link_rate.c
  machine/cuda/memory.c
  machine/cuda/multicast.c
  machine/cuda/network.c
  machine/cuda/network_heap.c
  machine/cuda/probe.c
  machine/cuda/sharing.c
  machine/cuda/stream.c
  machine/cuda/watcher.c)
# Only for cuda.h, whose types the driver's functions have.
target_include_directories(weft_objects SYSTEM PRIVATE ${cuda_dir}/include)
