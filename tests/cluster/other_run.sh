#!/usr/bin/env bash
# A trainer's host that shares no folder with the others has the checkpoints of another run of that name,
# which was started over elsewhere. Neither another life nor --resume goes on from them. The host is played
# by the folder, into which the files of the earlier run come back. Read next: experience/checkpoints.h.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

# graph RATE: a graph in own.yaml.
graph() {
    cat >own.yaml <<YAML
exogym: 1
name: own
actors:
  maker:
    class: experience_maker
    restart: {when: on_failure}
    config:
      model: {name: gpt, layers: 1, heads: 2, width: 16, context: 24, vocabulary: 16}
      prompts: {tokens: [[1], [2], [3, 4]]}
      reward: {name: share, token: 3}
      answers: 4
      epochs: 8
      generate: {max_new_tokens: 6}
  trainer:
    class: ppo_trainer
    restart: {when: on_failure}
    config:
      model: {name: gpt, layers: 1, heads: 2, width: 16, context: 24, vocabulary: 16}
      algorithm: {name: grpo, kl_coef: 0.01}
      batch: 3
      checkpoint: {every: 2}
      optimizer: {name: adamw, lr: $1}
edges:
  - {from: maker, to: trainer, carries: experience}
  - {from: trainer, to: maker, carries: parameters, route: broadcast, buffer: {on_full: latest}}
YAML
}

sha() {
    sed -n 's/.*"sha256": "\([0-9a-f]*\)".*/\1/p' runs/own/final_trainer_0.json
}

on_workers() {
    ok run own.yaml --head "ipc://$place/head" "$@"
}

head
worker w1
graph 3e-3
on_workers
earlier=$(sha)
mkdir earlier
cp runs/own/{checkpoint,learned,versions}_trainer_0* earlier/

graph 1e-3
on_workers --overwrite
later=$(sha)
[ "$later" ] && [ "$later" != "$earlier" ] || fail "the runs have the weights $earlier and $later"

rm runs/own/{checkpoint,learned,versions}_trainer_0*
cp earlier/* runs/own/
on_workers --resume
[ "$(sha)" = "$later" ] || fail "the resumed run has the weights $(sha) instead of $later, those of the earlier one are $earlier"
has w1_pid.err 'another run of this name wrote it'
lines=$(grep -c 'another run' w1_pid.err)

# Its own checkpoints count.
on_workers --resume
[ "$(sha)" = "$later" ] || fail "the run that was resumed twice has the weights $(sha) instead of $later"
[ "$(grep -c 'another run' w1_pid.err)" = "$lines" ] || fail "$(cat w1_pid.err)"
x stop || fail 'stop'
ended 15 "$head_pid" 0
finish
