# SPDX-License-Identifier: MIT
# The network engine on UCX, if its headers are there. Only they are needed: the library looks for
# UCX itself when it runs, so that it also runs where there is none.

option(WEFT_UCX "Build the network engine on UCX where its headers are found" ON)
if(WEFT_UCX)
  pkg_check_modules(UCX QUIET "ucx>=1.13")
endif()
if(UCX_FOUND)
  message(STATUS "Network engine on UCX: with the headers of ${UCX_VERSION}")
  target_sources(weft_objects PRIVATE net/ucx.c net/ucx_connect.c net/ucx_library.c net/ucx_region.c
                                             net/ucx_transports.c)
  target_include_directories(weft_objects SYSTEM PRIVATE ${UCX_INCLUDE_DIRS})
else()
  message(STATUS "Network engine on UCX: left out (no ucx.pc of 1.13 or later)")
  target_sources(weft_objects PRIVATE net/no_ucx.c)
endif()
