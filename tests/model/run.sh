#!/usr/bin/env bash
# Checks the channels' protocol (channel.pml, and lives.pml for the cases lives_*; docs/channels.md) with
# spin, over a table of settings.
# Each must hold, or must fail in the way that the table says: a rule is there because something
# breaks without it.
#   run.sh           what CI checks, twenty seconds on two cores
#   run.sh long      larger graphs too: about an hour
#   run.sh NAME...   the cases of these names; KEEP=1 keeps their folder, with pan.out and the trail
# Ends with 77 where spin or the compiler is missing.
set -u
models=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cc=${CC:-$(command -v tcc || echo cc)} # what spin writes is long: tcc compiles it in a fiftieth of the time, and it searches as fast as with -O0
command -v spin >/dev/null && command -v "$cc" >/dev/null || {
    echo "skipped: spin or $cc is missing"
    exit 77
}

# name | in which table | what must come of it: ok, deadlock, or the assertion that fails |
# settings. `ends` is `ok` with a search for cycles too: no run goes on for ever. With `bits`,
# states are kept as bits of a hash (supertrace) and the search ends after 10 minutes: what it finds
# is true, not all is seen.
cases() {
    local apply="-DPARAMETERS=0 -DUPDATES=0 -DITEMS=2 -DNUMBERS=1 -DCOUNT -DPAR_CAPACITY=2 -DAPPLY"
    cat <<TXT
numbers_1x1        | ci   | ok       | -DNUMBERS=1
capacity2_1x1      | ci   | ok       | -DCAPACITY=2 -DNUMBERS=1 -DUPDATES=3
outbox2_1x1        | ci   | ok       | -DOUTBOX=2 -DUPDATES=4
all_arrive_1x1     | ci   | ok       | -DPARAMETERS=0 -DUPDATES=0 -DITEMS=5 -DCAPACITY=2 -DNUMBERS=1 -DCOUNT
all_arrive_2x1     | ci   | ok       | -DM=2 -DPARAMETERS=0 -DUPDATES=0 -DITEMS=3 -DNUMBERS=1 -DCOUNT
all_arrive_1x2     | ci   | ok       | -DN=2 -DPARAMETERS=0 -DUPDATES=0 -DITEMS=4 -DCAPACITY=2 -DNUMBERS=1 -DCOUNT
wait_1x1           | ci   | ok       | -DWAIT=1 -DUPDATES=4
cycle_2x1          | long | ok       | -DM=2 -DAT_ONCE=1
cycle_1x2          | long | ok       | -DN=2 -DAT_ONCE=1
cycle_2x1_more     | ci   | ok       | -DM=2 -DAT_ONCE=3 -DUPDATES=4
cycle_2x1_cap2     | long | ok       | -DM=2 -DAT_ONCE=3 -DUPDATES=3 -DCAPACITY=2 -DBATCH=2
cycle_1x2_reduce   | ci   | ok       | -DN=2 -DAT_ONCE=3 -DALL_REDUCE=1 -DUPDATES=3
cycle_1x2_least    | ci   | ok       | -DN=2 -DAT_ONCE=3 -DALL_REDUCE=1 -DROUTE=1
wait_2x2           | long | ok       | -DM=2 -DN=2 -DWAIT=1 -DAT_ONCE=3
wait_2x2_reduce    | ci   | ok       | -DM=2 -DN=2 -DWAIT=1 -DAT_ONCE=3 -DALL_REDUCE=1 -DBATCH=2
latest_2x1         | ci   | ok       | -DM=2 -DAT_ONCE=1 -DRULE=0 -DPAR_FULL=1
oldest_1x1         | ci   | ok       | -DEXP_FULL=1 -DITEMS=4 -DNUMBERS=1
newest_1x1         | ci   | ok       | -DEXP_FULL=2 -DITEMS=4 -DNUMBERS=1
held_back_1x1      | ci   | ok       | -DCAPACITY=2 -DHOLD_BACK=2 -DUPDATES=3
crash_1x1          | ci   | ok       | -DFAULT=3
crash_1x1_tolerate | ci   | ok       | -DFAULT=3 -DTOLERATE=1
ends_1x1           | ci   | ends     |
ends_2x1           | ci   | ends     | -DM=2 -DAT_ONCE=3
crash_2x1          | ci   | ok       | -DM=2 -DAT_ONCE=3 -DFAULT=3 -DPARAMETERS=0 -DUPDATES=2
crash_1x2          | ci   | ok       | -DN=2 -DAT_ONCE=3 -DFAULT=3 -DPARAMETERS=0 -DUPDATES=2 -DALL_REDUCE=1
apply_1x2          | ci   | ok       | -DN=2 $apply=1
apply_2x1          | long | ok       | -DM=2 $apply=1
no_rule_1x1        | ci   | deadlock | -DRULE=0
no_rule_2x1        | ci   | deadlock | -DM=2 -DAT_ONCE=3 -DRULE=0
no_rule_1x2        | ci   | deadlock | -DN=2 -DAT_ONCE=3 -DRULE=0
no_rule_2x2        | ci   | deadlock | -DM=2 -DN=2 -DAT_ONCE=3 -DRULE=0
no_rule_2x2_reduce | ci   | deadlock | -DM=2 -DN=2 -DAT_ONCE=3 -DRULE=0 -DALL_REDUCE=1
one_loan_1x1       | ci   | ok       | -DRULE=2 -DUPDATES=4
one_loan_2x1       | ci   | deadlock | -DM=2 -DAT_ONCE=3 -DRULE=2 -DUPDATES=4
in_order_2x1       | long | ok       | -DM=2 -DAT_ONCE=3 -DUPDATES=4 -DIN_ORDER=1
held_blindly       | ci   | deadlock | -DHOLD_BACK=2 -DHOLD_BLINDLY=1
gone_last          | ci   | deadlock | -DFINALLY=1 -DITEMS=4 -DUPDATES=3
crash_untold       | ci   | deadlock | -DFAULT=1 -DSILENT=1 -DWAIT=1
starved_batch      | ci   | deadlock | -DM=2 -DN=2 -DWAIT=1 -DAT_ONCE=3 -DBATCH=3
starved_key        | ci   | deadlock | -DN=2 -DAT_ONCE=3 -DALL_REDUCE=1 -DROUTE=2
removed_first_2x1  | ci   | puts     | -DM=2 $apply=2
removed_first_1x2  | ci   | made     | -DN=2 $apply=2
codec_untold       | ci   | known    | -DN=2 $apply=3
sender_first       | ci   | r_open   | -DN=2 $apply=4
removed_at_once    | ci   | puts     | -DN=2 $apply=5
lives_2_deaths     | ci   | ok       |
lives_3_deaths     | ci   | ok       | -DDEATHS=3
lives_cap2         | ci   | ok       | -DCAPACITY=2 -DITEMS=3
lives_unnamed      | ci   | credits  | -DWRONG=1
lives_run_first    | ci   | deadlock | -DWRONG=2
lives_untold       | ci   | deadlock | -DWRONG=3
lives_4_deaths     | long | ok       | -DDEATHS=4
lives_3_cap2       | long | ok       | -DDEATHS=3 -DCAPACITY=2 -DITEMS=3
async_2x1          | long | ok       | -DM=2 -DUPDATES=1
async_1x2          | long | ok       | -DN=2 -DUPDATES=1
crash_2x1_cycle    | long | ok       | -DM=2 -DAT_ONCE=3 -DFAULT=3 -DUPDATES=1
crash_1x2_cycle    | long | ok       | -DN=2 -DAT_ONCE=3 -DFAULT=3 -DUPDATES=1 -DALL_REDUCE=1
crash_2x1_async    | long | ok       | -DM=2 -DAT_ONCE=1 -DFAULT=3 -DUPDATES=1
one_loan_in_order  | long | deadlock | -DM=2 -DAT_ONCE=2 -DRULE=2 -DUPDATES=4 -DIN_ORDER=1
cycle_2x2          | long | ok       | -DM=2 -DN=2 -DAT_ONCE=3 -DUPDATES=1
cycle_2x2_reduce   | long | ok       | -DM=2 -DN=2 -DAT_ONCE=3 -DUPDATES=1 -DALL_REDUCE=1
wait_2x2_3         | long | ok       | -DM=2 -DN=2 -DWAIT=1 -DAT_ONCE=3 -DUPDATES=3 -DALL_REDUCE=1
cycle_2x2_more     | long | bits     | -DM=2 -DN=2 -DAT_ONCE=3 -DUPDATES=2
cycle_2x2_cap2     | long | bits     | -DM=2 -DN=2 -DAT_ONCE=3 -DUPDATES=2 -DCAPACITY=2
crash_2x2          | long | bits     | -DM=2 -DN=2 -DAT_ONCE=3 -DUPDATES=1 -DFAULT=3 -DALL_REDUCE=1
cycle_3x3          | long | bits     | -DM=3 -DN=3 -DAT_ONCE=3
cycle_4x4          | long | bits     | -DM=4 -DN=4 -DAT_ONCE=3 -DALL_REDUCE=1
wait_4x4           | long | bits     | -DM=4 -DN=4 -DWAIT=1 -DAT_ONCE=3 -DALL_REDUCE=1
TXT
}

# one NAME TABLE WANTED SETTINGS: checks a case in a folder of its own; prints a line.
one() {
    local name=$1 wanted=$3 settings=$4 flags=() limit=() got states
    local model=$models/channel.pml
    [[ $name != lives_* ]] || model=$models/lives.pml
    mkdir -p "$folder/$name" && cd "$folder/$name" || return 1
    # To optimize takes longer than a small search.
    flags=(-O0 -w -DSAFETY -DVECTORSZ=8192 -DMEMLIM=8000)
    [ "$2" = ci ] || { flags+=(-O2) && cc=${CC:-cc}; }
    if [ "$wanted" = ends ]; then # no step is marked as progress, so any cycle is one without
        flags=("${flags[@]/-DSAFETY/-DNP}" -DCOLLAPSE)
        limit=(-w20 -l)
    elif [ "$wanted" = bits ]; then
        flags+=(-DBITSTATE)
        limit=(-w33 -k3 -Q"${MINUTES:-10}")
    else
        flags+=(-DCOLLAPSE)
        limit=(-w20 -Q"${MINUTES:-10}")
    fi
    # shellcheck disable=SC2086 # settings are words
    { spin $settings -a "$model" && "$cc" "${flags[@]}" -o pan pan.c; } >build.out 2>&1 || {
        printf 'FAIL %-19s does not build\n%s\n' "$name" "$(head -5 build.out)"
        return 1
    }
    ./pan -m1000000 "${limit[@]}" >pan.out 2>&1
    states=$(sed -nE 's/^ *([0-9.e+]+) states, stored.*/\1/p' pan.out | head -1)
    if grep -q '^pan:.*invalid end state' pan.out; then
        got=deadlock
    elif grep -q '^pan:.*non-progress cycle' pan.out; then
        got=cycle
    elif grep -q '^pan:.*assertion violated' pan.out; then
        got=$(grep -m1 '^pan:.*assertion violated' pan.out)
    elif grep -q 'errors: 0' pan.out && [ "$wanted" = bits ]; then
        got=bits
    elif grep -q 'errors: 0' pan.out && ! grep -qE 'max search depth too small|out of memory|not completed' pan.out; then
        [ "$wanted" = ends ] && got=ends || got=ok
    else
        got=$(tail -3 pan.out)
    fi
    case $got in
    *"$wanted"*) printf 'ok   %-19s %-8s %9s states  %s\n' "$name" "$wanted" "$states" "$settings" ;;
    *)
        printf 'FAIL %-19s wanted %s, got %s  %s\n' "$name" "$wanted" "$got" "$settings"
        return 1
        ;;
    esac
}

if [ "${1:-}" = --one ]; then # how it calls itself
    folder=$2
    IFS='|' read -r name table wanted settings <<<"$3"
    one "${name// /}" "${table// /}" "${wanted// /}" "$settings"
    exit
fi

folder=$(mktemp -d)
[ -n "${KEEP:-}" ] && echo "$folder" || trap 'rm -rf "$folder"' EXIT
case ${1:-} in
'') chosen=$(cases | awk -F'[ |]+' '$2 == "ci"') ;;
long) chosen=$(cases) ;;
*) chosen=$(cases | awk -F'[ |]+' -v names=" $* " 'index(names, " " $1 " ")') ;;
esac
[ -n "$chosen" ] || {
    echo "no case of that name"
    exit 2
}
printf '%s\n' "$chosen" | tr '\n' '\0' | xargs -0 -P 2 -n 1 bash "${BASH_SOURCE[0]}" --one "$folder"
