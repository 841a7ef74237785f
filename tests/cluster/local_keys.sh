#!/usr/bin/env bash
# A cluster whose processes of the same host must show keys, too: who gets in, what each role may
# do, and what others are told. shellcheck disable=SC2154 # start sets variables by name
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"
mkdir -m 700 keys keys/authorized plugins
ok keygen head -o keys --role admin
ok keygen w1 -o keys --role worker
ok keygen boss -o keys --role admin
ok keygen red -o keys --role driver --namespace red
ok keygen me -o keys --role driver
cp keys/*.key keys/authorized/
ok keygen stranger -o keys --role admin
cp "$plugin" plugins/

refuses() {
    local text=$1
    shift
    timeout 60 "$EXO_BUILD/$@" --folder "$clusters" >out 2>err && fail "it starts: $*"
    has err "$text"
}
refuses 'this process has no keys' exogym-head --state none --keys-for-local
head --name h --keys-for-local --keys keys/head.secret
[ -S "$place/head.curve" ] && [ ! -e "$place/head" ] || fail "sockets: $(ls "$place")"

# as KEY COMMAND...
as() {
    local key=$1
    shift
    x "$@" --head-key keys/head.key --keys "keys/$key.secret" </dev/null
}
x status >out 2>err && fail 'it needs no key'
has err 'wants keys of processes of this host, too: give --keys and --head-key'
as stranger status >out 2>err && fail 'any key is let in'
has err "does not accept this process's key"
x status --keys keys/boss.secret --head-key keys/boss.key >out 2>err && fail 'the head has another key'
has err 'it has another key than the one that was given for it'
as boss status >out 2>err || fail "$(cat err)"

refuses 'wants keys of processes of this host, too' exogym-worker --name w0
worker w1 --keys keys/w1.secret --head-key keys/head.key --plugin-dir plugins # it does as its head
ls "$place"/worker-*.curve >/dev/null || fail "the worker's socket: $(ls "$place")"
as red spawn counter --name c -n red --plugin plugins/actors.so || fail 'spawn'
as red call c add 5 -n red >out || fail 'call'
as red spawn counter --name d >out 2>err && fail 'a driver of this host has no namespace of its own'
has err "may use the namespace 'red' only"
as red stop >out 2>err && fail 'a driver of this host ends the cluster'
has err 'may not call `end`'
as w1 spawn counter --name e >out 2>err && fail 'a worker makes actors'
has err 'whose role is worker'

# A driver's own socket wants keys, too: its nodes live at the worker, and speak with it.
export XDG_RUNTIME_DIR=$folder # for its socket: run has no --folder
ok run job.yaml --json --no-plot --save-dir alone
ok run job.yaml --json --no-plot --save-dir far --head "ipc://$place/head.curve" --head-key keys/head.key --keys keys/me.secret
for run in alone far; do
    cat $run/small/*/result.json | grep -E '"sha256"' >$run.hashes
done
[ -s alone.hashes ] && cmp -s alone.hashes far.hashes || fail "other bits: $(diff alone.hashes far.hashes)"

# Its watcher shows the same key, and tells why it died.
kill -9 "$(child_of "$w1_pid")"
died() {
    as boss why w1 | grep -q 'signal 9'
}
until_true 10 died || fail "why: $(as boss why w1 2>&1)"
for file in report.* core core.*; do rm -f "$file"; done

# A head that needs no keys is none for whoever insists on them.
kill "$head_pid"
ended 20 "$head_pid" 0
head --name h
refuses 'no head can be reached' exogym-worker --name w2 --keys-for-local --keys keys/w1.secret --head-key keys/head.key --grace 1s
x status >out 2>err || fail "$(cat err)" # the default stays
finish
