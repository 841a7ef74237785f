#!/usr/bin/env bash
# How long a cluster takes to be there, and what it takes of a machine: figures are printed, and
# must not be far off.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

# Without the clients that say when it is ready: the line itself says so.
began=$(now_ms)
coproc "$EXO_BUILD/exogym-head" --folder "$clusters" --state "$folder/db"
read -r _ <&"${COPROC[0]}" || fail 'no head'
head_ms=$(($(now_ms) - began))
started+=("$COPROC_PID")
head_pid=$COPROC_PID

for i in 1 2 3 4; do
    "$EXO_BUILD/exogym-worker" --folder "$clusters" --name "w$i" --plugin "$plugin" >"w$i.out" 2>"w$i.err" &
    started+=($!)
    printf -v "w${i}_pid" %s $!
done
until_true 10 x spawn counter --get || fail "no counter"
says 1 call counter add
call_ms=$(($(now_ms) - began))
for i in 1 2 3 4; do
    until_true 10 grep -q ready "w$i.out" || fail "w$i is not ready"
done
all_ms=$(($(now_ms) - began))

private() {
    awk '/^Private_(Clean|Dirty)/ { sum += $2 } END { print sum }' "/proc/$1/smaps_rollup"
}
x list actors --json >out
worker_kib=$(private "$(child_of "$w4_pid")")
watcher_kib=$(private "$w4_pid")
head_kib=$(private "$head_pid")
echo "head ready after $head_ms ms; head and first call after $call_ms ms, all four workers after $all_ms ms"
echo "private memory: worker $worker_kib KiB, its watcher $watcher_kib KiB, head $head_kib KiB"
if [ $slower = 1 ]; then
    [ "$worker_kib" -lt 10240 ] || fail "an idle worker has $worker_kib KiB"
    [ "$watcher_kib" -lt 2048 ] || fail "a watcher has $watcher_kib KiB"
fi
x stop || fail stop
finish
