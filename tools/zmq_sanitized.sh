#!/usr/bin/env bash
# zmq_sanitized.sh FOLDER SANITIZER: builds FOLDER/libzmq.so.5 with -fsanitize=SANITIZER from the
# source package of the system's ZeroMQ, so that the thread sanitizer sees what ZeroMQ's threads
# order and touch. The tsan preset calls it.
#
# Needs apt-get with the network, dpkg-dev, g++, cmake, ninja and libsodium-dev. It needs no root,
# and leaves the system's own list of package sources as it is. What FOLDER holds from an earlier
# call is used again: the source, or the whole library.
set -euo pipefail
[ $# = 2 ] || {
    echo "usage: $0 FOLDER SANITIZER" >&2
    exit 2
}
mkdir -p "$1"
cd "$1"
[ ! -e libzmq.so.5 ] || exit 0

fail() {
    echo "zmq_sanitized: $*" >&2
    exit 1
}

# The source packages come from where the packages come from: the same entries, asked for sources.
download() {
    command -v apt-get >/dev/null && command -v dpkg-source >/dev/null || fail "needs apt-get and dpkg-dev"
    mkdir -p apt/sources apt/lists/partial apt/cache/archives/partial
    local file
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
        case $file in
        *.list) sed -nE 's/^[[:space:]]*deb[[:space:]]/deb-src /p' "$file" >"apt/sources/${file##*/}" ;;
        *.sources) sed -E 's/^Types:.*/Types: deb-src/' "$file" >"apt/sources/${file##*/}" ;;
        esac 2>/dev/null || :
    done
    local apt=(apt-get -qq -o Acquire::Retries=3 -o APT::Sandbox::User= -o Dir::Etc::sourcelist=/dev/null
        -o "Dir::Etc::sourceparts=$PWD/apt/sources" -o "Dir::State::lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache")
    "${apt[@]}" update || : # a list of others that cannot be had does not matter
    local version
    version=$(dpkg-query -W -f '${source:Version}' libzmq5)
    "${apt[@]}" source --download-only "zeromq3=$version" ||
        "${apt[@]}" source --download-only zeromq3 || fail "cannot get the source package zeromq3"
    rm -rf apt source
    dpkg-source --no-check -x zeromq3_*.dsc source || fail "cannot unpack the source package"
}

[ -e source/CMakeLists.txt ] || download
flags="-O1 -g -fno-omit-frame-pointer -fsanitize=$2"
cmake -S source -B build -G Ninja -DCMAKE_BUILD_TYPE= -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" \
    -DBUILD_STATIC=OFF -DBUILD_TESTS=OFF -DWITH_DOCS=OFF -DWITH_PERF_TOOL=OFF -DENABLE_CPACK=OFF \
    -DWITH_LIBBSD=OFF -DENABLE_CURVE=ON -DWITH_LIBSODIUM=ON
cmake --build build
ln -sf build/lib/libzmq.so.5 libzmq.so.5
