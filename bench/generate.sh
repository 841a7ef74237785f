#!/usr/bin/env bash
# Compares generation with llama.cpp's at the same number of bits per weight, in alternation. Prints
# medians over the rounds: tokens a second, their ratio, and the share of the machine's read
# bandwidth with which each side reads its weights. A round takes a minute or two.
#
#     bench/generate.sh [ROUNDS] [BUILD_FOLDER]
#
# Needs a build (preset release) and bench/peers/setup.sh llama. Environment: THREADS (default: 2),
# SIZE (base), BATCHES ("1 16"), PYTHON (build/peers/llama/bin/python). PEER=transformers selects
# the other peer, which generates in fp32, and is compared with all three formats. It needs
# bench/peers/setup.sh gpt. COMPILE=1 gives it a static cache and torch.compile.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
build=${2:-build/release}
peer=${PEER:-llama.cpp}
threads=${THREADS:-2}
size=${SIZE:-base}
batches=${BATCHES:-1 16}

case $peer in
llama.cpp) python=${PYTHON:-build/peers/llama/bin/python} setup=llama ;;
transformers) python=${PYTHON:-build/peers/gpt/bin/python} setup=gpt ;;
*)
    echo "generate.sh: PEER is llama.cpp or transformers, not $peer" >&2
    exit 2
    ;;
esac
[ -x "$build/bench/bench_generate" ] || {
    echo "generate.sh: build it first: cmake --preset release && cmake --build --preset release" >&2
    exit 1
}
command -v "$python" >/dev/null || {
    echo "generate.sh: $python is missing: bench/peers/setup.sh $setup installs it" >&2
    exit 1
}

lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
# measure SIDE WEIGHTS COMMAND...: runs the command and adds a line "batch weights side rate GB/s
# MiB".
measure() {
    local side=$1 weights=$2 said
    shift 2
    said=$("$@" --size "$size" --batch "$batch" --threads "$threads" --rounds 1)
    field() { sed -n "s/.* $1=\([0-9.]*\).*/\1/p" <<<"$said"; }
    echo "$batch $weights $side $(field tokens_per_second) $(field weights_GB_per_second) $(field weights_MiB)" >>"$lines"
}
# measure_limit WEIGHTS: adds the rate at which the same threads read an array as large as exogym's
# weights.
measure_limit() {
    local mib
    mib=$(awk -v b="$batch" -v w="$1" '$1 == b && $2 == w && $3 == "exogym" {m = $6} END {print m}' "$lines")
    echo "$batch $1 limit 0 $("$build/bench/bench_read_bandwidth" --MiB "$mib" --threads "$threads" |
        sed -n 's/.* GB_per_second=\([0-9.]*\).*/\1/p') $mib" >>"$lines"
}

if [ "$peer" = llama.cpp ]; then # makes the model files, if they are missing
    for weights in fp32 int8 int4; do
        "$python" bench/peers/generate_llama.py --size "$size" --weights $weights --new 2 --rounds 1 >/dev/null
    done
fi
for round in $(seq "$rounds"); do
    for batch in $batches; do
        echo "round $round of $rounds, batch $batch" >&2
        for weights in fp32 int8 int4; do
            measure exogym $weights "$build/bench/bench_generate" --weights $weights
            [ "$peer" = transformers ] || measure peer $weights "$python" bench/peers/generate_llama.py --weights $weights
            measure_limit $weights
        done
        [ "$peer" = llama.cpp ] || measure peer fp32 "$python" bench/peers/generate.py ${COMPILE:+--compile}
    done
done

awk -v peer="$peer" -v batches="$batches" '
function median(list, n, v, i, k, x) {
    n = split(list, v, " ")
    for (i = 2; i <= n; i++)
        for (k = i; k > 1 && v[k] + 0 < v[k - 1] + 0; k--) { x = v[k]; v[k] = v[k - 1]; v[k - 1] = x }
    return n == 0 ? 0 : n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
function share(bytes, limit) { return bytes > 0 && limit > 0 ? sprintf("%.0f %%", 100 * bytes / limit) : "-" }
function known(value) { return value > 0 ? sprintf("%.1f", value) : "-" }
{
    rate[$1, $2, $3] = rate[$1, $2, $3] " " $4
    if ($5 != "")
        read[$1, $2, $3] = read[$1, $2, $3] " " $5
}
END {
    printf "%-6s %-7s | %27s %7s | %34s | %s\n", "", "", "tokens a second", "", "weights read, GB/s", "share of the limit"
    printf "%-6s %-7s | %12s %14s %7s | %9s %14s %9s | %9s %14s\n", "batch", "weights", "exogym", peer, "ratio", "exogym", peer, "limit", "exogym", peer
    n = split(batches, b, " ")
    split("fp32 int8 int4", w, " ")
    for (i = 1; i <= n; i++)
        for (k = 1; k <= 3; k++) {
            other = peer == "llama.cpp" ? w[k] : "fp32"
            ours = median(rate[b[i], w[k], "exogym"])
            theirs = median(rate[b[i], other, "peer"])
            r = median(read[b[i], w[k], "exogym"])
            t = median(read[b[i], other, "peer"])
            limit = median(read[b[i], w[k], "limit"])
            printf "%-6s %-7s | %12.1f %14.1f %6.2fx | %9.1f %14s %9.1f | %9s %14s\n", b[i], w[k], ours, theirs, ours / theirs, r, known(t), limit, share(r, limit), share(t, limit)
        }
}' "$lines"
echo "tokens a second, medians of $rounds rounds: size $size, prompts of 32 tokens, 128 new ones each, $threads threads"
echo "limit: an array of as many bytes as exogym's weights, read by $threads threads; weights are read once a step, for all sequences of a batch"
