#!/usr/bin/env bash
# A job whose nodes have stages of a decoder: the losses of whole nodes, the same bits in one process, in
# workers and from its config.json, the bytes of the closed form in the ledger, and the bubble on the virtual
# clock.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

head -c 8000 "$EXO_SOURCE/LICENSE" >text.txt
cat >job.yaml <<'YAML'
model: {name: gpt, layers: 4, width: 32, heads: 4, context: 32}
data: {name: text, path: text.txt, block: 16}
nodes: 4
parallel: {pipeline: 2, microbatches: 4}
train: {max_steps: 4, batch_size: 4, val_size: 16, val_interval: 2}
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

# The losses are those of two whole nodes. Untied, the model has their bits.
sed -e 's/nodes: 4/nodes: 2/' -e '/parallel/d' -e 's/train: {/train: {minibatch_size: 1, /' job.yaml >whole.yaml
ok run whole.yaml --no-plot --save-dir here
paste -d, here/whole/ddp/train.csv here/job/ddp/train.csv >both.csv
awk -F, 'NR > 1 { d = $3 / $(NF / 2 + 3) - 1; if (d > 1e-5 || d < -1e-5) exit 1; n++ } END { exit n != 4 }' both.csv || fail "other losses: $(cat both.csv)"
ok run whole.yaml --json --no-plot --save-dir free --set model.tied=false
what | grep sha256 >wanted
ok run job.yaml --json --no-plot --save-dir free --set model.tied=false
what | grep sha256 >got
cmp -s wanted got || fail "an untied model: $(diff wanted got)"

# Stages of two parts each, on workers, too.
sed -e 's/parallel: .*/parallel: {tensor: 2, sequence: true, pipeline: 2, microbatches: 4}/' job.yaml >both.yaml
ok run both.yaml --json --no-plot --save-dir here --set strategy.max_norm=0.5
what >wanted
ok run both.yaml --json --no-plot --save-dir far --workers 2 --set strategy.max_norm=0.5
what >got
cmp -s wanted got || fail "parts of stages on workers: $(diff wanted got)"
ok run both.yaml --dry-run

# --- The virtual clock
# ---------------------------------------------------------------------------------------------------------

cat >clock.yaml <<'YAML'
model: {name: gpt, layers: 4, width: 32, heads: 4, context: 32, tied: false}
data: {name: text, path: text.txt, block: 16}
nodes: 4
parallel: {pipeline: 4, microbatches: 8}
train: {max_steps: 3, batch_size: 8, val_size: 8, val_interval: 3}
strategy: ddp
clock: virtual
hosts: {home: {count: 4, up: 10 Gbit/s}}
links: {default: {latency: 10 us}}
compute: {step: 80 ms}
YAML
ok run clock.yaml --no-plot --save-dir here
# 2 (P - 1) M x microbatch x T x d x 4 in a step: the inner stages send twice as much as the ends
sent=$(awk -F, 'NR > 1 { sum += $6 } END { print sum }' here/clock/ddp/ledger.csv)
[ "$sent" = $((3 * 2 * 3 * 8 * 16 * 32 * 4)) ] || fail "not the bytes of the closed form: $(cat here/clock/ddp/ledger.csv)"
# Each stage waits for (P - 1) / (M + P - 1) of the time.
grep '"ph":"X"' here/clock/ddp/timeline.json | sed 's/.*"cat":"\([a-z_]*\)","pid":\([0-9]*\).*"ts":\([0-9.]*\),"dur":\([0-9.]*\).*/\1 \2 \3 \4/' >spans
awk '{ if ($3 + $4 > end) end = $3 + $4 } $1 == "compute" { work[$2] += $4 }
     END { for (p in work) { n++; bubble = (1 - work[p] / end) / (3 / 11); if (bubble < 0.95 || bubble > 1.05) exit 1 }
           exit n != 4 }' spans || fail "another bubble than 3/11: $(awk '$1 == "compute" { w[$2] += $4 } END { for (p in w) print p, w[p] }' spans) of $(tail -1 spans)"

# --- Mistakes
# ---------------------------------------------------------------------------------------------------------

# wrong FROM TO REASON
wrong() {
    sed -e "s/$1/$2/" job.yaml >wrong.yaml
    expect 2 "exogym: wrong.yaml:4:$3" run wrong.yaml --save-dir none
}
wrong 'pipeline: 2' 'pipeline: 3' '22: parallel: pipeline 3 does not divide the 4 nodes'
wrong 'microbatches: 4' 'microbatches: 3' '39: parallel: microbatches 3 does not divide batch_size'
wrong ', microbatches: 4' '' '11: parallel: pipeline needs microbatches, a divisor of batch_size 4: at least 2 for each stage keep the nodes busy'
wrong 'pipeline: 2, ' '' '26: parallel: microbatches go with pipeline; without one, train.minibatch_size cuts the batch'
wrong 'pipeline: 2' 'tensor: 4, pipeline: 2' '11: parallel: tensor x pipeline x context is 8, which does not divide the 4 nodes'
# refused SET REASON: before anything starts, with the place of `parallel`.
refused() {
    expect 2 "exogym: job.yaml:4:11: $2" run job.yaml --save-dir none --set "$1"
}
refused 'strategy={name: fsdp, group_size: 1, across: sparseloco}' "parallel.pipeline does not go with the strategy 'fsdp' if the strategy in its options looks at more than each element by itself, or takes some at a time: use another one there"
refused strategy=async_diloco "parallel.pipeline does not go with the strategy 'async_diloco' yet: use ddp"
refused 'strategy={name: diloco, aggregate: norm_clip}' "parallel.pipeline does not go with the strategy 'diloco' if its aggregate or outer_optimizer needs whole models: use mean, trimmed_mean or median, and no muon"
refused model.dropout=0.1 'pipeline parallelism does not support a gpt with dropout: leave it out'
refused 'model.lora={rank: 4}' 'pipeline parallelism does not support a gpt with lora: leave it out'
refused 'edges=[{carries: gradients, codec: int8}]' 'parallel.pipeline does not go with the codec of an edge (edges.codec) yet: leave it out'
refused 'train.elastic={min_nodes: 2}' 'parallel.pipeline does not go with train.elastic yet: leave one of the two out'
refused train.correlation_interval=1 'parallel.pipeline does not go with train.correlation_interval yet: leave one of the two out'
[ ! -e none ] || fail 'a refused job made a folder'
expect 2 "exogym: job.yaml:4:11: parallel.pipeline does not go with the strategy 'async_diloco' yet: use ddp" run job.yaml --dry-run --set strategy=async_diloco
ok run job.yaml --dry-run
# checkpoints of stages go on with other stages, too
ok run job.yaml --no-plot --save-dir parts --set train.checkpoint_interval=2
ok run job.yaml --no-plot --save-dir parts --resume=reshard --set train.max_steps=6 --set nodes=2
has err 'is converted: 2 nodes (pipeline 2) instead of 4 (pipeline 2)'
ok run job.yaml --no-plot --save-dir parts --resume=reshard --set train.max_steps=8 --set parallel.pipeline=4
has err 'is converted: 4 nodes (pipeline 4) instead of 2 (pipeline 2)'
finish
