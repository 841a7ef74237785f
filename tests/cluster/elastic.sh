#!/usr/bin/env bash
# Elastic runs: workers die again and again at random moments under ddp, diloco and noloco, and
# others come in their place. The run never stops, and ends. Under ddp and diloco all nodes compare
# the hashes of their parameters after each exchange (verify).
#
# EXO_CHAOS_SEED: of the moments. EXO_CHAOS_SCALE: how many times longer each run is (1).
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"
. "$EXO_SOURCE/tests/cluster/elastic.bash"
scale=${EXO_CHAOS_SCALE:-1}

# lives NAME: the run NAME outlives deaths until it ends. Half of the deaths come soon after the one
# before, so they also hit nodes that take a state over, and nodes that give one.
lives() {
    local deaths=0 began most=0 took
    train "$1"
    while ! gone "$run_pid"; do
        deaths=$((deaths + 1))
        began=$(now_ms)
        strike "$1"
        if [ $((RANDOM % 2)) = 0 ]; then
            nap 400
            continue
        fi
        until_true 120 eval "gone $run_pid || full $1 1" || fail "$1: the nodes do not come back: $(tail -5 "$1.err")"
        took=$(($(now_ms) - began))
        [ "$took" -le "$most" ] || gone "$run_pid" || most=$took
        nap 1000
    done
    wait "$run_pid" || fail "$1 ended with $?: $(tail -5 "$1.err")"
    echo "$1: $deaths deaths, $(events "$1" left) nodes were lost, $(events "$1" joined) came back, within $most ms"
    [ "$(events "$1" joined)" -gt 0 ] || fail "$1: no node came back"
}

head
for w in "${names[@]}"; do
    worker "$w"
done
job ddp $((scale * 15000)) 'min_nodes: 1, grace: 60 s, verify: true'
lives ddp
job 'diloco, H: 20' $((scale * 30000)) 'min_nodes: 1, grace: 60 s, verify: true'
lives diloco
job 'noloco, H: 20' $((scale * 30000)) 'min_nodes: 1, grace: 60 s'
lives noloco
x stop || fail 'stop'
ended 15 "$head_pid" 0
finish
