#!/usr/bin/env bash
# The meters of a plugin's strategy, and of a model, are in every place where figures are shown,
# without a line of code there: meters.csv, TensorBoard's files, result.json, progress.json, status,
# also for Prometheus, and the lines of progress; in one process and on workers; once, also after a stop.
set -euo pipefail

fail() {
    echo "$*" >&2
    exit 1
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cp -r "$EXO_SOURCE/examples/24_own_metric" example
rm -rf example/build
mkdir example/build
"$CC" -std=c17 -O2 -Wall -Wextra -Wconversion -Wshadow -Werror -shared -fPIC -I"$EXO_SOURCE/include" example/noise.c \
    -o example/build/libnoise.so -lm
[ "$(wc -l <example/noise.c)" -lt 100 ] || fail "the example has 100 lines or more"

# run NAME [OPTION...]: trains the example's job on data that needs no files.
run() {
    timeout 120 "$EXOGYM" run example/job.yaml --name "$1" --set 'data={name: synthetic, count: 256}' --set train.max_steps=60 \
        --set nodes=2 --set train.batch_size=8 --set train.val_size=32 --no-plot "${@:2}" >"$1.out" 2>"$1.log"
}

# shown NAME: all sinks of that run have the plugin's meters.
shown() {
    python3 - "runs/$1/ddp_noise" <<'PYTHON' || fail "$1: not all is shown"
import csv, glob, json, sys
run = sys.argv[1]
rows = {}
for row in csv.DictReader(open(run + "/meters.csv")):
    key = int(row["step"]), row["meter"]
    assert key not in rows, ("twice", key)
    rows[key] = row["value"], row["unit"]
assert sorted({step for step, _ in rows}) == [0, 20, 40, 60], sorted({step for step, _ in rows})
events = b"".join(open(path, "rb").read() for path in glob.glob(run + "/events.out.tfevents.*"))
results = [json.load(open(run + "/" + name))["meters"] for name in ("result.json", "progress.json")]
assert results[0] == results[1]
for node in "node_0", "node_1":
    scope = node + ".strategy."
    assert rows[60, scope + "gradient_norm.count"][0] == "60" and rows[40, scope + "gradient_norm.count"][0] == "40"
    assert rows[60, scope + "noise_scale"][1] == "batches"
    meters = results[0]
    assert abs(meters[scope + "noise_scale"]["value"] / float(rows[60, scope + "noise_scale"][0]) - 1) < 1e-6
    assert meters[scope + "gradient_norm"]["count"] == 60 == sum(meters[scope + "gradient_norm"]["buckets"])
    assert meters[scope + "agreements"]["unit"] == "steps" and "squared norm" in meters[scope + "agreements"]["help"]
    assert 0 <= meters[node + ".model.accuracy"]["value"] <= 1
    for name in "noise_scale", "gradient_norm", "agreements":
        assert (node + "/strategy/" + name).encode() in events, name
assert b"batches in a step beyond which more of them help less (batches)" in events
assert meters["communication.items"]["value"] == 2 * 60 and "validation.global.accuracy" in meters
PYTHON
    "$EXOGYM" status --run "runs/$1" >status
    for line in '  node\.strategy\.noise_scale .* batches, by node  (batches in a step beyond which more of them help less)' \
        '  node\.strategy\.gradient_norm .*120 observations, mean .*, all nodes' '  node\.strategy\.agreements .* steps' '  node\.model\.accuracy '; do
        grep -q "^$line" status || fail "$1: status has no '$line': $(cat status)"
    done
    grep -q 'step 60/60 .*strategy.noise_scale .*strategy.agreements ' "$1.log" || fail "$1: no progress: $(cat "$1.log")"
}

# counted NAME: what does not depend on times.
counted() {
    grep -v 'samples_per_second\|blocked' "runs/$1/ddp_noise/meters.csv"
}

run here || fail "$(cat here.log)"
shown here
run there --workers 2 || fail "$(cat there.log)"
shown there
diff <(counted here) <(counted there) || fail "on workers other figures are counted"

# Goes on after its end with more steps, once here and once on workers: nothing is there twice,
# nothing is lost.
run more --set train.max_steps=40 || fail "$(cat more.log)"
run more --resume || fail "$(cat more.log)"
shown more
diff <(counted here) <(counted more) || fail "resumed, other figures are counted"
run moved --set train.max_steps=20 --workers 2 || fail "$(cat moved.log)"
run moved --set train.max_steps=40 --resume || fail "$(cat moved.log)"
run moved --resume --workers 1 || fail "$(cat moved.log)"
shown moved
diff <(counted here) <(counted moved) || fail "moved to other processes, other figures are counted"

# --json has them, too; and a built-in strategy's.
"$EXOGYM" run example/job.yaml --name built_in --set 'data={name: synthetic, count: 256}' --set train.max_steps=12 --set nodes=2 \
    --set train.val_size=32 --set 'strategy={name: ddp, bucket_size: 64 KiB, max_norm: 1}' --no-plot --json >built_in.json 2>log || fail "$(cat log)"
"$EXO_SOURCE/tools/check_meters.py" --result built_in.json || fail "docs/meters.md does not have them all"
for strategy in '{name: diloco, H: 2}' '{name: sparta, p: 0.5, max_norm: 1}' '{name: fedavg, H: 2}'; do
    "$EXOGYM" run example/job.yaml --name strategies --set 'data={name: synthetic, count: 64}' --set train.max_steps=2 --set nodes=2 \
        --set train.val_size=32 --set "strategy=$strategy" --overwrite --no-plot --json >strategy.json 2>log || fail "$strategy: $(cat log)"
    "$EXO_SOURCE/tools/check_meters.py" --result strategy.json || fail "$strategy: docs/meters.md does not have them all"
done
python3 - built_in.json <<'PYTHON' || fail "$(cat built_in.json)"
import json, sys
meters = json.load(open(sys.argv[1]))["runs"][0]["meters"]
early, late = (meters["node_1.strategy." + name]["value"] for name in ("early_buckets", "late_buckets"))
assert early > 0 and (early + late) % 12 == 0, (early, late)
assert meters["node_0.strategy.grad_norm"]["value"] > 0
PYTHON

# Of an elastic run that has lost nodes, `samples` is what was trained on, as train.csv says.
cat >lossy.yaml <<'YAML'
exogym: 1
name: lossy
model: {name: mlp, hidden: 1}
data: {name: synthetic, count: 64}
nodes: 5
clock: virtual
hosts: {h: {count: 5, up: 1 Gbit/s, down: 1 Gbit/s}}
compute: {step: 1 s}
failures: {mean_time_between: 200 s, repair: 20 s, seed: 1}
train: {max_steps: 60, batch_size: 2, val_size: none, final_checkpoint: false, elastic: {min_nodes: 1, grace: 10 min}}
strategy: ddp
YAML
"$EXOGYM" run lossy.yaml --save-dir lossy --no-plot --json >lossy.json 2>log || fail "$(cat log)"
python3 - lossy.json lossy/lossy/ddp/train.csv <<'PYTHON' || fail "$(cat lossy.json)"
import csv, json, sys
samples = json.load(open(sys.argv[1]))["runs"][0]["meters"]["samples"]["value"]
trained = int(list(csv.DictReader(open(sys.argv[2])))[-1]["examples_trained"])
assert samples == trained < 60 * 5 * 2, (samples, trained)
PYTHON
