#!/usr/bin/env bash
# Runs strategies.yaml over three rates, prints a table, and draws a picture for each rate. It goes
# on where it was stopped. Options are those of `exogym sweep`, such as --seeds 3 or
# --set train.max_steps=50. The environment variable EXOGYM is the path of the program; the default is
# `exogym` in PATH.
set -euo pipefail
here=$(dirname "$0")
exogym=${EXOGYM:-exogym}

"$exogym" sweep "$here/strategies.yaml" --grid 'hosts.node.up=1 Gbit/s,100 Mbit/s,10 Mbit/s' --save-dir runs --name strategies --no-plot "$@" >/dev/null

# sweep.csv: label, strategy, rate, seeds, ... A label ends with -up_RATE.
awk -F, '
    NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
    { name = $1; sub(/-up_.*/, "", name) }
    !(name in loss) { names[++count] = name }
    { loss[name] = $column["global_loss"]; sent[name] = $column["bytes_sent_per_node"]; time[name, $3] = $column["seconds"] }
    END {
        print "| strategy | validation loss | sent by each node | 1 Gbit/s | 100 Mbit/s | 10 Mbit/s |\n|---|---|---|---|---|---|"
        for (i = 1; i <= count; i++) {
            n = names[i]
            printf "| %s | %.3f | %.2f MB | %.1f s | %.1f s | %.1f s |\n", n, loss[n], sent[n] / 1e6, time[n, "1 Gbit/s"], time[n, "100 Mbit/s"], time[n, "10 Mbit/s"]
        }
    }' runs/strategies/sweep.csv
for rate in '1 Gbit' '100 Mbit' '10 Mbit'; do
    name=${rate/ /_}_s
    "$exogym" plot runs/strategies/*-up_"$name"* --title "four hosts, $rate/s up" -o "runs/strategies/$name.png"
done
