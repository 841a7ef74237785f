#!/usr/bin/env bash
# A graph whose actors have restart rules, on workers that are killed at random moments: the actors
# go to other workers, and the run ends well, also if the graph changes meanwhile. Without workers left, or without a further life, it
# ends with the cause.
#
# EXO_CHAOS_SEED: of the moments. EXO_CHAOS_ROUNDS: how many deaths (4), for which
# the last items of each source wait.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

RANDOM=${EXO_CHAOS_SEED:=$(($$ % 32768))}
echo "EXO_CHAOS_SEED=$EXO_CHAOS_SEED EXO_CHAOS_ROUNDS=${EXO_CHAOS_ROUNDS:=4}"
cat >graph.yaml <<YAML
exogym: 1
name: stream
seed: 5
plugins: [$EXO_BUILD/tests/plugins/stream.so]
actors:
  source: {class: stream_source, count: 2, restart: {when: on_failure}, config: {items: 3000, size: 500, pause: 1 ms, gate: $folder/gate}}
  sink: {class: stream_sink, count: 2, restart: {when: on_failure}, config: {rounds: 3}}
edges:
  - {from: source, to: sink, carries: items, route: round_robin, buffer: {capacity: 3}}
  - {from: sink, to: sink, carries: sums}
YAML

# begin FOLDER FILE [OPTION...]: in the background, on the cluster or with these options; $run_pid.
begin() {
    local where=("${@:3}")
    [ $# -gt 2 ] || where=(--head "ipc://$place/head")
    "$EXOGYM" run "$2" --save-dir "$1" "${where[@]}" >"$1.out" 2>"$1.err" </dev/null &
    run_pid=$!
    started+=("$run_pid")
    until_true 30 eval "gone $run_pid || grep -q 'sent [0-9]' '$1.err'"
    grep -q 'sent [0-9]' "$1.err" || fail "nothing comes: $(cat "$1.err")"
}

head
for w in w1 w2 w3; do
    worker $w
done
begin lives graph.yaml
deaths=0
while [ $deaths -lt "$EXO_CHAOS_ROUNDS" ] && ! gone "$run_pid"; do
    nap 400
    victim=w$((RANDOM % 3 + 1))
    slay $victim
    worker $victim
    deaths=$((deaths + 1))
    [ $deaths -gt 1 ] || until_true 60 eval "gone $run_pid || grep -q 'begins life' lives.err"
    gone "$run_pid" || ok graph apply graph.yaml --to lives/stream --set edges.0.buffer.capacity=$((3 + deaths))
done
: >gate
wait "$run_pid" || fail "the run did not survive $deaths deaths: $(cat lives.err)"
grep -q "was killed by signal 9 (SIGKILL).*; it begins life [2-9]" lives.err || fail "nobody had another life: $(cat lives.err)"
[ "$(json lives/stream/result.json state)" = finished ] || fail 'the run has not finished'
echo "$deaths workers died; $(grep -c 'begins life' lives.err) lives ended"

rm gate # the runs below end of deaths

# A rule that gives no further life
sed 's/when: on_failure/when: on_failure, max: 2/; s/rounds: 3/fail_at: 5/' graph.yaml >fails.yaml
"$EXOGYM" run fails.yaml --save-dir fails --head "ipc://$place/head" >out 2>err </dev/null
[ $? = 1 ] || fail 'a run whose sink always fails did not end with 1'
grep -qE "^exogym: sink_[01]\.2: .*on purpose; no restart is left \('restart.max' is 2\): mend the cause" err || fail "it said: $(cat err)"
[ "$(grep -c 'begins life' err)" -ge 2 ] || fail "there were no two further lives: $(cat err)"

# Nobody has a rule
sed 's/ restart: {when: on_failure},//' graph.yaml >mortal.yaml
begin mortal mortal.yaml
for w in w1 w2 w3; do
    slay $w
done
ended 30 "$run_pid" 1
grep -Eq "(source|sink)_[01]: its node 'w[1-3]' was killed by signal 9" mortal.err || fail "it said: $(tail -2 mortal.err)"

# The workers that the run has started have all died: nobody starts others
begin alone graph.yaml --workers 2
kill -9 $(pgrep -P "$run_pid" exogym-worker)
ended 30 "$run_pid" 1
grep -Eq '^exogym: .*: its life [2-9] could not begin: all workers that --workers has started have ended$' alone.err ||
    fail "it said: $(tail -2 alone.err)"
x stop || fail 'stop'
ended 15 "$head_pid" 0
finish
