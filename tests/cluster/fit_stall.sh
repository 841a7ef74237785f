#!/usr/bin/env bash
# A training job in workers whose nodes wait for each other ends soon, with who waits for whom in
# which call of which collective; one whose worker is stopped says so within a second or two, and
# ends at its deadline with that. A graph whose worker is stopped ends without it, and names it. Where
# workers have no descriptor left, the run says so.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

export TMPDIR=$folder

# job HOW NODES TIMEOUT
job() {
    printf 'name: %s\nplugins: [%s]\nmodel: {name: mlp, hidden: 8}\ndata: {name: synthetic, count: 256}\nnodes: %s\n' "$1" \
        "$EXO_BUILD/tests/plugins/uneven.so" "$2"
    printf 'train: {max_steps: 8, batch_size: 8, val_size: 16, timeout: %s}\n' "$3"
    printf 'strategy: {name: uneven, how: %s, optimizer: {name: sgd, lr: 0.1}}\n' "$1"
}

# SIGTERM does not wait for a worker that is stopped: the end is looked for below, as it takes its time.
job stops 2 600 >term.yaml
"$EXOGYM" run term.yaml --name term --no-plot --save-dir runs --workers 2 >term.out 2>term.err </dev/null &
term_pid=$!
started+=("$term_pid")
until_true 60 grep -q 'it does not answer: .*, or the link to it is busy' term.err || fail "no worker is stopped: $(tail -3 term.err)"
kill -TERM "$term_pid"

# Nor does a graph.
cat >flow.yaml <<YAML
name: flow
plugins: [$EXO_BUILD/tests/plugins/numbers.so]
actors:
  source: {class: source, count: 2, config: {items: 1000000, pause_us: 10000}}
  sink: {class: sink}
edges:
  - {from: source, to: sink, carries: numbers}
YAML
"$EXOGYM" run flow.yaml --save-dir runs --workers 2 >flow.out 2>flow.err </dev/null &
flow_pid=$!
started+=("$flow_pid")
until_true 60 grep -q 'sink_0: count' flow.err || fail "the graph does not run: $(tail -3 flow.err)"
watcher=$(pgrep -P "$flow_pid" -f 'name worker_1')
stopped=$(child_of "$watcher")
kill -STOP "$stopped"
kill -TERM "$flow_pid"

# stalls HOW NODES WORDS...: it ends with 1 and all the words, and not at its deadline, which is
# longer than this test may take.
stalls() {
    local how=$1
    job "$1" "$2" 600 >"$how.yaml"
    shift 2
    "$EXOGYM" run "$how.yaml" --no-plot --save-dir runs --workers 2 >out 2>err </dev/null
    [ $? = 1 ] || fail "$how: it did not end with 1: $(tail -3 err)"
    for words in "$@"; do
        has err "$words"
    done
}

stalls some 3 'the nodes stall: node_0 waits in all_reduce, call 4 of the strategy, for node_1 since' \
    'node_1 has done its part and waits for the others'
stalls ring 3 'the nodes stall: node_0 waits in all_reduce, call 4 of the strategy, for node_1 since' \
    ', node_1 waits in all_reduce, call 4 of the strategy, for node_2 since' \
    ', node_2 waits in all_reduce, call 4 of the strategy, for node_0 since' \
    '; calls in several groups need one order, which is the same on all nodes (exo_group_among)'
stalls orders 2 'members disagree'

# On a busy machine a worker may be silent for so long that this is said.
job late 3 600 >late.yaml
for try in 1 2 3 4 5; do
    "$EXOGYM" run late.yaml --no-plot --save-dir runs --overwrite --workers 3 >out 2>err </dev/null || fail "late: $(tail -3 err)"
    grep -q 'does not answer' err || break
done
! grep -qE 'stall|does not answer' err || fail "late: $(cat err)"

# On a busy machine the deadline may come before the warning: then with a later one.
for timeout in $((slower > 1 ? 20 : 4)) 30 120; do
    job stops 2 $timeout >stops.yaml
    "$EXOGYM" run stops.yaml --no-plot --save-dir runs --overwrite --workers 2 >out 2>err </dev/null &
    run_pid=$!
    started+=($!)
    ended $((timeout + 120)) "$run_pid" 1 # it waits for the worker that is stopped before it kills it
    grep -q 'node_0 waits in all_reduce, call [45] of the strategy, for node_1 since .*; it does not answer' err && break
done
has err '; it does not answer'
has err 'all_reduce: deadline passed after'
has err 'while waiting for node_1 (rank 1); node_1 does not answer'

# poor LIMIT FILE: a run of eight workers with so few descriptors ends, and names the limit unless it
# had enough.
poor() {
    (ulimit -n "$1" && exec timeout -s KILL 120 "$EXOGYM" run "$2" --no-plot --save-dir runs --overwrite --workers 8) \
        >out 2>err </dev/null
    local got=$?
    [ $got = 0 ] || { [ $got = 1 ] && grep -q '^exogym: .*ulimit -n' err; } || fail "$2, $1 descriptors: $got: $(cat err)"
}

printf 'name: poor\nnodes: 8\nmodel: mlp\ndata: {name: synthetic, count: 64}\n' >poor.yaml
printf 'train: {max_steps: 2, batch_size: 8, val_size: none}\nstrategy: diloco\n' >>poor.yaml
poor 72 poor.yaml
cat >items.yaml <<YAML
name: items
plugins: [$EXO_BUILD/tests/plugins/numbers.so]
actors:
  source: {class: source, count: 14, config: {items: 30, floats: 100000}}
  sink: {class: sink, count: 2}
edges:
  - {from: source, to: sink, carries: numbers}
YAML
poor 72 items.yaml

ended 120 "$term_pid" 1
grep -Eq 'exogym: uneven: node_[01] has not answered for 10 s: the run stops without a checkpoint' term.err || fail "SIGTERM: $(tail -3 term.err)"

ended 120 "$flow_pid" 1
grep -Eq "^exogym: (source|sink)_[01] \(in worker_1, process $stopped\)( and [12] others?)? ha(s|ve) not ended within 30 s" flow.err ||
    fail "a graph with a stopped worker: $(tail -3 flow.err)"

finish
