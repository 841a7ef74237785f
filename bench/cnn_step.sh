#!/usr/bin/env bash
# The CNN's training step beside PyTorch's, in alternation: medians over the rounds, and ratios to PyTorch's default layout and to
# its best one. bench/cnn_step.sh [ROUNDS] [BUILD_FOLDER]; needs a build (preset release) and bench/peers/setup.sh.
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-3}
build=${2:-build/release}
python=${PYTHON:-/usr/bin/python3}
threads=${THREADS:-2}

rate() {
    "$@" | sed -n 's/.*images_per_second=\([0-9.]*\).*/\1/p'
}
median() {
    printf '%s\n' "$@" | sort -g | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'
}

printf '%-6s %10s %18s %24s %16s %12s\n' dtype exogym 'pytorch default' 'pytorch channels_last' 'over default' 'over best'
for dtype in fp32 bf16; do
    ours=() plain=() last=()
    for _ in $(seq "$rounds"); do
        ours+=("$(rate "$build/bench/bench_cnn_step" --dtype "$dtype" --threads "$threads")")
        plain+=("$(rate "$python" bench/peers/cnn_step.py --dtype "$dtype" --layout default --threads "$threads")")
        last+=("$(rate "$python" bench/peers/cnn_step.py --dtype "$dtype" --layout channels_last --threads "$threads")")
    done
    awk -v d="$dtype" -v o="$(median "${ours[@]}")" -v p="$(median "${plain[@]}")" -v c="$(median "${last[@]}")" 'BEGIN {
        best = p > c ? p : c
        printf "%-6s %10.0f %18.0f %24.0f %15.2fx %11.2fx\n", d, o, p, c, o / p, o / best
    }'
done
echo "images a second, medians of $rounds rounds, batch 256, $threads threads"
