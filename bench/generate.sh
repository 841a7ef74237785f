#!/usr/bin/env bash
# Generation beside transformers', in alternation: medians over the rounds in tokens a second, and ratios to transformers in fp32.
#     bench/generate.sh [ROUNDS] [BUILD_FOLDER]
# Needs a build (preset release) and bench/peers/setup.sh gpt. THREADS (2), SIZE (base), PYTHON (build/peers/gpt/bin/python), and COMPILE=1
# (the peer with its static cache and torch.compile) can be set.
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-3}
build=${2:-build/release}
python=${PYTHON:-build/peers/gpt/bin/python}
threads=${THREADS:-2}
size=${SIZE:-base}

rate() {
    "$@" --size "$size" --batch "$batch" --threads "$threads" --rounds 3 |
        sed -n 's/.*tokens_per_second=\([0-9.]*\).*/\1/p'
}
median() {
    printf '%s\n' "$@" | sort -g | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'
}

printf '%-6s %13s %8s %8s %8s %10s %10s %10s\n' batch transformers fp32 int8 int4 'fp32 over' 'int8 over' 'int4 over'
for batch in 1 16; do
    peer=() fp32=() int8=() int4=()
    for _ in $(seq "$rounds"); do
        peer+=("$(rate "$python" bench/peers/generate.py ${COMPILE:+--compile})")
        fp32+=("$(rate "$build/bench/bench_generate" --weights fp32)")
        int8+=("$(rate "$build/bench/bench_generate" --weights int8)")
        int4+=("$(rate "$build/bench/bench_generate" --weights int4)")
    done
    awk -v n="$batch" -v p="$(median "${peer[@]}")" -v a="$(median "${fp32[@]}")" -v b="$(median "${int8[@]}")" \
        -v c="$(median "${int4[@]}")" 'BEGIN {
        printf "%-6d %13.1f %8.1f %8.1f %8.1f %9.2fx %9.2fx %9.2fx\n", n, p, a, b, c, a / p, b / p, c / p
    }'
done
echo "tokens a second, medians of $rounds rounds, size $size, prompts of 32 tokens, 128 new tokens each, $threads threads"
