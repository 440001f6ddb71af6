# SPDX-License-Identifier: MIT
# Lists what was built, and what was left out and why. make prints the list at its end, behind the
# compilers' output.

set(ucx "left out: no headers of UCX 1.13 (libucx-dev), or WEFT_UCX=OFF")
if(WEFT_UCX AND UCX_FOUND)
  set(ucx "with the headers of ${UCX_VERSION}")
endif()
set(sim "left out: no headers of libdw (libdw-dev), or WEFT_SIM=OFF")
if(TARGET weft_sim)
  set(sim "weft sim")
endif()
set(python "left out: no python3 of 3.9 or later when CMake ran")
if(TARGET weft_python)
  set(python "export PYTHONPATH=${PROJECT_BINARY_DIR}/python")
endif()
file(WRITE ${PROJECT_BINARY_DIR}/built.txt "
weft ${PROJECT_VERSION} is built: ${PROJECT_BINARY_DIR}/weft
  machine cuda        ${WEFT_CUDA_SUMMARY}
  machine sim         ${sim}
  network by UCX      ${ucx}
  package for Python  ${python}
")
