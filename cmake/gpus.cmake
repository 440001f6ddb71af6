# SPDX-License-Identifier: MIT
# The GPUs that device code is compiled for.

set(WEFT_GPUS AUTO CACHE STRING
  "Compute capabilities to compile device code for: a list such as 80;90, ALL, or AUTO: of the GPUs here")
set(all_gpus 80 90 100)

# weft_find_gpus(OUT KNOWN...): what AUTO means. A GPU that nvcc does not know gets the code of the
# newest before it, which the driver compiles once more. A driver may not tell its GPUs: then all.
function(weft_find_gpus out)
  set(found)
  find_program(nvidia_smi nvidia-smi NO_CACHE)
  if(nvidia_smi)
    execute_process(COMMAND ${nvidia_smi} --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE found ERROR_QUIET TIMEOUT 60)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" found "${found}")
  endif()
  if(NOT found AND EXISTS /proc/driver/nvidia/version)
    set(${out} ${all_gpus} PARENT_SCOPE)
    return()
  endif()
  set(gpus)
  foreach(gpu ${found})
    string(REPLACE "." "" gpu ${gpu})
    set(nearest)
    foreach(other ${all_gpus} ${gpu})
      if(other IN_LIST ARGN AND other LESS_EQUAL gpu AND other GREATER_EQUAL 80)
        set(nearest ${other})
      endif()
    endforeach()
    list(APPEND gpus ${nearest})
  endforeach()
  list(SORT gpus COMPARE NATURAL)
  list(REMOVE_DUPLICATES gpus)
  set(${out} ${gpus} PARENT_SCOPE)
endfunction()

# weft_choose_gpus(OUT NVCC): those that WEFT_GPUS means and nvcc knows, the newest last; there are
# none only if AUTO finds none.
function(weft_choose_gpus out nvcc)
  execute_process(COMMAND ${nvcc} --list-gpu-code OUTPUT_VARIABLE known)
  string(REGEX MATCHALL "[0-9]+" known "${known}")
  if(WEFT_GPUS STREQUAL AUTO)
    weft_find_gpus(gpus ${known})
    set(${out} ${gpus} PARENT_SCOPE)
    return()
  endif()
  set(gpus)
  string(REPLACE ALL "${all_gpus}" wanted "${WEFT_GPUS}")
  foreach(gpu ${wanted})
    string(REGEX REPLACE "[af]$" "" listed ${gpu}) # 90a is not in the list
    if(listed IN_LIST known)
      list(APPEND gpus ${gpu})
    else()
      message(STATUS "This nvcc does not know sm_${gpu}: left out")
    endif()
  endforeach()
  list(SORT gpus COMPARE NATURAL)
  if(NOT gpus)
    list(JOIN known ", " known)
    message(FATAL_ERROR "WEFT_GPUS is '${WEFT_GPUS}', but must be AUTO, ALL or capabilities of which "
      "this nvcc knows one: ${known}")
  endif()
  set(${out} ${gpus} PARENT_SCOPE)
endfunction()
