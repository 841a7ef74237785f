#!/usr/bin/env bash
# exogym graph expand prints the strategy of a job as a list of exchanges, where it is one. The list
# under `strategy` gives the same bits, and so do a job's graph and the nodes on workers.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

cat >job.yaml <<'YAML'
name: job
model: {name: mlp, hidden: [16]}
data: {name: synthetic, count: 256}
nodes: 3
train: {max_steps: 7, batch_size: 8, val_size: 16, checkpoint_interval: 0}
strategy: {optimizer: {name: adamw, lr: 0.01}, max_norm: 1, lr_scheduler: lambda_cosine, warmup_steps: 2}
compare: [ddp]
YAML

# hash: SHA-256 of the result of the job in the file `out`.
hash() {
    sed -n 's/.*"sha256": *"\([^"]*\)".*/\1/p' out | head -1
}

count=0
# same JOB STRATEGY EXCHANGES: the strategy's list begins with these, and gives its bits.
same() {
    count=$((count + 1))
    ok graph expand "$1" --set "compare=[$2]"
    grep '^# strategy: ' out >list || fail "$2 has no list: $(cat out)"
    [ "$(wc -l <list)" = 1 ] || fail "$2: $(cat list)"
    grep -q "exchanges: \\[$3" list || fail "$2: $(cat list)"
    sed '/^strategy: /d; /^compare: /d' "$1" >pasted.yaml
    sed 's/^# //' list >>pasted.yaml
    ok run "$1" --set "compare=[$2]" --json --no-plot --name named_$count
    named=$(hash)
    ok run pasted.yaml --json --no-plot --name pasted_$count
    [ -n "$named" ] && [ "$named" = "$(hash)" ] || fail "$2: $named, as a list: $(hash)"
}

# The optimizer of muloco is not that of compose.
sed 's/optimizer: {name: adamw, lr: 0.01}, //; s/hidden: \[16\]/hidden: [16, 16]/' job.yaml >muon.yaml
same muon.yaml '{name: muloco, H: 2}' '{what: parameters, every: 2, partners: all, apply: {name: outer'
same muon.yaml '{name: muloco, H: 3, optimizer: {lr: 0.02, adamw: {lr: 0.01}}}' '{what: parameters, every: 3'
grep -qF 'optimizer: {name: muon, lr: 0.02, adamw: {lr: 0.01}, }' list || fail "$(cat list)"
while IFS='|' read -r strategy exchanges; do
    same job.yaml "$strategy" "$exchanges"
done <<'END'
{name: fedavg, H: 3, island_size: 2}|{what: parameters, every: 3, partners: {name: islands, island_size: 2}, apply: mean}
{name: fedavg, H: 2, aggregate: median}|{what: parameters, every: 2, partners: all, aggregate: {name: median}, apply: mean}
{name: diloco, H: 2, aggregate: {name: krum, f: 0, m: 2}}|{what: parameters, every: 2, partners: all, aggregate: {name: krum, f: 0, m: 2}, apply: {name: outer
{name: local_sgd, H: 2, aggregate: {name: norm_clip, max_norm: 0.123}}|{what: parameters, every: 2, partners: all, aggregate: {name: norm_clip, max_norm: 0.123}, apply: mean}
{name: local_sgd, H: 2, offset: 1}|{what: parameters, every: 2, offset: 1, partners: all, apply: mean}
{name: diloco, H: 3, outer_optimizer: {lr: 0.3}}|{what: parameters, every: 3, partners: all, apply: {name: outer, optimizer: {
{name: sparta, p: 0.0123456789012345, interval: 2, delay: 1}|{what: parameters, every: 2, delay: 1, select: {name: random, p: 0.0123456789012345}
{name: sparta_diloco, H: 3, p: 0.1}|{what: parameters, every: 1, select: {name: random, p: 0.1}, partners: all, apply: mean}, {what: parameters, every: 3
{name: streaming_diloco, H: 2, fragments: 2}|{what: parameters, every: 2, delay: 1, select: {name: fragments, count: 2}, partners: all, codec: {name: e3m0, block: 128, scale: bf16}, apply: {name: outer, optimizer: 
{name: streaming_diloco, H: 4, fragments: 2, delay: 0, codec: raw}|{what: parameters, every: 4, select: {name: fragments, count: 2}, partners: all, apply: {name: outer, optimizer: 
{name: sparseloco, H: 3, feedback: 0.5}|{what: parameters, every: 3, partners: all, codec: \[{name: topk, k: 64, block: 4096, error_feedback: false}, {name: bins, block: 256, scale: bf16}\], feedback: 0.5
{name: diloco, H: 2, outer_momentum: {name: linear, warmup_steps: 3}}|{what: parameters, every: 2, partners: all, apply: {name: outer, optimizer: .*, momentum: {name: "*linear"*, warmup_steps: 3
{name: eager_diloco, H: 2}|{what: parameters, every: 2, partners: all, apply: {name: eager, optimizer: 
{name: noloco, H: 2}|{what: parameters, every: 2, partners: pairs, apply: {name: outer
END

# No list: of ddp, and of a list.
ok graph expand job.yaml
! grep '^# strategy' out || fail 'ddp is no list of exchanges of parameters'
ok graph expand pasted.yaml
! grep '^# strategy' out || fail 'what is a list is printed again'

# What is expanded is a graph with the same list, the same bits, and one edge for both exchanges.
strategy='compare=[{name: sparta_diloco, H: 3, p: 0.1}]'
ok run job.yaml --set "$strategy" --json --no-plot --name named
named=$(hash)
ok graph expand job.yaml --set "$strategy"
cp out graph.yaml
ok graph expand graph.yaml
grep -qxF -- "$(grep '^# strategy' graph.yaml)" out || fail "another list of the graph: $(cat out)"
[ "$(grep -c 'carries: parameters' graph.yaml)" = 1 ] || fail "not one edge: $(cat graph.yaml)"
ok run job.yaml --set "$strategy" --workers 2 --json --no-plot --name far
[ "$(hash)" = "$named" ] || fail 'other bits on workers'

# Gradients and parameters are two edges: a job has one, a graph both.
both='strategy={name: compose, exchanges: [{what: gradients}, {every: 3, apply: outer}], optimizer: {name: adamw, lr: 0.01}}'
bad 2 'sends over 2 edges, and the nodes of a job have one' run pasted.yaml --set "$both" --name both
ok graph expand pasted.yaml --set "$both"
cp out both.yaml
ok run both.yaml --set 'actors.node.config.train={max_steps: 7, batch_size: 8, val_size: 16}' --name both
[ "$(grep -ho '"sha256": "[^"]*"' runs/both/final_node_*.json | sort -u | wc -l)" = 1 ] ||
    fail 'with the mean of gradients at each step, and an outer step of equal nodes, nodes differ'
finish
