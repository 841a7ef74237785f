#!/usr/bin/env bash
# Nodes that keep their shards of units only (fsdp, and tests/plugins/sharded.c), in one process and
# in workers: the numbers of ddp, also of a language model and after a resume.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

export TMPDIR=$folder

cat >text.txt <<'TEXT'
A unit is whole, a shard or absent; who gathers it has it for as long as a pass is in it.
What was gathered is freed when the pass has left it, and gathered again when it comes back.
Every node has its own shard of each unit, of parameters, gradients and optimizer, and no more.
The mean of all copies, too, is made unit by unit, and so is the model that the run ends with.
TEXT

# job NAME MODEL DATA STEPS
job() {
    printf 'name: %s\nplugins: [%s]\nmodel: %s\ndata: %s\nnodes: 3\n' "$1" "$EXO_BUILD/tests/plugins/sharded.so" "$2" "$3"
    printf 'train: {max_steps: %s, batch_size: 4, val_size: 8, val_interval: 4, correlation_interval: 4, final_checkpoint: true}\n' "$4"
    printf 'strategy: {optimizer: {name: adamw, lr: 1e-3}}\ncompare: [ddp, sharded, {name: fsdp, sharding_strategy: full_shard, prefetch: true, label: zero3}, {name: fsdp, sharding_strategy: shard_grad_op, label: zero2}]\n'
}

# same FILE: the four strategies of a result have the same hash and losses.
same() {
    for key in sha256 local_loss global_loss; do
        [ "$(grep -c "\"$key\"" "$1")" = 4 ] || fail "$1: not four of $key: $(cat "$1")"
        [ "$(grep "\"$key\"" "$1" | sort -u | wc -l)" = 1 ] || fail "$1: $(grep "\"$key\"" "$1")"
    done
}

for model in mlp gpt; do
    case $model in
    mlp) what=('{name: mlp, hidden: [24, 16]}' '{name: synthetic, count: 256}') ;;
    gpt) what=('{name: gpt, layers: 2, heads: 2, width: 16, context: 16}' '{name: text, path: text.txt, block: 16}') ;;
    esac
    job $model "${what[@]}" 9 >$model.yaml
    "$EXOGYM" run $model.yaml --json --no-plot --save-dir here >here.out 2>err </dev/null || fail "$model: $(tail -3 err)"
    same here.out
    "$EXOGYM" run $model.yaml --json --no-plot --save-dir far --workers 2 >far.out 2>err </dev/null || fail "$model: $(tail -3 err)"
    same far.out
    cmp -s <(grep sha256 here.out) <(grep sha256 far.out) || fail "$model: workers have other bits"
    # The correlation of equal copies is one, whoever has which part of them.
    for other in sharded zero3 zero2; do
        cmp -s here/$model/ddp/correlation.csv here/$model/$other/correlation.csv || fail "$model: correlations of $other differ"
    done
    # Longer, from the checkpoint of the workers.
    job $model "${what[@]}" 14 >$model.yaml
    "$EXOGYM" run $model.yaml --json --no-plot --save-dir far --resume >more.out 2>err </dev/null || fail "$model: $(tail -3 err)"
    same more.out
done

# The nodes of a graph evaluate alone, so none of them keeps units.
sed 's/correlation_interval: 4, //' mlp.yaml >plain.yaml # which they do not have either
"$EXOGYM" graph expand --load-plugins plain.yaml --run sharded >graph.yaml 2>err || fail "expand: $(tail -3 err)"
"$EXOGYM" run graph.yaml --save-dir graph >graph.out 2>err </dev/null && fail 'a graph of nodes that keep units ran'
grep -q 'units are gathered by all nodes together' err || fail "a graph of nodes that keep units: $(tail -3 err)"

finish
