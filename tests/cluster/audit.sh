#!/usr/bin/env bash
# The audit logs of programs with keys: what they have, whose file it is, rotation, a full disk, a
# head under its filter of system calls. shellcheck disable=SC2154 # start sets variables by name
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"
mkdir -m 700 keys keys/authorized
ok keygen head -o keys --role admin
ok keygen w1 -o keys --role worker
ok keygen boss -o keys --role admin
ok keygen watch -o keys --role observer
cp keys/*.key keys/authorized/

# as KEY COMMAND...: with that key.
as() {
    local key=$1
    shift
    x "$@" --head "$address" --head-key keys/head.key --keys "keys/$key.secret" </dev/null
}

# records FILE KEY=TEXT...: a line of the file has all of these; every line is one object, and the
# numbers go on by one.
records() {
    python3 - "$@" <<'END'
import json, sys
wanted = [a.split("=", 1) for a in sys.argv[2:]]
lines = open(sys.argv[1], "rb").read()
assert lines.isascii() and lines.endswith(b"\n"), lines[-200:]
objects = [json.loads(line) for line in lines.splitlines()]
last = 0
for o in objects:
    assert o["seq"] == last + 1 or o["seq"] == 1 or last == 0, (last, o)
    last = o["seq"]
sys.exit(not any(all(text in str(o.get(key, "")) for key, text in wanted) for o in objects))
END
}
recorded() {
    until_true 10 records "$@" || fail "no record $*: $(cat "$1")"
}

head --name h --listen tcp://127.0.0.1:0 --no-ipc --keys keys/head.secret --audit head.audit
address=$(sed -n 's/.* is ready at \(tcp:[^ ]*\).*/\1/p' head_pid.out)
worker w1 --listen tcp://127.0.0.1:0 --no-ipc --keys keys/w1.secret --head "$address" --head-key keys/head.key --audit w1.audit
[ "$(stat -c %a head.audit w1.audit | sort -u)" = 600 ] || fail "modes: $(stat -c %a head.audit w1.audit)"
as boss spawn counter --name c --plugin "$plugin" || fail 'spawn'
recorded head.audit event=admitted who=boss role=admin address=127.0.0.1
recorded head.audit event=spawn outcome=allowed who=boss subject=default/c "detail=class counter"
head_key=$(sed -n 's/^public //p' keys/head.key) # it did not come: the worker went to it
recorded w1.audit event=spawn outcome=allowed "key=$head_key" role=admin subject=default/c "detail=for boss"
as watch spawn counter --name d 2>/dev/null && fail 'an observer makes actors'
recorded head.audit event=denied outcome=refused who=watch role=observer method=spawn
as boss kill c || fail 'kill'
recorded w1.audit event=kill who=boss subject=default/c
rm keys/authorized/watch.key
recorded head.audit event=key subject=watch detail=removed
as watch status 2>/dev/null && fail 'a key that is gone is let in'
recorded head.audit event=refused "reason=key is not authorized" address=127.0.0.1 "key=$(sed -n 's/^public //p' keys/watch.key)"

# Two processes have two files, and nobody else reads or writes them.
refuses() {
    local text=$1
    shift
    "$EXO_BUILD/exogym-head" --folder "$clusters" --cluster other --state none "$@" >out 2>err && fail "a head starts with $*"
    has err "$text"
}
refuses 'another process has it' --audit head.audit
ln -s "$folder/elsewhere" link.audit
refuses 'must not be a link' --audit link.audit
[ ! -e elsewhere ] || fail 'a link was followed'
: >open.audit
chmod 644 open.audit
refuses 'chmod 600' --audit open.audit
refuses 'No such file' --audit nowhere/audit

# Renamed, it begins anew.
mv head.audit head.audit.1
as boss spawn counter --name e --plugin "$plugin" || fail 'spawn'
recorded head.audit event=spawn subject=default/e
[ "$(stat -c %a head.audit)" = 600 ] || fail 'mode after rotation'
records head.audit.1 event=spawn subject=default/c || fail 'the renamed file has changed'
as boss stop || fail 'stop'
ended 20 "$head_pid" 0
recorded head.audit event=stop who=boss method=end
recorded head.audit event=process detail=ends
recorded w1.audit event=process detail=ends

# A disk that is full takes no head down, and what it cost is counted.
(
    ulimit -S -f 8
    exec "$EXO_BUILD/exogym-head" --folder "$clusters" --cluster full --state none --audit full.audit >full.out 2>full.err
) &
full=$!
started+=($full)
until_true 10 grep -q ' is ready at ' full.out || fail "not ready: $(cat full.err)"
for i in $(seq 60); do
    "$EXOGYM" status --folder "$clusters" --cluster full >/dev/null || fail 'the head of a full disk does not answer'
done
until_true 10 grep -q 'event=audit_fails' full.err || fail "nothing is said of a full disk: $(cat full.err)"
[ "$(stat -c %s full.audit)" -le 8192 ] || fail 'the limit is none'
prlimit --pid "$full" --fsize=unlimited
until_true 10 grep -q 'event=audit_writes_again' full.err || fail "it does not write again: $(cat full.err)"
[ "$(grep -c 'event=audit_fails' full.err)" = 1 ] || fail 'it was said more than once'
# A process that the head answers late may connect again. The head says that it writes again after the first
# of the records that it has kept.
has_all() {
    [ "$(grep -c '"admitted"' full.audit)" -ge 60 ]
}
until_true 10 has_all || fail "records are missing: $(grep -c '"admitted"' full.audit)"
recorded full.audit event=admitted
kill "$full"
ended 10 "$full" 0
recorded full.audit event=process detail=ends
finish
