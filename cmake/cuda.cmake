# SPDX-License-Identifier: MIT
# The cuda machine: nvcc compiles every warp program for the supported GPUs, and the code goes into the
# library as bytes, which the driver loads. The host side is C like the rest: nothing links with CUDA.

set(WEFT_CUDA AUTO CACHE STRING
  "The cuda machine: AUTO (if there is nvcc, and a GPU to compile for), ON or OFF")
include(${PROJECT_SOURCE_DIR}/cmake/gpus.cmake)
set(left_out_since)
if(NOT WEFT_CUDA)
  set(left_out_since "WEFT_CUDA=OFF")
else()
  find_program(NVCC nvcc PATHS /usr/local/cuda/bin)
  find_program(NVLINK nvlink PATHS /usr/local/cuda/bin)
  find_program(FATBINARY fatbinary PATHS /usr/local/cuda/bin)
  if(NVCC AND NVLINK AND FATBINARY)
    weft_choose_gpus(gpus ${NVCC})
    if(NOT gpus)
      set(left_out_since "no NVIDIA GPU of sm_80 or later was found; for all: make CMAKE_FLAGS=-DWEFT_GPUS=ALL")
    endif()
  else()
    set(left_out_since "nvcc, nvlink and fatbinary are not all found")
  endif()
  if(left_out_since AND NOT WEFT_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "WEFT_CUDA is ${WEFT_CUDA}, but the cuda machine would be left out: ${left_out_since}")
  endif()
endif()
if(left_out_since)
  message(STATUS "Machine cuda: left out: ${left_out_since}")
  set(WEFT_CUDA_SUMMARY "left out: ${left_out_since}" CACHE INTERNAL "What is built of the cuda machine")
  set(WEFT_CUDA OFF)
  set(WEFT_CUDA OFF PARENT_SCOPE) # for tests
  target_sources(weft_objects PRIVATE machine/no_cuda.c)
  return()
endif()
set(WEFT_CUDA ON)
set(WEFT_CUDA ON PARENT_SCOPE)

list(JOIN gpus ", sm_" summary)
set(summary "sm_${summary}")
if(WEFT_GPUS STREQUAL AUTO)
  string(APPEND summary ", for the GPUs here; for all: make CMAKE_FLAGS=-DWEFT_GPUS=ALL")
endif()
message(STATUS "Machine cuda: ${summary}")
set(WEFT_CUDA_SUMMARY ${summary} CACHE INTERNAL "What is built of the cuda machine")
set(WEFT_KNOWN_GPUS ${gpus} CACHE INTERNAL "Those of WEFT_GPUS that nvcc knows; the last has PTX, too")
set(gpu_flags)
foreach(gpu ${gpus})
  list(APPEND gpu_flags -gencode arch=compute_${gpu},code=sm_${gpu})
endforeach()
# For GPUs newer than any of them.
list(GET gpus -1 newest_gpu)
list(APPEND gpu_flags -gencode arch=compute_${newest_gpu},code=compute_${newest_gpu})

# The driver unpacks modules when it loads them. A library for all GPUs goes to other machines, so that its size
# counts: for Hopper 3.0 MB of programs so, 4.8 MB where packing takes 0.4 s in place of 18 (2026-11-29), and 11.3 as
# fatbinary packs by default (2026-11-26). A process on an H200 took 19 ms longer to start, when each program was a
# module (weft coll with one rank: 431 ms and 412, 2026-11-24).
execute_process(COMMAND ${NVCC} --help OUTPUT_VARIABLE nvcc_help)
set(pack_flags)
if(nvcc_help MATCHES "--compress-mode")
  set(pack_flags --compress-mode=balance)
  if(WEFT_GPUS STREQUAL ALL)
    set(pack_flags --compress-mode=size)
  endif()
endif()
set(WEFT_PACK_FLAGS ${pack_flags} CACHE INTERNAL "How modules are packed")

# No fused multiply-add where none is written: results are the same on every machine. PTX tells of each operation how
# it rounds, so that whoever compiles it later fuses none either.
set(WEFT_CUBIN_FLAGS --fmad=false -Werror all-warnings
  CACHE INTERNAL "How PTX is compiled for a GPU")
set(WEFT_PTX_FLAGS -x cu -std=c++17 -O3 -I${PROJECT_SOURCE_DIR}/src/machine/cuda
  -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src ${WEFT_CUBIN_FLAGS}
  CACHE INTERNAL "How programs are compiled to PTX")
set(WEFT_NVCC_FLAGS ${WEFT_PTX_FLAGS} ${gpu_flags} ${pack_flags}
  CACHE INTERNAL "How kernels in a program of the host are compiled, as the library's")

# For code that no GPU runs.
option(WEFT_GPU_QUICK "Compile the programs of GPUs quickly: they are slow" OFF)
set(WEFT_QUICK_FLAGS $<$<BOOL:${WEFT_GPU_QUICK}>:--Ofast-compile=max> CACHE INTERNAL "")

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

# A module is what the driver loads. It has a folder: GPU.cubin for each GPU, and for newer ones the PTX of the last.

# weft_compile_program(PROGRAM FOLDER RDC [FLAG...]): GPU.ptx and GPU.cubin in FOLDER for each GPU. If RDC is
# -rdc=true, the cubins can be linked with others; if -rdc=false, FOLDER is a module.
function(weft_compile_program program folder rdc)
  cmake_path(GET program STEM name)
  file(MAKE_DIRECTORY ${folder})
  foreach(gpu ${WEFT_KNOWN_GPUS})
    set(stem ${folder}/${gpu})
    add_custom_command(
      OUTPUT ${stem}.ptx
      # nvcc's own -MMD preprocesses a program a second time, as for the host.
      COMMAND ${NVCC} ${WEFT_PTX_FLAGS} ${WEFT_QUICK_FLAGS} ${ARGN}
        -gencode arch=compute_${gpu},code=compute_${gpu} -ptx
        -Xcompiler -MMD,-MF,${stem}.d,-MT,${stem}.ptx -o ${stem}.ptx ${program}
      DEPENDS ${program}
      DEPFILE ${stem}.d
      COMMENT "Compiling program ${name} for sm_${gpu}"
      COMMAND_EXPAND_LISTS VERBATIM)
    add_custom_command(
      OUTPUT ${stem}.cubin
      COMMAND ${NVCC} ${WEFT_CUBIN_FLAGS} ${WEFT_QUICK_FLAGS}
        -gencode arch=compute_${gpu},code=sm_${gpu} ${rdc} -cubin
        -o ${stem}.cubin ${stem}.ptx
      DEPENDS ${stem}.ptx
      COMMENT "Assembling program ${name} for sm_${gpu}"
      COMMAND_EXPAND_LISTS VERBATIM)
  endforeach()
endfunction()

# weft_link_programs(FOLDER PROGRAM_FOLDER...): makes FOLDER a module of programs that can be linked.
function(weft_link_programs folder)
  file(MAKE_DIRECTORY ${folder})
  foreach(gpu ${WEFT_KNOWN_GPUS})
    list(TRANSFORM ARGN APPEND /${gpu}.cubin OUTPUT_VARIABLE cubins)
    add_custom_command(
      OUTPUT ${folder}/${gpu}.cubin
      COMMAND ${NVLINK} -m64 --arch=sm_${gpu} --warning-as-error -o ${folder}/${gpu}.cubin ${cubins}
      DEPENDS ${cubins}
      COMMENT "Linking programs for sm_${gpu}"
      VERBATIM)
  endforeach()
  # PTX has no linker: one header, then what follows it in each.
  list(GET WEFT_KNOWN_GPUS -1 newest)
  list(TRANSFORM ARGN APPEND /${newest}.ptx OUTPUT_VARIABLE ptx)
  list(GET ptx 0 first)
  add_custom_command(
    OUTPUT ${folder}/${newest}.ptx
    COMMAND sed "/^\\.address_size/q" ${first} > ${folder}/${newest}.ptx
    COMMAND sed -s "1,/^\\.address_size/d" ${ptx} >> ${folder}/${newest}.ptx
    DEPENDS ${ptx}
    COMMENT "Joining programs for GPUs newer than sm_${newest}"
    VERBATIM)
endfunction()

# weft_pack_module(FOLDER): FOLDER/fatbin.c defines the module's bytes as weft__fatbin_<name of FOLDER>.
# The assembler reads them.
# As arrays of C, those for one GPU took 52 s of processor time to compile.
function(weft_pack_module folder)
  cmake_path(GET folder FILENAME name)
  list(GET WEFT_KNOWN_GPUS -1 newest)
  set(files ${folder}/${newest}.ptx)
  set(images --image3=kind=ptx,sm=${newest},file=${folder}/${newest}.ptx)
  foreach(gpu ${WEFT_KNOWN_GPUS})
    list(APPEND files ${folder}/${gpu}.cubin)
    list(APPEND images --image3=kind=elf,sm=${gpu},file=${folder}/${gpu}.cubin)
  endforeach()
  file(CONFIGURE OUTPUT ${folder}/fatbin.in @ONLY CONTENT "/* Made by cmake/cuda.cmake. */
__asm__(\".pushsection .rodata,\\\"a\\\"\\n\"
        \".balign 8\\n\"
        \".globl weft__fatbin_@name@\\n\"
        \".type weft__fatbin_@name@, STT_OBJECT\\n\"
        \"weft__fatbin_@name@:\\n\"
        \".incbin \\\"@folder@/fatbin\\\"\\n\"
        \".size weft__fatbin_@name@, . - weft__fatbin_@name@\\n\"
        \".popsection\");
")
  add_custom_command(
    OUTPUT ${folder}/fatbin.c
    COMMAND ${FATBINARY} -64 ${WEFT_PACK_FLAGS} --create=${folder}/fatbin ${images}
    # New, so that what has the bytes is compiled anew.
    COMMAND ${CMAKE_COMMAND} -E copy ${folder}/fatbin.in ${folder}/fatbin.c
    COMMAND ${CMAKE_COMMAND} -E touch ${folder}/fatbin.c
    DEPENDS ${files} ${folder}/fatbin.in
    COMMENT "Packing ${name} for GPUs"
    VERBATIM)
endfunction()

# weft_compile_module(PROGRAM FOLDER [FLAG...]): a module of one program, and FOLDER/fatbin.c with its bytes.
function(weft_compile_module program folder)
  weft_compile_program(${program} ${folder} -rdc=false ${ARGN})
  weft_pack_module(${folder})
endfunction()

set(programs_dir ${PROJECT_BINARY_DIR}/programs)

# Variants that differ only in their layout and in what is sent are compiled together, since half of
# the work of one is in what they have in common: two take 2.7 s of processor time, which took 3.6 s
# one by one (2026-11-28, 2 cores of a shared host), and become the same machine code. A constant of
# combine in packets depends on the layout (low_latency/variant.c). A group has the name of its first.
set(keys)
foreach(row ${variants})
  string(REGEX MATCHALL "[A-Za-z0-9_]+" words "${row}")
  list(POP_FRONT words macro name operation protocol format layout sends faults)
  set(words ${operation} ${protocol} ${format} ${faults})
  set(others ROWS SUMS LATE BY_RANK BY_EXPERT)
  if(operation STREQUAL combine AND protocol STREQUAL PACKETS)
    list(APPEND words ${layout})
    list(REMOVE_ITEM others BY_RANK BY_EXPERT)
  endif()
  list(JOIN words _ key)
  list(APPEND keys ${key})
  list(APPEND rows_of_${key} "${row}")
  list(APPEND names_of_${key} ${name})
  set(words_of_${key} ${words})
  set(others_of_${key} ${others})
endforeach()
list(REMOVE_DUPLICATES keys)
set(group_sources)
foreach(key ${keys})
  list(GET names_of_${key} 0 first)
  set(programs_of_${first} ${names_of_${key}})
  set(source ${programs_dir}/groups/${first}.c)
  weft_write_variants(${source} "${rows_of_${key}}" "${words_of_${key}}" ${others_of_${key}})
  list(APPEND group_sources ${source})
endforeach()

set(other_sources ${program_sources} ${network_program_sources})
list(REMOVE_ITEM other_sources ${variant_sources})
set(cuda_program_sources)
foreach(program ${other_sources} ${group_sources}
    machine/cuda/link_rate.cu machine/cuda/network_add.cu machine/cuda/probe.cu)
  cmake_path(ABSOLUTE_PATH program)
  list(APPEND cuda_program_sources ${program})
endforeach()

# Programs in which loops stay loops, unless their source says that they are unrolled: loops over ranks and
# choices, of which there are few, and a jump to code that is in no cache takes longer than what unrolling gains. On
# an H200 low latency's dispatch has 2936 instructions for 4976 so, and a decode step of one token takes 13.1 us for
# 14.4; direct_reduce takes 5.2 us for 5.8 at 64 KiB, notify and layout 0.97 of the time, packet_exchange too. Those
# left out take 1.00 to 1.03 of the time: dispatch, combine, direct_push, packet_reduce. The option is of nvcc's
# optimiser and in no manual, so it is tried first.
set(rolled_programs "low_latency|^direct_reduce$|^notify$|^layout$|^packet_exchange$")
set(rolled -Xcicc --Xopt -Xcicc -unroll-runtime=0)
file(WRITE ${programs_dir}/empty.cu "")
execute_process(COMMAND ${NVCC} -ptx ${rolled} -o ${programs_dir}/empty.ptx ${programs_dir}/empty.cu
  RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
if(NOT result EQUAL 0)
  message(STATUS "This nvcc unrolls all loops: low latency is slower")
  set(rolled)
endif()

# Programs that are modules of their own. The others are linked to one, since programs have much code in common, which
# packing finds within a module only: the wheel for all GPUs has 5.6 MB; before the programs for masks it had 5.1, and
# 7.0 if each program was a module. That also changes how fast they are. In what can be linked, a function that is not
# inlined is compiled for the registers of the ABI, in a module of one program for those of its kernel, and which is
# faster has to be measured. Of 2 H100, in graphs
# (2026-11-26), linked programs take, of the time that they take alone:
#   bf16_*_low_latency_combine 0.88 to 0.97 (weighed 20.3 us for 23.1 at 128 tokens), packet_exchange 0.95 to 0.99,
#   bf16_*_low_latency_dispatch 0.98 to 1.02, and the same where sizes are large;
#   of those below fp8_*_low_latency_dispatch 1.04 to 1.10, layout 1.10, dispatch and combine 1.01 to 1.02 (128
#   tokens), packet_two_step 1.06 (1 MiB), packet_reduce 1.00 to 1.08 (but 0.93 in a reduce-scatter of 64 KiB).
# Programs between nodes were not measured, nor was barrier, which stays as it was.
set(alone_programs
  "fp8_.*low_latency_dispatch$|^packet_reduce$|^packet_two_step$|^layout$|^dispatch$|^combine$|^barrier$")

set(modules linked)
set(linked_folders)
set(program_entries)
foreach(program ${cuda_program_sources})
  cmake_path(GET program STEM name)
  set(folder ${programs_dir}/${name})
  set(programs ${programs_of_${name}})
  if(NOT programs)
    set(programs ${name})
  endif()
  set(flags -DWEFT__CUDA_HAS_SYMBOLS)
  foreach(one ${programs})
    weft_kernel_symbol(${one} symbol)
    list(APPEND flags -DWEFT__CUDA_SYMBOL_${one}=${symbol})
  endforeach()
  if(name MATCHES ${rolled_programs})
    list(APPEND flags ${rolled})
  endif()
  if(name MATCHES ${alone_programs})
    list(LENGTH modules module_idx)
    list(APPEND modules ${name})
    weft_compile_module(${program} ${folder} ${flags})
  else()
    set(module_idx 0)
    list(APPEND linked_folders ${folder})
    weft_compile_program(${program} ${folder} -rdc=true ${flags})
  endif()
  foreach(one ${programs})
    weft_kernel_symbol(${one} symbol)
    string(APPEND program_entries "    {\"${one}\", \"${symbol}\", ${module_idx}},\n")
  endforeach()
endforeach()
weft_link_programs(${programs_dir}/linked ${linked_folders})
weft_pack_module(${programs_dir}/linked)

set(fatbins)
set(fatbin_declarations)
set(module_entries)
foreach(module ${modules})
  list(APPEND fatbins ${programs_dir}/${module}/fatbin.c)
  string(APPEND fatbin_declarations "extern const unsigned long long weft__fatbin_${module}[];\n")
  string(APPEND module_entries "    {\"${module}\", weft__fatbin_${module}},\n")
endforeach()
list(TRANSFORM WEFT_KNOWN_GPUS REPLACE "[af]$" "" OUTPUT_VARIABLE gpu_numbers)
list(JOIN gpu_numbers ", " gpu_numbers)
file(CONFIGURE OUTPUT ${programs_dir}/list.c CONTENT "/* SPDX-License-Identifier: MIT */
#include \"machine/cuda/cuda_programs.h\"

const int32_t weft__cuda_gpus[] = {${gpu_numbers}, 0};

${fatbin_declarations}
const struct weft__cuda_module weft__cuda_modules[] = {
${module_entries}};

const struct weft__cuda_program weft__cuda_programs[] = {
${program_entries}    {0, 0, 0},
};
_Static_assert(sizeof weft__cuda_programs / sizeof *weft__cuda_programs <= WEFT__CUDA_MAX_PROGRAMS + 1,
               \"WEFT__CUDA_MAX_PROGRAMS is smaller than the list\");
" @ONLY)

cmake_path(GET NVCC PARENT_PATH nvcc_dir)
cmake_path(GET nvcc_dir PARENT_PATH cuda_dir)
target_sources(weft_objects PRIVATE ${programs_dir}/list.c ${fatbins}
  machine/cuda/blocks.c
  machine/cuda/comms.c
  machine/cuda/describe.c
  machine/cuda/gpudirect.c
  machine/cuda/device.c
  machine/cuda/driver.c
  machine/cuda/cuda_graph.c
  machine/cuda/heap_by_ipc.c
  machine/cuda/heap_of_device.c
  machine/cuda/kept.c
  machine/cuda/kernels.c
  machine/cuda/cuda_launch.c
  machine/cuda/link_rate.c
  machine/cuda/cuda_memory.c
  machine/cuda/cuda_record.c
  machine/cuda/network.c
  machine/cuda/network_memory.c
  machine/cuda/own_streams.c
  machine/cuda/network_heap.c
  machine/cuda/probe.c
  machine/cuda/ranges.c
  machine/cuda/sharing.c
  machine/cuda/cuda_stream.c
  machine/cuda/watcher.c)
# Only for headers: cuda.h, whose types the driver's functions have, and NVTX, which has no library.
target_include_directories(weft_objects SYSTEM PRIVATE ${cuda_dir}/include)
