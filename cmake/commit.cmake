# cmake -DSOURCE=... -DVERSION=... -DTEMPLATE=... -DOUT=... -P commit.cmake: writes the version of this source to
# a file of C if it is another one than before. A release, which has the tag vVERSION, and a source without
# git, as from an archive, have VERSION alone. Read next: runtime/base/version.h.
set(EXO_FULL_VERSION "${VERSION}")
if(EXISTS "${SOURCE}/.git")
  set(ENV{GIT_OPTIONAL_LOCKS} 0)
  execute_process(COMMAND git -C "${SOURCE}" describe --tags --exact-match --match "v${VERSION}" HEAD RESULT_VARIABLE untagged OUTPUT_QUIET ERROR_QUIET)
  execute_process(COMMAND git -C "${SOURCE}" describe --always --abbrev=12 --exclude=* --dirty=.changed
                  OUTPUT_VARIABLE commit RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if("${failed}" STREQUAL "0" AND (NOT "${untagged}" STREQUAL "0" OR commit MATCHES "changed"))
    string(APPEND EXO_FULL_VERSION "-dev.${commit}")
  endif()
endif()
configure_file("${TEMPLATE}" "${OUT}" @ONLY)
