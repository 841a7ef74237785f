#!/usr/bin/env bash
# A job whose nodes share copies of a decoder: the losses of whole nodes, the same bits in one process, in
# workers and from its config.json, and the bytes of the closed form in the ledger.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

head -c 8000 "$EXO_SOURCE/LICENSE" >text.txt
cat >job.yaml <<'YAML'
model: {name: gpt, layers: 2, width: 32, heads: 4, context: 32}
data: {name: text, path: text.txt, block: 16}
nodes: 4
parallel: {tensor: 2}
train: {max_steps: 6, batch_size: 4, val_size: 16, val_interval: 3}
strategy: {name: ddp, optimizer: {name: adamw, lr: 1e-3}}
YAML
# what: hashes, bytes and losses of a result.
what() {
    grep -E '"(sha256|bytes_sent_per_node|local_loss|global_loss)"' out
}

ok run job.yaml --json --no-plot --save-dir here
what >wanted
ok run job.yaml --json --no-plot --save-dir far --workers 2
what >got
cmp -s wanted got || fail "workers: $(diff wanted got)"
ok run here/job/ddp/config.json --json --no-plot --name again
what >got
cmp -s wanted got || fail "its config.json: $(diff wanted got)"

# Two copies with 2 L + 1 sums of R W numbers in forward and as many in backward, two numbers a row of the
# head, and half of the parts' gradients.
sed -e 's/nodes: 4/nodes: 2/' job.yaml >pair.yaml
ok run pair.yaml --no-plot --save-dir here
bytes=$((6 * (10 * 2 * 4 * 64 * 32 + 8 * 2 * 64) / 2))
grep -q ",node_0,node_0,[0-9]*,[0-9]*,$bytes," here/pair/ddp/ledger.csv || fail "not $bytes bytes: $(cat here/pair/ddp/ledger.csv)"
sed -e 's/nodes: 2/nodes: 1/' -e '/parallel/d' pair.yaml >one.yaml
ok run one.yaml --no-plot --save-dir here
paste -d, here/one/ddp/train.csv here/pair/ddp/train.csv >both.csv
awk -F, 'NR > 1 { d = $3 / $(NF / 2 + 3) - 1; if (d > 1e-5 || d < -1e-5) exit 1; n++ } END { exit n != 6 }' both.csv || fail "other losses: $(cat both.csv)"

# Under autocast what moves between cut layers, all but the first of these sums, has 2 bytes a number; workers have
# the same bits, and a checkpoint goes on with them.
if grep -qw avx512f /proc/cpuinfo; then
    cast=(--json --no-plot --set train.autocast=bf16 --save-dir)
    ok run pair.yaml "${cast[@]}" cast
    what >wanted
    bytes=$((6 * (9 * 2 * 2 * 64 * 32 + 2 * 4 * 64 * 32 + 8 * 2 * 64) / 2))
    grep -q ",node_0,node_0,[0-9]*,[0-9]*,$bytes," cast/pair/ddp/ledger.csv || fail "not $bytes bytes: $(cat cast/pair/ddp/ledger.csv)"
    ok run pair.yaml "${cast[@]}" parted --workers 2 --set train.checkpoint_interval=3 --set train.max_steps=3
    ok run pair.yaml "${cast[@]}" parted --resume
    what >got
    cmp -s wanted got || fail "autocast, workers: $(diff wanted got)"
    ok run pair.yaml --dry-run --set train.autocast=bf16
fi

# On the virtual clock sums take their time between the units: a step takes longer by the messages of the
# passes, and the numbers are the same.
cat >>pair.yaml <<'YAML'
clock: virtual
hosts: {home: {count: 2, up: 1 Gbit/s}}
links: {default: {latency: 1 ms}}
compute: {step: 50 ms}
YAML
ok run pair.yaml --no-plot --save-dir clock
[ "$(json clock/pair/ddp/result.json sha256)" = "$(json here/pair/ddp/result.json sha256)" ] || fail 'other numbers on the virtual clock'
awk -v got="$(json clock/pair/ddp/result.json train_seconds)" 'BEGIN { exit !(got > 6 * (0.05 + 11 * 0.001)) }' ||
    fail "6 steps with 11 collectives each take $(json clock/pair/ddp/result.json train_seconds) s"

# --- Mistakes
# ---------------------------------------------------------------------------------------------------------

sed -e 's/tensor: 2/tensor: 3/' job.yaml >wrong.yaml
expect 2 'exogym: wrong.yaml:4:20: parallel: tensor 3 does not divide the 4 nodes' run wrong.yaml
sed -e 's/tensor: 2/tensors: 2/' job.yaml >wrong.yaml
expect 2 "exogym: wrong.yaml:4:12: unknown key 'tensors'; did you mean 'tensor'?" run wrong.yaml
# refused SET REASON: before anything starts, with the place of `parallel`.
refused() {
    expect 2 "exogym: job.yaml:4:11: $2" run job.yaml --save-dir none --set "$1"
}
refused strategy=async_diloco "parallel.tensor does not go with the strategy 'async_diloco' yet: use ddp"
refused model.dropout=0.1 'tensor parallelism does not support a gpt with dropout: leave it out'
refused 'model.lora={rank: 4}' 'tensor parallelism does not support a gpt with lora: leave it out'
refused 'edges=[{carries: gradients, codec: int8}]' 'parallel.tensor does not go with the codec of an edge (edges.codec) yet: leave it out'
refused 'train.elastic={min_nodes: 2}' 'parallel.tensor does not go with train.elastic yet: leave one of the two out'
[ ! -e none ] || fail 'a refused job made a folder'
expect 2 "exogym: job.yaml:4:11: parallel.tensor does not go with the strategy 'async_diloco' yet: use ddp" run job.yaml --dry-run --set strategy=async_diloco
ok run job.yaml --dry-run
finish
