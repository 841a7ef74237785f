#!/usr/bin/env bash
# Kills nodes of elastic runs at random for a long time: tests/cluster/elastic and elastic_apart again
# and again, with other seeds and longer runs.
#
#   tools/elastic.sh [OPTION...]
#
#   --minutes N      no new run begins after that (30)
#   --scale N        how many times longer each run is than in the test (5)
#   --preset NAME    the build whose programs are run (dev)
#   --seed N         of the first run; each next run adds 1 (a new one)
#   --only STRATEGY  ddp, diloco, noloco, async_diloco or decoupled_diloco alone
#
# Prints two lines or more for each run, and at the end the time from a death until all nodes train again. Ends
# with 1 at the first failure, whose output is in build/stress/elastic-SEED.log.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minutes=30 scale=5 preset=dev seed=$((EPOCHSECONDS % 32768)) only=
while [ $# -gt 0 ]; do
    case $1 in
    --minutes | --scale | --preset | --seed | --only)
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
end=$((SECONDS + minutes * 60)) times=()
case $only in
'') tests=(elastic elastic_apart) ;;
*_diloco) tests=(elastic_apart) ;;
*) tests=(elastic) ;;
esac
while [ "$SECONDS" -lt "$end" ]; do
    log=$root/build/stress/elastic-$seed.log
    test=${tests[seed % ${#tests[@]}]}
    if ! env EXO_CHAOS_SEED=$seed EXO_CHAOS_SCALE=$scale ${only:+EXO_CHAOS_ONLY=$only} EXO_SOURCE=$root EXO_BUILD=$build EXOGYM=$build/exogym CC=${CC:-cc} \
        timeout $((scale * 600)) bash "tests/cluster/$test.sh" >"$log" 2>&1; then
        echo "elastic: failed with EXO_CHAOS_SEED=$seed, see $log" >&2
        exit 1
    fi
    grep -E 'came back|samples|loss' "$log" | sed "s/^/seed $seed: /"
    read -ra more < <(sed -n 's/.*after ms: //p' "$log" | tr '\n' ' ') || :
    times+=("${more[@]}")
    rm -f "$log"
    seed=$((seed + 1))
done
if [ ${#times[@]} -gt 0 ]; then
    mapfile -t times < <(printf '%s\n' "${times[@]}" | sort -n)
    echo "from a death until all nodes trained: median ${times[${#times[@]} / 2]} ms, worst ${times[-1]} ms of ${#times[@]}"
fi
