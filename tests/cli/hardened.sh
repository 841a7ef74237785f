#!/usr/bin/env bash
# What an installation carries into the memory of its processes: the head has no library that it does not use. Nothing is measured in time.
set -euo pipefail

fail() {
    echo "$*" >&2
    exit 1
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cmake --install "$EXO_BUILD" --prefix "$folder" >"$folder/install.log" || fail "$(cat "$folder/install.log")"
head=$folder/bin/exogym-head

# --- The head's libraries ---------------------------------------------------------------------------------------------

# The head computes nothing, fetches nothing, and loads no plugins.
linked=$(readelf -dW "$head" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p')
[ -n "$linked" ] || fail "readelf shows no libraries of the head"
while read -r library; do
    case ${library%%.so*} in
    libprotobuf-c | libzmq | libsqlite3 | libc | libm | libgcc_s | ld-linux-*) ;;
    libasan | libubsan | libtsan | libclang_rt*) ;; # builds with sanitizers
    *) fail "the head is linked to $library; its libraries are listed here, and the layers it is made of in runtime/main/CMakeLists.txt" ;;
    esac
done <<<"$linked"
# Nor do those of its libraries.
everything=$(ldd "$head")
for stranger in curl dnnl gomp crypto; do
    ! grep -q "lib$stranger\." <<<"$everything" || fail "the head takes in lib$stranger: $everything"
done
exported=$(nm -D --defined-only "$head" | awk '$NF ~ /^exo_/ {print $NF}')
[ -z "$exported" ] || fail "the head shows symbols to plugins, which it never loads: $exported"
