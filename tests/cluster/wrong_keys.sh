#!/usr/bin/env bash
# Whoever has a wrong key, or none, is told at once which one is wrong, instead of waiting until the
# deadline for a head that is there. shellcheck disable=SC2154 # start sets variables by name
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"
mkdir -m 700 keys
for name in head w1 stranger other; do
    ok keygen $name -o keys --role admin
done
mkdir -m 700 keys/authorized
cp keys/{head,w1}.key keys/authorized/

head --name far --listen tcp://127.0.0.1:0 --no-ipc --keys keys/head.secret
address=$(sed -n 's/.* is ready at \(tcp:[^ ]*\).*/\1/p' head_pid.out)
"$EXO_BUILD/exogym-head" --folder "$clusters" --cluster plain --state none --no-ipc --insecure --listen tcp://127.0.0.1:0 >plain.out 2>plain.err &
started+=($!)
until_true 10 grep -q ' is ready at ' plain.out || fail "$(cat plain.err)"
plain=$(sed -n 's/.* is ready at \(tcp:[^ ]*\).*/\1/p' plain.out)
# A server that says nothing of ours, and one that ends each connection. They read the greeting first: what is not
# read when a connection is closed resets it, and a reset is also what a listener without room does.
cat >stranger.py <<'END'
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        connection, _ = server.accept()
        connection.recv(64)
        if sys.argv[1] == "talks":
            connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n" * 20)
        connection.close()
END
python3 stranger.py talks >talks.out &
started+=($!)
python3 stranger.py ends >ends.out &
started+=($!)
until_true 10 test -s talks.out -a -s ends.out || fail 'no strangers'

# told MESSAGE COMMAND...: exogym fails with the message, long before its deadline, which is half an
# hour away.
told() {
    local message=$1 got
    shift
    timeout $((60 * slower)) "$EXOGYM" "$@" --folder "$clusters" --timeout 30m >out 2>err </dev/null
    got=$?
    [ $got = 1 ] || fail "exogym $*: ended with $got instead of 1: $(cat err)"
    has err "$message"
    [ "$(wc -l <err)" = 1 ] || fail "exogym $*: more than one line: $(cat err)"
}
right=(--head-key keys/head.key --keys keys/w1.secret)
told "$address: it does not accept this process's key" status --head "$address" --head-key keys/head.key --keys keys/stranger.secret
told "$address: it breaks the handshake off: it has another key than the one that was given for it" \
    status --head "$address" --head-key keys/other.key --keys keys/w1.secret
told "it wants keys" status --head "$address"
told "works without keys" status --head "$plain" "${right[@]}"
told 'no message of exogym' status --head "tcp://127.0.0.1:$(cat talks.out)"
told 'no process of exogym' status --head "tcp://127.0.0.1:$(cat ends.out)" "${right[@]}"
told 'it breaks the handshake off: it wants keys, or is no process of exogym' status --head "tcp://127.0.0.1:$(cat ends.out)"

# A worker and a job are told, too, and end.
timeout $((60 * slower)) "$EXO_BUILD/exogym-worker" --folder "$clusters" --no-ipc --listen tcp://127.0.0.1:0 --head "$address" --head-key keys/other.key \
    --keys keys/w1.secret --grace 30m >out 2>err </dev/null
[ $? = 1 ] || fail "the worker did not end with 1: $(cat err)"
has err 'another key than the one that was given'
timeout $((60 * slower)) "$EXOGYM" run job.yaml --head "$address" --head-key keys/head.key --keys keys/stranger.secret >out 2>err </dev/null
[ $? = 1 ] || fail "the job did not end with 1: $(cat err)"
has err "does not accept this process's key: its NAME.key is not among those that the other end lets in, or has expired by its clock"

# Nobody who has keys talks to a head that proves nothing: what it says may be anybody's.
for role in exogym-worker exogym-head; do
    [ $role = exogym-worker ] && where=(--head "$plain") || where=(--listen tcp://127.0.0.1:0)
    [ $role = exogym-worker ] && with=(--keys keys/w1.secret) || with=()
    timeout $((60 * slower)) "$EXO_BUILD/$role" --folder "$clusters" --cluster alone --no-ipc --listen tcp://127.0.0.1:0 "${where[@]}" "${with[@]}" >out 2>err </dev/null
    [ $? = 2 ] || fail "$role: it did not end with 2: $(cat err)"
    [ $role = exogym-worker ] && has err "whoever answers at '$plain' could pretend to be the head: say --head-key" || has err 'can be reached by every user of this host'
done
x status --head "$plain" --keys keys/w1.secret >out 2>err </dev/null && fail 'a guest with keys asks a head without'
has err "whoever answers at '$plain' could pretend to be the head: say --head-key"
tells '0 alive, 0 lost' status --head "$plain" || fail "nobody is known there: $(cat told)"

# The right ones are let in all the same, and one that is added while the head runs.
tells '0 alive, 0 lost' status --head "$address" "${right[@]}" || fail "status: $(cat told)"
cp keys/stranger.key keys/authorized/
tells '0 alive, 0 lost' status --head "$address" --head-key keys/head.key --keys keys/stranger.secret || fail "status: $(cat told)"
finish
