# What compiler and linker do by themselves against a fault that somebody exploits.
# tests/cli/hardened.sh reads it in what is installed.
#
# stack protector        an overwritten return address ends the process
# stack clash            a large frame touches each of its pages, so that it cannot jump over the
#                        guard page
# CET, BTI and PAC       on x86 and ARM: indirect branches end at a mark, and on ARM return addresses
#                        are signed (the processor and kernel must do so, too)
# _FORTIFY_SOURCE=3      string and memory functions of libc check sizes that the compiler knows, or
#                        can compute. It needs optimization, and is off under sanitizers, which
#                        check the same and intercept the plain functions
# PIE, RELRO, now        no fixed addresses; what the loader fills in is read-only before main
# noexecstack            no memory of a process is for data and code
#
# Strange compilers and processors have what they accept of it.
option(EXO_HARDEN "Protections by compiler and linker: stack protector, fortified libc, PIE, RELRO and more" ON)
if(NOT EXO_HARDEN)
  return()
endif()

include(CheckCCompilerFlag)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

set(hardening -fstack-protector-strong -fstack-clash-protection)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|i[3-6]86)$")
  list(APPEND hardening -fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  list(APPEND hardening -mbranch-protection=standard)
endif()
foreach(flag IN LISTS hardening)
  string(MAKE_C_IDENTIFIER "EXO_HAS${flag}" known)
  check_c_compiler_flag(${flag} ${known})
  if(${known})
    add_compile_options(${flag})
  endif()
endforeach()

# The last -O of a command line holds.
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
string(REGEX MATCHALL "(^| )-O[^ ]*" levels " ${CMAKE_C_FLAGS} ${CMAKE_C_FLAGS_${build_type}}")
list(POP_BACK levels level)
if(level AND NOT level MATCHES "-O0$" AND NOT EXO_SANITIZE)
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif()

add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
