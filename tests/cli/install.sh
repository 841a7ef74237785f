#!/usr/bin/env bash
# An installation is enough to build against: a program outside the tree finds exogym through CMake
# and through pkg-config, with the README's command, under the prefix of the build (staged) and
# under another one, and runs. The shared library shows no symbol but its own.
set -euo pipefail

fail() {
    echo "$*" >&2
    exit 1
}

if ! grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt"; then
    echo "a sanitized library needs sanitized programs: skipped"
    exit 77
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prefix=$folder/prefix
cmake --install "$EXO_BUILD" --prefix "$prefix" >"$folder/install.log" || fail "$(cat "$folder/install.log")"

# --- What is there
# ----------------------------------------------------------------------------------------------------

library=$(find "$prefix" -name libexogym.so)
[ -n "$library" ] || fail "no libexogym.so under the prefix"
for header in "$EXO_SOURCE"/include/exogym/*.h; do
    [ -f "$prefix/include/exogym/$(basename "$header")" ] || fail "$header is not installed"
done

exported=$(nm -D --defined-only "$library" | awk '{print $NF}' | sed 's/@.*//')
# Five functions of the C library's are its own on purpose: ZeroMQ is to find them
# (docs/decisions/0014-intake.md).
taken='accept4|close|listen|recv|send'
strangers=$(grep -v '^exo_' <<<"$exported" | grep -vxE "$taken" || true)
for name in ${taken//|/ }; do
    grep -qx "$name" <<<"$exported" || fail "libexogym.so does not export $name: ZeroMQ would use the C library's"
done
[ -z "$strangers" ] || fail "libexogym.so exports what is not its own: $strangers"
[ "$(grep -c '^exo_' <<<"$exported")" -gt 100 ] || fail "libexogym.so exports too little: $exported"

if [ -e "$EXO_BUILD/exogym-mpi.so" ]; then
    "$prefix/bin/exogym" list engines | grep -q '^mpi ' || fail "the installed exogym does not find its exogym-mpi.so"
fi
if [ -e "$EXO_BUILD/exogym-box2d.so" ]; then
    "$prefix/bin/exogym" list environments | grep -q '^lunar_lander  *LunarLander' || fail "the installed exogym does not find its exogym-box2d.so"
fi
"$prefix/bin/exogym" --version | grep -q '^exogym [0-9]' || fail "the installed exogym does not say its version"

for file in man/man1/exogym.1 man/man1/exogym-run.1 bash-completion/completions/exogym zsh/site-functions/_exogym \
    fish/vendor_completions.d/exogym.fish; do
    [ -s "$prefix/share/$file" ] || fail "share/$file is not installed"
done

for file in README.md LICENSE docs/strategies.md docs/decisions/0003-counted-bytes.md examples/10_hello_actor/README.md; do
    [ -s "$prefix/share/doc/exogym/$file" ] || fail "share/doc/exogym/$file is not installed"
done

# by_links TREE: the links of its pages lead somewhere, but for those to sources that are no headers.
by_links() {
    local pages page target
    pages=$(dirname "$(find "$1" -path '*/exogym/README.md' -not -path '*/examples/*')")
    while read -r page; do
        while read -r target; do
            target=$(realpath -sm "$(dirname "$page")/${target%%#*}")
            [ -e "$target" ] || grep -qE '^(actors|bench|nn|packaging|proto|runtime|strategies|tests)(/|$)' <<<"${target#"$pages/"}" ||
                fail "$page: a link leads to $target, which is not installed"
        done < <(grep -oE '\]\([^) #]+' "$page" | sed 's/^](//' | grep -vE '^(https?|mailto):')
    done < <(find "$pages" -name '*.md')
}
by_links "$prefix"

# --- A user's program
# -------------------------------------------------------------------------------------------------

mkdir "$folder/user"
cat >"$folder/user/main.c" <<'C'
#include <stdio.h>

#include <exogym/exogym.h>

int
main(void)
{
    exo_err err = {0};
    exo_model *model = NULL;
    if (exo_model_new_named(&model, "mnist_cnn", NULL, &err) != EXO_OK) {
        puts(err.text);
        return 1;
    }
    printf("parameters=%zu\n", exo_model_numel(model));
    exo_model_drop(&model);
    return 0;
}
C
cat >"$folder/user/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES C)
find_package(exogym 0.1 REQUIRED)
add_executable(user main.c)
target_link_libraries(user PRIVATE exogym::exogym)
CMAKE
expected=parameters=1868234

export CC
{
    cmake -S "$folder/user" -B "$folder/user/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$folder/user/build"
} >"$folder/cmake.log" || fail "$(cat "$folder/cmake.log")"
printed=$("$folder/user/build/user")
[ "$printed" = "$expected" ] || fail "found by CMake, the program printed: $printed"

# by_pkg_config TREE: as the README says, and nothing else: no -rpath, no LD_LIBRARY_PATH, no
# ldconfig.
grep -qF "cc main.c \$(pkg-config --cflags --libs exogym)" "$EXO_SOURCE/README.md" || fail "the README has another command"
unset LD_LIBRARY_PATH
by_pkg_config() {
    local flags printed
    export PKG_CONFIG_PATH
    PKG_CONFIG_PATH=$(dirname "$(find "$1" -name exogym.pc)")
    read -ra flags <<<"$(pkg-config --cflags --libs exogym)"
    rm -f "$folder/user/a.out"
    (cd "$folder/user" && "$CC" main.c "${flags[@]}")
    printed=$("$folder/user/a.out" 2>&1) || true
    [ "$printed" = "$expected" ] || fail "$1: found by pkg-config, the program printed: $printed"
}
by_pkg_config "$prefix"

# The headers are C++'s, too: names are C's there, and a clock of one's own lies in memory as in C.
if command -v "${CXX:-g++}" >/dev/null; then
    cat >"$folder/user/main.cpp" <<'CPP'
#include <cstdio>

#include <exogym/exogym.h>

EXO_PLUGIN
{
    return exo_fail(err, EXO_UNSUPPORTED, "%s", "a plugin in C++");
}

int
main()
{
    exo_clock_manual clock;
    exo_clock_manual_init(&clock, 5);
    exo_clock_manual_advance(&clock, 2);
    exo_model *model = nullptr;
    if (exo_model_new_named(&model, "mnist_cnn", nullptr, nullptr) != EXO_OK || clock.time.load() != 7)
        return 1;
    std::printf("parameters=%zu\n", exo_model_numel(model));
    exo_model_drop(&model);
    return exo_plugin_init(nullptr) == EXO_UNSUPPORTED ? 0 : 1;
}
CPP
    read -ra flags <<<"$(pkg-config --cflags --libs exogym)"
    (cd "$folder/user" && "${CXX:-g++}" -std=c++17 -Wall -Wextra -Wpedantic -Werror main.cpp "${flags[@]}")
    printed=$("$folder/user/a.out" 2>&1) || fail "the program in C++ failed: $printed"
    [ "$printed" = "$expected" ] || fail "the program in C++ printed: $printed"
fi

# The prefix of the build, into a staging folder as packagers do; then the tree is moved.
DESTDIR=$folder/stage cmake --install "$EXO_BUILD" >"$folder/stage.log" || fail "$(cat "$folder/stage.log")"
by_pkg_config "$folder/stage"
mv "$folder/stage" "$folder/moved"
by_pkg_config "$folder/moved"
by_links "$folder/moved"
