#!/usr/bin/env bash
# A graph of a plugin's classes in one process and in workers, over every transport: the same items,
# figures and ledger, but for times. A worker is killed in the middle: the run ends at once, says
# who died of what, and leaves nothing behind; so does ctrl-C.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

export TMPDIR=$folder
cat >graph.yaml <<YAML
exogym: 1
name: stream
seed: 5
plugins: [$EXO_BUILD/tests/plugins/stream.so]
actors:
  source: {class: stream_source, count: 3, config: {items: 60, size: 2000}}
  sink: {class: stream_sink, count: 2, config: {rounds: 4}}
edges:
  - {from: source, to: sink, carries: items, route: round_robin, codec: [int8, zstd], buffer: {capacity: 3}}
  - {from: sink, to: sink, carries: sums, codec: bf16}
YAML

# what FOLDER: the ledger without times and in order, and the meters.
what() {
    cut -d, -f1-9 "$1/stream/ledger.csv" | sort
    python3 -c 'import json, sys
for path, meter in sorted(json.load(open(sys.argv[1]))["meters"].items()):
    print(path, meter["value"])' "$1/stream/result.json"
}

left() {
    find "$folder" -path '*/exogym-run-*/*'
    grep -ls "$folder/exogym[-]run-" /proc/[0-9]*/cmdline # not itself
}

nothing_left() {
    [ -z "$(left)" ]
}

ok run graph.yaml --json --save-dir embedded
what embedded >wanted
[ "$(grep -c '\.digest ' wanted)" = 5 ] || fail "there are no digests: $(cat wanted)"
[ "$(grep -c '^source>sink:items,source_' wanted)" = 3 ] || fail "the ledger has no sources: $(cat wanted)"
for way in '--workers 2' '--workers 3 --transport tcp --insecure' '--workers 2 --transport curve' '--workers 1'; do
    # shellcheck disable=SC2086
    ok run graph.yaml --overwrite --json --save-dir far $way
    what far >got
    cmp -s wanted got || fail "$way: $(diff wanted got)"
done

# --- Somebody dies, or is stopped
# ------------------------------------------------------------------------------------------------

sed -e 's/items: 60, size: 2000/items: 1000000, size: 100, pause: 1 ms/' graph.yaml >long.yaml

# patiently SECONDS COMMAND...: as until_true, for what takes seconds.
patiently() {
    local tries=$((($1 < 60 ? 60 : $1) * 20 * slower))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $((tries--)) -gt 0 ] || return 1
        sleep 0.05
    done
}

# begin OPTIONS...: a run that goes on, in the background, `run_pid`, when items have come.
begin() {
    rm -f err # of the one before
    "$EXOGYM" run long.yaml --save-dir long "$@" >out 2>err </dev/null &
    run_pid=$!
    started+=("$run_pid")
    patiently 20 grep -q 'sent [0-9]' err || fail "nothing comes: $(cat err)"
}

# The processes that host actors: those of workers' watchers.
hosts() {
    local pid
    for pid in $(grep -ls 'exogym-worker' /proc/[0-9]*/cmdline | grep -o '[0-9]*'); do
        if grep -qs "$folder/exogym-run-" "/proc/$pid/cmdline" && [ -z "$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)" ]; then
            echo "$pid"
        fi
    done
}

for transport in ipc 'tcp --insecure'; do
    # shellcheck disable=SC2086
    begin --workers 2 --transport $transport
    victim=$(hosts)
    victim=${victim%%$'\n'*}
    [ -n "$victim" ] || fail 'there is no worker'
    began=$(now_ms)
    kill -9 "$victim"
    ended 60 "$run_pid" 1 # long before the deadline of an edge
    echo "over $transport the run ended $(($(now_ms) - began)) ms after a worker's death: $(grep "^exogym: " err | tail -1)"
    grep -qE "exogym: (source|sink)_[0-9]: .*'worker_[01]' was killed by signal 9 \(SIGKILL\)" err || fail "it said: $(cat err)"
    patiently 5 nothing_left || fail "left behind: $(left)"
    # The log that is named is there, though the cluster's own folder has gone.
    log=$(sed -n 's/.*; its log is //p' err)
    [ -s "$log" ] || [ -f "$log" ] || fail "the log '$log' is not there: $(cat err)"
    case $log in "$PWD/long/stream/"*) ;; *) fail "the log is not in the run's folder: $log" ;; esac
    # Who lived on has reported; of who died there is what was said last.
    [ "$(json long/stream/result.json state)" = failed ] || fail "the result does not say that the run failed"
    [ "$(grep -c '^source>sink:items,' long/stream/ledger.csv)" = 5 ] || fail "the ledger lacks actors: $(cat long/stream/ledger.csv)"
done

for signal in INT TERM; do
    begin --workers 2
    kill -$signal "$run_pid"
    wait "$run_pid"
    status=$?
    [ "$status" = $((128 + $(kill -l $signal))) ] || fail "SIG$signal: the run ended with $status: $(cat err)"
    [ "$(json long/stream/result.json state)" = stopped ] || fail "the result does not say that the run was stopped"
    [ "$(grep -c '^source>sink:items,' long/stream/ledger.csv)" = 5 ] || fail "the ledger lacks actors: $(cat long/stream/ledger.csv)"
    patiently 5 nothing_left || fail "left behind: $(left)"
done

# The run is killed: its workers end, and well, though their actors wait for each other.
begin --workers 2
kill -9 "$run_pid"
wait "$run_pid" 2>/dev/null
patiently 5 nothing_left || fail "left behind: $(left)"
! grep -E 'did not end|exited with status' err || fail 'a worker whose run was killed did not end well'

# In one process, too.
begin
kill -INT "$run_pid"
wait "$run_pid"
status=$?
[ "$status" = 130 ] || fail "ctrl-C: the run ended with $status: $(cat err)"

# An actor's own error is the run's, with its name, wherever it is.
sed -e 's/rounds: 4/fail_at: 7/' graph.yaml >fails.yaml
for way in '' '--workers 2'; do
    # shellcheck disable=SC2086
    "$EXOGYM" run fails.yaml $way --save-dir fails >out 2>err </dev/null
    [ $? = 1 ] || fail 'a run whose sink failed did not end with 1'
    grep -qE '^exogym: sink_[01]: on purpose$' err || fail "it said: $(cat err)"
    for file in progress result; do
        [ "$(json fails/stream/$file.json state): $(json fails/stream/$file.json error | cut -c 9-)" = 'failed: on purpose' ] ||
            fail "$file.json does not say why the run failed"
    done
done
finish
