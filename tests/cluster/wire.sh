#!/usr/bin/env bash
# The ledger's wire bytes against what the kernel counts, over tcp: a graph of small and of large
# items, a collective, and a training job. In a network namespace of its own, where nobody else
# sends anything; what starting and stopping sends is known from a run without items. Skipped where
# namespaces cannot be made, and without iproute2.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

unshare -n ip link set lo up 2>/dev/null || exit 77 # ip: of iproute2
export TMPDIR=$folder

# graph ITEMS SIZE ROUNDS: every actor in a worker of its own.
graph() {
    cat >wire.yaml <<YAML
exogym: 1
name: wire
plugins: [$EXO_BUILD/tests/plugins/stream.so]
actors:
  source: {class: stream_source, config: {items: $1, size: $2}}
  sink: {class: stream_sink, count: 2, config: {rounds: $3}}
edges:
  - {from: source, to: sink, carries: items, route: round_robin, buffer: {capacity: 8}}
  - {from: sink, to: sink, carries: sums}
YAML
}

# job STEPS
job() {
    cat >wire.yaml <<YAML
exogym: 1
name: wire
seed: 7
model: {name: mlp, hidden: 1}
data: {name: synthetic, count: 64}
nodes: 3
train: {max_steps: $1, batch_size: 1, val_size: 2, val_interval: 100000, checkpoint_interval: 100000}
strategy: {name: ddp, optimizer: {name: sgd, lr: 1e-3}}
YAML
}

# count: runs wire.yaml, and sets ledger and kernel to the bytes that were sent. A packet on
# loopback has 66 bytes of Ethernet, IP and TCP.
count() {
    rm -rf saved
    unshare -n bash -c 'ip link set lo up && timeout 100 "$0" run wire.yaml --json --save-dir saved --workers 3 --transport tcp --insecure >out 2>err &&
        cat /proc/net/dev >dev' "$EXOGYM" || fail "run: $(cat err)"
    ledger=$(awk -F, 'NR > 1 { sum += $8 } END { print sum + 0 }' "$(find saved -name ledger.csv)")
    kernel=$(awk '$1 == "lo:" { print $10 - 66 * $11 }' dev)
}

# within NAME PERCENT: the growth since `count` was called before.
within() {
    local says=$((ledger - ledger_before)) counts=$((kernel - kernel_before))
    local off=$((says - counts))
    echo "$1: the ledger says $says bytes, the kernel counts $counts"
    [ $counts -gt 0 ] && [ $((${off#-} * 100)) -le $((counts * $2)) ] || fail "$1: the ledger says $says bytes, the kernel counts $counts"
}

before() {
    count
    ledger_before=$ledger
    kernel_before=$kernel
}

graph 0 1 0
before
# Calls that wait share a message and its 12 bytes of header, and how many do depends on what else the machine
# does: it is up to 3 % of items of ten bytes.
graph 20000 10 0 && count && within 'small items' 4
graph 1000 20000 0 && count && within 'large items' 2
graph 0 1 2000 && count && within 'a collective' 2
job 1
before
job 1000 && count && within 'ddp' 2
finish
