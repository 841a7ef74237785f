#!/usr/bin/env bash
# Makers of a graph and nodes of a job on a worker with two emulated GPUs (tests/cuda) compute on those that
# the head gives them by the resource `gpus`, and what does not fit on one GPU is refused. `exogym status` has
# the memory that a worker keeps on each GPU for others.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"
export TMPDIR=$folder
emulate_gpu
arrays=$EXO_BUILD/tests/plugins/gpu_items.so
EXO_BUILD=$folder/bin

cat >ppo.yaml <<'END'
exogym: 1
name: ppo
seed: 42
actors:
  maker:
    class: experience_maker
    count: 2
    resources: {gpus: 0.5}
    config:
      model: &policy {name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: 8}
      prompts: {tokens: [[1], [2], [3, 4]]}
      reward: {name: share, token: 3}
      answers: 2
      batch: 2
      epochs: 1
      generate: {max_new_tokens: 4}
      device: cuda
  trainer:
    class: ppo_trainer
    config:
      model: *policy
      batch: 2
      algorithm: {name: grpo}
      optimizer: {name: sgd, lr: 0.5}
edges:
  - {from: maker, to: trainer, carries: experience}
  - {from: trainer, to: maker, carries: parameters, route: broadcast, buffer: {on_full: latest}}
END

file=ppo.yaml
run() {
    "$EXOGYM" run $file --no-plot --head "ipc://$place/head" "$@" >out 2>err </dev/null
}

# used NAME GPUS OPTION...: a run on a worker of its own uses these GPUs of two.
used() {
    local name=$1 gpus=$2
    shift 2
    EXO_CUDA_EMULATOR='gpus=2 say=1' worker "$name" --resource gpus=2 --threads 4
    run --name "$name" "$@" || fail "$name: $(tail -3 err)"
    local watcher=${name}_pid
    kill "${!watcher}"
    ended 10 "${!watcher}" 0
    [ "$(sed -n 's/^cuda: streams on GPU \([0-9]*\)$/\1/p' "${name}_pid.err" | tr '\n' ' ')" = "$gpus" ] ||
        fail "$name: $(cat "${name}_pid.err")"
}

head
used packed '0 '
used apart '0 1 ' --set actors.maker.resources.gpus=0.6
used whole '0 1 ' --set actors.maker.resources.gpus=1
# Without the resource, makers take the GPUs that their worker sees in turn.
used by_turns '0 1 ' --set 'actors.maker.resources={}'
file=job.yaml
nodes='train.max_steps=2 compare=[ddp] device=cuda'
nodes=(${nodes// / --set })
used nodes '0 ' --set "${nodes[@]}" --set resources.gpus=0.5
used two_nodes '0 1 ' --set "${nodes[@]}" --set resources.gpus=1
file=ppo.yaml

worker last --resource gpus=2
run --name more --set actors.maker.count=3 --set actors.maker.resources.gpus=0.6 && fail 'three times 0.6 of two GPUs were given'
grep -q 'which wants gpus 0.6 of one' err || fail "three times 0.6: $(tail -3 err)"
run --name odd --set actors.maker.resources.gpus=1.5 && fail 'one and a half GPUs were given'
grep -q 'a part of one GPU, or whole ones' err || fail "one and a half: $(tail -3 err)"

cat >arrays.yaml <<END
exogym: 1
name: arrays
plugins: [$arrays]
actors:
  source: {class: array_source, resources: {gpus: 1}, config: {device: cuda, items: 100000}}
  relay: {class: array_relay, resources: {gpus: 1}, config: {device: cuda}}
  sink: {class: array_sink, config: {device: cpu}}
edges:
  - {from: source, to: relay, carries: arrays}
  - {from: relay, to: sink, carries: doubled}
END
kill "$last_pid"
ended 10 "$last_pid" 0
EXO_CUDA_EMULATOR='gpus=2' worker shows --resource gpus=2
shows() {
    x status >status.out && grep -q '^GPU 0 *shows *[1-9][0-9]* *[0-9.]* .B *$' status.out &&
        grep -q '^GPU 1 *shows ' status.out && x status --json >status.json
}
"$EXOGYM" run arrays.yaml --no-plot --head "ipc://$place/head" >out 2>err </dev/null &
graph=$!
started+=($graph)
until_true 20 shows || fail "status has no arrays of two GPUs: $(cat status.out)"
python3 - <<'PYTHON' || fail "other arrays: $(cat status.json)"
import json
rows = json.load(open("status.json"))["device_memory"]
assert all(r["node"] == "shows" and r["gpu"] in (0, 1) and r["bytes"] == r["arrays"] * 400000 for r in rows), rows
PYTHON
kill $graph
finish
