# SPDX-License-Identifier: MIT
# What `make install` puts where, and how others find it: pkg-config and find_package(weft).

include(CMakePackageConfigHelpers)

install(TARGETS weft weft_static EXPORT weft-targets)
install(TARGETS weft_tool)
install(DIRECTORY include/ TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
install(FILES docs/weft.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
# Each command has a page of its own, out of that one.
file(STRINGS docs/weft.1 sections REGEX "^\\.Ss weft ")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  docs/weft.1 tools/weft/main.c cmake/manual_page.awk)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/man)
foreach(section ${sections})
  string(REGEX REPLACE ".* " "" command "${section}")
  execute_process(
    COMMAND awk -v command=${command} -f cmake/manual_page.awk tools/weft/main.c docs/weft.1
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_FILE ${PROJECT_BINARY_DIR}/man/weft-${command}.1
    RESULT_VARIABLE awk_result)
  if(NOT awk_result EQUAL 0)
    message(FATAL_ERROR "cmake/manual_page.awk makes no page of weft ${command}")
  endif()
  install(FILES ${PROJECT_BINARY_DIR}/man/weft-${command}.1
    DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endforeach()
install(FILES tools/completion/weft.bash RENAME weft
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES tools/completion/_weft DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
# Where make reference has made it.
install(DIRECTORY ${PROJECT_BINARY_DIR}/c-reference/man/man3
  DESTINATION ${CMAKE_INSTALL_MANDIR} OPTIONAL)
install(DIRECTORY ${PROJECT_BINARY_DIR}/c-reference/html/
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/reference OPTIONAL)
install(FILES README.md CHANGELOG.md LICENSE THIRD-PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR}
  FILES_MATCHING PATTERN *.md PATTERN *.svg PATTERN *.c PATTERN *.h PATTERN *.py
  PATTERN __pycache__ EXCLUDE)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
configure_package_config_file(cmake/weft-config.cmake.in weft-config.cmake
  INSTALL_DESTINATION ${package_dir}
  NO_SET_AND_CHECK_MACRO)
# 0.x: a minor version may change the interface.
write_basic_package_version_file(weft-config-version.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION ${package_dir})
install(FILES
  ${PROJECT_BINARY_DIR}/weft-config.cmake ${PROJECT_BINARY_DIR}/weft-config-version.cmake
  DESTINATION ${package_dir})

# Finds the prefix from its own place, so that an installed tree can be moved.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH prefix_of_pkgconfig_dir /prefix/${pkgconfig_dir} /prefix)
configure_file(cmake/weft.pc.in weft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weft.pc DESTINATION ${pkgconfig_dir})
