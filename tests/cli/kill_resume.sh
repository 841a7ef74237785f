#!/usr/bin/env bash
# A run that is killed with SIGKILL at random moments and resumed each time ends with the bits of
# one that was left alone.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/job.yaml" <<'YAML'
exogym: 1
name: killed
seed: 5
model: {name: mlp, hidden: 64}
data: {name: synthetic, count: 1024}
nodes: 3
train: {max_steps: 400, batch_size: 32, val_size: 64, val_interval: 50, checkpoint_interval: 5}
strategy: {optimizer: {name: adamw, lr: 1e-3}}
compare: [ddp, {name: diloco, H: 7}, {name: sparta, p: 0.05}]
YAML

hashes() {
    grep -ho '"sha256": *"[0-9a-f]*"' "$1"/killed/*/result.json | sort
}

"$EXOGYM" run "$work/job.yaml" --save-dir "$work/whole" --no-plot >"$work/whole.log" 2>&1 ||
    { cat "$work/whole.log"; exit 1; }
[ "$(hashes "$work/whole" | wc -l)" = 3 ]

kills=0
for attempt in $(seq 1 60); do
    "$EXOGYM" run "$work/job.yaml" --save-dir "$work/killed" --no-plot --resume >"$work/killed.log" 2>&1 &
    pid=$!
    # From a moment to about a second: a different place in the run each time.
    sleep "0.$((RANDOM % 9))$((RANDOM % 10))"
    kill -KILL "$pid" 2>/dev/null || :
    status=0
    wait "$pid" 2>/dev/null || status=$?
    if [ "$status" = 0 ]; then
        [ "$kills" = 0 ] || break
        rm -rf "$work/killed" # the first kill came too late: begin again
        continue
    fi
    [ "$status" = 137 ] || { echo "attempt $attempt ended with $status"; cat "$work/killed.log"; exit 1; }
    kills=$((kills + 1))
    [ "$kills" -lt 12 ] || {
        "$EXOGYM" run "$work/job.yaml" --save-dir "$work/killed" --no-plot --resume >"$work/killed.log" 2>&1
        break
    }
done
echo "killed $kills times"
[ "$kills" -ge 1 ]

if ! diff <(hashes "$work/whole") <(hashes "$work/killed"); then
    echo "the parameters differ"
    exit 1
fi
for strategy in ddp diloco sparta; do
    for file in train.csv validation.csv; do
        cmp "$work/whole/killed/$strategy/$file" "$work/killed/killed/$strategy/$file"
    done
    # The ledger counts all of the run, not what came after the last kill; so do the result's
    # traffic and the bytes of each evaluation.
    diff <(cut -d, -f1-9 "$work/whole/killed/$strategy/ledger.csv") <(cut -d, -f1-9 "$work/killed/killed/$strategy/ledger.csv")
    diff <(cut -d, -f1,3 "$work/whole/killed/$strategy/metrics.csv") <(cut -d, -f1,3 "$work/killed/killed/$strategy/metrics.csv")
    # So do meters, each once a step; but for times.
    diff <(grep -v 'samples_per_second\|blocked' "$work/whole/killed/$strategy/meters.csv") \
        <(grep -v 'samples_per_second\|blocked' "$work/killed/killed/$strategy/meters.csv")
    for key in messages calls payload_bytes encoded_bytes wire_bytes bytes_sent_per_node; do
        diff <(grep "\"$key\"" "$work/whole/killed/$strategy/result.json") <(grep "\"$key\"" "$work/killed/killed/$strategy/result.json")
    done
done
