#!/usr/bin/env bash
# Compares DiLoCo on K = 1, 2, 4, ... nodes with ddp on one node (K = 0). All runs have the same
# global batch and number of steps, and therefore the same tokens. Prints a table, and draws
# DIR/scaling.png.
#
#     examples/03_diloco_scaling/run.sh [--ks "0 1 2 4 8"] [--h 30] [--steps 300] [--batch 64]
#                                       [--save-dir DIR] [KEY=VALUE...]
#
# KEY=VALUE changes the job, as --set of `exogym run` does. The environment variable EXOGYM is the
# path of the program; the default is `exogym` in PATH.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")

ks='0 1 2 4 8' h=30 steps=300 batch=64 save_dir=runs/diloco_scaling sets=()
while [ $# -gt 0 ]; do
    case $1 in
    --*)
        if [ $# -lt 2 ]; then
            echo "run.sh: $1 needs a value" >&2
            exit 2
        fi
        ;;
    esac
    case $1 in
    --ks) ks=$2 && shift ;;
    --h) h=$2 && shift ;;
    --steps) steps=$2 && shift ;;
    --batch) batch=$2 && shift ;;
    --save-dir) save_dir=$2 && shift ;;
    *=*) sets+=(--set "$1") ;;
    *)
        echo "run.sh: what is $1?" >&2
        exit 2
        ;;
    esac
    shift
done

folders=()
for k in $ks; do
    nodes=$((k > 0 ? k : 1)) strategy="{name: diloco, H: $h, label: k$k}"
    if [ $((batch % nodes)) != 0 ]; then
        echo "run.sh: a batch of $batch sequences cannot be shared out to $nodes nodes" >&2
        exit 2
    fi
    [ "$k" -gt 0 ] || strategy='{name: ddp, label: k0}'
    "${EXOGYM:-exogym}" run "$here/scaling.yaml" --overwrite --no-plot --save-dir "$save_dir" --name "k$k" --set "nodes=$nodes" --set "train.batch_size=$((batch / nodes))" \
        --set "train.max_steps=$steps" --set "compare=[$strategy]" ${sets[@]+"${sets[@]}"} >/dev/null
    folders+=("$save_dir/k$k/k$k")
done

printf '%-4s %6s %6s %12s %14s %8s\n' K nodes batch 'global loss' 'sent by a node' seconds
for k in $ks; do
    value() { sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*\$/\1/p" "$save_dir/k$k/k$k/result.json" | head -1; }
    awk -v k="$k" -v n="$((k > 0 ? k : 1))" -v b="$batch" -v l="$(value global_loss)" -v s="$(value bytes_sent_per_node)" -v t="$(value seconds)" \
        'BEGIN { printf "%-4s %6d %6d %12s %11.1f MB %8.1f\n", k, n, b / n, l == "" ? "-" : sprintf("%.4f", l), s / 1e6, t }'
done
"${EXOGYM:-exogym}" plot "${folders[@]}" -o "$save_dir/scaling.png" --title "DiLoCo with K nodes (K = 0: ddp), $steps steps of $batch sequences"
