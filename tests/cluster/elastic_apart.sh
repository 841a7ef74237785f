#!/usr/bin/env bash
# Elastic runs of nodes that are apart: workers die at random moments under async_diloco and
# decoupled_diloco, that of rank 0 and of the server first, and half of them soon after the death before,
# so also while nodes take a state over. The others go on, and the run ends. Under async_diloco the model
# counts samples: none counts twice (elastic_tally.py). Under decoupled_diloco the loss is near that of a
# run without deaths. Read next: actors/fit_apart.c.
#
# EXO_CHAOS_SEED: of the moments. EXO_CHAOS_SCALE: how many times longer each run is (1).
# EXO_CHAOS_ONLY: one of the strategies.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

. "$EXO_SOURCE/tests/cluster/elastic.bash"
scale=${EXO_CHAOS_SCALE:-1}
fewer=1
[ "$slower" = 1 ] || fewer=2 # with sanitizers
first=100 # so that most of a run is after its first death
often=100

# loss NAME: of the average, at the end.
loss() {
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["runs"][0]["global_loss"])' "$1.out"
}

# lives NAME: the run of job.yaml outlives deaths until it ends.
lives() {
    local deaths=0 before victim times=()
    train "$1"
    while ! gone "$run_pid"; do
        before=$(events "$1" left)
        victim=
        [ "$deaths" -gt 0 ] || victim=$(host_of 0)
        if [ "$victim" ]; then
            struck=$(now_ms)
            slay "$victim"
            worker "$victim"
        else
            strike "$1" || continue
        fi
        deaths=$((deaths + 1))
        if [ $((deaths % 2)) = 0 ]; then
            nap 400
            continue
        fi
        until_true 120 eval "gone $run_pid || full $1 $((before + 1))" || fail "$1: the nodes do not come back: $(tail -5 "$1.err")"
        gone "$run_pid" || times+=($(($(now_ms) - struck)))
        nap 500
    done
    wait "$run_pid" || fail "$1 ended with $?: $(tail -5 "$1.err")"
    echo "$1: $deaths deaths, $(events "$1" left) nodes were lost, $(events "$1" joined) came back, after ms: ${times[*]}"
}

write_async_diloco() {
    count_samples 'async_diloco, H: 20, momentum_every: 3, outer_optimizer: {name: sgd, lr: 1}' "$1" 'min_nodes: 1, grace: 60 s'
}

write_decoupled_diloco() {
    job 'decoupled_diloco, H: 20, fragments: 2, quorum: 2' "$1" 'min_nodes: 1, grace: 60 s'
}

head
for w in "${names[@]}"; do
    worker "$w"
done
if [ "${EXO_CHAOS_ONLY:-async_diloco}" = async_diloco ]; then
    spare=2
    outlives async_diloco $((scale * 6000 / fewer)) write_async_diloco
    python3 "$EXO_SOURCE/tests/cluster/elastic_tally.py" async_diloco/elastic/async_diloco async_diloco 20 1 || fail 'async_diloco: samples'
fi
if [ "${EXO_CHAOS_ONLY:-decoupled_diloco}" = decoupled_diloco ]; then
    hidden=8
    outlives decoupled_diloco $((scale * 3000 / fewer)) write_decoupled_diloco
    "$EXOGYM" run job.yaml --json --no-plot --save-dir calm --set train.max_steps=1000 --set train.checkpoint_interval=0 >calm.out 2>calm.err || fail "without deaths: $(tail -3 calm.err)"
    echo "decoupled_diloco: loss $(loss decoupled_diloco), after 1000 steps without deaths $(loss calm)"
    python3 -c 'import sys; lost, calm = map(float, sys.argv[1:]); sys.exit(not lost < calm + 0.1)' "$(loss decoupled_diloco)" "$(loss calm)" || fail 'decoupled_diloco: the loss'
fi
x stop || fail 'stop'
ended 15 "$head_pid" 0
finish
