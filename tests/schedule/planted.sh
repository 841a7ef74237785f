#!/usr/bin/env bash
# The fault of planted.h is found in every run: each driver that spawns from two threads is ended by the thread sanitizer, and its
# report names the buffer. EXO_PLANTED_RUNS: how many runs.
set -u
runs=${EXO_PLANTED_RUNS:-3}
output=$(mktemp)
trap 'rm -f "$output"' EXIT
for ((i = 1; i <= runs; i++)); do
    EXO_CHAOS_ROUNDS=3 EXO_SCHEDULE_SEED=random TSAN_OPTIONS=disable_coredump=1 \
        LD_PRELOAD="$EXO_BUILD/tests/schedule.so" "$EXO_BUILD/tests/test_planted_chaos" >"$output" 2>&1
    status=$?
    rm -rf "$(sed -n 's/^kept: //p' "$output")"
    if [ $status != 1 ] || ! grep -q '^SUMMARY: ThreadSanitizer: data race .* in planted_path' "$output"; then
        cat "$output"
        echo "run $i of $runs ended with status $status, and the planted race was not found"
        exit 1
    fi
done
echo "found in $runs of $runs runs"
