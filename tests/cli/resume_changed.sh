#!/usr/bin/env bash
# A job whose graph was changed while it ran goes on with the graph that it had last: its end is
# that of the run that was left alone, to the byte, whether the changes were made before its
# checkpoint or after it; a graph that is asked for meanwhile replaces those still to come.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

cat >job.yaml <<'END'
exogym: 1
name: live
seed: 3
clock: virtual
model: {name: mlp, hidden: 8}
data: {name: synthetic, count: 256}
nodes: 2
hosts: {home: {count: 2, up: 2 Mbit/s, down: 2 Mbit/s}}
links: {default: {latency: 5 ms}}
compute: {step: 50 ms}
train: {max_steps: 1500, batch_size: 4, val_size: 16, val_interval: 100, checkpoint_interval: 20}
strategy: {name: ddp, optimizer: {name: sgd, lr: 1e-2}}
END
run=runs/live/ddp

# newest FOLDER: the step of its newest checkpoint, or nothing.
newest() {
    ls "$1/checkpoints" 2>/dev/null | sed -n 's/^step_0*\([0-9][0-9]*\)$/\1/p' | tail -1
}

# await WHAT COMMAND...: until it succeeds; false if the run, $live, has ended first, or a minute has passed.
await() {
    local what=$1
    shift
    for try in $(seq 3000); do
        "$@" && return
        kill -0 "$live" 2>/dev/null || return
        sleep 0.02
    done
    fail "$what"
    return 1
}

beyond() {
    local step
    step=$(newest "$run")
    [ "${step:-0}" -gt "$1" ]
}

# change OPTIONS...: of the run in $run.
change() {
    "$EXOGYM" graph apply "$job" --to "$run" "$@" >apply.out 2>apply.err
}

# The step after which the last of the recorded changes was made.
last_change() {
    python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["changes"][-1]["step"])' "$1/config.json"
}

# Everything that a run leaves, but for what the real clock says.
same_as_whole() {
    for file in ledger.csv train.csv validation.csv metrics.csv network.json timeline.json; do
        cmp "$1/live/ddp/$file" "whole/live/ddp/$file" || fail "$1: another $file"
    done
    python3 - "$1/live/ddp" whole/live/ddp <<'END' || fail "$1: the results differ, or the record of changes"
import json, sys
a, b = (json.load(open(f"{folder}/result.json")) for folder in sys.argv[1:])
for key in ("sha256", "seconds", "traffic", "bytes_sent_per_node", "changes"):
    assert a.get(key) == b.get(key), (key, a.get(key), b.get(key))
assert len(a["changes"]) == 2 and all("graph" not in c for c in a["changes"])
a, b = (json.load(open(f"{folder}/config.json"))["changes"] for folder in sys.argv[1:])
assert a == b and set(a[1]["graph"]) == {"hosts", "links", "edges"}
END
}

# --- One run, changed twice, and what its folder was meanwhile
# --------------------------------------------------------------

job=job.yaml
# changed_twice: whether the run, which goes on in the background, was changed twice before its end, and its
# folder was copied to late and early meanwhile.
changed_twice() {
    await 'no change could be made' change --set hosts.home.up='20 Mbit/s' --set hosts.home.down='20 Mbit/s' &&
        await 'no second change could be made' change --set links.default.latency='50 ms' --set 'edges=[{carries: gradients, codec: bf16}]' &&
        step=$(last_change $run) && await 'no checkpoint after the change' beyond "$step" || return
    kill -STOP "$live" # as a kill would leave it, once no thread writes any more
    while grep -q '^State:.[DRS]' /proc/"$live"/task/*/status 2>/dev/null; do sleep 0.01; done
    mkdir late early
    cp -r runs/live late
    cp -r runs/live early
    kill -CONT "$live"
    [ "$(newest late/live/ddp)" -lt $steps ]
}
# A fast machine may end it before: then with more steps.
for steps in 1500 6000 24000; do
    rm -rf runs late early
    sed -i "s/max_steps: [0-9]*/max_steps: $steps/" job.yaml
    "$EXOGYM" run job.yaml --no-plot >whole.out 2>whole.err &
    live=$!
    changed_twice && in_time=yes || in_time=
    wait "$live" || fail "the job that was changed ended with $?: $(tail -3 whole.err)"
    [ -z "$in_time" ] || break
done
mv runs whole
[ "$in_time" ] || fail 'the run was over before it was changed and stopped'
[ "$(newest late/live/ddp)" -gt "$step" ] || fail 'the checkpoint is not after the change'
grep -q ',' whole/live/ddp/ledger.csv || fail 'there is no ledger'

# --- From a checkpoint after the changes, and from before them
# ----------------------------------------------------------------

ok run job.yaml --no-plot --save-dir late --resume
[ "$(grep -c 'the graph was changed again, as it was before the stop' err)" = 2 ] || fail "two changes are not made again: $(cat err)"
same_as_whole late

cp -r early other
cp -r early old
rm -r early/live/ddp/checkpoints # as if it had none yet: each change is made again after its step
ok run job.yaml --no-plot --save-dir early --resume
same_as_whole early

# --- Another graph is asked for before they come, and more steps are wanted
# ---------------------------------------------------

cat >edit.py <<'END'
import json, sys
path, key = sys.argv[1:]
config = json.load(open(path))
change = config["changes"][-1]
if key == "step":
    change["step"] += 10000000
else:
    del change[key]
json.dump(config, open(path, "w"))
END
python3 edit.py other/live/ddp/config.json step
run=other/live/ddp
mv other begun
for more in $((steps + 200)) $((4 * steps)) $((16 * steps)); do
    rm -rf other
    cp -r begun other
    further=(--set train.max_steps=$more --set train.timeout=540)
    "$EXOGYM" run job.yaml --no-plot --save-dir other --resume "${further[@]}" >out 2>err &
    live=$!
    await 'no change of the resumed run could be made' change "${further[@]}" --set hosts.home.up='9 Mbit/s' && in_time=yes || in_time=
    wait "$live" || fail "the resumed run ended with $?: $(tail -3 err)"
    [ -z "$in_time" ] || break
done
[ "$in_time" ] || fail 'the resumed run was over before it was changed'
has err 'the graph was changed again, as it was before the stop'
python3 - other/live/ddp "$more" <<'END' || fail "the record has what was undone: $(cat other/live/ddp/config.json)"
import json, sys
config = json.load(open(sys.argv[1] + "/config.json"))
assert [c["step"] <= int(sys.argv[2]) for c in config["changes"]] == [True, True], config["changes"]
assert '"up": "9.0 Mbit/s"' in json.dumps(config["changes"][1]["graph"]["hosts"]).replace("9 Mbit", "9.0 Mbit")
END

# --- A record of an earlier version has no graphs
# -----------------------------------------------------------------------------

python3 edit.py old/live/ddp/config.json graph
ok run job.yaml --no-plot --save-dir old --resume
has err "the change after step $step ("
has err ') was recorded without its graph'
[ "$(grep -c 'the graph was changed again' err)" = 1 ] || fail "the change that has a graph is not made again: $(cat err)"

finish
