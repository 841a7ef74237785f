#!/usr/bin/env bash
# exogym graph apply while a process of the run is stopped: the change waits for it and is made when it
# goes on, the run stays alive meanwhile, and nothing is lost. The command that has asked may end before.
# A change of an edge from an actor that has ended, and whose process is gone: its new channel ends, too.
# A sender waits for room, and its receiver dies: the next life gets the item, however late it begins, and
# although the edge was changed meanwhile.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

cat >graph.yaml <<YAML
exogym: 1
name: flow
plugins: [$EXO_BUILD/tests/plugins/numbers.so]
actors:
  source: {class: source, count: 2, config: {items: 200, gate: $folder/gate}}
  sink: {class: sink, count: 2}
edges:
  - {from: source, to: sink, carries: numbers, route: round_robin}
YAML

# ask OPTION...: applies the graph in the background; $asker. It has become the program when this returns:
# bash may lose a signal that comes before.
ask() {
    "$EXOGYM" graph apply graph.yaml --to runs/flow "$@" >asked 2>&1 </dev/null &
    asker=$!
    started+=("$asker")
    until_true 10 is_program "$asker" || fail "process $asker is no exogym"
}
is_program() {
    [ "$(<"/proc/$1/comm")" = "${EXOGYM##*/}" ] || gone "$1"
}
stop_asker() {
    kill -TERM "$asker"
    ended 30 "$asker" 143
}
waits() {
    [ -e runs/flow/graph.next ]
}
figure() {
    python3 -c 'import json, sys; print(json.load(open("runs/flow/progress.json"))[sys.argv[1]])' "$1"
}
began() {
    [ -e runs/flow/progress.json ] && [ "$(meter runs/flow/progress.json sink_0.count)" -gt 0 ]
}
later() {
    python3 -c 'import sys; sys.exit(not float(sys.argv[1]) > float(sys.argv[2]))' "$(figure time_s)" "$1"
}

"$EXOGYM" run graph.yaml --workers 2 >run.out 2>run.err </dev/null &
run_pid=$!
started+=("$run_pid")
until_true 30 began || fail "nothing comes: $(cat run.err)"
victim=$(child_of "$(pgrep -P "$run_pid" exogym-worker | tail -1)")
kill -STOP "$victim"

# The run takes the change, and waits for the actors of the stopped process.
for try in $(seq 100); do
    ask --set 'edges.0.codec=bf16'
    pause $((try * 20))
    stop_asker
    grep -q 'taken' asked && break
done
[ "$(cat asked)" = 'exogym: runs/flow: stopped, but it has taken the change and makes it once every actor can: its graph.yaml is then the new graph' ] ||
    fail "the run has not taken the change: $(cat asked)"
# Another change waits in the folder until its command is stopped.
ask --set 'edges.0.buffer.capacity=9'
until_true 30 waits || fail "no other change waits: $(cat asked)"
stop_asker
[ "$(cat asked)" = 'exogym: runs/flow: stopped' ] || fail "stopped before the run took it, graph apply says: $(cat asked)"
waits && fail 'a change that was taken back is in the folder'
until_true 60 later "$(figure time_s)" || fail 'a run with a change in progress reports nothing'
grep 'the graph was' run.err && fail 'the change did not wait for the stopped process'

kill -CONT "$victim"
: >gate
ended 60 "$run_pid" 0
[ "$(grep -c 'the graph was changed' run.err)" = 1 ] || fail "the change was not made once: $(cat run.err)"
[ "$(json runs/flow/result.json items)" = 400 ] || fail "the run sent $(json runs/flow/result.json items) items"
python3 - <<'END' || fail "the result is another one: $(cat runs/flow/result.json)"
import json
result = json.load(open("runs/flow/result.json"))
assert result["state"] == "finished" and len(result["changes"]) == 1
assert sum(result["meters"][f"sink_{i}.count"]["value"] for i in range(2)) == 400
END

# --- A process that is gone: of an actor that has ended well --------------------------------------

cat >gone.yaml <<YAML
exogym: 1
name: gone
plugins: [$EXO_BUILD/tests/plugins/numbers.so]
actors:
  early: {class: source, resources: {a: 1}, restart: {when: on_failure}, config: {items: 5}}
  late: {class: source, resources: {b: 1}, config: {items: 1, gate: $folder/last}}
  sink: {class: sink, resources: {b: 1}}
edges:
  - {from: early, to: sink, carries: numbers}
  - {from: late, to: sink, carries: numbers}
YAML

head
worker w1 --resource a=1
worker w2 --resource b=2
"$EXOGYM" run gone.yaml --save-dir runs --head "ipc://$place/head" >gone.out 2>gone.err </dev/null &
run_pid=$!
started+=("$run_pid")
all_came() {
    [ -e runs/gone/progress.json ] && [ "$(meter runs/gone/progress.json sink_0.count)" -ge 5 ]
}
until_true 30 all_came || fail "not all comes: $(cat gone.err)"
slay w1
worker w1 --resource a=1 # if the run had not heard of the end, the actor gets another life
"$EXOGYM" graph apply gone.yaml --to runs/gone --set 'edges.0.buffer.capacity=9' >changed 2>&1 || fail "the change: $(cat changed)"
: >last
ended 60 "$run_pid" 0
[ "$(json runs/gone/result.json state)" = finished ] || fail "the run has not finished: $(cat gone.err)"

# --- A sender that waits for room while its receiver dies, also over an edge that was changed --------

cat >full.yaml <<YAML
exogym: 1
name: full
plugins: [$EXO_BUILD/tests/plugins/numbers.so]
actors:
  source: {class: source, resources: {a: 1}, config: {items: 100}}
  sink: {class: sink, resources: {b: 1}, restart: {when: on_failure}, config: {gate: $folder/last}}
edges:
  - {from: source, to: sink, carries: numbers, buffer: {capacity: 1}}
YAML
blocked() {
    grep -q '"kind": *"send"' runs/full/progress.json
}
# outlived COUNT [CHANGE]: the sink dies, and for a second no worker has room for its next life, which then
# gets so many items.
outlived() {
    rm -f last
    "$EXOGYM" run full.yaml --save-dir runs --overwrite --head "ipc://$place/head" >full.out 2>full.err </dev/null &
    run_pid=$!
    started+=("$run_pid")
    until_true 60 blocked || fail "the source does not wait for room: $(cat full.err)"
    [ $# = 1 ] || "$EXOGYM" graph apply full.yaml --to runs/full --set "$2" >changed 2>&1 || fail "the change: $(cat changed)"
    slay w2
    until_true 60 grep -q 'event=put_off' full.err || fail "the next life begins without a worker: $(cat full.err)"
    pause 1000 # in which it is tried again
    worker w2 --resource b=2
    : >last
    ended 60 "$run_pid" 0
    [ "$(meter runs/full/result.json sink_0.count)" = "$1" ] || fail "the sink's next life got $(meter runs/full/result.json sink_0.count) items, not $1: $(cat full.err)"
}
outlived 99 # all but the one that was with the sink
outlived 98 edges.0.buffer.capacity=9 # the one that was on its way over the old channel is lost, too
x stop || fail 'stop'
ended 15 "$head_pid" 0
finish
