#!/usr/bin/env bash
# What nvcc makes of nn/cuda, run by the interpreter of PTX (tests/ptx): the checks that unit/gpu has for a GPU. Without
# nvcc there is no such plugin.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
plugin=$EXO_BUILD/tests/ptx/exogym-cuda.so
[ -e "$plugin" ] || { echo 'skipped: there is no nvcc, so no PTX'; exit 77; }
mkdir bin
cp "$EXO_BUILD/tests/test_unit_gpu" bin/
ln -s "$plugin" bin/exogym-cuda.so
export EXO_GPU_ELEMENTS=32769 EXO_PTX=counts

# reaches KERNELS ACCESSES PERCENT: that much of the sectors that these accesses of these kernels take is needed. Warps
# that read or write neighbours need all of them.
reaches() {
    awk -v kernels="$1" -v accesses="$2" -v percent="$3" '
        /^ptx kernel=/ { counts = $0 ~ kernels }
        counts && index($0, accesses) { used += substr($2, 6); least += substr($3, 7) }
        END { printf "%d of %d sectors\n", least, used; exit !(used > 0 && 100 * least >= percent * used) }' out >reached ||
        fail "$1, $2: $(cat reached) are needed"
}

for check in 'gpu/every*' 'gpu/attention*' 'gpu/layers*' 'gpu/heads*'; do
    bin/test_unit_gpu --filter "$check" >out 2>&1 && has out 'Tested: 1 | Passing: 1' || fail "$check: $(cat out)"
    case $check in
    gpu/every*)
        reaches '=pack_groups\\(' ld.global 90
        reaches '=pack\\(exo_sign_pack_args' ld.global 90
        ;;
    gpu/attention*) reaches '(forward_mma|query_grads|key_grads)<' st.global 90 ;;
    esac
done
