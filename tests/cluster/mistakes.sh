#!/usr/bin/env bash
# What is wrong with the words of a command about a cluster is said in a line, and does no harm.
# shellcheck disable=SC2154 # start sets variables by name
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

# refused STATUS MESSAGE PROGRAM ARGUMENTS...: the program ends with STATUS and says MESSAGE.
refused() {
    local status=$1 message=$2 program=$3 got
    shift 3
    timeout 60 "$EXO_BUILD/$program" "$@" --folder "$clusters" >out 2>err </dev/null
    got=$?
    [ "$got" = "$status" ] || fail "$program $*: ended with $got instead of $status: $(command head -3 err)"
    has err "$message"
}

# --- Addresses, names
# ---------------------------------------------------------------------------------------------------

for address in 127.0.0.1:65536 127.0.0.1:99999 127.0.0.1 127.0.0.1: 127.0.0.1:x 127.0.0.1:-1 127.0.0.1:70x :7070; do
    refused 2 "'tcp://$address': expected tcp://ADDRESS:PORT" exogym-head --state none --listen "tcp://$address"
    refused 2 "'tcp://$address': expected tcp://ADDRESS:PORT" exogym-head --state none --advertise "tcp://$address"
    refused 2 "'tcp://$address': expected tcp://ADDRESS:PORT" exogym-worker --head "tcp://$address"
done
refused 2 'with a port from 1 to 65535' exogym-worker --head tcp://127.0.0.1:0
for address in ::1:7070 '[::1:7070' 2001:db8::5:7070; do
    refused 2 "'tcp://$address': an IPv6 address stands in brackets" exogym-head --state none --listen "tcp://$address"
    refused 2 "'tcp://$address': an IPv6 address stands in brackets" exogym-worker --head "tcp://$address"
done
refused 2 "'tcp://[2001:db8::5]': expected tcp://ADDRESS:PORT" exogym-worker --head 'tcp://[2001:db8::5]'
long=$(printf 'x%.0s' {1..48})
refused 2 'expected at most 47 letters, digits' exogym-head --state none --cluster "$long"
for option in --cluster --name --folder --listen --keys; do
    refused 2 "$option: its value is empty" exogym-head --state none "$option" ''
done

# --- Hosts that are not there
# -------------------------------------------------------------------------------------------

# waits MESSAGE OPTIONS...: a worker that waits for its head on another host, an address for examples, says
# MESSAGE meanwhile; it says how long it waits.
waits() {
    local message=$1
    shift
    refused 1 "$message" exogym-worker --insecure --grace 3s "$@"
}

waits 'waits_s=3 the head is not there yet, and is waited for:' --head tcp://nowhere.invalid:7070
hidden='this worker cannot be reached from other hosts, and its head is on one'
waits "$hidden" --head tcp://192.0.2.1:7070 --listen tcp://127.0.0.1:0
waits "$hidden" --head tcp://192.0.2.1:7070
waits 'no head can be reached' --head tcp://192.0.2.1:7070 --listen tcp://127.0.0.1:0 --advertise tcp://127.0.0.1:7
grep -q "$hidden" err && fail "the end of a tunnel is taken for a mistake: $(cat err)"
waits 'waits_s=3 the head is not there yet' --head tcp://127.0.0.1:1 --listen tcp://127.0.0.1:0
grep -q "$hidden" err && fail "a worker on the host of its head is taken for hidden: $(cat err)"

# --- Files
# --------------------------------------------------------------------------------------------------------------

ok keygen n -o "$folder/keys" --role admin
refused 1 "$folder/keys/authorized: No such file or directory: make it" exogym-head --state none \
    --listen tcp://127.0.0.1:0 --keys "$folder/keys/n.secret"
echo 'no database at all, and long enough to be one' >"$folder/text"
refused 1 "$folder/text: cannot be read: file is not a database: move it away" exogym-head --state "$folder/text"
if command -v sqlite3 >/dev/null; then
    sqlite3 "$folder/other.db" 'CREATE TABLE notes (text)'
    refused 1 "$folder/other.db: is an SQLite file of another program" exogym-head --state "$folder/other.db"
    [ "$(sqlite3 "$folder/other.db" .tables)" = notes ] || fail "something was written into another program's file"
fi

# --- What is not there
# --------------------------------------------------------------------------------------------------

head
worker w1 --plugin "$plugin"
says counter spawn counter
fails "'@' stands for a file's bytes, and names none" call counter echo @
fails "there is no node 'w9'" logs --node w9
fails "there is no node 'w9'" logs --node w9 -f
x logs --node w1 >out || fail 'logs --node'
refused 2 '--cluster: its value is empty' exogym stop --cluster ''
refused 2 '--head: its value is empty' exogym stop --head ''
refused 2 '--name: its value is empty' exogym spawn counter --name ''
refused 2 "--timeout: '0' is too short" exogym status --timeout 0
refused 2 '--namespace: its value is empty' exogym call counter add -n ''

# --- Who is not there, and not dead
# -------------------------------------------------------------------------------------

worker w2 --plugin "$plugin"
says waits spawn counter --name waits --node w2 --restart on_failure --backoff 10ms
kill -9 "$(child_of "$w2_pid")"
until_true 5 tells 'restarting' why waits || fail "why: $(cat told)"
until_true 5 tells "cause: its node 'w2' was killed by signal 9" why waits || fail "why: $(cat told)"
until_true 5 tells "it waits: the worker 'w2' is lost" why waits || fail "why: $(cat told)"
for command in 'call waits add' 'dump waits'; do
    for time in 300ms 2s 20s; do # joining may take most of the time
        # shellcheck disable=SC2086
        x $command --timeout $time >out 2>err </dev/null
        status=$?
        grep -q "the actor 'waits' is restarting" err && break
    done
    [ $status = 1 ] || fail "$command: ended with $status"
    has err "the actor 'waits' is restarting: its node 'w2' was killed by signal 9"
    has err "; it waits: the worker 'w2' is lost"
done
says '' kill waits --cause 'a whim' --timeout 60s
tells "cause: a whim; before, the actor 'waits' is restarting: its node 'w2' was killed by signal 9" why waits ||
    fail "why: $(cat told)"
fails "there is no actor 'waits' in the namespace 'default'; the last one died: a whim" kill waits --timeout 60s
mkdir -m 700 "$folder/run"
XDG_RUNTIME_DIR=$folder/run timeout $((60 * slower)) "$EXOGYM" run job.yaml --cluster none >out 2>err
[ $? = 1 ] || fail "run --cluster none: $(cat err)"
has err "there is no head at ipc://$folder/run/exogym/none/head"
fails 'one with keys wants --head-key and --keys' status --head tcp://127.0.0.1:1 --timeout 200ms
fails "the name of the host in 'tcp://no-host.invalid:7070' cannot be resolved: " status \
    --head tcp://no-host.invalid:7070 --timeout 200ms
refused 2 'wants keys, which `exogym keygen` makes, and this process has none (see `exogym help status`)' exogym status \
    --head tcp://127.0.0.1:1 --head-key 'rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7'

# --- Who left is not lost
# ---------------------------------------------------------------------------------------------

worker w3
kill -TERM "$w3_pid"
ended 10 "$w3_pid" 0
until_true 5 tells 'nodes    1 alive, 1 lost, 1 left' status || fail "status: $(cat told)"
[ "$(grep -c w3 told)" = 0 ] || fail "status shows who left: $(cat told)"
tells 'w3    worker  left' list nodes || fail "list nodes: $(cat told)"
says 'node w3: left' why w3

# --- Names that a terminal would obey
# -----------------------------------------------------------------------------------

says grüße spawn counter --name grüße
x spawn counter --name $'one\033[31m\nline' >out || fail 'spawn'
x list actors >out
has out 'one\x1b[31m\nline  default'
has out 'grüße         '
[ "$(grep -c $'\033' out)" = 0 ] || fail 'list actors lets an escape through'
[ "$(wc -l <out)" = 5 ] || fail "list actors: $(cat out)"
x stop || fail 'stop'
finish
