#!/usr/bin/env bash
# Kills nodes of elastic runs at random for a long time: tests/cluster/elastic again and again, with
# other seeds and longer runs.
#
#   tools/elastic.sh [OPTION...]
#
#   --minutes N      no new run begins after that (30)
#   --scale N        how many times longer each run is than in the test (5)
#   --preset NAME    the build whose programs are run (dev)
#   --seed N         of the first run; each next run adds 1 (a new one)
#
# Prints a line for each run, and ends with 1 at the first failure, whose output is in
# build/stress/elastic-SEED.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minutes=30 scale=5 preset=dev seed=$((EPOCHSECONDS % 32768))
while [ $# -gt 0 ]; do
    case $1 in
    --minutes | --scale | --preset | --seed)
        [ $# -ge 2 ] || {
            echo "elastic: $1 needs a value" >&2
            exit 2
        }
        printf -v "${1#--}" %s "$2"
        shift
        ;;
    -h | --help)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"
        exit
        ;;
    *)
        echo "elastic: no option $1; --help lists them" >&2
        exit 2
        ;;
    esac
    shift
done

root=$PWD build=$PWD/build/$preset
mkdir -p build/stress
end=$((SECONDS + minutes * 60))
while [ "$SECONDS" -lt "$end" ]; do
    log=$root/build/stress/elastic-$seed.log
    if ! EXO_CHAOS_SEED=$seed EXO_CHAOS_SCALE=$scale EXO_SOURCE=$root EXO_BUILD=$build EXOGYM=$build/exogym CC=${CC:-cc} \
        timeout $((scale * 600)) bash tests/cluster/elastic.sh >"$log" 2>&1; then
        echo "elastic: failed with EXO_CHAOS_SEED=$seed, see $log" >&2
        exit 1
    fi
    grep 'came back' "$log" | sed "s/^/seed $seed: /"
    rm -f "$log"
    seed=$((seed + 1))
done
