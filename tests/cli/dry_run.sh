#!/usr/bin/env bash
# --dry-run says what a run takes of memory before anything of it is made, and is right to a tenth.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

ok run job.yaml --dry-run
for row in parameters gradients optimizer average activations evaluation batches result process peak; do
    has out "  $row "
done
has out '  free here '
! grep -q 'too little' out || fail 'a small model does not fit'
has out 'ddp: mlp with 101,770 parameters, 2 nodes, batch 16 in passes of 16'
has out 'sparta: '
[ ! -e runs ] || fail 'a dry run made a folder'
expect 2 "exogym: job.yaml:5:7: 'synthetic' has no tokens: the model 'gpt' trains on texts" \
    run job.yaml --dry-run --set 'model={name: gpt, size: xl}'

expect 2 'exogym: run: --dry-run plans all nodes in one process: it does not go with --workers, --head or --cluster (see `exogym help run`)' \
    run job.yaml --dry-run --workers 2

# A language model, and one that no machine here could train.
for i in $(seq 300); do
    printf 'line %d of a text that is learned from\n' "$i"
done >text.txt
cat >text.yaml <<'END'
model: {name: gpt, size: small, context: 64}
data: {name: text, path: text.txt, block: 64}
nodes: 2
train: {max_steps: 2, batch_size: 32, minibatch_size: auto, val_size: 8, val_interval: 0}
strategy: fedavg
END
ok run text.yaml --dry-run
has out 'fedavg: gpt with '
ok run text.yaml --dry-run --set 'model={name: gpt, size: xl, vocabulary: 50304}' --set data.block=1024 --set train.batch_size=4096
has out 'batch 4096 in passes of '
ok run text.yaml --dry-run --json --set 'model={name: gpt, layers: 40, heads: 64, width: 32768, vocabulary: 50304, context: 64}'
[ "$(json out peak)" -gt 10000000000000 ] || fail 'a terabyte of parameters takes no memory'
ok run text.yaml --dry-run --set 'model={name: gpt, layers: 40, heads: 64, width: 32768, vocabulary: 50304, context: 64}'
grep -q '^  free here .*  too little: the kernel may kill the run$' out || fail "terabytes fit: $(cat out)"

# What is used: the process's largest resident size.
used() {
    python3 - "$@" <<'END'
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
print(usage.ru_maxrss * 1024 if status == 0 else 0)
END
}
if grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt"; then
    sed -i 's/^compare:.*/strategy: ddp/; /^presets:/d; 0,/^strategy: {/{/^strategy: {/d}; s/max_steps: 12/max_steps: 3/' job.yaml
    # right MODEL BATCH STRATEGY [SET ...]
    right() {
        local args=(--set "model=$1" --set "train.batch_size=$2" --set "strategy=$3" --set train.correlation_interval=0 "${@:4}") planned took
        ok run "$job" --dry-run --json "${args[@]}"
        planned=$(json out peak)
        took=$(used "$EXOGYM" run "$job" --no-plot --overwrite --save-dir used "${args[@]}")
        awk -v p="$planned" -v u="$took" 'BEGIN { exit !(u > 0 && p > 0.9 * u && p < 1.1 * u) }' ||
            fail "$1, batch $2, $3: planned $planned bytes, used $took"
    }
    job=job.yaml
    # a small model is not measured as a large one: 4,000 rounds under way would be those of millions of parameters
    planned=$(used "$EXOGYM" run "$job" --dry-run --set 'model={name: mlp, hidden: [16]}' --set 'strategy={name: sparta, delay: 4000}')
    [ "$planned" -gt 0 ] && [ "$planned" -lt 500000000 ] || fail "--dry-run of a small model with a delay took $planned bytes"
    right mnist_cnn 32 '{name: diloco, H: 2}'
    # what a strategy keeps depends on the shapes and the units of the model
    right '{name: mlp, hidden: [1500, 1500]}' 32 demo
    right '{name: mlp, hidden: [1500, 1500]}' 32 '{name: powersgd, rank: 4}'
    right '{name: mlp, hidden: [1500, 1500]}' 32 '{name: streaming_diloco, H: 3, fragments: 3}'
    right '{name: mlp, hidden: [1500, 1500]}' 32 '{name: fsdp, sharding_strategy: full_shard}'
    right '{name: mlp, hidden: [1500, 1500]}' 32 \
        '{name: fsdp, sharding_strategy: full_shard, optimizer: {name: muon, matrices: all, ns_steps: 1}}'
    # units that only a step has open: the average takes their memory, and stays if it is made before a step
    right '{name: mlp, hidden: [1000, 1000, 1000, 1000, 1000, 1000]}' 16 '{name: fsdp, sharding_strategy: full_shard, prefetch: true}' \
        --set train.minibatch_size=4 --set train.val_interval=0
    right '{name: mlp, hidden: [1000, 1000, 1000, 1000, 1000, 1000]}' 16 '{name: fsdp, sharding_strategy: shard_grad_op, prefetch: true}'
    right '{name: mlp, hidden: [1500, 1500]}' 32 '{name: async_diloco, H: 2}' # with one server
    job=text.yaml
    right '{name: gpt, size: small, context: 64}' 64 '{name: diloco, H: 2}'
    right '{name: gpt, layers: 3, heads: 4, width: 320, vocabulary: 1000, context: 64}' 8 muloco
    # a prime number of rows: the messages of demo have two thirds of the embedding
    right '{name: gpt, layers: 1, heads: 3, width: 144, vocabulary: 20011, context: 64}' 4 demo
    # the same of a model that is not started whole to measure it
    right '{name: gpt, layers: 1, heads: 4, width: 144, vocabulary: 30011, context: 64}' 4 demo
    right '{name: gpt, layers: 3, heads: 8, width: 384, context: 64}' 4 sparta
    right '{name: gpt, layers: 3, heads: 8, width: 384, context: 64, lora: {rank: 8}}' 8 ddp
    # nodes with parts of the model
    right '{name: gpt, layers: 2, heads: 4, width: 384, vocabulary: 5000, context: 64}' 8 ddp \
        --set nodes=4 --set 'parallel={tensor: 2}'
    right '{name: gpt, layers: 2, heads: 4, width: 384, vocabulary: 5000, context: 64}' 8 ddp \
        --set nodes=2 --set 'parallel={tensor: 2, sequence: true}'
    right '{name: gpt, layers: 2, heads: 4, width: 384, vocabulary: 2000, context: 64}' 8 ddp \
        --set nodes=2 --set 'parallel={context: 2}'
    right '{name: gpt, layers: 4, heads: 4, width: 384, vocabulary: 2000, context: 64}' 8 ddp \
        --set nodes=2 --set 'parallel={pipeline: 2, microbatches: 4}' --set train.minibatch_size=2
    # a selector among parts chooses from all coordinates; stages have fewer units than there are fragments
    right '{name: gpt, layers: 2, heads: 4, width: 256, vocabulary: 2000, context: 64}' 4 \
        '{name: sparta, p: 0.3, delay: 4}' --set nodes=4 --set 'parallel={tensor: 4}'
    ok run "$job" --dry-run --set 'model={name: gpt, layers: 4, heads: 4, width: 64, context: 64}' \
        --set 'strategy={name: streaming_diloco, H: 5, fragments: 5}' --set nodes=4 \
        --set 'parallel={pipeline: 4}' --set train.minibatch_size=8
fi
finish
