#!/usr/bin/env bash
# What a person does with a cluster from a shell, with what is printed.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

# --- Nobody there
# -----------------------------------------------------------------------------------------------------

nobody="exogym: no head can be reached (there is no head at ipc://$place/head): start one with \`exogym-head\`"
for command in status 'list nodes' 'call a b' 'spawn a' 'kill a' 'why a' 'dump a' logs stop; do
    # shellcheck disable=SC2086
    fails "$nobody" $command --timeout 100ms
done
"$EXO_BUILD/exogym-worker" --folder "$clusters" --name early --grace 200ms >out 2>err
[ $? = 1 ] || fail 'a worker without a head does not end with 1'
has err 'no head can be reached'
[ -z "$(ls "$place")" ] || fail "something is left: $(ls "$place")"

# --- A cluster
# --------------------------------------------------------------------------------------------------------

head --name boss
has head_pid.out "exogym-head: boss is ready at ipc://$place/head"
"$EXO_BUILD/exogym-head" --folder "$clusters" --state none 2>err
[ $? = 1 ] || fail 'a second head does not end with 1'
has err "the cluster 'default' has a head on this host already"
fails 'the cluster has no worker: start one with `exogym-worker`' spawn counter
worker w1 --resource memory=2GiB --resource slots=3 --resource gpus=3
worker w2 --plugin "$plugin"

# A head that is there has the time of --timeout to answer.
kill -STOP "$head_pid"
x status >paused.out 2>paused.err &
paused=$!
pause 1500
kill -CONT "$head_pid"
wait $paused || fail "a head that was stopped for a moment: $(cat paused.err)"

says one spawn counter 5 --name one --plugin "$plugin" --node w1 --resource memory=1GiB --resource slots=2
says counter spawn counter --node w2
fails "there is an actor 'one' in the namespace 'default' already, on w1" spawn counter --name one
says one spawn counter --name one --get
says other spawn counter --name other -n space --spread
fails 'on w1: told not to start' spawn counter fail --name never --node w1
fails "there is no job 'none' that runs" spawn counter --name never --job none
fails "there is no worker 'w9'" spawn counter --name never --node w9
fails 'which wants slots 2' spawn counter --name never --resource slots=2
fails "plugin 'none.so': No such file or directory: give the whole path of a file that only the worker's host has" \
    spawn counter --name never --plugin none.so
fails "on w1: plugin '/none.so': No such file or directory" spawn counter --name never --node w1 --plugin /none.so
fails "there is no actor class 'nothing' at this worker: load its plugin" spawn nothing

says 8 call one add 3
says 1 call other add -n space
says 'grüß Gott' call one echo 'grüß Gott'
says '' call one echo
says '00000000  61 01 ff                                          |a..|' call one echo $'a\001\377'
head -c 100000 /dev/urandom >bytes
x call one echo @bytes --raw | cmp - bytes || fail 'bytes are not what they were'
x call one echo $'a\001' --json >out
has out '"hex": "6101"'
x call one echo hello --json >out
has out '"text": "hello"'
fails 'exogym: this method fails' call one fail
fails "the class 'counter' has no method 'nothing'; it has " call one nothing
fails 'add, ' call one nothing
fails "did you mean 'linger'?" call one lingr
fails "there is no actor 'nobody' in the namespace 'default'" call nobody add
fails 'nofile: No such file' call one echo @nofile

tells 'nodes    2 alive, 0 lost, 0 left' status || fail "status: $(cat told)"
tells 'actors   3 alive, 0 dead, 0 between' status || fail "status: $(cat told)"
tells '1.07 GB/2.15 GB' list nodes || fail "nodes: $(cat told)"
x list nodes --json >out
[ "$(json out slots)" = 3.0 ] || fail "slots: $(cat out)"
grep -q '"slots": 1.0' out || fail "free slots: $(cat out)"
x status --json >out
[ "$(json out cluster)" = default ] || fail "status --json: $(cat out)"
x list actors >out
has out 'one'
has out 'space'
# The GPUs of actors are shown where some have any.
x status >out
grep -q 'on GPUs' out && fail "no actor has a GPU: $(cat out)"
says half spawn counter --name half --resource gpus=0.5
says two spawn counter --name two -n space --resource gpus=2
tells 'on GPUs  namespace  node  gpus' status || fail "status: $(cat told)"
grep -Eq '^half +default +w1 +0$' told || fail "half a GPU: $(cat told)"
grep -Eq '^two +space +w1 +1, 2$' told || fail "two GPUs: $(cat told)"
x kill half && x kill two -n space || fail 'they are not killed'
x list jobs >out
has out 'job  state  cause'
x list methods one >out
grep -Eq '^add +[a-z]+ +(light|blocking) +(yes|no)$' out || fail "list methods: $(cat out)"
grep -Eq '^ping +control +control +yes$' out || fail "list methods: $(cat out)"
x list methods other -n space --json >out
has out '"name": "add"'
fails "there is no actor 'nobody'" list methods nobody
for words in 'methods' 'actors one'; do
    # shellcheck disable=SC2086
    x list $words >out 2>err
    [ $? = 2 ] || fail "exogym list $words: is no mistake"
    grep -q 'whose? Name an actor\|one word too many' err || fail "exogym list $words: $(cat err)"
done
x call one hold 5000000 >out
x list objects >out
has out '5000000'
has out 'sealed'
x list objects --json >out
[ "$(json out bytes)" = 5000000 ] || fail "list objects --json: $(cat out)"
# A worker that is stopped hides no objects of others.
x call counter hold 5000001 >out
one=$(child_of "$w1_pid")
kill -STOP "$one"
for time in 5 15 45; do # w1 takes a third of it, and w2 has half of the rest
    x list objects --timeout $time >out
    grep -q ' w2  *5000001 ' out && break
done
kill -CONT "$one"
grep -q ' w2  *5000001 ' out || fail "list objects, while w1 is stopped: $(cat out)"
grep -q ' w1  *- .* does not answer' out || fail "list objects says nothing of w1: $(cat out)"

# --- Looking inside, logs
# ---------------------------------------------------------------------------------------------

x call one linger >linger.out 2>linger.err &
linger=$!
until_true 5 tells 'method=linger' dump one || fail "dump: $(cat told)"
x logs -f >follow.out 2>follow.err &
follow=$!
x call one say 'a line' || fail 'say'
x call counter say 'of another' || fail 'say'
until_true 5 grep -qx 'w1: a line' follow.out || fail "logs -f: $(cat follow.out)"
until_true 5 grep -qx 'w2: of another' follow.out || fail "logs -f: $(cat follow.out)"
tells 'w1: a line' logs || fail "logs: $(cat told)"
[ "$(x logs --node w2 | grep -c 'a line')" = 0 ] || fail 'logs --node shows another node'
tells '{"node":"w1","line":"a line"}' logs --json || fail "logs --json: $(cat told)"
has w1_pid.err 'a line'
has "$place/w1.log" 'a line'

# --- Ends
# -------------------------------------------------------------------------------------------------------------

x kill one --cause 'a whim' || fail 'kill'
wait "$linger" && fail 'a call to a killed actor succeeded'
has linger.err 'a whim'
tells 'a whim' why one || fail "why: $(cat told)"
fails 'a whim' call one add
x kill counter --clean || fail 'kill --clean'
says counter spawn counter --node w2
fails "nothing is known of 'nobody'" why nobody
x stop --json >out || fail 'stop'
has out '"stopped": true'
for pid in "$head_pid" "$w1_pid" "$w2_pid"; do
    ended 10 "$pid" 0
done
wait "$follow" && fail 'logs -f ended well without a head'
[ "$(ls "$place")" = head.lock ] || fail "something is left: $(ls "$place")"
finish
