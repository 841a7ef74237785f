#!/usr/bin/env bash
# Whole jobs with `engine: nccl` on emulated GPUs (tests/cuda), with the NCCL of the tests (tests/nccl)
# as libnccl.so.2: nodes in one process and in workers, also those of a graph, deaths, and GPUs that are
# too few.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
here=$EXOGYM
emulate_gpu
export TMPDIR=$folder EXO_CUDA_EMULATOR='gpus=2'

# Without the library a job, the list and the doctor say what to install.
cat >job.yaml <<'YAML'
name: job
model: {name: mlp, hidden: [16]}
data: synthetic
nodes: 2
device: cuda
equal_bits: false
train: {max_steps: 4, batch_size: 8, val_size: 32, timeout: 60}
strategy: {optimizer: {name: adamw, lr: 1e-2}}
compare: [ddp, fsdp, {name: diloco, H: 2}, {name: sparta, p: 0.2}, {name: demo, chunk: 8}]
YAML
mkdir none
echo 'no library' >none/libnccl.so.2 # before one that this machine may have
export LD_LIBRARY_PATH=$PWD/none
bad 1 'install NCCL' run job.yaml --no-plot --name none --set engine=nccl
ok doctor
has out 'NCCL           cannot be used'
emulate_nccl
ok doctor
has out 'NCCL           2.30.7'
# One that blocks while it suspends is refused when the nodes begin.
EXO_NCCL_VERSION=22907 bad 1 'engine_suspends: engine nccl: NCCL 2.29.7 does not suspend' run job.yaml --no-plot --name old --set engine=nccl --set compare='[{name: diloco, H: 2}]' --set engine_suspends=true
ok list engines
grep -q '^nccl  *NCCL' out || fail "no nccl: $(cat out)"

# Two numbers have one sum in either order, so two nodes have the bits of the other engines.
# train NAME [OPTION...]: hashes of the strategies are in NAME.sha.
train() {
    local name=$1
    shift
    ok run job.yaml --name "$name" --no-plot --json "$@"
    python3 -c '
import json, sys
print("\n".join(r["sha256"] for r in json.load(open("out"))["runs"]))' >"$name.sha" || fail "$name: no results"
}
train local --set engine=local
export EXO_NCCL_LISTENS='=lo' # processes of one host
train one --set engine=nccl
train far --set engine=nccl --workers 2
cmp -s local.sha one.sha || fail "one process: $(diff local.sha one.sha)"
cmp -s local.sha far.sha || fail "workers: $(diff local.sha far.sha)"
[ -z "$(ls rooms)" ] || fail "communicators are left: $(ls rooms)"

# Between two exchanges NCCL's memory is given back, and the bits stay.
compare="[{name: diloco, H: 2}]"
train kept --set engine=nccl --set "compare=$compare"
EXOGYM_LOG=info train suspended --set engine=nccl --set "compare=$compare" --set engine_suspends=true
cmp -s kept.sha suspended.sha || fail "suspended: $(diff kept.sha suspended.sha)"
has err 'way=resumed'
EXOGYM_LOG=info train suspended_far --set engine=nccl --set "compare=$compare" --set engine_suspends=true --workers 2
cmp -s kept.sha suspended_far.sha || fail "suspended on workers: $(diff kept.sha suspended_far.sha)"
has err 'way=resumed'
bad 2 'nodes of an elastic run change their group' run job.yaml --no-plot --name elastic --set engine=nccl --set engine_suspends=true --set train.elastic.min_nodes=1
bad 2 'holds no memory of a GPU' run job.yaml --no-plot --name host --set engine=local --set engine_suspends=true
for strategy in fsdp demo; do
    bad 2 "the strategy '$strategy' exchanges in every step" run job.yaml --no-plot --name busy --set engine=nccl --set compare="[$strategy]" --set engine_suspends=true
done
bad 2 "the strategy 'eager_diloco' has rounds on their way" run job.yaml --no-plot --name busy --set engine=nccl --set compare='[{name: eager_diloco, H: 2}]' --set engine_suspends=true

# Nodes of a graph have the bits and the bytes of the host, by NCCL, and by the engine gpu, which brings no
# gradient to the host.
cat >graph.yaml <<'YAML'
exogym: 1
name: graph
actors:
  node:
    class: train_node
    count: 2
    config:
      model: {name: mlp, hidden: [16]}
      data: synthetic
      device: cuda
      train: {max_steps: 4, batch_size: 8, val_size: 32}
      strategy: {name: ddp, bucket_size: 20 kB}
edges:
  - {from: node, to: node, carries: gradients}
YAML
# nodes NAME GPUS [OPTION...]: a run; its hashes and what the ledger counts are in NAME.end.
nodes() {
    local name=$1 gpus=$2
    shift 2
    EXO_CUDA_EMULATOR="gpus=$gpus say=1" ok run graph.yaml --name "$name" "$@"
    cat "runs/$name"/final_node_*.json >"$name.end"
    cut -d, -f1-2,4-8 "runs/$name/ledger.csv" | sort >>"$name.end"
    cmp -s host.end "$name.end" || fail "$name: $(diff host.end "$name.end")"
    sed -n 's/^cuda: \([0-9]*\) bytes to the host/\1/p' err >"$name.bytes"
}
over=(--set edges.0.engine=nccl --set edges.0.equal_bits=false)
nodes host 1 --set edges.0.engine=local
nodes gpu 1
nodes both 2 "${over[@]}"
nodes apart 2 "${over[@]}" --workers 2
gradients=$((2 * 4 * $(grep -o '"bytes_sent": [0-9]*' host.end | head -1 | tr -dc 0-9) / 4)) # two nodes send half of theirs twice
[ "$(($(cat host.bytes) - $(cat gpu.bytes)))" = "$gradients" ] || fail "bytes to the host: $(cat host.bytes) and $(cat gpu.bytes)"
[ -z "$(ls rooms)" ] || fail "communicators of a graph are left: $(ls rooms)"

# Actors that wait for each other are found by what all of them have begun: NCCL says nothing of that.
cat >stall.yaml <<YAML
name: stall
plugins: [$EXO_BUILD/tests/plugins/steps.so]
actors:
  maker: {class: steps, config: {steps: sa, times: 100}}
  trainer: {class: steps, count: 2, config: {steps: ra ra g, times: 50, device: cuda}}
edges:
  - {from: maker, to: trainer, carries: a, route: hash}
  - {from: trainer, to: trainer, carries: g, engine: nccl, equal_bits: false, deadline: 300 s}
YAML
for way in '' '--workers 2'; do
    # shellcheck disable=SC2086
    EXO_CUDA_EMULATOR='gpus=2' bad 1 'the graph stalls' run stall.yaml --overwrite $way
    has err "trainer_0 waits in 'trainer>trainer:g' for trainer_1"
    has err "trainer_1 waits to receive on 'maker>trainer:a' from maker_0"
done

# NCCL takes one member a GPU.
EXO_CUDA_EMULATOR='gpus=1' bad 1 'NCCL takes one member a GPU' run graph.yaml --name few_nodes "${over[@]}"
EXO_CUDA_EMULATOR='gpus=1' bad 1 'NCCL takes one member a GPU' run job.yaml --no-plot --name few --set engine=nccl --set compare='[ddp]'
# Where the user says so, it takes several.
ddp=(--set compare='[ddp]')
EXO_CUDA_EMULATOR='gpus=1' NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_SOCKET_IFNAME=eth7 EXO_NCCL_LISTENS=eth7 train shared --set engine=nccl "${ddp[@]}"
cmp -s <(head -1 local.sha) shared.sha || fail "two nodes of a GPU: $(diff local.sha shared.sha)"
bad 1 'NCCL takes one member a GPU' run job.yaml --no-plot --name four --set engine=nccl "${ddp[@]}" --set nodes=4

# A worker dies: the others shrink the communicator and go on; the node comes back, and they grow it again.
export EXO_CUDA_EMULATOR='gpus=4'
EXOGYM_LOG=info "$EXOGYM" run job.yaml --no-plot --json --name elastic --workers 4 --set engine=nccl --set nodes=4 --set compare='[ddp]' \
    --set train.max_steps=1000000 --set train.val_interval=0 --set train.elastic='{min_nodes: 2, grace: 60 s}' >out 2>err </dev/null &
run=$!
until [ -e runs/elastic/ddp/train.csv ] && [ "$(wc -l <runs/elastic/ddp/train.csv)" -gt 3 ]; do
    kill -0 "$run" 2>/dev/null || break
    sleep 0.1
done
kill -9 "$(pgrep -f "$folder/bin/exogym-worker" | tail -1)"
# goes_on COUNT: the node is back, and so many lines of steps were written since.
goes_on() {
    local lines
    grep -q joined runs/elastic/ddp/members.csv && grep -q 'way=grown' err || return 1
    lines=$(wc -l <runs/elastic/ddp/train.csv)
    : "${back:=$lines}"
    [ "$lines" -gt $((back + $1)) ]
}
back=
end=$((SECONDS + 120))
until goes_on 3; do
    kill -0 "$run" 2>/dev/null && [ $SECONDS -lt $end ] || break
    sleep 0.1
done
kill -INT "$run"
wait "$run"
status=$?
[ $status = 130 ] || fail "elastic: ended with $status: $(tail -3 err)"
has runs/elastic/ddp/members.csv left
has runs/elastic/ddp/members.csv joined
has err 'way=shrunk'
has err 'way=grown'
EXOGYM=$here
finish
