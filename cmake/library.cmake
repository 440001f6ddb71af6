# SPDX-License-Identifier: MIT
# The shared and the static libweft, from the objects that src/CMakeLists.txt lists.

find_library(BOOST_CONTEXT_LIBRARY NAMES boost_context REQUIRED)
find_library(NETTLE_LIBRARY NAMES nettle REQUIRED)

target_link_libraries(weft_objects PRIVATE weft_flags)
target_include_directories(weft_objects PRIVATE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
set_target_properties(weft_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)

# Consumers see the header and nothing else. A static consumer must link the dependencies itself;
# the installed targets name them without this machine's path.
function(weft_add_library target type)
  add_library(${target} ${type} $<TARGET_OBJECTS:weft_objects>)
  add_library(weft::${target} ALIAS ${target})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PRIVATE
    $<BUILD_INTERFACE:weft_flags>
    $<BUILD_INTERFACE:${BOOST_CONTEXT_LIBRARY}> $<INSTALL_INTERFACE:boost_context>
    $<BUILD_INTERFACE:${NETTLE_LIBRARY}> $<INSTALL_INTERFACE:nettle>
    Threads::Threads m)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME weft
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
    ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
endfunction()

weft_add_library(weft SHARED)
set(symbol_map ${PROJECT_SOURCE_DIR}/src/weft.map)
target_link_options(weft PRIVATE -Wl,--version-script=${symbol_map})
set_target_properties(weft PROPERTIES
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} # while the major version is 0
  LINK_DEPENDS ${symbol_map})

weft_add_library(weft_static STATIC)
