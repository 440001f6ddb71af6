# SPDX-License-Identifier: MIT
# weft_sim: the library on the sim machine, for `weft sim` and its tests. The machine is chosen by
# linking: the same host code and the same programs, with machine/sim in place of machine/cpu and of
# the rendezvous.

option(WEFT_SIM "Build the sim machine where libdw is found" ON)
if(NOT WEFT_SIM)
  return()
endif()
if(WEFT_SANITIZE)
  message(STATUS "The sim machine takes the thread sanitizer's hooks, beside which no sanitizer "
    "can be: left out")
  return()
endif()
pkg_check_modules(LIBDW QUIET IMPORTED_TARGET libdw)
if(NOT LIBDW_FOUND)
  message(STATUS "The sim machine: left out (no libdw.pc)")
  return()
endif()

set(sim_sources
  machine/machines.c
  machine/no_cuda.c
  machine/on_host.c
  machine/sim/accesses.c
  machine/sim/atomics.c
  machine/sim/sim_check.c
  machine/sim/vector_clock.c
  machine/sim/sim_comm.c
  machine/sim/fences.c
  machine/sim/sim_heap.c
  machine/sim/instrument.c
  machine/sim/sim_launch.c
  machine/sim/sim_memory.c
  machine/sim/sim_nic.c
  machine/sim/sim_packets.c
  machine/sim/nic_fiber.c
  machine/sim/nic_words.c
  machine/sim/policy.c
  machine/sim/primitives.c
  machine/sim/sim_quantise.c
  machine/sim/report.c
  machine/sim/sim_rows.c
  machine/sim/scheduler.c
  machine/sim/shadow.c
  machine/sim/sites.c
  machine/sim/slots.c
  machine/sim/tagged.c
  machine/sim/stores.c
  machine/sim/table.c
  machine/sim/sim_stream.c
  machine/sim/sim_wire.c
  machine/sim/words.c)

# What the library is made of too.
set(sim_host_sources
  ${record_sources}
  comm/agree.c
  comm/calls.c
  comm/heap/control_groups.c
  comm/failure/culprit.c
  comm/failure/flight_record.c
  comm/host/descriptor.c
  comm/host/doorbell.c
  comm/host/error.c
  comm/heap/heap_of_host.c
  comm/heap/host_memory.c
  comm/host/log.c
  comm/heap/ranges.c
  comm/host/settings.c
  comm/failure/status.c
  comm/host/thread.c
  comm/topology.c
  comm/rendezvous/standing.c
  comm/failure/waits.c
  machine/cpu/row_copy.c
  machine/cpu/cpu_rows.c
  machine/cpu/rows_base.c
  ${wide_row_sources}
  machine/fiber.c
  ${nic_model_sources}
  ${ops_sources} ${ep_sources} ${coll_sources} ${api_sources})

# Source lines for reports. clang leaves out by default the table that libdw looks addresses up in.
add_library(weft_sim_debug_info INTERFACE)
target_compile_options(weft_sim_debug_info INTERFACE
  -g1 $<$<C_COMPILER_ID:Clang>:-gdwarf-aranges>)

# The programs alone are instrumented: at each access the compiler calls a hook of the sim.
add_library(weft_sim_programs OBJECT ${program_sources} ${network_program_sources})
target_compile_options(weft_sim_programs PRIVATE -O1 -fsanitize=thread)

# clang-tidy checks these files as the library compiles them; a second time would double its work on them.
add_library(weft_sim_host OBJECT ${sim_host_sources})
set_target_properties(weft_sim_host PROPERTIES EXPORT_COMPILE_COMMANDS OFF)

add_library(weft_sim STATIC ${sim_sources}
  $<TARGET_OBJECTS:weft_sim_host> $<TARGET_OBJECTS:weft_sim_programs>)
foreach(target weft_sim_host weft_sim)
  target_compile_options(${target} PRIVATE -O2)
endforeach()
foreach(target weft_sim_programs weft_sim_host weft_sim)
  target_link_libraries(${target} PRIVATE weft_flags weft_sim_debug_info)
  target_include_directories(${target} PRIVATE
    machine/sim ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
endforeach()
target_include_directories(weft_sim INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(weft_sim PUBLIC
  PkgConfig::LIBDW ${BOOST_CONTEXT_LIBRARY} Threads::Threads m)
# See machine/sim/sim_memory.c.
target_link_options(weft_sim INTERFACE -Wl,--wrap=free)
