#!/usr/bin/env bash
# What an installation carries into the memory of its processes: every program and the library have
# the protections of cmake/hardening.cmake, and the head has no library that it does not use.
set -euo pipefail

fail() {
    echo "$*" >&2
    exit 1
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cmake --install "$EXO_BUILD" --prefix "$folder" >"$folder/install.log" || fail "$(cat "$folder/install.log")"
head=$folder/bin/exogym-head

# --- Protections
# ------------------------------------------------------------------------------------------------------

# cached NAME: a setting of the build.
cached() {
    sed -n "s/^$1:[A-Z]*=//p" "$EXO_BUILD/CMakeCache.txt"
}
build_type=$(cached CMAKE_BUILD_TYPE)
sanitize=$(cached EXO_SANITIZE)
level=$(grep -oE -- ' -O[^ ]*' <<<" $(cached CMAKE_C_FLAGS) $(cached "CMAKE_C_FLAGS_${build_type^^}")" | tail -1 || true)

# function_of FILE: a function that others may jump to.
function_of() {
    case $1 in
    *.so) nm -D --defined-only "$1" | awk '$2 == "T" {print $3; exit}' ;;
    *) echo main ;;
    esac
}

protected() {
    local file=$1 name segments dynamic symbols marks flag
    name=$(basename "$file")
    segments=$(readelf -lW "$file")
    dynamic=$(readelf -dW "$file")
    symbols=$(readelf -W --dyn-syms "$file")
    grep -q '^ *GNU_RELRO ' <<<"$segments" || fail "$name: nothing becomes read-only after loading (-z relro)"
    grep -qE '\(FLAGS_1\).*\bNOW\b' <<<"$dynamic" || fail "$name: its table of functions stays writable (-z now)"
    grep -q '^ *GNU_STACK .* RW ' <<<"$segments" || fail "$name: its stack is executable (-z noexecstack)"
    ! grep -qE '^ *LOAD .* (RWE|WE) ' <<<"$segments" || fail "$name: a segment is for data and for code"
    ! grep -q '(TEXTREL)' <<<"$dynamic" || fail "$name: its code is written to when it is loaded"
    ! grep -qE '\((RPATH|RUNPATH)\)' <<<"$dynamic" || fail "$name: libraries come from a folder that it names"
    grep -q '^ *Type: *DYN ' <(readelf -hW "$file") || fail "$name: is always at the same address (PIE)"
    case $file in
    *.so) ;;
    *) grep -qE '\(FLAGS_1\).*\bPIE\b' <<<"$dynamic" || fail "$name: is no position-independent program" ;;
    esac
    grep -q ' __stack_chk_fail\b' <<<"$symbols" || fail "$name: has no stack protector"
    if [ -z "$sanitize" ] && [ -n "$level" ] && [ "$level" != ' -O0' ]; then
        [ "$(grep -oE ' __[a-z]+_chk\b' <<<"$symbols" | sort -u | grep -c .)" -ge 3 ] || fail "$name: libc's functions check no sizes (_FORTIFY_SOURCE)"
    fi
    # A file's note says that all of it is for CET or BTI only if libc's start files are, too, which
    # Debian's are not: the code is asked.
    case $(uname -m) in
    x86_64) marks=endbr64 flag=-fcf-protection ;;
    aarch64) marks='paciasp|bti' flag=-mbranch-protection ;;
    *) return 0 ;;
    esac
    grep -qE "$marks" <(objdump -d --disassemble="$(function_of "$file")" "$file" | sed -n '/>:$/{n;p;q}') || fail "$name: has no marks for indirect branches ($flag)"
}

if [ "$(cached EXO_HARDEN)" = ON ]; then
    library=$(find "$folder" -name libexogym.so)
    [ -n "$library" ] || fail "no libexogym.so under the prefix"
    for file in "$folder"/bin/* "$library"; do
        protected "$file"
    done
fi

# A build's plugin for CUDA names the folder of cuBLASLt, and not the working folder, which is an empty part.
plugin=$(find "$folder" -name exogym-cuda.so)
if [ -n "$plugin" ]; then
    ! grep -qE '\((RPATH|RUNPATH)\)' <(readelf -dW "$plugin") || fail "$plugin: libraries come from a folder that it names"
    ! grep -qE '\((RPATH|RUNPATH)\).*(\[:|::|:\])' <(readelf -dW "$EXO_BUILD/exogym-cuda.so") || fail 'exogym-cuda.so: libraries come from the working folder'
fi

# --- The head's libraries
# ---------------------------------------------------------------------------------------------

# The head computes nothing, fetches nothing, and loads no plugins.
linked=$(readelf -dW "$head" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p')
[ -n "$linked" ] || fail "readelf shows no libraries of the head"
while read -r library; do
    case ${library%%.so*} in
    libprotobuf-c | libzmq | libsqlite3 | libseccomp | libc | libm | libgcc_s | ld-linux-*) ;;
    libasan | libubsan | libtsan | libclang_rt*) ;; # builds with sanitizers
    *) fail "the head is linked to $library; its libraries are listed here, and the layers it is made of in runtime/programs/CMakeLists.txt" ;;
    esac
done <<<"$linked"
# Nor do those of its libraries.
everything=$(ldd "$head")
for stranger in curl dnnl gomp crypto; do
    ! grep -q "lib$stranger\." <<<"$everything" || fail "the head takes in lib$stranger: $everything"
done
exported=$(nm -D --defined-only "$head" | awk '$NF ~ /^exo_/ {print $NF}')
[ -z "$exported" ] || fail "the head shows symbols to plugins, which it never loads: $exported"
