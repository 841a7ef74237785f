#!/usr/bin/env bash
# Packs what bench/gpu.sh runs, with the libraries that it needs, for a machine with a GPU on which nothing can be
# installed:
#
#     bench/gpu_pack.sh BUILD FILE.tar.gz            here, where all packages are
#     PACK=FILE.tar.gz bench/gpu.sh                  there
#
# BUILD is a folder that is built with nvcc, for that GPU. The machine needs NVIDIA's driver, cuBLASLt of CUDA 13 (or a
# Python with PyTorch for it), libstdc++, and a C library that is not older than the one here. FILE has a bench/gpu.sh's
# BUILD: programs that set LD_LIBRARY_PATH and start those in bin/, which find the plugin there.
set -eu
[ $# = 2 ] || {
    sed -n '2,11s/^# \{0,1\}//p' "$0"
    exit 2
}
build=$(cd "$1" && pwd)
case $2 in /*) file=$2 ;; *) file=$PWD/$2 ;; esac
programs=(exogym exogym-head exogym-worker bench/bench_gpt_step bench/bench_cnn_step bench/bench_generate bench/bench_matmul bench/bench_collectives tests/test_unit_gpu)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/pack/{bin,lib,bench,tests}

# take FILE: a program or a plugin into bin/, without what only a debugger reads.
take() {
    strip -o "$work/pack/bin/${1##*/}" "$1" 2>/dev/null || cp "$1" "$work/pack/bin/"
    chmod 755 "$work/pack/bin/${1##*/}"
}

# libraries FILE: those that the loader finds for it, but for those of the C and C++ compilers, and CUDA's.
libraries() {
    ldd "$1" | sed -n 's/^.*=> \(\/[^ ]*\) .*/\1/p' |
        grep -v -E '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|mvec|util|stdc\+\+|gcc_s|cublasLt|cuda|cudart|nvidia[^/]*)\.so[^/]*)$' || true
}

[ -e "$build/exogym-cuda.so" ] || {
    echo "gpu_pack.sh: $build has no exogym-cuda.so: build it where nvcc of CUDA 13 is (target exogym_cuda)" >&2
    exit 1
}
take "$build/exogym-cuda.so"
for program in "${programs[@]}"; do
    name=${program##*/}
    if [ ! -x "$build/$program" ]; then
        echo "gpu_pack.sh: $build has no $program; it is left out" >&2
        continue
    fi
    take "$build/$program"
    case $program in */*) up=.. ;; *) up=. ;; esac
    cat >"$work/pack/$program" <<WRAPPER
#!/bin/sh
here=\$(cd "\$(dirname "\$0")/$up" && pwd)
LD_LIBRARY_PATH=\${LD_LIBRARY_PATH:+\$LD_LIBRARY_PATH:}\$here/lib exec "\$here/bin/$name" "\$@"
WRAPPER
    chmod 755 "$work/pack/$program"
done
for program in "$build/exogym-cuda.so" "${programs[@]/#/$build/}"; do
    [ ! -e "$program" ] || libraries "$program"
done | sort -u | while read -r library; do
    cp -L "$library" "$work/pack/lib/"
done
tar -C "$work" -czf "$file" pack
echo "$(du -h "$file" | cut -f1)  $file"
