#!/usr/bin/env bash
# A driver loses workers that the head still reaches: first all of them, for a while; then one, for longer than
# the run lasts. Its actors there live on. Without a restart rule the run ends with the cause; with one, the head
# ends the lives that the driver cannot reach, so that the next ones find room, and the run goes on. That is what
# a freeze of the head and all workers looks like, too: for itself the head has lost nobody.
#
# The driver has a network namespace of its own, and so has each worker; the head's forwards between them. The
# driver's cut is a route of its namespace that leads nowhere. The test is skipped where the process may not have
# namespaces. Read next: graph/lives.h; graph_split.sh, which cuts workers off from each other.
if [ "${1:-}" != inside ]; then
    unshare --net --mount sh -c 'ip link set lo up && echo 1 >/proc/sys/net/ipv4/ip_forward' 2>/dev/null || exit 77
    exec unshare --net --mount bash "$0" inside
fi
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

# host NAME NUMBER: a namespace at 10.77.NUMBER.2, with a cable to this one.
host() {
    ip netns add "$1" && ip link add "$1" type veth peer name plug netns "$1" &&
        ip addr add "10.77.$2.1/24" dev "$1" && ip link set "$1" up &&
        ip -n "$1" addr add "10.77.$2.2/24" dev plug && ip -n "$1" link set lo up && ip -n "$1" link set plug up &&
        ip -n "$1" route add default via "10.77.$2.1"
}

{ mount --make-rprivate / && mount -t tmpfs none /run && ip link set lo up && ip addr add 10.77.0.1/32 dev lo && host w1 1 && host w2 2 && host w3 3 && host dr 4 &&
    echo 1 >/proc/sys/net/ipv4/ip_forward; } || exit 77
at=tcp://10.77.0.1:7070

# begin_worker NAME NUMBER RESOURCE
begin_worker() {
    EXOGYM_HOST_ID=$1 network=$1 worker "$1" --no-ipc --insecure --listen "tcp://10.77.$2.2:0" --head "$at" --resource "$3=1"
}

# cut add|del NUMBER...: between the driver and these workers.
cut() {
    local how=$1 number
    shift
    for number in "$@"; do
        ip -n dr route "$how" blackhole "10.77.$number.2"
    done
}

# begin NAME RULE: a run in the background, which has sent when this returns. Its source ends when there is `gate`.
begin() {
    cat >"$1.yaml" <<YAML
exogym: 1
plugins: [$EXO_BUILD/tests/plugins/stream.so]
actors:
  source: {class: stream_source, resources: {a: 1}, config: {items: 3000, size: 500, pause: 1 ms, gate: $folder/gate}$2}
  sink: {class: stream_sink, resources: {b: 1}$2}
edges:
  - {from: source, to: sink, carries: items, buffer: {capacity: 3}}
YAML
    rm -f gate
    EXOGYM_HOST_ID=dr ip netns exec dr "$EXOGYM" run "$1.yaml" --save-dir saved --head "$at" >"$1.out" 2>"$1.err" </dev/null &
    run_pid=$!
    started+=("$run_pid")
    until_true 30 eval "gone $run_pid || grep -q 'sent [0-9]' '$1.err'"
    grep -q 'sent [0-9]' "$1.err" || fail "nothing comes: $(cat "$1.err")"
}

# lives: the actors that the head knows to be alive.
lives() {
    x status --json --head "$at" | python3 -c 'import json, sys
for a in json.load(sys.stdin)["actors"]:
    if a["state"] == "alive":
        print(a["name"], a["node"])' | sort
}

# finishes NAME: the run goes on to its end, with one life of each actor.
finishes() {
    : >gate
    ended 120 "$run_pid" 0
    [ "$(json "saved/$1/result.json" state)" = finished ] || fail "the run has not finished: $(cat "$1.err")"
    [ "$(meter "saved/$1/result.json" source_0.sent)" = 3000 ] || fail 'the last life of the source has not sent all'
}

EXOGYM_HOST_ID=hub head --no-ipc --insecure --listen "$at"
begin_worker w1 1 a
begin_worker w2 2 b

begin mortal ''
cut add 1 2
ended 60 "$run_pid" 1
cut del 1 2
grep -Eq "^exogym: (source|sink)_0: 'w[12]' is lost: nothing was heard from it for" mortal.err || fail "it said: $(cat mortal.err)"
until_true 20 eval '[ -z "$(lives)" ]'
[ -z "$(lives)" ] || fail "these live on after the run: $(lives)"

# There is no room for a life beside the earlier one.
begin frozen ', restart: {when: on_failure}'
cut add 1 2
until_true 60 eval "gone $run_pid || grep -q 'begins life 2' frozen.err"
cut del 1 2
until_true 120 eval "gone $run_pid || lives | grep -q 'source_0[.].* w1' && lives | grep -q 'sink_0[.].* w2'"
[ "$(lives | wc -l)" = 2 ] || fail "these live: $(lives); it said: $(cat frozen.err)"
finishes frozen

# The worker that the driver has lost has room, and another one, too.
begin lasting ', restart: {when: on_failure}'
cut add 1
begin_worker w3 3 a
until_true 120 eval "gone $run_pid || lives | grep -q 'source_0[.].* w3'"
[ "$(lives | wc -l)" = 2 ] || fail "these live: $(lives); it said: $(cat lasting.err)"
finishes lasting
cut del 1
x stop --head "$at" || fail 'stop'
ended 15 "$head_pid" 0
finish
