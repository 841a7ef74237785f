#!/usr/bin/env bash
# Compares the CNN's training step with PyTorch's, in alternation. Prints medians over the rounds,
# and ratios to PyTorch with its default layout and allocator, and to the fastest of four settings:
# default or channels-last layout, default allocator or one that keeps freed memory.
#
#     bench/cnn_step.sh [ROUNDS] [BUILD_FOLDER]
#
# Needs a build (preset release) and bench/peers/setup.sh torch. Environment: THREADS (default: 2),
# PYTHON (default: /usr/bin/python3).
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-3}
build=${2:-build/release}
python=${PYTHON:-/usr/bin/python3}
threads=${THREADS:-2}

# rate ARRAY COMMAND...: adds the images a second that the command prints; ends all if it fails.
rate() {
    local -n rates=$1
    local line
    shift
    line=$("$@" --threads "$threads")
    line=${line##*images_per_second=}
    rates+=("${line%%[!0-9.]*}")
}
# peer ARRAY LAYOUT ALLOCATOR
peer() {
    rate "$1" "$python" bench/peers/cnn_step.py --dtype "$dtype" --layout "$2" --allocator "$3"
}
median() {
    printf '%s\n' "$@" | sort -g | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'
}

format='%-6s %8s %16s %14s %14s %14s %14s %11s\n'
# shellcheck disable=SC2059
printf "$format" '' exogym 'pytorch default' '+ keep' channels_last '+ keep' 'over default' 'over best'
for dtype in fp32 bf16; do
    ours=() plain=() plain_keep=() last=() last_keep=()
    for _ in $(seq "$rounds"); do
        rate ours "$build/bench/bench_cnn_step" --dtype "$dtype"
        peer plain default default
        peer plain_keep default keep
        peer last channels_last default
        peer last_keep channels_last keep
    done
    awk -v d="$dtype" -v o="$(median "${ours[@]}")" -v a="$(median "${plain[@]}")" -v b="$(median "${plain_keep[@]}")" \
        -v c="$(median "${last[@]}")" -v e="$(median "${last_keep[@]}")" 'BEGIN {
        best = a; if (b > best) best = b; if (c > best) best = c; if (e > best) best = e
        printf "%-6s %8.0f %16.0f %14.0f %14.0f %14.0f %13.2fx %10.2fx\n", d, o, a, b, c, e, o / a, o / best
    }'
done
echo "images a second, medians of $rounds rounds, batch 256, $threads threads"
