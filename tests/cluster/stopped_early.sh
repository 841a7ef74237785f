#!/usr/bin/env bash
# A run is stopped while its nodes are made on a worker that does not answer: it ends soon, and says how
# to run it again. It waited for the worker, up to a minute for each node.
# shellcheck disable=SC2154 # start sets variables by name
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"
export TMPDIR=$folder

cat >job.yaml <<'JOB'
name: early
model: mlp
data: {name: synthetic, count: 64}
nodes: 2
train: {max_steps: 2, batch_size: 2, val_size: none}
strategy: ddp
JOB
cat >graph.yaml <<YAML
exogym: 1
name: flow
plugins: [$EXO_BUILD/tests/plugins/numbers.so]
actors:
  source: {class: source, count: 2, config: {items: 10, pause_us: 1000}}
  sink: {class: sink}
edges:
  - {from: source, to: sink, carries: numbers}
YAML

# asked WHAT: the head has asked the worker for an actor of it.
asked() {
    x list actors | grep -q "$1.*starting"
}

# stops JOB ACTOR OPTIONS...: a run of the job is stopped while its ACTOR starts.
stops() {
    local what=$2 job=$1
    shift 2
    "$EXOGYM" run "$job" --head "ipc://$place/head" --save-dir runs --no-plot "$@" >out 2>err </dev/null &
    local run=$!
    started+=("$run")
    until_true 30 asked "$what" || fail "$job: nothing starts: $(cat err; x list actors)"
    kill -TERM "$run"
    ended 30 "$run" 143
}

head
worker w1
kill -STOP "$(child_of "$w1_pid")"
stops job.yaml node_0
has err 'before its first step; to go on:'
grep -q -- '--resume' err && fail "nothing was saved, and it said $(cat err)"
stops job.yaml node_0 --overwrite
has err '--overwrite'
stops graph.yaml source
kill -CONT "$(child_of "$w1_pid")"
"$EXOGYM" run job.yaml --head "ipc://$place/head" --save-dir runs --no-plot >out 2>err </dev/null || fail "again: $(tail -3 err)"
x stop || fail 'stop'
ended 15 "$head_pid" 0
finish
