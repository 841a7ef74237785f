#!/usr/bin/env bash
# A trainer of comparisons that makers send, on workers that are killed. A maker in another life makes its
# draws again, and the trainer ends with the figures of a run in one process. The trainer's next life does
# not have what came to the one before: the run ends and says so, also while the makers still make, and
# --resume ends with those figures. Read next: experience/text_trainer.c.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

# graph EPOCHS: graph.yaml.
graph() {
    cat >graph.yaml <<YAML
exogym: 1
name: taught
seed: 7
actors:
  maker:
    class: experience_maker
    count: 2
    resources: {a: 1}
    restart: {when: on_failure}
    config:
      model: {name: gpt, layers: 1, heads: 2, width: 16, context: 24, vocabulary: 16}
      prompts: {tokens: [[1], [2], [3, 4], [5, 6, 7]]}
      reward: {name: share, token: 3}
      answers: 4
      epochs: $1
      generate: {max_new_tokens: 6}
  trainer:
    class: reward_trainer
    resources: {b: 1}
    restart: {when: on_failure, max: 1}
    config:
      model: {name: gpt, layers: 1, heads: 2, width: 16, context: 24, vocabulary: 16, values: true}
      steps: 20
      optimizer: {name: adamw, lr: 1e-3}
edges:
  - {from: maker, to: trainer, carries: experience}
YAML
}

came() {
    [ -e runs/taught/progress.json ] && [ "$(meter runs/taught/progress.json maker_0.items)" -gt 0 ]
}

# struck WORKER OPTIONS: starts the run, and kills the worker once items have come. False: it was too late.
struck() {
    local status=0
    rm -rf runs
    "$EXOGYM" run graph.yaml --save-dir runs --head "ipc://$place/head" >run.out 2>run.err </dev/null &
    run_pid=$!
    started+=("$run_pid")
    until_true 60 eval "gone $run_pid || came" || fail "nothing comes: $(tail -3 run.err)"
    slay "$1"
    worker "$@"
    until_true 120 gone "$run_pid" || fail "the run does not end: $(tail -3 run.err)"
    wait "$run_pid" || status=$?
    grep -q 'begins life 2' run.err || return 1
    ended_with=$status
}

# cut_short WORKER OPTIONS: the same with more and more items, until a life was cut.
cut_short() {
    until struck "$@"; do
        epochs=$((2 * epochs))
        [ "$epochs" -le 100000 ] || fail 'each run was too fast'
        graph "$epochs"
    done
    "$EXOGYM" run graph.yaml --save-dir whole --overwrite >whole.out 2>&1 || fail "in one process: $(tail -3 whole.out)"
}

same() {
    cmp whole/taught/final_trainer_0.json runs/taught/final_trainer_0.json ||
        fail "$1: $(cat runs/taught/final_trainer_0.json) instead of $(cat whole/taught/final_trainer_0.json)"
}

epochs=$((slower == 1 ? 400 : 40))
graph $epochs
head
worker w1 --resource a=2
worker w2 --resource b=1
cut_short w1 --resource a=2
[ "$ended_with" = 0 ] || fail "makers died, and the run ended with $ended_with: $(tail -3 run.err)"
same 'makers died'

cut_short w2 --resource b=1
[ "$ended_with" = 1 ] || fail "the trainer died, and the run ended with $ended_with: $(tail -3 run.err)"
grep -q '^exogym: trainer_0.*: items of the makers are missing.*--resume' run.err || fail "it said: $(tail -3 run.err)"
"$EXOGYM" run graph.yaml --save-dir runs --head "ipc://$place/head" --resume >run.out 2>run.err || fail "--resume: $(tail -3 run.err)"
same 'the trainer died'
x stop || fail 'stop'
ended 15 "$head_pid" 0
finish
