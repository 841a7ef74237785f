#!/usr/bin/env bash
# `exogym plan` lists compositions that fit, best first: their times are those of runs on the virtual
# clock, their memory is what a node takes, and `parallel: auto` runs the first.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

cat >wan.yaml <<'END'
seed: 7
model: {name: mlp, hidden: [160, 160]}
data: {name: synthetic, count: 64}
nodes: 2
train: {max_steps: 2, batch_size: 8, val_size: none}
clock: virtual
compute: {step: 30 ms}
hosts: {home: {count: 4, up: 20 Mbit/s, down: 100 Mbit/s}}
links: {default: {bandwidth: 100 Mbit/s, latency: 5 ms}}
strategy: {name: ddp, optimizer: sgd}
END
# rows N WHAT: the table has N compositions.
rows() {
    [ "$(grep -cE '^ *[0-9]+ .* (ddp|fsdp)' out)" = "$1" ] || fail "$2: not $1 compositions: $(cat out)"
}

# --- The table and its order
# --------------------------------------------------------------------------------------------

ok plan wan.yaml --nodes 4 --json
cp out plan.json
[ ! -e runs ] || fail 'a plan made a folder'
python3 - <<'END' || fail 'the order is wrong'
import json
plan = json.load(open("plan.json"))
all = plan["compositions"]
times = [c["step_seconds"] for c in all]
assert plan["compute"] == "declared" and plan["links"] and plan["memory_limit"] is None, plan
assert len(all) == 10 and times == sorted(times) and min(times) > 0.03, times
assert len({c["memory"] for c in all}) > 3 and all[0]["set"][0].startswith("strategy={"), all
END

# Less memory leaves fewer compositions, and none at last. The limit is in the middle of the widest gap: the
# process itself does not take the same memory each time.
ok plan wan.yaml --nodes 4 --set 'model.hidden=[600, 600]' --json
some=$(python3 -c 'import json
m = sorted(c["memory"] for c in json.load(open("out"))["compositions"])
print(max((b - a, (a + b) // 2) for a, b in zip(m, m[1:]))[1])')
ok plan wan.yaml --nodes 4 --set 'model.hidden=[600, 600]' --memory "${some}B"
has out 'mlp with 837,610 parameters, 4 nodes, batch 8 per node, at most '
has out "a step computes 30 ms, as the job's compute declares"
has out ' more do not fit; the smallest of them, '
has out 'the first: exogym run wan.yaml --set '
bad 1 'exogym: plan: no composition of 2 nodes fits in 1 MiB; the smallest is ' plan wan.yaml --memory 1MiB
# Groups are of the divisors, whatever size the job has; apart, they keep it.
ok plan wan.yaml --nodes 3 --set 'strategy={name: fsdp, group_size: 2}' --set 'parallel={tensor: 3}'
rows 6 'three nodes'
has out "--set 'parallel={}'"
ok plan wan.yaml --nodes 4 --set 'strategy={name: fsdp, group_size: 2, across: {name: diloco, H: 2}}'
rows 4 'groups apart'
ok plan wan.yaml --nodes 4 --step-time 2s --set 'strategy.optimizer=muon'
rows 10 'shards under muon'
has out 'a step computes 2 s, as given'
sed '/^c[lo].*:/d; /^links:/d; /^hosts:/d' wan.yaml >plain.yaml
ok plan plain.yaml --nodes 1
rows 1 'one node'
has out 'as measured with one node on this machine'
fox_text 40
ok plan plain.yaml --step-time 1ms --set 'model={name: gpt, layers: 1, heads: 2, width: 16, context: 16}' --set 'data={name: text, path: text.txt, block: 16}'
has out 'prefetch, checkpoint'
has out 'the job declares no links: messages take no time'
has out 'ddp, tensor of 2'
has out 'ddp, sequence of 2'
has out 'ddp, context of 2'

# Shared copies: the batch of a copy is that of its nodes, so all compositions learn from as many samples, and the
# first one is a job that takes the predicted time.
fox_text 100
ok plan wan.yaml --set 'model={name: gpt, layers: 2, heads: 2, width: 16, context: 16}' --set 'data={name: text, path: text.txt, block: 16}' \
    --set train.correlation_interval=5
has out ' more are impossible: parallel.context does not go with train.correlation_interval'
gpt=(--set 'model={name: gpt, layers: 4, heads: 2, width: 32, context: 16}' --set 'data={name: text, path: text.txt, block: 16}' --set nodes=4)
ok plan wan.yaml "${gpt[@]}" --json
python3 - out "$EXOGYM" "${gpt[@]}" <<'END' || fail 'nodes that share a copy take another time than planned'
import json, subprocess, sys
all = json.load(open(sys.argv[1]))["compositions"]
products = [c for c in all if sum(c[key] > 1 for key in ("tensor", "pipeline", "context")) > 1]
pipelines = [c for c in all if c["pipeline"] > 1 and c not in products]
# in two stages with and without buckets, in four, and each with checkpoint; and two with shards, which fit
assert sorted((c["pipeline"], str(c["sharding_strategy"])) for c in pipelines) == [
    (2, "None")] * 4 + [(2, "shard_grad_op")] + [(4, "None")] * 2, pipelines
# two heads, sequences of 16 tokens
parts = [c for c in all if (c["tensor"] > 1 or c["context"] > 1) and c not in products]
assert {(c["tensor"], c["sequence"], c["context"]) for c in parts} == {(2, False, 1), (2, True, 1), (1, False, 2), (1, False, 4)}, parts
shards = [c for c in parts if c["strategy"] == "fsdp"]
assert {(c["tensor"], c["context"], c["sharding_strategy"], c["group_size"], c["overlap"]) for c in shards} == {
    (t, 3 - t, form, 2, ahead) for t in (1, 2) for form in ("full_shard", "shard_grad_op") for ahead in (True, False)}, shards
# several of them: with and without sequence, and without a checkpoint, since all fit
assert sorted((c["tensor"], c["pipeline"], c["context"], c["sequence"], c["checkpoint"]) for c in products) == [
    (1, 2, 2, False, False), (2, 1, 2, False, False), (2, 1, 2, True, False), (2, 2, 1, False, False), (2, 2, 1, True, False)], products
one = [c for c in pipelines if c["strategy"] == "fsdp"] + [c for c in shards if c["sequence"] and not c["overlap"]][:1]
for c in one + [c for c in pipelines + parts + products if c["strategy"] == "ddp" and not c["checkpoint"] and not c["overlap"]]:
    sets = [word for one in c["set"] for word in ("--set", one)]
    assert f"train.batch_size={8 * c['pipeline'] * c['tensor'] * c['context']}" in sets, sets
    took = []
    for steps in (2, 5):
        run = [sys.argv[2], "run", "wan.yaml", "--no-plot", "--overwrite", "--json", *sys.argv[3:], *sets]
        out = subprocess.run([*run, "--set", f"train.max_steps={steps}"], capture_output=True, check=True).stdout
        took.append(json.loads(out)["runs"][0]["train_seconds"])
    assert abs(c["step_seconds"] - (took[1] - took[0]) / 3) < 1e-6, (c, took)
END
# Products that do not fit are tried with checkpoint, too (of odd sequences they are few). The limit is above the smallest
# composition by more than the process itself takes from time to time.
long=(--set 'model={name: gpt, layers: 4, heads: 2, width: 64, context: 511}' --set 'data={name: text, path: text.txt, block: 511}' --set nodes=4 --set train.batch_size=1)
ok plan wan.yaml "${long[@]}" --json
some=$(python3 -c 'import json
print(int(1.03 * min(c["memory"] for c in json.load(open("out"))["compositions"])))')
ok plan wan.yaml "${long[@]}" --memory "${some}B" --json
python3 - <<'END' || fail 'other products than those that do not fit have a checkpoint'
import json
forms = {True: set(), False: set()}
for c in json.load(open("out"))["compositions"]:
    form = (c["tensor"], c["pipeline"], c["context"])
    if sum(count > 1 for count in form) > 1 and (c["checkpoint"] or not c["fits"]):
        forms[c["checkpoint"]].add(form)
assert forms[True] == forms[False] and (2, 2, 1) in forms[True], forms
END
# Over slow links `auto` takes one: activations are smaller than gradients.
ok run wan.yaml "${gpt[@]}" --no-plot --set parallel=auto --set 'model.width=128' --set model.heads=1 --set data.block=15 --json --name staged
has err 'parallel: ddp, pipeline of '
python3 - runs/staged/auto/config.json <<'END' || fail "auto took no pipeline: $(cat runs/staged/auto/config.json)"
import json, sys
config = json.load(open(sys.argv[1]))
stages = config["parallel"]["pipeline"]
assert stages in (2, 4) and config["train"]["batch_size"] == 8 * stages, config
END

# --- Errors
# -------------------------------------------------------------------------------------------------------------

help='(see `exogym help plan`)'
expect 2 "exogym: plan: --nodes 0: expected a number from 1 to 1024 $help" plan wan.yaml --nodes 0
expect 2 "exogym: plan: --memory much: expected a size, such as 16GiB $help" plan wan.yaml --memory much
expect 2 "exogym: wan.yaml:10:11: plan: compares compositions of ddp and fsdp, and 'diloco' trains in another way" \
    plan wan.yaml --set strategy.name=diloco
expect 2 "exogym: job.yaml:9:10: plan: takes one strategy, and 'compare' has several: in a job without 'compare', name ddp or fsdp under 'strategy'" \
    plan job.yaml

# --- parallel: auto
# -----------------------------------------------------------------------------------------------------

# The run takes the first composition, and its steps the predicted time.
(cat wan.yaml && echo 'parallel: {auto: {memory: 16 GiB}}') >auto.yaml
ok run auto.yaml --no-plot --set nodes=4 --json
has err ' a node are predicted'
two=$(json out train_seconds)
ok run wan.yaml --no-plot --set nodes=4 --set train.max_steps=5 --set parallel=auto --json --name five
python3 - "$two" "$(json out train_seconds)" <<'END' || fail "parallel: auto took another composition: $(cat runs/five/auto/config.json)"
import json, sys
first = json.load(open("plan.json"))["compositions"][0]
config = json.load(open("runs/five/auto/config.json"))
strategy = config["strategy"]
assert "parallel" not in config and config["train"]["minibatch_size"] == 8, config
assert strategy["name"] == first["strategy"] and strategy.get("sharding_strategy") == first["sharding_strategy"]
took = (float(sys.argv[2]) - float(sys.argv[1])) / 3
assert abs(first["step_seconds"] - took) < 1e-6, (first["step_seconds"], took)
END
bad 1 'parallel: no composition of 2 nodes fits in 1 MiB' run auto.yaml --set 'parallel={auto: {memory: 1 MiB}}'
expect 2 "exogym: --set parallel: parallel: expected auto, or a mapping such as {tensor: 2}" run auto.yaml --set parallel=yes
bad 2 "parallel: auto chooses the rest: leave 'tensor' out" run auto.yaml --set parallel.tensor=2

# --- What a node takes
# ---------------------------------------------------------------------------------------------------------

# The largest process of a run with a worker for each node is the first node's.
if grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt"; then
    # takes_what_is_planned SHARDINGS SET ...: of compositions without overlap.
    takes_what_is_planned() {
        local sets=() shardings=$1
        shift
        for one in "$@"; do sets+=(--set "$one"); done
        ok plan plain.yaml --step-time 1ms "${sets[@]}" --json
        python3 - out "$shardings" "$@" <<'END' || fail "$*: other memory than planned"
import json, os, subprocess, sys
for c in json.load(open(sys.argv[1]))["compositions"]:
    if str(c["sharding_strategy"]) not in sys.argv[2].split() or c["overlap"] or c["checkpoint"]:
        continue
    command = [os.environ["EXOGYM"], "run", "plain.yaml", "--no-plot", "--workers", "2", "--overwrite"]
    for one in c["set"] + sys.argv[3:]:
        command += ["--set", one]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(run.pid, 0) # its children count, too
    used = usage.ru_maxrss * 1024
    assert status == 0 and 0.9 * used < c["memory"] < 1.1 * used, (c, status, used)
END
    }
    takes_what_is_planned 'None full_shard' 'model.hidden=[1500, 1500]'
    # activations are most of it, and an evaluation
    takes_what_is_planned None model=mnist_cnn train.batch_size=32 train.val_size=32
    # a plain copy, and copies that nodes share
    fox_text 300
    takes_what_is_planned None 'model={name: gpt, layers: 4, heads: 4, width: 256, context: 64}' 'data={name: text, path: text.txt, block: 64}'
    # shards of stages: their units stay open within a step, and are closed when the average leaves
    # (one head and odd sequences leave stages only)
    staged=(--set nodes=4 --set 'model={name: gpt, layers: 2, heads: 1, width: 384, context: 63}' --set 'data={name: text, path: text.txt, block: 63}')
    ok plan plain.yaml --step-time 1ms "${staged[@]}" --json
    python3 - out "${staged[@]}" <<'END' || fail 'shards of stages: other memory than planned'
import json, os, subprocess, sys
c = next(c for c in json.load(open(sys.argv[1]))["compositions"] if c["pipeline"] > 1 and c["strategy"] == "fsdp")
sets = [word for one in c["set"] for word in ("--set", one)]
command = [os.environ["EXOGYM"], "run", "plain.yaml", "--no-plot", "--workers", "4", "--overwrite", *sys.argv[2:], *sets]
run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_, status, usage = os.wait4(run.pid, 0)
used = usage.ru_maxrss * 1024
assert status == 0 and 0.92 * used < c["memory"] < 1.08 * used, (c, status, used)
END
fi
finish
