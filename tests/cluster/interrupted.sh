#!/usr/bin/env bash
# What comes from outside and is no reason to lose anything: a terminal that goes (SIGHUP), a reader
# that goes (`| head`), the own head of a run on workers that is killed, a worker that is stopped
# when a command has a deadline.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"
set -o pipefail
export TMPDIR=$folder

cat >job.yaml <<'YAML'
exogym: 1
name: job
seed: 7
model: mlp
data: {name: synthetic, count: 256}
nodes: 2
train: {max_steps: 1000000, batch_size: 16, val_size: 64, val_interval: 0}
strategy: {optimizer: {name: adamw, lr: 1e-3}}
compare: [ddp, {name: diloco, H: 4}]
YAML
cat >graph.yaml <<YAML
exogym: 1
name: flow
plugins: [$EXO_BUILD/tests/plugins/numbers.so]
actors:
  source: {class: source, count: 2, config: {items: 1000000, pause_us: 1000}}
  sink: {class: sink}
edges:
  - {from: source, to: sink, carries: numbers}
YAML

# begin OPTIONS...: a run in the background, `run_pid`, when its report says that something was done
# in runs/$1.
begin() {
    local where=$1
    shift
    rm -rf "runs/${where%%/*}"
    "$EXOGYM" run "$@" --no-plot >out 2>err </dev/null &
    run_pid=$!
    started+=("$run_pid")
    until_true 30 moves "$where" || fail "$where does not run: $(cat err)"
}

moves() {
    grep -Eq '"(items|calls)": [1-9]' "runs/$1/progress.json"
}

# further STEP: runs/job/ddp is beyond it.
further() {
    [ "$(meter runs/job/ddp/progress.json step)" -gt "$1" ]
}

# --- The terminal goes
# --------------------------------------------------------------------------------------------------

begin job/ddp job.yaml
kill -HUP "$run_pid"
kill -HUP "$run_pid" # the shell's, after the kernel's
ended 20 "$run_pid" 129
grep -q -- '--resume' err || fail "SIGHUP: it said $(cat err)"
ls runs/job/ddp/checkpoints/step_* >/dev/null || fail 'SIGHUP: there is no checkpoint'
[ "$(json runs/job/ddp/progress.json state)" = stopped ] || fail 'SIGHUP: the run is not shown as stopped'

begin flow graph.yaml
kill -HUP "$run_pid"
ended 20 "$run_pid" 129
[ "$(json runs/flow/result.json state)" = stopped ] || fail 'SIGHUP: the graph has no result'

# nohup stays nohup: the second signal proves that the first was not taken for one.
rm -rf runs
nohup "$EXOGYM" run job.yaml --no-plot >out 2>err </dev/null &
run_pid=$!
started+=("$run_pid")
until_true 30 moves job/ddp || fail "nohup: it does not run: $(cat err)"
kill -HUP "$run_pid"
steps=$(meter runs/job/ddp/progress.json step)
until_true 30 further "$steps" || fail 'nohup: SIGHUP stopped the run'
kill -INT "$run_pid"
ended 20 "$run_pid" 130

# A worker that somebody started by hand leaves in good order.
head
worker w1
kill -HUP "$w1_pid"
ended 20 "$w1_pid" 0

# --- The reader goes
# ----------------------------------------------------------------------------------------------------

rm -rf runs
"$EXOGYM" run job.yaml --set train.max_steps=30 --set train.val_interval=1 --no-plot 2>&1 | command head -1 >first
status=$?
[ "$status" = 0 ] || fail "| head: the run ended with $status"
[ -s first ] || fail '| head: there was no output'
for run in ddp diloco; do
    [ "$(json runs/job/$run/result.json steps)" = 30 ] || fail "| head: $run was not finished"
done
# The same where nobody ever reads, on standard error alone.
rm -rf runs
"$EXOGYM" run job.yaml --set train.max_steps=30 --set train.val_interval=1 --no-plot --json 2> >(exit 0) >out || fail "2>closed: $?"
[ "$(json out steps)" = 30 ] || fail '2>closed: the run was not finished'

# Who closes standard files gets no progress in the run's own.
rm -rf runs
"$EXOGYM" run job.yaml --set train.max_steps=30 --set train.val_interval=1 --no-plot <&- >&- 2>&- || fail "closed files: $?"
for file in train validation metrics; do
    [ "$(grep -vc '^[0-9]*,[0-9.e,+-]*$' runs/job/ddp/$file.csv)" = 1 ] || fail "closed files: $file.csv has $(command head -3 runs/job/ddp/$file.csv)"
done

# --- The own head goes
# --------------------------------------------------------------------------------------------------

# own PROGRAM: the processes of the run's own cluster that run it.
own() {
    local pid
    for pid in $(cat "/proc/$run_pid/task/$run_pid/children" 2>/dev/null); do
        grep -qs "$1" "/proc/$pid/cmdline" && echo "$pid"
    done
}

told() {
    echo "$1 ended $(($(now_ms) - killed_at)) ms after its head: $(grep '^exogym: ' err | command head -1)"
}

killed="the head of this run \(process [0-9]+\) was killed by signal 9 \(SIGKILL\)"
begin job/ddp job.yaml --workers 2
killed_at=$(now_ms)
kill -9 "$(own exogym-head)"
ended 20 "$run_pid" 1
told 'the training'
grep -Eq "^exogym: $killed" err || fail "head: it said $(cat err)"
grep -q -- '--resume' err || fail "head: it does not say how to go on: $(cat err)"
ls runs/job/ddp/checkpoints/step_* >/dev/null || fail 'head: there is no checkpoint'
begin flow graph.yaml --workers 2
killed_at=$(now_ms)
kill -9 "$(own exogym-head)"
ended 20 "$run_pid" 1
told 'the graph'
grep -Eq "^exogym: $killed" err || fail "head: it said $(cat err)"
[ "$(json runs/flow/result.json state)" = failed ] || fail 'head: the graph is not shown as failed'
grep -Eq "\"error\": \"$killed" runs/flow/result.json || fail 'head: the result does not say why'
[ "$(grep -c '^source>sink:numbers,' runs/flow/ledger.csv)" = 3 ] || fail 'head: the ledger is not whole'
[ -z "$(find "$folder" -maxdepth 1 -name 'exogym-run-*')" ] || fail "left behind: $(ls "$folder")"

# One that goes before the workers are ready is not waited for either, nor is a worker. A worker
# that goes when it is ready and has no node yet leaves the nodes to the other one. (Without its head the
# run cannot end; without a worker it may.)
for victim in exogym-head exogym-worker; do
    rm -rf runs
    [ $victim = exogym-head ] && steps=1000000 || steps=30
    "$EXOGYM" run job.yaml --set train.max_steps=$steps --no-plot --workers 2 >out 2>err </dev/null &
    run_pid=$!
    started+=("$run_pid")
    until [ "$(own exogym-worker | wc -l)" = 2 ] || ! kill -0 "$run_pid" 2>/dev/null; do :; done
    killed_at=$(now_ms)
    own $victim | command head -1 | xargs -r kill -9
    until_true 20 gone "$run_pid" || fail "starting: process $run_pid goes on: $(cat err)"
    wait "$run_pid"
    status=$?
    told "a run whose $victim went while it started"
    if [ $victim = exogym-head ]; then
        [ $status = 1 ] || fail "starting: ended with $status instead of 1"
        grep -Eq "^exogym: (ddp: )?$killed" err || fail "starting: it said $(cat err)"
    elif [ $status = 0 ]; then
        [ "$(json runs/job/diloco/result.json steps)" = 30 ] || fail 'starting: the other worker did not do it'
    else
        [ $status = 1 ] || fail "starting: ended with $status instead of 1"
        grep -Eq '^exogym: exogym-worker \(process [0-9]+\) was killed by signal 9 \(SIGKILL\) before it was ready$|node_' err ||
            fail "starting: it said $(cat err)"
    fi
done
[ -z "$(find "$folder" -maxdepth 1 -name 'exogym-run-*')" ] || fail "left behind: $(ls "$folder")"

# Who is killed together with its head leaves its folder, which the next command takes for nobody's. Those of
# the living, and what nobody has locked, stay.
begin living graph.yaml --workers 2 --name living
living=$run_pid
begin flow graph.yaml --workers 2
mkdir -m 700 exogym-run-foreign
workers=$(own exogym-worker)
kill -9 "$run_pid" "$(own exogym-head)"
for pid in $workers; do
    until_true 20 gone "$pid" || fail "killed: worker $pid goes on"
done
[ "$(find "$folder" -maxdepth 1 -name 'exogym-run-*' | wc -l)" = 3 ] || fail "killed: there is $(ls "$folder")"
"$EXOGYM" doctor >out || fail 'doctor'
grep -q 'left behind    1 folder exogym-run-\* of commands that were killed' out || fail "doctor said $(cat out)"
"$EXOGYM" status >out 2>&1
[ "$(find "$folder" -maxdepth 1 -name 'exogym-run-*' | wc -l)" = 2 ] || fail "status: there is $(ls "$folder")"
"$EXOGYM" doctor >out
grep -q 'left behind' out && fail 'doctor: a living folder counts as left behind'
kill -INT "$living"
ended 20 "$living" 130
rm -r exogym-run-foreign
[ -z "$(find "$folder" -maxdepth 1 -name 'exogym-run-*')" ] || fail "left behind: $(ls "$folder")"

# --- A deadline is the command's
# ------------------------------------------------------------------------------------------

worker w2 --plugin "$plugin"
x spawn counter 5 --name k >out || fail 'spawn'
kill -STOP "$(child_of "$w2_pid")"
for command in 'call k add 1' 'dump k' 'kill k'; do
    since=$(now_ms)
    # shellcheck disable=SC2086
    x $command --timeout 1s >out 2>err
    status=$?
    took=$(($(now_ms) - since))
    echo "$command: $took ms: $(cat err)"
    [ "$status" = 1 ] || fail "$command: ended with $status"
    # It would wait half a minute for the first word of a worker of this host.
    [ "$took" -lt $((20000 * slower)) ] || fail "$command --timeout 1s took $took ms"
done
# A process of this host that lives is not lost by silence: whoever calls it first waits half a
# minute for its first word, and not the few seconds that another host gets. (The calls above have
# connected to nobody: each was a process of its own.)
x call k add 1 --timeout 60s >later 2>later.err &
later=$!
sleep 7
kill -CONT "$(child_of "$w2_pid")"
wait "$later" || fail "a call to a process that was stopped for a moment: $(cat later.err)"
until_true 10 x call k add 1 || fail 'the worker that was stopped does not answer any more'
finish
