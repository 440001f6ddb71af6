# SPDX-License-Identifier: MIT
# The commit that is built, in generated/weft_commit.h: as git tells it of a clone;
# as git archive or scripts/wheel has written it into commit.txt of sources without git; else "".

set(weft_commit "")
if(EXISTS ${PROJECT_SOURCE_DIR}/.git) # a repository around an archive does not count
  execute_process(COMMAND git describe --always --abbrev=12 --match= --dirty
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    OUTPUT_VARIABLE weft_commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  # A new commit configures anew.
  execute_process(COMMAND git rev-parse --git-path logs/HEAD
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    OUTPUT_VARIABLE git_log OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  get_filename_component(git_log "${git_log}" ABSOLUTE BASE_DIR ${PROJECT_SOURCE_DIR})
  if(weft_commit AND EXISTS ${git_log})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${git_log})
  endif()
else()
  file(STRINGS cmake/commit.txt weft_commit REGEX "^[0-9a-f]+(-dirty)?$")
  string(REGEX REPLACE "^(............)[0-9a-f]*" "\\1" weft_commit "${weft_commit}")
endif()

file(CONFIGURE OUTPUT generated/weft_commit.h @ONLY
  CONTENT "#define WEFT__COMMIT \"@weft_commit@\"\n")
