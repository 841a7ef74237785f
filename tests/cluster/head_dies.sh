#!/usr/bin/env bash
# The head is killed and started again with the same state: actors go on meanwhile, and are found
# again.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

head
worker w1 --plugin "$plugin" --grace 30s
x spawn counter 5 --name one --resource cpus=1 --restart on_failure >out || fail 'spawn'
worker w2 --plugin "$plugin" --grace 30s
x spawn counter 7 --name two --node w2 >out || fail 'spawn'
x spawn counter 7 --name dead --node w2 >out || fail 'spawn'
x kill dead --cause 'long ago' || fail 'kill'
says 6 call one add
x call one await "$folder/flag" >await.out 2>await.err &
caller=$!
until_true 5 tells 'method=await' dump one || fail 'no call is under way'

kill -9 "$head_pid"
ended 5 "$head_pid" 137
: >flag
wait "$caller" || fail "a call under way failed with the head: $(cat await.err)"
[ "$(cat await.out)" = there ] || fail "the call said: $(cat await.out)"

began=$(now_ms)
head
until_true 10 tells 7 call one add || fail "one is not found again: $(cat told)"
until_true 10 tells 8 call two add || fail "two is not found again: $(cat told)"
back=$(($(now_ms) - began))
echo "names were there again $back ms after the head's start"
tells 'long ago' why dead || fail "the dead are forgotten: $(cat told)"
x list actors --json | sed -n '/"one"/,/}/p' >out
has out '"life": 1'
tells '3/4' list nodes || fail "resources are not counted: $(cat told)"

# What it remembers is enough for a restart.
kill -9 "$(child_of "$w1_pid")"
ended 5 "$w1_pid" 137
until_true 2 tells 'life 2' why one || fail "why: $(cat told)"
tells 'node w1: lost' why one || fail "why: $(cat told)"
until_true 10 replies 6 call one add || fail "what it remembers: $(x call one add 2>&1)"

# joins GRACE: w3 has joined. A busy machine may take longer than that to find the head.
joins() {
    rm -f w3_pid.out
    "$EXO_BUILD/exogym-worker" --folder "$clusters" --name w3 --plugin "$plugin" --grace "$1" >w3_pid.out 2>w3_pid.err &
    w3_pid=$!
    started+=($!)
    until_true 10 ready_or_gone w3_pid
    is_ready w3_pid || { ended 10 "$w3_pid" 1 && false; }
}

# A worker ends by itself when the head stays away, and tells why to those that call its actors.
joins 300ms || joins 2s || joins 10s || fail "w3 does not join: $(cat w3_pid.err)"
x spawn counter 7 --name three --node w3 >out || fail 'spawn'
x call three await "$folder/never" >await.out 2>await.err &
caller=$!
until_true 5 tells 'method=await' dump three || fail 'no call is under way'
kill -TERM "$head_pid"
ended 5 "$head_pid" 0
ended 5 "$w3_pid" 1
has w3_pid.err 'did not come back within the grace of '
wait "$caller" && fail 'a call to an actor whose worker has ended did not fail'
has await.err 'it ended, because the head did not come back within the grace of '
kill -0 "$w2_pid" || fail 'w2 did not wait for the head'
kill -INT "$w2_pid"
ended 5 "$w2_pid" 0
finish
