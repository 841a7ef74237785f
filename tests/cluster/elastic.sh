#!/usr/bin/env bash
# Elastic runs: workers die again and again at random moments under ddp, diloco and noloco, and
# others come in their place. The run never stops, and ends. Under ddp and diloco all nodes compare
# the hashes of their parameters after each exchange (verify). The model counts samples, and
# elastic_tally.py says whether any was lost or used again.
#
# EXO_CHAOS_SEED: of the moments. EXO_CHAOS_SCALE: how many times longer each run is (1).
# EXO_CHAOS_ONLY: one of the strategies.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"
. "$EXO_SOURCE/tests/cluster/elastic.bash"
scale=${EXO_CHAOS_SCALE:-1}
fewer=1
[ "$slower" = 1 ] || fewer=5 # with sanitizers

# lives NAME: the run NAME outlives deaths until it ends. Half of the deaths come soon after the one
# before, so they also hit nodes that take a state over, and nodes that give one. The time of the
# others counts until all nodes train again.
lives() {
    local deaths=0 took before times=()
    train "$1"
    while ! gone "$run_pid"; do
        before=$(events "$1" left)
        strike "$1" || continue
        deaths=$((deaths + 1))
        if [ $((RANDOM % 2)) = 0 ]; then
            nap 400
            continue
        fi
        until_true 120 eval "gone $run_pid || full $1 $((before + 1))" || fail "$1: the nodes do not come back: $(tail -5 "$1.err")"
        took=$(($(now_ms) - struck))
        gone "$run_pid" || times+=("$took")
        nap 1000
    done
    wait "$run_pid" || fail "$1 ended with $?: $(tail -5 "$1.err")"
    echo "$1: $deaths deaths, $(events "$1" left) nodes were lost, $(events "$1" joined) came back, after ms: ${times[*]}"
}

# write_counting STEPS: job.yaml of the strategy and options of `endure`.
write_counting() {
    count_samples "$strategy" "$1" "$options"
}

# endure STRATEGY STEPS MORE OPTIONS. A thirtieth of the steps, at which there are checkpoints, is a
# multiple of H: then nodes have equal parameters.
endure() {
    [ "${EXO_CHAOS_ONLY:-$1}" = "$1" ] || return 0
    local strategy=$1$3 options="min_nodes: 1, grace: 60 s$4"
    outlives "$1" $((scale * $2 / fewer)) write_counting
    python3 "$EXO_SOURCE/tests/cluster/elastic_tally.py" "$1/elastic/$1" "$1" 20 1 || fail "$1: samples"
}

head
for w in "${names[@]}"; do
    worker "$w"
done
endure ddp 5400 '' ', verify: true'
endure diloco 9000 ', H: 20, outer_optimizer: {name: sgd, lr: 1}' ', verify: true'
endure noloco 9000 ', H: 20' ''
x stop || fail 'stop'
ended 15 "$head_pid" 0
finish
