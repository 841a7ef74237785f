#!/usr/bin/env bash
# The programs with keys of each role: what each may do, and what becomes of it when its key is
# taken away or has expired. shellcheck disable=SC2154 # start sets variables by name
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"
mkdir -m 700 keys keys/authorized plugins
ok keygen head -o keys --role admin
ok keygen w1 -o keys --role worker
ok keygen boss -o keys --role admin
ok keygen watch -o keys --role observer
ok keygen red -o keys --role driver --namespace red
ok keygen blue -o keys --role driver --namespace blue
ok keygen me -o keys --role driver
ok keygen late -o keys --role admin --expires 2001-01-01
cp keys/*.key keys/authorized/
cp "$plugin" plugins/

head --name far --listen tcp://127.0.0.1:0 --no-ipc --keys keys/head.secret
address=$(sed -n 's/.* is ready at \(tcp:[^ ]*\).*/\1/p' head_pid.out)
worker w1 --listen tcp://127.0.0.1:0 --no-ipc --keys keys/w1.secret --head "$address" --head-key keys/head.key --plugin-dir plugins

# as KEY COMMAND...: with that key.
as() {
    local key=$1
    shift
    x "$@" --head "$address" --head-key keys/head.key --keys "keys/$key.secret" </dev/null
}
# may KEY COMMAND..., may_not KEY TEXT COMMAND...
may() {
    as "$@" >out 2>err || fail "$*: $(cat err)"
}
may_not() {
    local key=$1 text=$2
    shift 2
    as "$key" "$@" >out 2>err && fail "$key may $*: $(cat out)"
    has err "$text"
}

for key in boss watch red blue; do
    may $key status
    has out '1 alive'
done
may_not red 'is not in the folder of plugins that drivers may load' spawn counter --name c -n red --plugin "$plugin"
may red spawn counter --name c -n red --plugin plugins/actors.so
may_not red "may use the namespace 'red' only" spawn counter --name c -n default --plugin plugins/actors.so
may red call c add 5 -n red
may_not blue "may use the namespace 'blue' only" call c add 5 -n red
may_not watch 'whose role is observer, may not call `spawn`' spawn counter --name d
may_not watch 'whose role is observer' call c add 5 -n red
may_not watch 'whose role is observer' stop
may watch why c -n red
may watch dump c -n red
may boss call c add 5 -n red
may boss spawn counter --name other
may red list actors
grep -q other out && fail 'a driver sees actors of another namespace'
may_not red 'may not call `end`' stop
may_not w1 'whose role is worker' spawn counter --name e
may_not late "does not accept this process's key" status
may red kill c -n red

# A driver trains: its nodes are in namespaces of its job.
export XDG_RUNTIME_DIR=$folder # for its socket: run has no --folder
ok run job.yaml --json --no-plot --save-dir alone
ok run job.yaml --json --no-plot --save-dir far --head "$address" --head-key keys/head.key --keys keys/me.secret
for run in alone far; do
    cat $run/small/*/result.json | grep -E '"sha256"' >$run.hashes
done
[ -s alone.hashes ] && cmp -s alone.hashes far.hashes || fail "other bits: $(diff alone.hashes far.hashes)"
may boss list jobs
has out small
may red list jobs
grep -q small out && fail "a driver sees another one's job"

# Taken away: new connections are refused, and the worker's, which is there, ends within moments.
rm keys/authorized/red.key
may_not red "does not accept this process's key" status
mv keys/authorized/w1.key .
lost() {
    as boss status 2>/dev/null | grep -q '0 alive, 1 lost'
}
until_true 10 lost || fail "a revoked worker stays: $(as boss status)"
grep -q 'event=revoked' head_pid.err || fail "the head says nothing of it: $(cat head_pid.err)"
mv w1.key keys/authorized/ # and put back: it comes back by itself
alive() {
    as boss status 2>/dev/null | grep -q '1 alive'
}
until_true 20 alive || fail "a worker whose key is back stays away: $(as boss status)"

# A key without a role lets nobody in, and says what to write.
sed -i '/^role/d' keys/w1.key
mkdir -m 700 keys/old
cp keys/w1.key keys/old/
"$EXO_BUILD/exogym-head" --folder "$clusters" --cluster old --state none --no-ipc --listen tcp://127.0.0.1:0 --keys keys/head.secret --authorized keys/old >out 2>err &&
    fail 'a key without a role is let in'
has err 'keys/old/w1.key: says not what its holder may do: add a line `role ROLE`, where ROLE is observer, driver, worker or admin'
finish
