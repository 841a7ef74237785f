#!/usr/bin/env bash
# From a fresh clone to a comparison of strategies, or to a full test run, in one command. Can be
# run again and again, from any folder: it installs only packages that are missing and builds only
# what has changed. `tools/bootstrap.sh help` says more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Debian's names, and what each is called elsewhere (for systems without apt-get).
run_packages=(
    gcc libc6-dev cmake ninja-build pkg-config
    libdnnl-dev libfyaml-dev libjansson-dev libssl-dev libcurl4-openssl-dev zlib1g-dev
    libzmq3-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler libsqlite3-dev uthash-dev libseccomp-dev
    libzstd-dev liblz4-dev libpcre2-dev libunistring-dev
    dataset-fashion-mnist gnuplot-nox
)
test_packages=(libcriterion-dev clang lld libclang-rt-dev clang-format python3 spin tcc g++ libbox2d-dev dpkg-dev libsodium-dev gdb)
libraries='  build:   a C17 compiler, cmake 3.25, ninja, pkg-config
  compute: oneDNN 2 or 3 (dnnl.h)
  cluster: ZeroMQ 4.3 (libzmq), protobuf-c with protoc-gen-c, protoc, SQLite 3, uthash, libseccomp
  others:  libfyaml, jansson, OpenSSL (libcrypto), libcurl, zlib, zstd, lz4, PCRE2 10.40 (8 bit), libunistring
  data:    Fashion-MNIST in /usr/share/datasets/fashion-mnist, or later: exogym data get fashion_mnist
  plots:   gnuplot
  mpirun:  optional: MPI (Debian: libopenmpi-dev, openmpi-bin)
  GPUs:    optional: CUDA 13 with nvcc and cuBLASLt, for device: cuda (docs/gpu.md)
  games:   optional: Box2D 2.4 and a C++ compiler, for lunar_lander (Debian: libbox2d-dev, g++)
  tests:   Criterion 2.4, clang with its sanitizers and libFuzzer (compiler-rt), clang-format, lld, python3, spin, tcc;
           of Debian: g++, dpkg-dev and libsodium, for a ZeroMQ with the thread sanitizer; gdb, for what crashed'

usage() {
    cat <<'TXT'
tools/bootstrap.sh run [--full] [OPTION...]   install, build, and compare DDP, DiLoCo and SPARTA on Fashion-MNIST
tools/bootstrap.sh test                       install, build, and run every check and test, also under the sanitizers
tools/bootstrap.sh help                       this text

  --full         the full settings of the comparison instead of its quick preset
  --no-install   use the packages that are there (before any other option)
  OPTION...      passed on to `exogym run`, such as --set seed=43
TXT
}

say() {
    printf '\n== %s\n' "$*"
}

fail() {
    printf '\nbootstrap: %s\n' "$*" >&2
    exit 1
}

# quietly LOG COMMAND...: shows the end of the log only if the command fails.
quietly() {
    local log=build/$1
    shift
    mkdir -p build
    "$@" >"$log" 2>&1 </dev/null || {
        tail -n 25 "$log" >&2
        printf '(all of it: %s)\n' "$PWD/$log" >&2
        return 1
    }
}

# --- Packages
# ---------------------------------------------------------------------------------------------------------

install_packages() {
    if [ "$install" = no ]; then
        say "packages: taken as they are (--no-install)"
        return
    fi
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        fail "there is no apt-get here. Install these by other means, then add --no-install:
$libraries"
    fi

    local package missing=()
    for package in "$@"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        say "packages: all there"
        return
    fi

    local as_root=() by_hand="apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            fail "packages are missing, and you are neither root nor is there sudo. As root, run
  $by_hand"
        fi
        # Only a person at a terminal can be asked for a password.
        if [ -t 0 ]; then
            sudo -v || fail "sudo does not let you install packages. As root, run
  $by_hand"
        elif ! sudo -n true 2>/dev/null; then
            fail "packages are missing, and sudo wants a password. Run this at a terminal, or as root
  $by_hand"
        fi
        as_root=(sudo)
    fi

    say "packages: installing ${missing[*]}"
    local apt=(${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -qq
        -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
    quietly apt-update.log "${apt[@]}" -o APT::Update::Error-Mode=any update ||
        printf 'apt-get update failed; going on with the package lists that are there\n' >&2
    quietly apt-install.log "${apt[@]}" install -y --no-remove --no-install-recommends "${missing[@]}" ||
        fail "apt-get could not install ${missing[*]}; it says why above. By hand, as root:
  $by_hand"
}

# --- Builds
# -----------------------------------------------------------------------------------------------------------

build() {
    local preset=$1
    say "build: $preset (build/$preset)"
    quietly "configure-$preset.log" cmake --preset "$preset" || return 1
    if [ -t 1 ]; then
        cmake --build --preset "$preset"
    else
        cmake --build --preset "$preset" -- --quiet
    fi
}

run() {
    local settings=(--preset quick)
    if [ "${1:-}" = --full ]; then
        settings=()
        shift
    fi
    install_packages "${run_packages[@]}"
    build release || fail "the build failed"
    set -- run examples/01_compare/compare.yaml --overwrite ${settings[@]+"${settings[@]}"} "$@"
    say "exogym $*"
    exec build/release/exogym "$@"
}

# --- Tests
# ------------------------------------------------------------------------------------------------------------

passed=0
failed=0
skipped=0
failures=()

# check NAME COMMAND...: one check that passes or fails as a whole.
check() {
    local name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        failures+=("$name")
        return 1
    fi
}

# ctest prints "N% tests passed, F tests failed out of T"; tests that skipped themselves are marked
# and count as passed. Two tests more than there are cores run at a time: many wait for most of theirs.
tests() {
    local preset=$1 log=build/ctest-$1.log wrapper=() line
    # Sanitizers of this compiler's age cannot live with the address randomization of newer kernels.
    if setarch -R true 2>/dev/null; then
        wrapper=(setarch -R)
    fi
    say "tests: $preset"
    local status=0
    ${wrapper[@]+"${wrapper[@]}"} ctest --preset "$preset" -j "$(($(nproc) + 2))" --no-tests=error 2>&1 </dev/null | tee "$log" || status=1
    line=$(grep -E '^[0-9]+% tests passed' "$log" || true)
    if [ -z "$line" ]; then
        check "$preset tests" false || true
        return
    fi
    local bad all skips
    bad=$(sed -E 's/.*, ([0-9]+) tests? failed.*/\1/' <<<"$line")
    all=$(sed -E 's/.*out of ([0-9]+).*/\1/' <<<"$line")
    skips=$(grep -cE '\*\*\*Skipped' "$log" || true)
    failed=$((failed + bad))
    skipped=$((skipped + skips))
    passed=$((passed + all - bad - skips))
    if [ "$bad" -gt 0 ] || [ "$status" -ne 0 ]; then
        failures+=("$preset tests")
    fi
}

# Every .c and .h but those that a script wrote.
formatted() {
    find . \( -path ./build -o -path ./.git -o -path ./tests/golden \) -prune -o \( -name '*.c' -o -name '*.h' \) -print0 |
        xargs -0 clang-format --dry-run --Werror
}

# The same job gives the same parameters, whichever compiler built exogym: the asan preset has clang.
same_bits() {
    local folder preset hashes=()
    folder=$(mktemp -d)
    cat >"$folder/job.yaml" <<'YAML'
model: mnist_cnn
data: synthetic
nodes: 2
train: {max_steps: 3, batch_size: 8, val_size: 16}
strategy: {name: diloco, H: 2}
YAML
    for preset in dev asan; do
        "build/$preset/exogym" run "$folder/job.yaml" --save-dir "$folder/$preset" --overwrite --no-plot --json >"$folder/result" 2>"$folder/log" ||
            cat "$folder/log" >&2
        hashes+=("$(sed -nE 's/.*"sha256": "([0-9a-f]+)".*/\1/p' "$folder/result")")
    done
    rm -r "$folder"
    if [ -z "${hashes[0]}" ] || [ "${hashes[0]}" != "${hashes[1]}" ]; then
        printf 'gcc: %s\nclang: %s\n' "${hashes[0]}" "${hashes[1]}" >&2
        return 1
    fi
}

test_all() {
    [ $# -eq 0 ] || fail "test takes no further arguments: $*"
    install_packages "${run_packages[@]}" "${test_packages[@]}"

    if build dev; then
        tests dev
    else
        check "build of dev" false || true
    fi
    say "format"
    check "clang-format" formatted || true
    if check "build of asan" build asan; then
        say "the same bits from gcc and clang"
        check "the same bits from gcc and clang" same_bits || true
        tests asan
        say "what clang says of the rest"
        check "clang" tools/check_clang.py build/dev build/asan || true
    fi
    say "ZeroMQ with the thread sanitizer (build/zmq-thread)"
    if quietly zmq-thread.log tools/zmq_sanitized.sh build/zmq-thread thread; then
        passed=$((passed + 1))
    elif [ "$install" = no ]; then # as packages, its source may not be there; the tests that need it are skipped, too
        skipped=$((skipped + 1))
    else
        check "ZeroMQ with the thread sanitizer" false || true
    fi
    if check "build of tsan" build tsan; then
        tests tsan
    fi

    say "result"
    local failure
    for failure in ${failures[@]+"${failures[@]}"}; do
        printf 'failed: %s\n' "$failure"
    done
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    [ ${#failures[@]} -eq 0 ]
}

command=${1:-help}
[ $# -eq 0 ] || shift
install=yes
if [ "${1:-}" = --no-install ]; then
    install=no
    shift
fi
case $command in
run) run "$@" ;;
test) test_all "$@" ;;
help | -h | --help) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
