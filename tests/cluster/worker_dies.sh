#!/usr/bin/env bash
# A worker is killed: who waits for it hears of it at once, it is known why, its actors live again
# elsewhere, nothing is left.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

head
trap '' CHLD # as under a parent that ignores it: the watchers notice the ends nevertheless
worker w1 --plugin "$plugin"
worker w2 --plugin "$plugin"
trap - CHLD
x spawn counter 5 --name phoenix --restart on_failure --resource cpus=3 >out || fail 'spawn'
home=$(x list actors --json | sed -n '/"phoenix"/,/}/s/.*"node": "\(.*\)".*/\1/p')
x spawn counter --name mortal --node "$home" --resource cpus=1 >out || fail 'spawn'
[ "$home" = w1 ] && away=w2 || away=w1
x spawn counter 5 --name keeper --node "$away" >out || fail 'spawn'
watcher=${home}_pid
says 7 call phoenix add 2

# What it does when it is killed, and a last word.
x call mortal linger >linger.out 2>linger.err &
caller=$!
until_true 5 tells 'method=linger' dump mortal || fail 'mortal does not linger'
x call mortal say 'its last word' || fail 'say'
until_true 5 grep -q 'its last word' "$place/$home.log" || fail 'no log'

child=$(child_of "${!watcher}")
began=$(now_ms)
kill -9 "$child"
wait "$caller"
heard=$(($(now_ms) - began))
until_true 10 tells 'was killed by signal 9 (SIGKILL), in mortal.linger' why mortal || fail "why: $(cat told)"
known=$(($(now_ms) - began))
until_true 10 tells 'life 2' why phoenix || fail "why: $(cat told)"
until_true 10 replies 6 call phoenix add 1 || fail "phoenix does not answer"
back=$(($(now_ms) - began))
echo "callers heard after $heard ms, why was known after $known ms, the actor lived again after $back ms"
has linger.err "'$home' is lost"

tells 'it ran: mortal.linger' why mortal || fail "why: $(cat told)"
tells 'its last word' why mortal || fail "why: $(cat told)"
tells "node $home: lost: was killed by signal 9" why "$home" || fail "why $home: $(cat told)"
tells "alive since" why phoenix || fail "why: $(cat told)"
tells "its last life ended: its node '$home' was killed by signal 9" why phoenix || fail "why: $(cat told)"
x list actors --json | grep -q '"life": 2' || fail 'no actor has a second life'
x list actors --json | sed -n '/"phoenix"/,/}/p' | grep -q "\"node\": \"$away\"" || fail 'it does not live elsewhere'
ended 5 "${!watcher}" 137
has "$watcher.err" "exogym-worker: $home was killed by signal 9 (SIGKILL), in mortal.linger; its log is $place/$home.log"
compgen -G "$place/worker-$child-*" >/dev/null && fail "a socket is left: $(ls "$place")"
[ -e "$place/$home.log" ] || fail 'the log of a worker that was killed is gone'

# Other ends: a fault, and exit().
worker "$home" --plugin "$plugin"
[ "$(cat "$place/$home.log.1")" != '' ] || fail 'the log before is gone'
x spawn counter --name fault --node "$home" >out || fail 'spawn'
fails 'is lost' call fault crash 11
until_true 10 tells 'was killed by signal 11 (SIGSEGV)' why fault || fail "why: $(cat told)"
tells 'in fault.crash' why fault || fail "why: $(cat told)"
ended 5 "${!watcher}" 139
rm -f core core.* # it was meant to
worker "$home" --plugin "$plugin"
x spawn counter --name leaver --node "$home" >out || fail 'spawn'
fails 'is lost' call leaver crash
until_true 10 tells 'exited with status 3, in leaver.crash' why leaver || fail "why: $(cat told)"
ended 5 "${!watcher}" 3

# The watcher is killed: so is the worker.
worker "$home" --plugin "$plugin"
child=$(child_of "${!watcher}")
kill -9 "${!watcher}"
until_true 5 gone "$child" || fail 'a worker without a watcher goes on'
until_true 5 tells 'lost' why "$home" || fail "why: $(cat told)"

# SIGTERM, to either process, is no failure.
for end in watcher child; do
    worker "$home"
    child=$(child_of "${!watcher}")
    [ $end = watcher ] && kill -TERM "${!watcher}" || kill -TERM "$child"
    ended 5 "${!watcher}" 0
    until_true 10 tells "node $home: left" why "$home" || fail "why: $(cat told)"
done
# The process of --parent is killed: its worker goes, and well, whatever its methods do.
bash -c '"$0" --folder "$1" --name child --plugin "$2" --parent $$ >child.out 2>child.err & wait' \
    "$EXO_BUILD/exogym-worker" "$clusters" "$plugin" &
parent=$!
started+=($parent)
until_true 10 grep -q ' is ready at ' child.out || fail "not ready: $(cat child.err)"
x spawn counter --name deaf --node child >out || fail 'spawn'
x call deaf linger forever >linger.out 2>&1 &
until_true 5 tells 'method=linger' dump deaf || fail 'deaf does not linger'
watcher=$(child_of $parent)
kill -9 $parent
until_true 10 gone "$watcher" || fail 'a worker without its parent goes on'
until_true 10 tells 'node child: left' why child || fail "why: $(cat told)"
[ ! -e "$place/child.log" ] || fail "it did not end well: $(cat "$place/child.log")"

says 6 call keeper add 1
x stop || fail stop
ended 5 "$head_pid" 0
watcher=${away}_pid
ended 5 "${!watcher}" 0
[ "$(ls "$place"/worker-* 2>/dev/null)" = '' ] || fail "a socket is left: $(ls "$place")"
rm -f "$place/$home.log.1" # of those that were killed
[ "$(ls "$place")" = head.lock ] || fail "something is left: $(ls "$place")"
finish
