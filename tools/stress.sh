#!/usr/bin/env bash
# Runs test programs again and again under the schedule fuzzer, each time with other seeds, beside a
# load.
#
#   tools/stress.sh [OPTION...] TEST...
#
#   TEST             as ctest names it, such as cluster/chaos, race/actors or unit/net
#
#   --runs N         of each test (20)
#   --pause MS       the longest pause of one thread while others run on; a loaded machine makes
#                    some of 500 (0: none)
#   --load N         processes that keep processors busy (2)
#   --preset NAME    the build whose programs are run (tsan: drivers of clusters with the thread
#                    sanitizer, heads and workers of the asan build with the others)
#   --seed N         of the first run; each next run adds 1 (a new one)
#   --rounds N       EXO_CHAOS_ROUNDS of tests that break clusters (what each test sets)
#   --limit SECONDS  a run that takes longer has failed (600)
#   --until-failure  stops at the first failure
#
# A run's seed is EXO_SCHEDULE_SEED and EXO_CHAOS_SEED. What a failed run printed is kept in
# build/stress/TEST-SEED.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

runs=20 pause=0 load=2 preset=tsan seed=$((EPOCHSECONDS % 1000000000)) rounds= limit=600 until_failure=no tests=()
while [ $# -gt 0 ]; do
    case $1 in
    --runs | --pause | --load | --preset | --seed | --rounds | --limit)
        [ $# -ge 2 ] || {
            echo "stress: $1 needs a value" >&2
            exit 2
        }
        printf -v "${1#--}" %s "$2"
        shift
        ;;
    --until-failure) until_failure=yes ;;
    -h | --help)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"
        exit
        ;;
    -*)
        echo "stress: no option $1; --help lists them" >&2
        exit 2
        ;;
    *) tests+=("$1") ;;
    esac
    shift
done
[ ${#tests[@]} -gt 0 ] || {
    echo "stress: which test? --help says how to name it" >&2
    exit 2
}

build=$PWD/build/$preset logs=$PWD/build/stress
schedule=$build/tests/schedule.so plain=$build/tests/plain.so
for test in "${tests[@]}"; do
    [ -x "$build/tests/test_${test//\//_}" ] || {
        echo "stress: $test has no program in build/$preset; build it first" >&2
        exit 2
    }
done
[ -e "$schedule" ] && [ -e "$plain" ] || {
    echo "stress: there is no $schedule or no $plain: cmake --build --preset $preset --target schedule plain" >&2
    exit 2
}
mkdir -p "$logs"

# Sanitizers of this compiler's age cannot live with the address randomization of newer kernels.
wrapper=()
! setarch -R true 2>/dev/null || wrapper=(setarch -R)

busy=()
run=
trap 'kill ${busy[@]+"${busy[@]}"} 2>/dev/null; [ -z "$run" ] || kill -KILL -- -"$run" 2>/dev/null' EXIT
for ((i = 0; i < load; i++)); do
    (while :; do :; done) &
    busy+=($!)
done

passed=0 failed=0
for test in "${tests[@]}"; do
    test_failed=0
    for ((i = 0; i < runs; i++)); do
        at=$((seed + i))
        log=$logs/${test//\//-}-$at.log
        status=0
        # The clusters' tests leave their options to the programs that they start; this one is for
        # the test itself.
        env EXO_SCHEDULE_SEED=$at EXO_SCHEDULE_PAUSE_MS="$pause" EXO_CHAOS_SEED=$at ${rounds:+EXO_CHAOS_ROUNDS=$rounds} LD_PRELOAD="$plain $schedule" \
            ASAN_OPTIONS="verify_asan_link_order=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}" \
            ${wrapper[@]+"${wrapper[@]}"} timeout -k 10 "$limit" "$build/tests/test_${test//\//_}" >"$log" 2>&1 </dev/null &
        run=$!
        wait $run || status=$?
        kill -KILL -- -$run 2>/dev/null || : # timeout leads a group: what a test that aborted left behind
        if [ $status = 0 ]; then
            passed=$((passed + 1))
            rm "$log"
            continue
        fi
        failed=$((failed + 1)) test_failed=$((test_failed + 1))
        printf '%s failed with %d: %s\n' "$test" $status "$log"
        printf '  again: tools/stress.sh --preset %s --runs 1 --pause %d --load %d --seed %d%s %s\n' "$preset" "$pause" "$load" $at "${rounds:+ --rounds $rounds}" "$test"
        [ $until_failure = no ] || break 2
    done
    printf '%s: %d runs from seed %d, %d failed\n' "$test" "$i" "$seed" $test_failed
done
printf '%d passed, %d failed\n' $passed $failed
[ $failed = 0 ]
