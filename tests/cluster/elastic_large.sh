#!/usr/bin/env bash
# Elastic runs whose nodes spend most of the time in collectives of 13 MB, in shared memory and over
# tcp: workers die within them. All samples are equal, so a mean over fewer nodes changes nothing, and
# the losses of all steps have to be those of one node alone. A step that was undone wrongly, taken
# twice or left out would show in all later ones.
#
# EXO_CHAOS_SEED: of the moments. EXO_CHAOS_SCALE: how many times longer each run is (1).
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"
. "$EXO_SOURCE/tests/cluster/elastic.bash"
steps=$((80 * ${EXO_CHAOS_SCALE:-1}))
[ "$slower" = 1 ] || steps=$((steps / 2)) # with sanitizers
command head -c 20000 /dev/zero | tr '\0' a >a.txt

# large NODES MORE: job.yaml, with more keys of `train`.
large() {
    cat >job.yaml <<YAML
exogym: 1
name: elastic
seed: 11
model: {name: gpt, layers: 1, heads: 4, width: 512, context: 8, vocabulary: 256, dropout: 0}
data: {name: text, path: a.txt, tokenizer: bytes, block: 8}
nodes: $1
train: {max_steps: $steps, batch_size: 1, val_size: 1, val_interval: $steps$2}
strategy: {name: ddp, optimizer: {name: sgd, lr: 1e-5}}
YAML
}

# agrees NAME: the losses of the run are those of one node. Those of steps that nobody who is left
# has taken are not known.
agrees() {
    paste -d, "one/elastic/ddp/train.csv" "$1/elastic/ddp/train.csv" | awk -F, -v steps="$steps" '
        NR == 1 {for (i = 1; i <= NF; i++) if ($i == "loss") {one = one ? one : i; other = i}; next}
        $other ~ /nan/ {next}
        {known++; d = $one - $other; if (d < 0) d = -d
         if (d > 1e-5 * $one) {print "step " $1 ": " $other " instead of " $one; bad = 1; exit}}
        END {if (!bad && known < steps * 0.9) {print "only " known " losses are known"; bad = 1}; exit bad}' ||
        fail "$1: the losses are not those of one node"
}

# alone: the losses of one node.
alone() {
    large 1 ''
    ok run job.yaml --json --no-plot --overwrite --save-dir one
    large 3 ', elastic: {min_nodes: 1, grace: 60 s}'
}

# dies_in NAME: the run NAME outlives deaths that come as soon as all nodes are back. A fast machine may
# end it before one is: then with twice the steps.
dies_in() {
    local deaths try
    for try in 1 2 3; do
        deaths=0
        rm -rf "${1:?}"
        train "$1"
        while ! gone "$run_pid"; do
            strike "$1"
            deaths=$((deaths + 1))
            until_true 120 eval "gone $run_pid || full $1 1" || fail "$1: the nodes do not come back: $(tail -5 "$1.err")"
            nap 200
        done
        wait "$run_pid" || fail "$1 ended with $?: $(tail -5 "$1.err")"
        echo "$1: $deaths deaths, $(events "$1" left) nodes were lost, $(events "$1" joined) came back"
        agrees "$1"
        [ "$(events "$1" joined)" = 0 ] || return 0
        [ $try = 3 ] || { steps=$((2 * steps)) && alone; }
    done
    fail "$1: no node came back"
}

first='[1-9][0-9]*'
alone
for edge in ipc tcp; do
    if [ $edge = tcp ]; then
        head --listen tcp://127.0.0.1:0 --no-ipc --insecure
        export EXOGYM_HEAD=$(sed 's/.* is ready at //' head_pid.out)
        at=(--listen tcp://127.0.0.1:0 --no-ipc --insecure --head "$EXOGYM_HEAD")
    else
        head
    fi
    for w in "${names[@]}"; do
        worker "$w" "${at[@]}"
    done
    dies_in $edge
    x stop || fail 'stop'
    ended 15 "$head_pid" 0
done
finish
