#!/usr/bin/env bash
# examples/25_two_islands: train_node as a class of a graph. The same bits in one process, on
# workers and on the virtual clock; what crosses an edge is what the strategy's closed form says;
# and a graph with one level is the job that it was made of.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

graph=$EXO_SOURCE/examples/25_two_islands/two_islands.yaml
short=(--set actors.node.config.train.max_steps=6 --set actors.node.config.strategy.across.H=3)

# figure NAME KEY: of each node, from result.json of a run.
figure() {
    python3 - "runs/$1/result.json" "$2" <<'END'
import json, sys
meters = json.load(open(sys.argv[1]))["meters"]
for path in sorted(meters):
    if path.split(".")[1:] == [sys.argv[2]]:
        print(repr(meters[path]["value"]))
END
}

# sum NAME EDGE: payload bytes of an edge, all nodes together.
sum() {
    awk -F, -v edge="$2" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $1 == edge { sum += $at["payload_bytes"] } END { printf "%.0f", sum }' "runs/$1/ledger.csv"
}

# hash NAME NODE: SHA-256 of a node's parameters.
hash() {
    sed 's/.*"sha256": "\([^"]*\)".*/\1/' "runs/$1/final_node_$2.json"
}

ok run "$graph" "${short[@]}" --name one
ok run "$graph" "${short[@]}" --name far --workers 2
ok run "$graph" "${short[@]}" --name predicted --set clock=virtual --set 'actors.node.compute={step: 20 ms}'
[ "$(figure one fingerprint | wc -l)" = 4 ] || fail "not four nodes: $(figure one fingerprint)"
[ "$(figure one fingerprint | sort -u | wc -l)" = 1 ] || fail 'after a round across all nodes are equal'
for run in far predicted; do
    [ "$(figure one fingerprint)" = "$(figure $run fingerprint)" ] || fail "$run: other bits"
    [ "$(figure one train_loss)" = "$(figure $run train_loss)" ] || fail "$run: other losses"
    for edge in gradients parameters; do
        [ "$(sum one "node>node:$edge")" = "$(sum $run "node>node:$edge")" ] || fail "$run: other bytes of $edge"
    done
done

# Of 4 nodes in islands of 2: at each of 6 steps 2 psi an island, in each of 2 rounds 6 psi.
psi=$(($(sum one 'node>node:gradients') / 24))
[ "$(sum one 'node>node:parameters')" = $((12 * psi)) ] || fail "parameters: $(sum one 'node>node:parameters'), psi $psi"

# Between two rounds an island's nodes are equal, and islands are not.
ok run "$graph" "${short[@]}" --name between --set actors.node.config.train.max_steps=5
[ "$(hash between 0)" = "$(hash between 1)" ] || fail 'the nodes of an island differ'
[ "$(hash between 0)" != "$(hash between 2)" ] || fail 'the islands are equal before their round'

# Plain SGD, and a round at each step that takes the mean: DDP of all, but for rounding.
sgd='{name: islands, island_size: 2, across: {name: diloco, H: 1, outer_optimizer: {name: sgd, lr: 1, momentum: 0}}, optimizer: {name: sgd, lr: 0.1}}'
ok run "$graph" "${short[@]}" --name mean --set "actors.node.config.strategy=$sgd" --set edges.1.codec=raw
ok run "$graph" "${short[@]}" --name ddp --set 'actors.node.config.strategy={name: ddp, optimizer: {name: sgd, lr: 0.1}}'
[ "$(hash mean 0)" = "$(hash mean 3)" ] || fail 'nodes that meet at each step differ'
paste <(figure mean val_loss) <(figure ddp val_loss) | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-5 * $2) exit 1 }' ||
    fail "two islands that meet at each step: $(figure mean val_loss), ddp: $(figure ddp val_loss)"

# A job, and the graph that it stands for.
cat >job.yaml <<'YAML'
model: {name: mlp, hidden: [16]}
data: synthetic
nodes: 2
train: {max_steps: 5, batch_size: 8}
strategy: {name: ddp, optimizer: {name: sgd, lr: 0.1}}
YAML
ok run job.yaml --json --no-plot
cp out job.json
ok graph expand job.yaml
cp out graph.yaml
ok run graph.yaml --name expanded
grep -q "$(hash expanded 0)" job.json || fail "the graph has $(hash expanded 0), the job: $(cat job.json)"

# A figure of a node's result that is not known, or not finite, is null.
# result NAME KEY: a value of node 0's result, as Python writes it.
result() {
    python3 -c 'import json, sys
def refuse(word):
    raise ValueError(word + " is not JSON")
print(json.load(open(sys.argv[1]), parse_constant=refuse)[sys.argv[2]])' "runs/$1/final_node_0.json" "$2"
}
ok run graph.yaml --name blind --set actors.node.config.train.val_size=none
[ "$(result blind val_loss)" = None ] || fail "no evaluation: $(cat runs/blind/final_node_0.json)"
[ "$(result blind train_loss)" != None ] || fail "no loss: $(cat runs/blind/final_node_0.json)"
ok run graph.yaml --name diverged --set 'actors.node.config.strategy={name: ddp, optimizer: {name: sgd, lr: 1e30}}'
[ "$(result diverged train_loss)" = None ] || fail "a loss that is not finite: $(cat runs/diverged/final_node_0.json)"

# Mistakes.
bad 2 'two_islands.yaml:21:9: the strategy sends parameters, which no edge of these nodes carries' graph check "$graph" --set 'edges=[{from: node, to: node, carries: gradients}]'
bad 2 'which no edge of these nodes carries: add {from: node, to: node, carries: parameters}' run "$graph" --name e1 --set 'edges=[{from: node, to: node, carries: gradients}]'
bad 2 "'ddp' does not begin with a step of the node's own" run "$graph" --name e2 --set actors.node.config.strategy.across=ddp
bad 2 "'diloco' inside and 'fedavg' across both send parameters" graph check "$graph" --set \
    'actors.node.config.strategy={name: islands, island_size: 2, inside: diloco, across: fedavg}'
bad 2 "no strategy 'dilco'" graph check "$graph" --set actors.node.config.strategy.across=dilco
bad 2 'island_size must be at most 4' graph check "$graph" --set actors.node.config.strategy.island_size=5
bad 2 'island_size must be at most 4' run "$graph" --name e3 --set actors.node.config.strategy.island_size=5
bad 2 'train.max_steps is missing' run graph.yaml --name e4 --set 'actors.node.config.train={batch_size: 8}'
bad 2 'train.checkpoint_interval: a node of a graph does not support this setting' run graph.yaml --name e5 --set actors.node.config.train.checkpoint_interval=2
bad 2 'train.minibatch_size: auto: a node of a graph does not support this setting' graph check graph.yaml --set actors.node.config.train.minibatch_size=auto
bad 2 'train.minibatch_size: auto: a node of a graph does not support this setting' run graph.yaml --name e6 --set actors.node.config.train.minibatch_size=auto
bad 2 'batch_size 4096 is more than a node' graph check graph.yaml --set actors.node.config.train.batch_size=4096
bad 2 'minibatch_size 5 does not divide batch_size 8' graph check graph.yaml --set 'actors.node.config.train={max_steps: 2, batch_size: 8, minibatch_size: 5}'
bad 2 "there is no model 'mpl'; did you mean 'mlp'" graph check graph.yaml --set actors.node.config.model=mpl
bad 2 "there is no data set 'sintetic'; did you mean 'synthetic'" graph check graph.yaml --set actors.node.config.data=sintetic
bad 2 "unknown key 'cnt'; did you mean 'count'" graph check graph.yaml --set 'actors.node.config.data={name: synthetic, cnt: 9}'
bad 2 'the model does not fit the samples of the data' graph check graph.yaml --set 'actors.node.config.model={name: mlp, in: 783}'
bad 2 'evaluates alone: run a job' graph check graph.yaml --set actors.node.config.strategy=fsdp
ok graph check graph.yaml --set 'actors.node.config.data={name: fashion_mnist, path: /on/a/worker}'
bad 2 "unknown key 'max_step'" graph check graph.yaml --set 'actors.node.config.train={max_step: 8}'
sed 's/^nodes: 2/nodes: 4/; s/^strategy:.*/strategy: {name: islands, island_size: 2}/' job.yaml >islands.yaml
# Found before anything starts, also behind other strategies.
sed -i 's/^strategy:.*/compare: [diloco, {name: islands, island_size: 2}]/; s/^name:.*/name: apart/' islands.yaml
for command in 'run islands.yaml' 'run islands.yaml --dry-run' 'sweep islands.yaml --grid seed=1,2' 'sweep islands.yaml --grid seed=1,2 --dry-run'; do
    bad 2 "the strategy 'islands' sends over 2 edges, and the nodes of a job have one" $command
    grep -q '^exogym: islands.yaml:[0-9]*:[0-9]*: ' err || fail "$command: no place: $(cat err)"
done
[ ! -e runs/apart ] || fail 'diloco ran before the mistake was found'
finish
