#!/usr/bin/env bash
# check_headers.sh: each public header compiles alone, in C17 and in C++17, without a warning; and
# each of its declarations has its contract (check_contracts.py). CC and CXX name the compilers.
# Prints each offence and ends with 1 if there is one, with 77 if there is no C++ compiler.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

tools/check_contracts.py --self-test || exit 1
status=0
tools/check_contracts.py include/exogym/*.h || status=1

cxx=${CXX:-$(command -v g++ || command -v clang++ || true)}
# alone COMPILER LANGUAGE STANDARD HEADER: also twice, as its guard shall see to.
alone() {
    printf '#include <exogym/%s>\n#include <exogym/%s>\ntypedef int one_declaration;\n' "$4" "$4" |
        "$1" -x "$2" -std="$3" -Iinclude -Wall -Wextra -Wpedantic -Werror -fsyntax-only - ||
        { echo "$4 does not compile alone as $3" && status=1; }
}
for header in include/exogym/*.h; do
    alone "${CC:-cc}" c c17 "${header##*/}"
    [ -z "$cxx" ] || alone "$cxx" c++ c++17 "${header##*/}"
done
[ "$status" -ne 0 ] || [ -n "$cxx" ] || {
    echo "there is no C++ compiler: only C was looked at"
    status=77
}
exit $status
