#!/usr/bin/env bash
# What nvcc makes of nn/cuda, run by the interpreter of PTX (tests/ptx): the checks that unit/gpu has for a GPU. Without
# nvcc there is no such plugin.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
plugin=$EXO_BUILD/tests/ptx/exogym-cuda.so
[ -e "$plugin" ] || { echo 'skipped: there is no nvcc, so no PTX'; exit 77; }
mkdir bin
cp "$EXO_BUILD/tests/test_unit_gpu" bin/
ln -s "$plugin" bin/exogym-cuda.so
export EXO_GPU_ELEMENTS=32769
for check in 'gpu/every*' 'gpu/attention*' 'gpu/layers*' 'gpu/heads*'; do
    bin/test_unit_gpu --filter "$check" >out 2>&1 && has out 'Tested: 1 | Passing: 1' || fail "$check: $(cat out)"
done
