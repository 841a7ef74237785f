#!/usr/bin/env bash
# Compares the runtime with Ray, in alternation. Prints medians over the rounds, and ratios.
# bench_actors, bench_runtime, bench_objects and bench_start print the limits of the machine and of
# libzmq themselves.
#
#     bench/runtime.sh [ROUNDS] [BUILD_FOLDER]
#
# Needs a build (preset release) and bench/peers/setup.sh ray.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
build=${2:-build/release}
ray=build/peers/ray/bin/python
[ -x "$ray" ] || {
    echo "bench/runtime.sh: Ray is not there: run bench/peers/setup.sh ray" >&2
    exit 1
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Each round adds its NAME=VALUE lines.
for _ in $(seq "$rounds"); do
    "$build/bench/bench_runtime" --rounds 1 --values >>"$folder/ours"
    "$build/bench/bench_start" --rounds 3 --values >>"$folder/ours"
    "$ray" bench/peers/ray_calls.py --repeats 1 --seconds 2 2>/dev/null >>"$folder/ray"
done

# median FILE NAME: the median of the values of NAME.
median() {
    sed -n "s/^$2=//p" "$folder/$1" | sort -g |
        awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# row TITLE OURS RAY [less]: both medians and their ratio. With `less`, a smaller value is better.
row() {
    awk -v title="$1" -v a="$(median ours "$2")" -v b="$(median ray "$3")" -v less="${4:-}" 'BEGIN {
        ratio = less ? b / a : a / b
        printf "%-42s %12.10g %12.10g %11.1fx\n", title, a, b, ratio
    }'
}

printf '%-42s %12s %12s %12s\n' '' exogym "Ray $(sed -n 's/^ray_version=//p' "$folder/ray" | command head -1)" ratio
row '1:1 sync, calls/s' sync_calls_per_s sync_calls_per_s
row '1:1 sync, 64 B, p50 us' sync_64_bytes_p50_us sync_64_bytes_p50_us less
row '1:1 sync, 64 B, p99 us' sync_64_bytes_p99_us sync_64_bytes_p99_us less
row '1:1 async, calls/s' async_calls_per_s async_calls_per_s
row 'n:n async, 2 callers, 2 actors, calls/s' n_n_2x2_calls_per_s n_n_2x2_calls_per_s
row 'actors started across the cluster, 1/s' actors_started_per_s actors_started_per_s
row '64 MiB object, until an actor has it, us' hand_over_64_mib_us get_64_mib_in_actor_us less
row 'from nothing to the first answer, s' first_calls_s init_to_first_answer_s less
row 'idle actor in a process, private MiB' idle_actor_private_mib idle_actor_private_mib less
echo "medians of $rounds rounds; exogym: four workers, and a call to each; Ray: one actor"
