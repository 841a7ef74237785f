#!/usr/bin/env bash
# Compares predictions of training jobs with reality. Each configuration runs on the virtual clock,
# on the real clock with emulated links in one process ("filter"), and on a real network: workers in
# network namespaces with limited rates (namespaces.sh), over TCP. Prints the seconds that the steps
# take, the errors of the prediction, and whether the order of the strategies is the same. Needs
# root; takes a quarter of an hour.
#
#     bench/reality/jobs.sh [--build FOLDER] [--steps N] [--repeats N] [CONFIGURATION...]
#
# A CONFIGURATION is N:UP:DOWN:LATENCY_MS, with rates in Mbit/s, such as 4:20:100:20. Each runs with
# ddp, diloco (H 5) and sparta (p 0.05). On every clock a step computes for a declared 60 ms, so
# that all nodes can share this machine's cores.
set -u
cd "$(dirname "$0")/../.." || exit 1

build=build/release steps=20 repeats=3
while [[ ${1:-} == --* ]]; do
    case $1 in
    --build) build=$2 ;;
    --steps) steps=$2 ;;
    --repeats) repeats=$2 ;;
    *)
        echo "jobs.sh: what is $1?" >&2
        exit 2
        ;;
    esac
    shift 2
done
configurations=("$@")
[ $# -gt 0 ] || configurations=(2:10:10:5 2:50:50:20 4:20:100:10 4:50:50:2 4:100:100:25 4:20:20:40 8:50:100:10)

# shellcheck disable=SC2034
DELAY=${DELAY:-$PWD/$build/bench/bench_reality_delay}
# shellcheck source=bench/reality/namespaces.sh
. bench/reality/namespaces.sh

scratch=$(mktemp -d)
rows=$scratch/rows
trap 'net_down; rm -rf "$scratch"' EXIT

labels=(ddp diloco sparta)

# job CLOCK N UP DOWN LATENCY: prints the job file. If CLOCK is none, the job has no links.
job() {
    cat <<END
exogym: 1
name: reality
model: mlp
data: synthetic
nodes: $2
compute: {step: 60 ms}
train: {max_steps: $steps, batch_size: 4, val_size: 16, val_interval: 0, timeout: 60}
compare: [ddp, {name: diloco, H: 5}, {name: sparta, p: 0.05}]
END
    [ "$1" = none ] || cat <<END
clock: $1
hosts: {home: {count: $2, up: $3 Mbit/s, down: $4 Mbit/s}}
links: {default: {latency: $5 ms}}
END
}

# seconds FILE...: prints for each strategy the seconds that its steps take, the median over the
# files.
seconds() {
    for file in "$@"; do
        sed -n 's/^ *"train_seconds": \([0-9.e+-]*\),$/\1/p' "$file" | awk '{ print NR, $1 }'
    done | sort -k1n -k2n | awk '{ if ($1 != last) { if (n) print v[int((n + 1) / 2)]; n = 0; last = $1 } v[++n] = $2 } END { print v[int((n + 1) / 2)] }'
}

# for_real N: runs the job with a worker in each host, and head and driver in the hub, whose rate is
# not limited.
for_real() {
    local n=$1 hub=${net_name}_hub i head
    ip netns exec "$hub" ip link set lo up
    ip netns exec "$hub" "$build/exogym-head" --cluster reality --listen tcp://10.78.0.1:7700 --insecure --state "$scratch/state" \
        >"$scratch/head.log" 2>&1 &
    for ((i = 0; i < n; i++)); do
        for try in $(seq 100); do grep -q 7700 "$scratch/head.log" && break; sleep 0.1; done
        EXOGYM_HOST_ID=reality$i in_host "$i" "$build/exogym-worker" --name "w$i" --cluster reality --head tcp://10.78.0.1:7700 --no-ipc \
            --listen "tcp://$(host_ip "$i"):0" --insecure >"$scratch/worker$i.log" 2>&1 &
    done
    for try in $(seq 100); do
        [ "$(ip netns exec "$hub" "$build/exogym" list nodes --head tcp://10.78.0.1:7700 2>/dev/null | grep -c ' worker ')" = "$n" ] && break
        sleep 0.1
    done
    ip netns exec "$hub" "$build/exogym" run "$scratch/job.yaml" --head tcp://10.78.0.1:7700 --save-dir "$scratch/runs" --overwrite --no-plot --json
    local st=$?
    for ((i = -1; i < n; i++)); do
        local ns=$hub
        [ "$i" -ge 0 ] && ns=$(host_netns "$i")
        for pid in $(ip netns pids "$ns"); do
            [ "$(cat /proc/"$pid"/comm 2>/dev/null | cut -c1-6)" = exogym ] && kill -9 "$pid"
        done
    done
    return $st
}

printf '%-18s %-7s %10s %10s %10s %9s %9s\n' configuration strategy virtual filter real 'error' 'to filter'
for configuration in "${configurations[@]}"; do
    IFS=: read -r n up down latency <<<"$configuration"
    job virtual "$n" "$up" "$down" "$latency" >"$scratch/job.yaml"
    "$build/exogym" run "$scratch/job.yaml" --save-dir "$scratch/runs" --overwrite --no-plot --json >"$scratch/virtual" 2>"$scratch/err" || cat "$scratch/err"
    for ((k = 0; k < repeats; k++)); do
        job real "$n" "$up" "$down" "$latency" >"$scratch/job.yaml"
        "$build/exogym" run "$scratch/job.yaml" --save-dir "$scratch/runs" --overwrite --no-plot --json >"$scratch/filter$k" 2>"$scratch/err" || cat "$scratch/err"
        job none "$n" "$up" "$down" "$latency" >"$scratch/job.yaml"
        net_up "$n" "${up}mbit" "${down}mbit" "$latency" || exit 1
        for_real "$n" >"$scratch/real$k" 2>"$scratch/err" || cat "$scratch/err" "$scratch"/*.log
        net_down
    done
    paste <(seconds "$scratch/virtual") <(seconds "$scratch"/filter?) <(seconds "$scratch"/real?) |
        awk -v c="$configuration" -v l="${labels[*]}" 'BEGIN { split(l, label, " ") }
            { printf "%-18s %-7s %9.2fs %9.2fs %9.2fs %+8.1f%% %+8.1f%%\n", c, label[NR], $1, $2, $3, 100 * ($1 / $3 - 1), 100 * ($1 / $2 - 1) }' | tee -a "$rows"
done
# summary WHAT COLUMN: prints the median and the worst error of a column.
summary() {
    awk -v column="$2" '{ e = $column + 0; print e < 0 ? -e : e }' "$rows" | sort -n |
        awk -v what="$1" '{ e[NR] = $1 } END { printf "%s: %d runs, error of the prediction: median %.1f %%, worst %.1f %%\n", what, NR, e[int((NR + 1) / 2)], e[NR] }'
}
summary 'against reality' 6
summary 'against the filter on the real clock' 7
# Is the order of a configuration's strategies as predicted? Pairs within 5 % of each other do not
# count.
awk '{ c = $1; v[c, ++n[c]] = $3 + 0; r[c, n[c]] = $5 + 0 }
    END {
        for (c in n) for (i = 1; i <= n[c]; i++) for (k = 1; k < i; k++) {
            a = r[c, i]; b = r[c, k]
            if (a / b > 0.95 && a / b < 1.05) continue
            pairs++
            wrong += (a < b) != (v[c, i] < v[c, k])
        }
        printf "order of strategies: %d of %d pairs as in reality\n", pairs - wrong, pairs
    }' "$rows"
