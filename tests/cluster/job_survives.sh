#!/usr/bin/env bash
# A training job on a cluster whose head is killed again and again at random moments: it goes on,
# and ends with the bits of a run in one process. Then a worker is killed: a run that could go on for
# long ends soon and says which node, which worker and why, and --resume goes on with the same bits.
#
# EXO_CHAOS_SEED: of the moments. EXO_CHAOS_ROUNDS: how often all of it (1).
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

RANDOM=${EXO_CHAOS_SEED:=$(($$ % 32768))}
echo "EXO_CHAOS_SEED=$EXO_CHAOS_SEED EXO_CHAOS_ROUNDS=${EXO_CHAOS_ROUNDS:=1}"
cat >job.yaml <<'YAML'
exogym: 1
name: spread
seed: 11
model: {name: mlp, hidden: 32}
data: {name: synthetic, count: 1024}
nodes: 3
train: {max_steps: 2000, batch_size: 32, val_size: 64, val_interval: 100, checkpoint_interval: 50}
strategy: {name: diloco, H: 5, optimizer: {name: adamw, lr: 1e-3}, max_norm: 1.0}
YAML

[ "$slower" = 1 ] || sed -i 's/max_steps: 2000/max_steps: 800/' job.yaml # with sanitizers

# train FOLDER OPTIONS...: in the background, on the cluster; $run_pid, its output in FOLDER.out and
# FOLDER.err.
train() {
    local name=$1
    shift
    "$EXOGYM" run job.yaml --json --no-plot --save-dir "$name" --head "ipc://$place/head" "$@" >"$name.out" 2>"$name.err" &
    run_pid=$!
    started+=($!)
}

# counted FOLDER: the ledger of its run, without times.
counted() {
    cut -d, -f1-9 "$1"/*/diloco/ledger.csv
}

# alone FOLDER OPTIONS...: the job in one process.
alone() {
    local name=$1
    shift
    ok run job.yaml --json --no-plot --save-dir "$name" "$@"
    cp out "$name.out"
    grep -q sha256 "$name.out" || fail "$name: no hash"
}

# same FOLDER ALONE: its run's parameters are those of the run in one process, and so is what it counted,
# also over a resume.
same() {
    [ "$(grep sha256 "$1.out")" = "$(grep sha256 "$2.out")" ] ||
        fail "$1: $(grep sha256 "$1.out") instead of $(grep sha256 "$2.out"): $(tail -3 "$1.err")"
    diff <(counted "$2") <(counted "$1") || fail "$1: another ledger than in one process"
}

heads_die() {
    local deaths=0
    train "heads_$1"
    until_true 20 test -s "heads_$1.err" || fail 'the run says nothing' # it has found the head
    while ! gone "$run_pid"; do
        nap 300
        kill -9 "$head_pid"
        wait "$head_pid" 2>/dev/null
        nap 200
        head
        deaths=$((deaths + 1))
        until_true 15 replies 5 call keeper add 0 || fail "the name is not there after the head's death $deaths: $(x call keeper add 0 2>&1)"
    done
    wait "$run_pid" || fail "the job did not survive $deaths deaths of the head, it ended with $?: $(tail -3 "heads_$1.err")"
    same "heads_$1" embedded
    echo "the head died $deaths times during the job"
}

# hosts: the workers that have nodes of the run, without `home`.
hosts() {
    x list actors --json | awk -v RS='{' "/\"spread\/diloco\/$run_pid\"/" | sed -n 's/.*"node": "\(w[1-3]\)".*/\1/p'
}

worker_dies() {
    local victims victim watcher began steps
    # Not all workers may have come to the last head yet.
    until_true 15 tells 'nodes    4 alive' status || fail "workers stay away: $(cat told)"
    train "workers_$1" --set train.max_steps=1000000
    until_true 20 grep -q 'step 100/' "workers_$1.err" || fail "the job does not begin: $(tail -3 "workers_$1.err")"
    mapfile -t victims < <(hosts)
    victim=${victims[RANDOM % ${#victims[@]}]}
    nap 300
    watcher=${victim}_pid
    began=$(now_ms)
    kill -9 "$(child_of "${!watcher}")"
    ended 20 "$run_pid" 1
    echo "the run ended $(($(now_ms) - began)) ms after its worker"
    grep -Eq "diloco: node_[0-2]: its node '$victim' was killed by signal 9 \(SIGKILL\)" "workers_$1.err" ||
        fail "the run said: $(tail -1 "workers_$1.err")"
    ended 10 "${!watcher}" 137
    worker "$victim"
    steps=$(printf '%s\n' "workers_$1"/spread/diloco/checkpoints/step_* | tail -1)
    steps=$((10#${steps##*_} + 70))
    train "workers_$1" --set train.max_steps=$steps --resume
    wait "$run_pid" || fail "--resume: $(tail -3 "workers_$1.err")"
    alone "alone_$1" --set train.max_steps=$steps
    same "workers_$1" "alone_$1"
}

alone embedded
head
for w in w1 w2 w3; do
    worker $w
done
worker home --plugin "$plugin"
x spawn counter 5 --name keeper --node home >out || fail 'spawn'
for ((round = 0; round < EXO_CHAOS_ROUNDS; round++)); do
    heads_die $round
    worker_dies $round
done
x stop || fail 'stop'
ended 15 "$head_pid" 0
for w in w1 w2 w3 home; do
    watcher=${w}_pid
    ended 10 "${!watcher}" 0
done
finish
