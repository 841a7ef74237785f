#!/usr/bin/env bash
# Jobs whose nodes share the tokens of sequences, in all of the model (context) or between cut layers
# (sequence): the losses of whole nodes, and the same bits in one process, in workers and from their
# config.json.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

head -c 8000 "$EXO_SOURCE/LICENSE" >text.txt
cat >job.yaml <<'YAML'
model: {name: gpt, layers: 2, width: 32, heads: 4, context: 32}
data: {name: text, path: text.txt, block: 16}
nodes: 4
parallel: {context: 2}
train: {max_steps: 4, batch_size: 4, val_size: 16, val_interval: 2}
strategy: {name: diloco, H: 2, optimizer: {name: adamw, lr: 1e-3}}
YAML
# what: hashes, bytes and losses of a result.
what() {
    grep -E '"(sha256|bytes_sent_per_node|local_loss|global_loss)"' out
}
# check NAME: the job NAME.yaml in all ways. Its losses are those of two whole nodes.
check() {
    local label
    label=$(awk '/^strategy/ { sub(",", "", $3); print $3 }' "$1.yaml")
    ok run "$1.yaml" --json --no-plot --save-dir here
    what >wanted
    ok run "$1.yaml" --json --no-plot --save-dir far --workers 2
    what >got
    cmp -s wanted got || fail "$1, workers: $(diff wanted got)"
    ok run "here/$1/$label/config.json" --json --no-plot --name again
    what >got
    cmp -s wanted got || fail "$1, its config.json: $(diff wanted got)"
    sed -e 's/nodes: 4/nodes: 2/' -e '/parallel/d' "$1.yaml" >whole.yaml
    ok run whole.yaml --no-plot --save-dir "whole_$1"
    paste -d, "whole_$1/whole/$label/train.csv" "here/$1/$label/train.csv" >both.csv
    awk -F, 'NR > 1 { d = $3 / $(NF / 2 + 3) - 1; if (d > 1e-5 || d < -1e-5) exit 1; n++ } END { exit n != 4 }' both.csv ||
        fail "$1: other losses: $(cat both.csv)"
}
sed -e 's/context: 2}/tensor: 2, sequence: true}/' -e 's/diloco, H: 2/ddp/' job.yaml >cut.yaml
check job
check cut

# Two axes in one config.json: the run again, resumed, and converted in both ways.
axes='parallel={tensor: 2, sequence: true, context: 2}'
short=(--no-plot --save-dir axes --set train.val_size=none --set train.max_steps)
ok run job.yaml --json "${short[@]}=2" --set "$axes"
what | grep sha256 >wanted
config=axes/job/diloco/config.json
[ "$(grep -c '"parallel"' $config)" = 1 ] || fail "parallel: $(grep parallel $config)"
ok run $config --json "${short[@]}=2" --name again
what | grep sha256 >got
cmp -s wanted got || fail "two axes, their config.json: $(diff wanted got)"
ok ckpt reshard axes/job axes/parts/diloco --nodes 4 --tensor 2 --pipeline 2 --microbatches 2
ok run axes/parts/diloco/config.json "${short[@]}=3" --resume
ok run $config "${short[@]}=3" --resume
ok run $config "${short[@]}=4" --resume=reshard --set nodes=2 --set 'parallel={tensor: 2}'
has err 'is converted: 2 nodes (tensor 2) instead of 4 (tensor 2, context 2)'

# --- Mistakes
# ---------------------------------------------------------------------------------------------------------

# wrong PARALLEL COLUMN REASON
wrong() {
    sed -e "s/^parallel: .*/parallel: $1/" job.yaml >wrong.yaml
    expect 2 "exogym: wrong.yaml:4:$2" run wrong.yaml --save-dir none "${@:3}"
}
wrong '{context: 3}' '21: parallel: context 3 does not divide the 4 nodes'
wrong '{sequence: true}' '22: parallel: sequence goes with tensor, the number of nodes that share a copy: give it, too'
wrong '{context: 4, pipeline: 2, microbatches: 2}' '11: parallel: tensor x pipeline x context is 8, which does not divide the 4 nodes'
wrong '{context: 4}' '11: parallel.context over 4 nodes: twice as many must divide sequences of 12 tokens' --set data.block=12
# refused SET REASON: before anything starts, with the place of `parallel`.
refused() {
    expect 2 "exogym: job.yaml:4:11: $2" run job.yaml --save-dir none --set "$1"
}
refused strategy=async_diloco "parallel.context does not go with the strategy 'async_diloco' yet: use another one"
refused model.dropout=0.1 'context parallelism does not support a gpt with dropout: leave it out'
refused 'edges=[{carries: parameters, codec: int8}]' 'parallel.context does not go with the codec of an edge (edges.codec) yet: leave it out'
refused 'train.elastic={min_nodes: 2}' 'parallel.context does not go with train.elastic yet: leave one of the two out'
[ ! -e none ] || fail 'a refused job made a folder'
for action in expand plan dot; do
    bad 2 "job.yaml:4:11: graph $action: graphs do not have nodes that share a copy of the model yet" graph $action job.yaml
done
ok run job.yaml --dry-run
# checkpoints go on with other nodes for each copy
ok run job.yaml --no-plot --save-dir parts --set train.checkpoint_interval=2
ok run job.yaml --no-plot --save-dir parts --resume=reshard --set train.max_steps=6 --set nodes=2 --set parallel.context=1
has err 'is converted: 2 nodes instead of 4 (context 2)'
ok run job.yaml --no-plot --save-dir parts --resume=reshard --set train.max_steps=8
has err 'is converted: 4 nodes (context 2) instead of 2'
bad 1 "the nodes of the strategy 'diloco' have states of their own" run job.yaml --no-plot --save-dir parts --resume=reshard --set train.max_steps=9 --set nodes=2
has err 'the copies of the model have to stay 2, not 1'
finish
