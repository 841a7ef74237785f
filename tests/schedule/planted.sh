#!/usr/bin/env bash
# The faults of planted_driver.h and planted_worker.h are found in every run: the sanitizer ends the
# process, its report names the place, and the test fails. EXO_PLANTED_RUNS: how many runs of each.
set -u
runs=${EXO_PLANTED_RUNS:-2}
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# finds PROGRAM REPORT: each run fails, with that line.
finds() {
    local i status kept
    for ((i = 1; i <= runs; i++)); do
        EXO_CHAOS_ROUNDS=3 EXO_SCHEDULE_SEED=random TSAN_OPTIONS=disable_coredump=1 ASAN_OPTIONS=disable_coredump=1 \
            LD_PRELOAD="$EXO_BUILD/tests/schedule.so" "$EXO_BUILD/tests/$1" >"$output" 2>&1
        status=$?
        kept=$(sed -n 's/^kept: //p' "$output")
        if [ $status != 1 ] || [ -z "$kept" ] || ! grep -q "$2" "$output"; then
            cat "$output"
            echo "run $i of $runs of $1 ended with status $status, and the planted fault was not found"
            exit 1
        fi
        rm -rf "$kept"
    done
    echo "$1: found in $runs of $runs runs"
}
finds test_planted_driver '^SUMMARY: ThreadSanitizer: data race .* in planted_path'
finds test_planted_worker '^SUMMARY: AddressSanitizer: heap-buffer-overflow .*victim.c'
