#!/usr/bin/env bash
# Strategies with a server as jobs: nobody waits for a slow node, the virtual clock gives the same
# run twice, other processes reach the server, a death ends the run with its cause, a run goes on.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

cat >job.yaml <<'END'
exogym: 1
seed: 3
model: {name: mlp, hidden: 32}
data: {name: synthetic, count: 512}
nodes: 4
strategy: {name: async_diloco, H: 10, dynamic: false, optimizer: {name: adamw, lr: 1e-3}}
train: {max_steps: 60, batch_size: 4, val_size: 32, val_interval: 60}
END
decoupled=(--set 'strategy={name: decoupled_diloco, H: 10, fragments: 1, optimizer: {name: adamw, lr: 1e-3}}')
network=(--set clock=virtual --set 'hosts={fast: {count: 3}, slow: {count: 1, speed: 0.25}}'
    --set 'links={default: {bandwidth: 100 Mbit/s, latency: 10 ms, transport: ideal}}' --set 'compute={step: 50 ms}')

# train [OPTION...]: runs the job; its result is in `out`.
train() {
    ok run job.yaml --overwrite --no-plot --json "$@"
}

# value KEY: of the run, or of one of its meters.
value() {
    python3 -c '
import json, sys
run = json.load(open("out"))["runs"][0]
value = run[sys.argv[1]] if sys.argv[1] in run else run["meters"][sys.argv[1]]["value"]
print(f"{value:.10g}" if isinstance(value, float) else value)' "$1"
}

# is KEY VALUE
is() {
    [ "$(value "$1")" = "$2" ] || fail "$1 is $(value "$1") instead of $2"
}

# about SECONDS: what the run takes. Messages have some bytes of their own.
about() {
    awk -v got="$(value seconds)" -v want="$1" 'BEGIN { exit !(got >= want && got < want + 0.001) }' ||
        fail "it takes $(value seconds) s instead of $1"
}

# The slow node takes 60 steps of 200 ms and 6 rounds. A round sends 25,450 parameters there and
# back: 2 x (8.144 + 10) ms. The others have gone ahead.
psi=25450
train "${network[@]}"
hash=$(value sha256)
about 12.2177
is node_3.strategy.rounds 6
is node_0.strategy.rounds 6
is bytes_sent_per_node $((6 * 2 * psi * 4))
train "${network[@]}"
[ "$(value sha256)" = "$hash" ] || fail 'the same run has other bits'

# The slow node takes a quarter of the steps in a round, so it has more rounds.
train "${network[@]}" --set strategy.dynamic=true --set train.max_steps=200
is node_0.strategy.rounds 20
[ "$(value node_3.strategy.rounds)" -gt 60 ] || fail "the slow node had $(value node_3.strategy.rounds) rounds"

# decoupled_diloco, with a step to wait for the answer: the slow node has its round alone, the others
# together. Only the last round of the slow node is not hidden by a step: it has none.
train "${network[@]}" "${decoupled[@]}"
hash=$(value sha256)
about 12
is node_0.strategy.merged 3
is node_3.strategy.merged 1
train "${network[@]}" "${decoupled[@]}"
[ "$(value sha256)" = "$hash" ] || fail 'the same run has other bits'
# A quorum of all waits for the slow node.
train "${network[@]}" "${decoupled[@]}" --set strategy.quorum=4
is node_0.strategy.merged 4
# A quorum of two: the slow node is alone after the others' end, and nobody waits for them.
train "${network[@]}" "${decoupled[@]}" --set strategy.quorum=2
is node_0.strategy.merged 3
# A grace that is long enough for the slow node.
train "${network[@]}" "${decoupled[@]}" --set 'strategy.grace=2 s'
is node_0.strategy.merged 4

# A run lasts as long as its last node, also if nodes do not meet at its end. The time in which a
# server could have waited does not count, and evaluations do not end its waits.
train "${network[@]}" --set strategy.H=61
about 12
train "${network[@]}" --set strategy.H=40
about 12.0363
train "${network[@]}" --set 'strategy={name: fedavg, H: 40, optimizer: {name: adamw, lr: 1e-3}}'
awk -v got="$(value seconds)" 'BEGIN { exit !(got > 12) }' || fail "fedavg takes $(value seconds) s"
train "${network[@]}" "${decoupled[@]}" --set 'strategy.grace=2 s' --set train.val_interval=7
about 12
is node_0.strategy.merged 4
# Nodes do not wait for each other where nothing is evaluated.
train "${network[@]}" "${decoupled[@]}" --set strategy.quorum=2 --set train.val_size=none
took=$(value seconds)
train "${network[@]}" "${decoupled[@]}" --set strategy.quorum=2 --set train.val_size=none --set train.val_interval=7
about "$took"

# A run goes on from a checkpoint with the same bits, if no change is under way there, and all nodes
# come to it at the same time.
for strategy in 'name: async_diloco, H: 7' 'name: decoupled_diloco, H: 10, fragments: 2'; do
    again=("${network[@]}" --set 'hosts={fast: {count: 4}}' --set "strategy={$strategy, optimizer: {name: adamw, lr: 1e-3}}"
        --set train.checkpoint_interval=17)
    train "${again[@]}"
    hash=$(value sha256)
    rm -r runs/job/*_diloco/checkpoints/step_00000060 runs/job/*_diloco/{result.json,model.safetensors}
    ok run job.yaml --resume --no-plot --json "${again[@]}"
    [ "$(value sha256)" = "$hash" ] || fail "$strategy: a resumed run has other bits"
    rm -r runs/job
done

# far ROUNDS [OPTION...]: the job between processes. One node alone has the bits of one in this
# process, and a run goes on from a checkpoint, in processes and without.
far() {
    local rounds=$1 hash
    shift
    train "$@" --set nodes=1
    hash=$(value sha256)
    train "$@" --set nodes=1 --workers 1
    [ "$(value sha256)" = "$hash" ] || fail "$*: a worker gives other bits"
    train "$@" --workers 3
    is node_3.strategy.rounds "$rounds"
    train "$@" --workers 3 --set train.max_steps=25
    ok run job.yaml --resume --no-plot --json "$@" --workers 3 --set train.max_steps=45
    ok run job.yaml --resume --no-plot --json "$@"
    awk -v loss="$(value global_loss)" 'BEGIN { exit !(loss < 1.5) }' || fail "$*: the loss is $(value global_loss)"
    # Each node writes its part of a checkpoint when it comes to it, and the newest goes on. There are
    # four, so none is left out, however far the nodes are apart.
    train "$@" --workers 3 --name "far$rounds" --set train.checkpoint_interval=14 --set train.final_checkpoint=false
    [ "$(ls "runs/far$rounds"/*/checkpoints)" = $'step_00000042\nstep_00000056' ] || fail "$*: $(ls -a "runs/far$rounds"/*/checkpoints)"
    ok run job.yaml --resume --no-plot --json "$@" --workers 3 --name "far$rounds" --set train.max_steps=80
    is steps 80
}
far 6
far 5 "${decoupled[@]}"

# A worker that dies ends the run, and the others say why.
rm -f err
"$EXOGYM" run job.yaml --overwrite --no-plot --workers 2 --set train.max_steps=1000000 --set train.val_interval=1000000 --name dies >log 2>err </dev/null &
run=$!
until_true() {
    local deadline=$((SECONDS + 60))
    until "$@"; do
        [ $SECONDS -lt $deadline ] || return 1
        sleep 0.1
    done
}
until_true grep -qs 'step 0' err || fail "the run does not start: $(cat log err)"
child=$(pgrep -P "$run" -f exogym-worker | head -1)
kill -9 "${child:?: no worker}"
wait "$run" && fail 'a run without a worker succeeds'
has err 'is lost: its process'

bad 2 'c must be at most 1/momentum_every, 1/4, got 0.5' run job.yaml --set strategy.c=0.5
bad 2 'quorum must be at most 4' run job.yaml "${decoupled[@]}" --set strategy.quorum=5
bad 2 'delay must be less than H' run job.yaml "${decoupled[@]}" --set strategy.delay=10
bad 2 'expected a time such as 20 ms' run job.yaml "${decoupled[@]}" --set strategy.grace=soon
bad 2 'async_diloco delays a Nesterov momentum' run job.yaml --set strategy.outer_optimizer=adamw
bad 1 "the edge's codec: remove it" run job.yaml --overwrite --set 'edges=[{carries: exchange, codec: bf16}]'
finish
