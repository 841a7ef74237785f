#!/usr/bin/env bash
# A graph whose actors wait for each other ends within seconds with the whole cycle of waits, in one
# process and in workers; what passes a slow link is no stall, and whoever waits for it says so.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

export TMPDIR=$folder

# graph NAME ACTORS EDGES [MORE]
graph() {
    printf 'name: %s\nplugins: [%s]\n%s\nactors:\n%s\nedges:\n%s\n' "$1" "$EXO_BUILD/tests/plugins/steps.so" "${4-}" "$2" "$3" >"$1.yaml"
}

# cycle: the waits that `err` names, without their times.
cycle() {
    sed -n 's/^  \(.* waits .*\) since [0-9.]* s into the run$/\1/p' err | sed 's/, whose buffer is full,*//'
}

# stalls GRAPH WAYS...: every way of running it ends with status 1 and the waits of `wanted`, and
# not at a deadline.
stalls() {
    local name=$1 way
    shift
    for way in "$@"; do
        # shellcheck disable=SC2086
        "$EXOGYM" run "$name.yaml" --save-dir "runs $way" $way >out 2>err </dev/null
        [ $? = 1 ] || fail "$name $way: it did not end with 1: $(tail -3 err)"
        cycle >got
        cmp -s wanted got || fail "$name $way: $(diff wanted got; cat err)"
        has err 'exogym: the graph stalls: '
        has "runs $way/$name/result.json" '"state": "failed"'
        has "runs $way/$name/result.json" 'the graph stalls: '
        [ -s "runs $way/$name/ledger.csv" ] || fail "$name $way: there is no ledger"
    done
}

# One emits all of a before b, the other wants b first.
graph crossed '  p: {class: steps, config: {steps: sa sa sa sa sa sa sb}}
  q: {class: steps, config: {steps: rb ra ra ra ra ra ra}}
  other: {class: steps, config: {steps: sc, times: 1000000}}
  sink: {class: steps, config: {steps: rc, times: 1000000}}' '  - {from: p, to: q, carries: a, buffer: {capacity: 4}}
  - {from: p, to: q, carries: b}
  - {from: other, to: sink, carries: c}'
cat >wanted <<'TEXT'
p_0 waits to send on 'p>q:a' to q_0
q_0 waits to receive on 'p>q:b' from p_0
TEXT
stalls crossed '' '--workers 2'

# Everything hashes to one of two that learn together.
graph hashed '  maker: {class: steps, config: {steps: sa, times: 100}}
  trainer: {class: steps, count: 2, config: {steps: ra ra g, times: 50}}' '  - {from: maker, to: trainer, carries: a, route: hash}
  - {from: trainer, to: trainer, carries: g}'
cat >wanted <<'TEXT'
maker_0 waits to send on 'maker>trainer:a' to trainer_0
trainer_0 waits in 'trainer>trainer:g' for trainer_1
trainer_1 waits to receive on 'maker>trainer:a' from maker_0
TEXT
stalls hashed '' '--workers 2' '--workers 3 --transport tcp --insecure'

# A link that takes seconds is none.
graph slow '  p: {class: steps, host: home, config: {steps: sa sb rc, times: 1000000, size: 20000}}
  q: {class: steps, host: dc, config: {steps: ra rb sc, times: 1000000, size: 20000}}' '  - {from: p, to: q, carries: a}
  - {from: p, to: q, carries: b}
  - {from: q, to: p, carries: c}' 'hosts: {home: {up: 320 kbit/s}, dc: {}}'
# status_says FOLDER PATTERN: of the run in the folder.
status_says() {
    "$EXOGYM" status --run "$1" >out2
    grep -q "$2" out2
}

for way in '' '--workers 2'; do
    # shellcheck disable=SC2086
    "$EXOGYM" run slow.yaml --save-dir "runs $way" $way >out 2>err </dev/null &
    run_pid=$!
    until_true 20 grep -q '"link": "home -> dc (0.32 Mbit/s)"' "runs $way/slow/progress.json" ||
        fail "slow $way: nobody says what it waits for: $(cat "runs $way/slow/progress.json")"
    until_true 20 status_says "runs $way/slow" "^  q_0 has waited .* to receive on 'p>q:[ab]', for what is on home -> dc (0.32 Mbit/s)" ||
        fail "slow $way: status does not say it: $(cat out2)"
    sleep 1
    kill -INT "$run_pid"
    ended 30 "$run_pid" 130
    ! grep -q stalls err || fail "slow $way: $(cat err)"
done

finish
