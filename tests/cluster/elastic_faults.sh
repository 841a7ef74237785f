#!/usr/bin/env bash
# Elastic runs and one kind of fault after the other: rank 0 dies, two nodes die at once, a worker is
# stopped for a while, the head dies, too few nodes are left.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"
. "$EXO_SOURCE/tests/cluster/elastic.bash"

head
for w in "${names[@]}"; do
    worker "$w"
done
# Nodes that join later follow the links that the first ones have measured.
more='collectives: {links: measured}'
job ddp 10000000 'min_nodes: 1, grace: 60 s, silence: 2 s, verify: true'
more=
train faults
has faults.err 'measured links: '

# Rank 0.
victim=$(host_of 0)
[ "$victim" ] || fail 'node_0 has no worker'
began=$(now_ms)
slay "$victim"
until_true 120 full faults 1 || fail "rank 0: $(tail -3 "faults.err")"
echo "all nodes trained $(($(now_ms) - began)) ms after the death of rank 0"
worker "$victim"

# Two at once.
scatter faults
mapfile -t victims < <(hosts_of 0 1 2 | sort | uniq -d)
[ ${#victims[@]} = 1 ] || mapfile -t victims < <(host_of 1 && host_of 2)
before=$(events faults left)
slay "${victims[@]}"
for w in "${victims[@]}"; do
    worker "$w"
done
until_true 120 full faults $((before + 2)) || fail "two at once: $(tail -3 "faults.err")"

# A stopped worker is left out, and its nodes are taken back when it goes on.
scatter faults
victim=$(host_of 1)
watcher=${victim}_pid
before=$(events faults left)
kill -STOP "$(child_of "${!watcher}")"
until_true 120 lost faults $((before + 1)) || fail "stopped: $(tail -3 "faults.err")"
kill -CONT "$(child_of "${!watcher}")"
until_true 120 full faults $((before + 1)) || fail "stopped: $(tail -3 "faults.err")"

# The head is away while a node dies: the others go on. It comes back, and so does the node.
scatter faults
victim=$(host_of 2)
before=$(events faults left)
kill -9 "$head_pid"
ended 5 "$head_pid" 137
slay "$victim"
until_true 120 lost faults $((before + 1)) || fail "without a head: $(tail -3 "faults.err")"
at=$(tail -1 faults/elastic/ddp/train.csv)
until_true 120 eval '[ "$(tail -1 faults/elastic/ddp/train.csv)" != "$at" ]' || fail 'without a head the run stops'
head
worker "$victim"
until_true 120 full faults $((before + 1)) || fail "a new head: $(tail -3 "faults.err")"

# ctrl-C writes a checkpoint, from which a run goes on.
kill -INT "$run_pid"
ended 60 "$run_pid" 130
has faults.err 'its state is saved'

# Too few nodes: the run ends, says why, and has a checkpoint.
job diloco 10000000 'min_nodes: 3, grace: 1 s'
train few
kill -9 "$head_pid"
ended 5 "$head_pid" 137
slay w3
slay w2
ended 60 "$run_pid" 1
grep -Eq 'of 3 nodes are left, min_nodes is 3, and none came back within 1 s' few.err || fail "too few: $(tail -3 few.err)"
compgen -G 'few/elastic/diloco/checkpoints/step_*' >/dev/null || fail 'too few: there is no checkpoint'
head
worker w2
worker w3
"$EXOGYM" run job.yaml --json --no-plot --save-dir few --head "ipc://$place/head" --resume --set train.max_steps=1000000 >again.out 2>again.err &
run_pid=$!
started+=($!)
until_true 120 grep -q 'step .*000/' again.err || fail "it does not go on: $(tail -3 again.err)"
kill -INT "$run_pid"
ended 60 "$run_pid" 130

# All nodes at once: the run ends, and names the last one, with the cause and the remedy.
job diloco 10000000 'min_nodes: 1, grace: 60 s'
train all
slay "${names[@]}"
ended 60 "$run_pid" 1
grep -Eq "all nodes of the run are lost, .*: --resume continues from the last checkpoint; node_[0-2]: .+" all.err ||
    fail "all at once: $(tail -3 all.err)"
x stop || fail 'stop'
ended 15 "$head_pid" 0
finish
