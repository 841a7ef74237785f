#!/usr/bin/env bash
# Everything that needs a GPU, in one command: builds exogym with the device `cuda`, runs every kernel
# against the reference there, and measures training and generation beside PyTorch and transformers.
# Prints a table for docs/gpu.md. Ends in 20 minutes.
#
#     bench/gpu.sh [OUT]
#
# OUT (default: build/gpu) gets the log of each step and table.md. Needs nvcc of CUDA 13 with cuBLASLt,
# what tools/bootstrap.sh installs, cuDNN 9 to compare with it, and for the ratios a Python with PyTorch
# for CUDA and transformers: PYTHON (default: python3). A step that cannot run says why, and the others go on.
set -u
cd "$(dirname "$0")/.."
out=${1:-build/gpu}
python=${PYTHON:-python3}
mkdir -p "$out"
out=$(cd "$out" && pwd)
rows=()
failures=0

# step NAME SECONDS COMMAND...: runs it with a limit; its output is OUT/NAME.log.
step() {
    local name=$1 limit=$2 began=$SECONDS rc=0
    shift 2
    timeout "$limit" "$@" >"$out/$name.log" 2>&1 || rc=$?
    if [ $rc = 0 ]; then
        printf '%-22s ok, %d s\n' "$name" $((SECONDS - began))
        return 0
    fi
    failures=$((failures + 1))
    printf '%-22s failed with %d after %d s: %s\n' "$name" $rc $((SECONDS - began)) "$(tail -1 "$out/$name.log")"
    rows+=("| $name | failed: $(tail -1 "$out/$name.log" | tr '|' '/') | | |")
    return 1
}

# value NAME KEY: a number of a JSON line, or of KEY=NUMBER.
value() {
    sed -n "s/.*\"\{0,1\}$2\"\{0,1\}[=:] *\([0-9.e+-]*\).*/\1/p" "$out/$1.log" | tail -1
}

# row WHAT UNIT OURS PEERS
row() {
    rows+=("| $1 | $3 $2 | ${4:-none} | $(awk -v a="$3" -v b="${4:-0}" 'BEGIN { if (b > 0) printf "%.2f", a / b }') |")
}

has_cudnn() {
    grep -q 'cuDNN  *[0-9]' "$out/doctor.log"
}

has_torch() {
    "$python" -c 'import torch; assert torch.cuda.is_available()' 2>"$out/torch.log"
}

build=build/dev
step build 600 bash -c "cmake --preset dev && cmake --build --preset dev --target exogym_cli exogym_cuda test_unit_gpu bench_gpt_step bench_cnn_step bench_generate" || exit 1
step doctor 60 $build/exogym doctor
grep -A1 'cuda:' "$out/doctor.log"
grep -q '^  cuda:0' "$out/doctor.log" || {
    echo "gpu.sh: there is no GPU that exogym can use:"
    cat "$out/doctor.log"
    exit 1
}

step kernels 300 $build/tests/test_unit_gpu --verbose
has_cudnn && EXOGYM_CUDNN=on step kernels_cudnn 300 $build/tests/test_unit_gpu --verbose
if command -v compute-sanitizer >/dev/null; then
    EXO_GPU_COUNT=1000 step sanitizer 300 compute-sanitizer --error-exitcode 1 $build/tests/test_unit_gpu --debug=idle --filter 'gpu/every*'
fi

# The same bits from run to run, and a checkpoint of the GPU that the CPU goes on from.
job="$build/exogym run examples/01_compare/compare.yaml --preset quick --no-plot --overwrite --save-dir $out/runs"
step bits_1 120 $job --name one --set device=cuda --set train.max_steps=20 --set compare='[ddp, {name: diloco, H: 5}]'
step bits_2 120 $job --name two --set device=cuda --set train.max_steps=20 --set compare='[ddp, {name: diloco, H: 5}]'
for strategy in ddp diloco; do
    one=$(grep -o '"sha256": "[0-9a-f]*"' "$out/runs/one/$strategy/result.json" | head -1)
    two=$(grep -o '"sha256": "[0-9a-f]*"' "$out/runs/two/$strategy/result.json" | head -1)
    [ -n "$one" ] && [ "$one" = "$two" ] && rows+=("| bits of two runs, $strategy | equal | | |") ||
        rows+=("| bits of two runs, $strategy | differ | | |")
done

# GPT-2 of 124 million parameters, bf16; the CNN; generation. Medians of five runs of each program's own.
for size in base; do
    settings="--size $size --vocabulary 50304 --block 1024 --batch 16 --dtype bf16 --steps 10"
    step gpt 180 $build/bench/bench_gpt_step $settings --device cuda
    has_torch && step gpt_torch 300 "$python" bench/peers/gpt_step.py $settings --device cuda --compile
    row "GPT-2 124M, bf16, 16 x 1,024, training" tokens/s "$(value gpt tokens_per_second)" "$(value gpt_torch tokens_per_second 2>/dev/null)"
done
for dtype in fp32 bf16; do
    step cnn_$dtype 60 $build/bench/bench_cnn_step --dtype $dtype --steps 50 --device cuda
    has_torch && step cnn_${dtype}_torch 180 "$python" bench/peers/cnn_step.py --dtype $dtype --steps 50 --device cuda --compile
    row "the CNN, $dtype, batch 256, training" images/s "$(value cnn_$dtype images_per_second)" "$(value cnn_${dtype}_torch images_per_second 2>/dev/null)"
done
# Convolutions: own kernels, and cuDNN where it is found.
for dtype in fp32 bf16; do
    for choice in on tf32; do
        has_cudnn || continue
        [ $dtype = bf16 ] && [ $choice = tf32 ] && continue
        EXOGYM_CUDNN=$choice step cnn_${dtype}_cudnn_$choice 60 $build/bench/bench_cnn_step --dtype $dtype --steps 50 --device cuda || continue
        own=$(value cnn_$dtype images_per_second) other=$(value cnn_${dtype}_cudnn_$choice images_per_second)
        row "the CNN, $dtype, EXOGYM_CUDNN=off beside $choice" images/s "$own" "$other"
        awk -v a="$own" -v b="$other" -v d="$dtype" -v c="$choice" \
            'BEGIN { printf "convolutions, %s: EXOGYM_CUDNN=%s is faster (off %s, %s %s images/s)\n", d, (a >= b ? "off" : c), a, c, b }'
    done
done
for batch in 1 16; do
    step generate_$batch 120 $build/bench/bench_generate --batch $batch --device cuda
    has_torch && step generate_${batch}_torch 180 "$python" bench/peers/generate.py --batch $batch --device cuda
    row "generation, GPT-2 124M, fp32, batch $batch" tokens/s "$(value generate_$batch tokens_per_second)" "$(value generate_${batch}_torch tokens_per_second 2>/dev/null)"
done

# Four virtual nodes on one GPU, and one node with the same total batch.
for nodes in 1 4; do
    step nodes_$nodes 120 $job --name nodes_$nodes --set device=cuda --set nodes=$nodes --set engine=gpu \
        --set train.max_steps=50 --set train.batch_size=$((256 / nodes)) --set compare='[ddp]'
done
rate() {
    sed -n 's/.*"samples_per_second": *\([0-9.]*\).*/\1/p' "$out/runs/nodes_$1/ddp/result.json" 2>/dev/null | head -1
}
row "the CNN on four nodes of one GPU, beside one node" samples/s "$(rate 4)" "$(rate 1)"

{
    echo "$(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD 2>/dev/null), $(grep -m1 'cuda:0' "$out/doctor.log" | sed 's/^[ !]*cuda:0 *//')"
    echo
    echo '| what | exogym | peer | ratio |'
    echo '|---|---|---|---|'
    printf '%s\n' "${rows[@]}"
} | tee "$out/table.md"
exit $((failures > 0))
