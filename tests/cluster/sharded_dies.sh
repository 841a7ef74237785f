#!/usr/bin/env bash
# A worker of an fsdp group is killed at random moments: --resume on as many nodes ends with the bits of a run
# that was left alone, and --resume=reshard on fewer nodes with those of a run that was left alone on that
# number from the same checkpoint. No checkpoint that is there is half-written.
#
# EXO_CHAOS_SEED: of the moments. EXO_CHAOS_ROUNDS: how many kills (2, and 1 under sanitizers).
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

export TMPDIR=$folder
RANDOM=${EXO_CHAOS_SEED:=$(($$ % 32768))}
echo "EXO_CHAOS_SEED=$EXO_CHAOS_SEED EXO_CHAOS_ROUNDS=${EXO_CHAOS_ROUNDS:=$((slower > 1 ? 1 : 2))}"
cat >job.yaml <<'YAML'
name: job
seed: 5
model: {name: mlp, hidden: [64, 48]}
data: {name: synthetic, count: 512}
nodes: 4
train: {max_steps: 300, batch_size: 4, val_size: none, checkpoint_interval: 20}
strategy: {name: fsdp, sharding_strategy: full_shard, prefetch: true, optimizer: {name: adamw, lr: 1e-3}, max_norm: 1.0}
YAML

# train FOLDER OPTIONS...: in the background, with a worker for each node; $run_pid.
train() {
    local name=$1
    shift
    "$EXOGYM" run job.yaml --no-plot --save-dir "$name" "$@" >"$name.out" 2>"$name.err" </dev/null &
    run_pid=$!
    started+=($!)
}

# ends FOLDER OPTIONS...: a run that is left alone ends well.
ends() {
    train "$@"
    wait "$run_pid" || fail "$*: $(tail -3 "$1.err")"
}

# workers_of PID: the processes that have a node.
workers_of() {
    pgrep -P "$1" -f exogym-worker
}

# begun FOLDER: its run has a checkpoint, or has ended.
begun() {
    compgen -G "$1/job/fsdp/checkpoints/step_*" || gone "$run_pid"
}

# kill_one FOLDER MS: kills a worker of its run at a random moment after the first checkpoint.
kill_one() {
    local victims
    until_true 60 begun "$1" || fail "the run has no checkpoint: $(tail -3 "$1.err")"
    nap "$2"
    mapfile -t victims < <(workers_of "$run_pid")
    [ ${#victims[@]} = 0 ] || kill -9 "${victims[RANDOM % ${#victims[@]}]}" 2>/dev/null
}

# whole FOLDER: each checkpoint that has its name is complete.
whole() {
    local at
    for at in "$1"/job/fsdp/checkpoints/step_*; do
        [ -d "$at" ] || continue
        (cd "$at" && sed '$d' manifest.sha256 | sha256sum --check --quiet --strict - >/dev/null) || fail "$at is half-written"
        [ "$(ls "$at" | grep -c '^node_')" = "$2" ] || fail "$at: $(ls "$at")"
    done
}

hash() {
    json "$1/job/${2:-fsdp}/result.json" sha256
}

ends alone
wanted=$(hash alone)
[ "$wanted" ] || fail 'no hash'

fewer=0
resume=()
for ((kill = 1; fewer < EXO_CHAOS_ROUNDS && kill <= 10 * EXO_CHAOS_ROUNDS; kill++)); do
    train same --workers 4 "${resume[@]}"
    kill_one same $((500 / kill))
    if wait "$run_pid"; then # the kill came too late: begin again
        rm -rf same
        resume=()
        continue
    fi
    whole same 4
    resume=(--resume)
    # Three nodes go on from here, in the run's own folder and as a new run of whole nodes.
    rm -rf three full && cp -r same three
    ok ckpt reshard three/job full/job/ddp --full --nodes 3
    ends three --workers 3 --set nodes=3 --resume=reshard
    ok run full/job/ddp/config.json --no-plot --save-dir full --resume
    [ "$(hash three)" ] && [ "$(hash three)" = "$(hash full ddp)" ] ||
        fail "kill $kill: three nodes have other bits: $(hash three), $(hash full ddp)"
    fewer=$((fewer + 1))
done
ends same --workers 4 "${resume[@]}"
[ "$(hash same)" = "$wanted" ] || fail "four nodes have other bits: $(hash same) instead of $wanted"
[ "$fewer" = "$EXO_CHAOS_ROUNDS" ] || fail "only $fewer of $((kill - 1)) kills came in time"
echo "three nodes went on after $fewer of $((kill - 1)) kills"
finish
