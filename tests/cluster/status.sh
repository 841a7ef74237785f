#!/usr/bin/env bash
# How runs go while they go, and after: `exogym status` of a cluster, `exogym status --run` of a
# folder.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

cat >flow.yaml <<YAML
exogym: 1
name: flow
plugins: [$EXO_BUILD/tests/plugins/numbers.so]
actors:
  source: {class: source, count: 2, config: {items: 200, pause_us: 10000}}
  sink: {class: sink}
edges:
  - {from: source, to: sink, carries: numbers}
YAML

cat >train.yaml <<'YAML'
exogym: 1
name: train
seed: 7
model: mlp
data: {name: synthetic, count: 256}
nodes: 2
train: {max_steps: 1000000, batch_size: 16, val_size: 64, val_interval: 0}
strategy: {optimizer: {name: adamw, lr: 1e-3}}
compare: [ddp]
YAML

# python CODE FILE: whether what the code says of `all`, the JSON of the file, is so.
python() {
    python3 -c "import json, sys
all = json.load(open(sys.argv[1]))
def moved(report):
    return report['time_s'] > 0 and sum(e['items'] for e in report['edges']) > 0
sys.exit(0 if ($1) else 1)" "$2"
}

# run_says CODE FOLDER: status --run says so of its first run, `run`.
run_says() {
    "$EXOGYM" status --run "$2" --json >run.json 2>run.err && python "[run for run in [all['runs'][0]] if $1]" run.json
}

# job_says CODE NAME: status says so of the job's report.
job_says() {
    x status --json >status.json 2>status.err &&
        python "[job for job in all['jobs'] if job['name'] == '$2' and 'report' in job for report in [job['report']] if $1]" status.json
}

# --- In one process, without a cluster
# --------------------------------------------------------------------------------

expect 1 'exogym: runs/flow: no run has said how it goes in this folder' status --run runs/flow

# Its last items wait until it was looked at.
"$EXOGYM" run flow.yaml --set actors.source.config.gate="$PWD/gate" >flow.out 2>flow.err &
flow=$!
until_true 20 run_says "run['running'] and moved(run['report']) and run['report']['meters']['sink_0.count']['value'] > 0" runs/flow ||
    fail "the graph says nothing while it runs: $(cat run.json run.err flow.err)"
ok status --run runs/flow
has out 'runs/flow: running'
has out '  sink_0.count '
has out 'source>sink:numbers'
: >gate
wait "$flow" || fail "the graph ended with $?: $(cat flow.err)"
run_says "not run['running'] and run['report']['clock'] == 'real' and run['report']['meters']['sink_0.count']['value'] == 400" runs/flow ||
    fail "after the end: $(cat run.json run.err)"
ok status --run runs/flow
has out 'runs/flow: finished'
has out '  sink_0.count  400 items  (items of numbers)'
python3 - <<'PYTHON' || fail "the last report is not the result: $(cat runs/flow/progress.json runs/flow/result.json)"
import json
last, result = json.load(open("runs/flow/progress.json")), json.load(open("runs/flow/result.json"))
assert last["edges"] == result["edges"] and last["time_s"] == result["time_s"]
assert last["meters"] == result["meters"] and result["meters"]["sink_0.count"] == {
    "kind": "counter", "unit": "items", "help": "items of numbers", "value": 400}
PYTHON

ok run flow.yaml --name soon --set clock=virtual --set actors.source.config.items=5 --set actors.source.config.pause_us=0
run_says "run['report']['clock'] == 'virtual' and moved(run['report'])" runs/soon || fail "virtual: $(cat run.json)"
ok status --run runs/soon
has out ' of the virtual clock'

"$EXOGYM" run train.yaml --no-plot >train.out 2>train.err &
train=$!
until_true 30 run_says "run['running'] and moved(run['report']) and run['report']['meters']['step']['value'] > 1" runs/train ||
    fail "the job says nothing while it runs: $(cat run.json run.err train.err)"
ok status --run runs/train
has out 'runs/train/ddp: running'
has out '  until step 1000000'
has out '  step '
has out '  train.loss '
has out '  node.model.accuracy '
kill -INT "$train"
wait "$train"
run_says "not run['running'] and run['state'] == 'stopped' and run['report']['meters']['step']['value'] > 1" runs/train/ddp ||
    fail "stopped: $(cat run.json)"
ok run train.yaml --no-plot --set train.max_steps=3
run_says "not run['running'] and run['report']['meters']['step']['value'] == 3 and run['report']['edges'][0]['items'] == 3 * 2" \
    runs/train || fail "after three steps: $(cat run.json)"
[ "$(ls -A runs/train/ddp | grep -c part)" = 0 ] || fail "something is left: $(ls -A runs/train/ddp)"

# Who is killed cannot say that it has ended, and is not taken for a run that has.
"$EXOGYM" run flow.yaml --name killed --set actors.source.config.items=100000 >flow.out 2>flow.err &
flow=$!
"$EXOGYM" run train.yaml --name killed_train --no-plot >train.out 2>train.err &
train=$!
until_true 30 run_says "run['state'] == 'running' and moved(run['report'])" runs/killed || fail "the graph does not run: $(cat flow.err)"
until_true 30 run_says "run['state'] == 'running' and moved(run['report'])" runs/killed_train || fail "the job does not run: $(cat train.err)"
kill -9 "$flow" "$train"
wait "$flow" "$train" 2>/dev/null
for run in killed killed_train/ddp; do
    run_says "not run['running'] and run['state'] == 'killed' and moved(run['report'])" runs/$run || fail "killed: $(cat run.json)"
    ok status --run runs/$run
    has out "runs/$run: killed"
done

# What lies there is anybody's.
mkdir -p runs/odd
echo '{"time_s": "x", "edges": [1, {"edge": "a\u001bb", "items": -3}], "max_steps": "x",
  "meters": {"m\u001b": {"kind": "gauge", "unit": "\u001b", "help": "\u001b", "value": 1}, "x": 3, "y": {"kind": "counter", "unit": 1},
  "z": {"kind": "histogram", "unit": "1", "help": "h", "bounds": ["x"], "buckets": [1, 2, 3]}}}' >runs/odd/progress.json
ok status --run runs/odd
has out 'a\x1bb'
has out '  m\x1b  1 \x1b  (\x1b)'
echo '[]' >runs/odd/progress.json
expect 1 'exogym: runs/odd/progress.json: it is no report of a run' status --run runs/odd

# --- On workers
# -------------------------------------------------------------------------------------------------------

head
worker w1
worker w2
address=ipc://$place/head

"$EXOGYM" run flow.yaml --overwrite --head "$address" --set actors.source.config.items=100000 >flow.out 2>flow.err &
flow=$!
until_true 30 job_says "moved(report) and report['meters']['sink_0.count']['value'] > 0" flow ||
    fail "the head knows nothing of the graph: $(cat status.json status.err flow.err)"
tells 'source>sink:numbers' status || fail "status: $(cat told)"
has told 'job flow: running'
has told '  sink_0.count '

# A worker of another version is named.
version=$("$EXOGYM" --version)
python3 - "$EXO_BUILD/exogym-worker" other-worker "${version#* }" <<'END'
import os, sys
text, version = open(sys.argv[1], "rb").read(), sys.argv[3].encode()
open(sys.argv[2], "wb").write(text.replace(version + b"\0", b"9" + version[1:] + b"\0"))
os.chmod(sys.argv[2], 0o755)
END
x status >told
grep -q '^warning ' told && fail "all have one version: $(cat told)"
./other-worker --name other --folder "$clusters" >other.out 2>other.err &
other=$!
started+=($other)
until_true 10 grep -q ' is ready at ' other.out || fail "the other worker: $(cat other.err)"
x status >told
has told "warning  other has exogym 9${version#* ?}: a run over both may have other bits"
./other-worker --name another --folder "$clusters" >another.out 2>another.err &
another=$!
started+=($another)
until_true 10 grep -q ' is ready at ' another.out || fail "another worker: $(cat another.err)"
x status >told
[ "$(grep -c '^warning ' told)" = 1 ] || fail "not one warning of a version: $(cat told)"
grep -Eq "^warning  (an)?other and 1 more have exogym 9${version#* ?}: a run over both may have other bits" told || fail "status: $(cat told)"
kill "$another"
until_true 10 gone "$another"
has head_pid.err "event=other_version node=other version=\"9${version#* ?}\" head=\"${version#* }\""
kill "$other"
until_true 10 gone "$other"

# A head of a version that does not know versions: one warning, whatever the others have.
python3 - "$EXO_BUILD/exogym-head" old-head "${version#* }" <<'END'
import os, sys
text, version = open(sys.argv[1], "rb").read(), sys.argv[3].encode()
open(sys.argv[2], "wb").write(text.replace(version + b"\0", b"\0" + version[1:] + b"\0"))
os.chmod(sys.argv[2], 0o755)
END
./old-head --cluster old --folder "$clusters" --state none >old.out 2>old.err &
old=$!
started+=($old)
until_true 10 grep -q ' is ready at ' old.out || fail "the old head: $(cat old.err)"
"$EXO_BUILD/exogym-worker" --cluster old --name new --folder "$clusters" >new.out 2>new.err &
new=$!
started+=($new)
until_true 10 grep -q ' is ready at ' new.out || fail "a worker of the old head: $(cat new.err)"
"$EXOGYM" status --cluster old --folder "$clusters" >told || fail "status of the old head: $(cat told)"
[ "$(grep '^warning ' told)" = "warning  the head has an older exogym, which does not say who has another: a run over both may have other bits" ] ||
    fail "an old head: $(cat told)"
kill "$new"
until_true 10 gone "$new"
kill "$old"
until_true 10 gone "$old"

# Actors have more meters than a head has room for with all texts: each text is there once.
"$EXOGYM" run flow.yaml --name crowd --head "$address" --set actors.sink.count=30 --set actors.sink.config='{wide: true}' \
    --set actors.source.config.items=100000 >crowd.out 2>crowd.err &
crowd=$!
until_true 60 job_says "len(report['meters']) == 300" crowd ||
    fail "the head knows nothing of the crowd: $(tail -c 2000 status.json) $(cat status.err crowd.err)"
job_says "'shortened' not in report and {path.split('.')[0] for path, meter in report['meters'].items() if 'help' in meter} == {'sink_0'}" \
    crowd || fail "the head was told more or less than that: $(tail -c 2000 status.json)"
tells 'job crowd: running' status || fail "status: $(cat told)"
grep -q '^  sink\.count  .* items, .* sink  (items of numbers)$' told || fail "status has no line of all sinks: $(cat told)"
kill -INT "$crowd"
wait "$crowd"

# A head that is away disturbs nobody; the one after it hears the next report.
kill -9 "$head_pid"
until_true 10 gone "$head_pid" || fail "the head goes on after SIGKILL"
until_true 20 run_says "run['running'] and moved(run['report'])" runs/flow || fail "without a head: $(cat run.json run.err)"
head
until_true 60 job_says "moved(report)" flow || fail "the next head knows nothing of the graph: $(cat status.json flow.err)"
kill -INT "$flow"
wait "$flow"
x status >told
grep -q 'job flow' told && fail "the job has ended, and status has it: $(cat told)"
run_says "not run['running'] and run['state'] == 'stopped' and run['report']['meters']['sink_0.count']['value'] > 0" runs/flow ||
    fail "flow: $(cat run.json)"

"$EXOGYM" run train.yaml --no-plot --overwrite --head "$address" >train.out 2>train.err &
train=$!
until_true 30 job_says "moved(report) and report['max_steps'] == 1000000" train ||
    fail "the head knows nothing of the job: $(cat status.json status.err train.err)"
tells 'job train: running' status || fail "status: $(cat told)"
has told '  until step 1000000'
has told '  node.loss '
kill -INT "$train"
wait "$train"

ok run train.yaml --no-plot --workers 2 --set train.max_steps=3
run_says "not run['running'] and run['report']['meters']['step']['value'] == 3" runs/train || fail "workers: $(cat run.json)"
x stop
finish
