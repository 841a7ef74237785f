#!/usr/bin/env bash
# A graph on two workers that the head and the driver reach, and that lose each other: without a restart
# rule the run ends at once, and names both; with one, an actor gets another life, and the run goes on when
# the network does.
#
# Each worker has a network namespace of its own. What they say to each other is forwarded by a third
# one, with the head and the driver; the cut is that it forwards no more. At last the driver, in a
# namespace of its own, loses the head, but not the workers. The test is skipped where the process may not
# have namespaces. Read next: graph/split.h.
if [ "${1:-}" != inside ]; then
    unshare --net --mount sh -c 'ip link set lo up && echo 1 >/proc/sys/net/ipv4/ip_forward' 2>/dev/null || exit 77
    exec unshare --net --mount bash "$0" inside
fi
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

forward() {
    echo "$1" >/proc/sys/net/ipv4/ip_forward
}

# host NAME NUMBER: a namespace at 10.77.NUMBER.2, with a cable to this one.
host() {
    ip netns add "$1" && ip link add "$1" type veth peer name plug netns "$1" &&
        ip addr add "10.77.$2.1/24" dev "$1" && ip link set "$1" up &&
        ip -n "$1" addr add "10.77.$2.2/24" dev plug && ip -n "$1" link set lo up && ip -n "$1" link set plug up &&
        ip -n "$1" route add default via "10.77.$2.1"
}

{ mount --make-rprivate / && mount -t tmpfs none /run && ip link set lo up && ip addr add 10.77.0.1/32 dev lo && host w1 1 && host w2 2 && host dr 3 && forward 1; } ||
    exit 77
at=tcp://10.77.0.1:7070
EXOGYM_HOST_ID=hub head --no-ipc --insecure --listen "$at" --peer-timeout 3s
EXOGYM_HOST_ID=w1 network=w1 worker w1 --no-ipc --insecure --listen tcp://10.77.1.2:0 --head "$at" --peer-timeout 3s --resource a=1
EXOGYM_HOST_ID=w2 network=w2 worker w2 --no-ipc --insecure --listen tcp://10.77.2.2:0 --head "$at" --peer-timeout 3s --resource b=1

# begin NAME RULE COMMAND...: the run NAME, whose source has that rule, in the background; it has sent when
# this returns. The driver is started by the command, if there is one.
begin() {
    local name=$1
    cat >"$1.yaml" <<YAML
exogym: 1
plugins: [$EXO_BUILD/tests/plugins/stream.so]
actors:
  source: {class: stream_source, resources: {a: 1}, config: {items: 3000, size: 500, pause: 1 ms, gate: $folder/gate}$2}
  sink: {class: stream_sink, resources: {b: 1}}
edges:
  - {from: source, to: sink, carries: items, buffer: {capacity: 3}}
YAML
    shift 2
    EXOGYM_HOST_ID=${4:-hub} "$@" "$EXOGYM" run "$name.yaml" --save-dir saved --head "$at" >"$name.out" 2>"$name.err" </dev/null &
    run_pid=$!
    started+=("$run_pid")
    until_true 30 eval "gone $run_pid || grep -q 'sent [0-9]' '$name.err'"
    grep -q 'sent [0-9]' "$name.err" || fail "nothing comes: $(cat "$name.err")"
}

begin mortal ''
forward 0
ended 60 "$run_pid" 1
a='source_0 \(in w1, process [0-9]+\)' b='sink_0 \(in w2, process [0-9]+\)' # either may be seen to be cut off first
grep -Eq "($a and $b|$b and $a) are alive but have lost their connection.*'restart' rule" mortal.err ||
    fail "it said: $(cat mortal.err)"
forward 1

begin lives ', restart: {when: on_failure}'
forward 0
until_true 60 eval "gone $run_pid || grep -q 'begins life 2' lives.err"
forward 1
: >gate
ended 60 "$run_pid" 0
grep -q '^source_0.* have lost their connection.* between their hosts; it begins life 2$' lives.err || fail "it said: $(cat lives.err)"
[ "$(json saved/lives/result.json state)" = finished ] || fail 'the run has not finished'

rm gate
begin unheard '' ip netns exec dr
ip -n dr route add blackhole 10.77.0.1
ended 60 "$run_pid" 1
grep -q '^exogym: .*its job ended: its driver is lost: nothing was heard from it' unheard.err || fail "it said: $(cat unheard.err)"
ip -n dr route del blackhole 10.77.0.1
x stop --head "$at" || fail 'stop'
ended 15 "$head_pid" 0
finish
