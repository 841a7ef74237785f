#!/usr/bin/env bash
# A cluster over tcp with keys, as docs/cluster.md shows it: no sockets in the folder, and nobody
# without a key.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

mkdir -m 700 keys
for name in head w1 w2 me stranger; do
    ok keygen $name -o keys --role admin
done
mkdir -m 700 keys/authorized
cp keys/{head,w1,me}.key keys/authorized/
head --name far --listen tcp://127.0.0.1:0 --no-ipc --keys keys/head.secret
address=$(sed 's/.* is ready at //' head_pid.out)
[[ $address == tcp://127.0.0.1:* ]] || fail "the head is at $address"
worker w1 --listen tcp://127.0.0.1:0 --no-ipc --keys keys/w1.secret --head "$address" --head-key keys/head.key --plugin "$plugin"
at=(--head "$address" --head-key keys/head.key)
says counter spawn counter 1 "${at[@]}" --keys keys/me.secret
says 3 call counter add 2 "${at[@]}" --keys keys/me.secret
EXOGYM_HEAD=$address EXOGYM_HEAD_KEY=keys/head.key tells '1 alive, 0 lost' status --keys keys/me.secret || fail "status: $(cat told)"
fails "$address: it does not accept this process's key" status "${at[@]}" --keys keys/stranger.secret --timeout 60s
fails 'it wants keys' status --head "$address"
# Who listens on all addresses is found under one that others can use.
cp keys/w2.key keys/authorized/
worker w2 --listen tcp://0.0.0.0:0 --no-ipc --keys keys/w2.secret "${at[@]}" --plugin "$plugin"
if [ -n "$(ip -4 -brief address show up scope global 2>/dev/null)" ]; then
    [[ $(cat w2_pid.out) =~ tcp://[1-9][0-9.]*:[0-9]+ ]] || fail "an address that nobody can use: $(cat w2_pid.out)"
    says other spawn counter 1 --name other --node w2 "${at[@]}" --keys keys/me.secret
    says 3 call other add 2 "${at[@]}" --keys keys/me.secret
fi
x stop "${at[@]}" --keys keys/me.secret || fail 'stop'
ended 10 "$head_pid" 0
ended 10 "$w1_pid" 0
ended 10 "$w2_pid" 0
[ "$(ls "$place")" = head.lock ] || fail "something is left: $(ls "$place")"

# Another user of the host comes by tcp, as to a cluster that systemd runs: the sockets in its folder are for
# its own user only. Here nobody may reach them, root neither without its capabilities.
head --listen tcp://127.0.0.1:0 --keys keys/head.secret
address=$(sed -n 's/.*\(tcp:[^ ]*\).*/\1/p' head_pid.out)
at=(--head "$address" --head-key keys/head.key --keys keys/me.secret --folder theirs)
mkdir -m 700 theirs
worker w1 --listen tcp://127.0.0.1:0 --keys keys/w1.secret "${at[@]:0:4}" --plugin "$plugin"
powerless=()
[ "$(id -u)" != 0 ] || powerless=(setpriv --bounding-set=-all --inh-caps=-all)
chmod 0 "$place"
"${powerless[@]}" "$EXOGYM" spawn counter 1 "${at[@]}" >out 2>err || fail "spawn as another user: $(cat err)"
"${powerless[@]}" "$EXOGYM" call counter add 2 "${at[@]}" >out 2>err || fail "call as another user: $(cat err)"
has out 3
chmod 700 "$place"
# A run of such a user gets the average of its nodes, which is not lent to it: it is in memory of another user.
nobody=(setpriv --reuid 65534 --clear-groups)
if [ "$(id -u)" = 0 ] && chmod 711 "$folder" && "${nobody[@]}" test -x "$EXOGYM" 2>/dev/null; then
    cat >job.yaml <<'END'
name: theirs
model: {name: mlp, hidden: [512]}
data: {name: synthetic, count: 64}
nodes: 2
train: {max_steps: 2, batch_size: 2, val_size: none}
strategy: ddp
END
    mkdir nobody && mkdir -m 700 nobody/own && cp -r job.yaml keys nobody && chown -R 65534 nobody
    cd nobody || exit 1
    # Sockets that it sees, but may not use, are no way either.
    chmod 711 "$clusters" "$place"
    "${nobody[@]}" "$EXOGYM" call counter add 2 --head "$address" --head-key keys/head.key --keys keys/me.secret \
        --folder own >../out 2>../err || fail "call as a user who sees the sockets: $(cat ../err)"
    [ "$(cat ../out)" = 5 ] || fail "the call gave: $(cat ../out)"
    chmod 700 "$clusters" "$place"
    timeout 120 "${nobody[@]}" "$EXOGYM" run job.yaml --head "$address" --head-key keys/head.key --keys keys/me.secret \
        --save-dir runs --no-plot --json >../out 2>../err </dev/null || fail "a run as another user: $(tail -3 ../err)"
    "$EXOGYM" run job.yaml --save-dir alone --no-plot --json >../alone 2>../err </dev/null || fail "a run alone: $(tail -3 ../err)"
    cd .. || exit 1
    [ "$(grep -c '"sha256"' out)" = 1 ] && [ "$(grep '"sha256"' out)" = "$(grep '"sha256"' alone)" ] || fail 'a run as another user has other numbers'
fi
x stop "${at[@]:0:6}" || fail 'stop'
ended 10 "$head_pid" 0
ended 10 "$w1_pid" 0

# Addresses of IPv6 stand in brackets; a socket of [::] also accepts IPv4.
if grep -qs '^0*1 ' /proc/net/if_inet6; then
    head --no-ipc --listen 'tcp://[::]:0' --keys keys/head.secret
    port=$(sed 's/.*://' head_pid.out)
    worker w1 --no-ipc --listen 'tcp://[::1]:0' --keys keys/w1.secret --head "tcp://[::1]:$port" --head-key keys/head.key --plugin "$plugin"
    [[ $(cat w1_pid.out) == *'tcp://[::1]:'* ]] || fail "w1: $(cat w1_pid.out)"
    for address in "tcp://[::1]:$port" "tcp://127.0.0.1:$port"; do
        at=(--head "$address" --head-key keys/head.key)
        says counter spawn counter 1 "${at[@]}" --keys keys/me.secret
        says 3 call counter add 2 "${at[@]}" --keys keys/me.secret
        x kill counter "${at[@]}" --keys keys/me.secret
        fails "$address: it does not accept this process's key" status "${at[@]}" --keys keys/stranger.secret --timeout 60s
    done
    # A worker that listens on IPv4 addresses only advertises none of IPv6.
    worker w2 --no-ipc --listen tcp://0.0.0.0:0 --keys keys/w2.secret --head "tcp://[::1]:$port" --head-key keys/head.key
    [[ $(cat w2_pid.out) != *'['* ]] || fail "w2: $(cat w2_pid.out)"
    x stop "${at[@]}" --keys keys/me.secret || fail 'stop'
    ended 10 "$head_pid" 0
    ended 10 "$w1_pid" 0
    ended 10 "$w2_pid" 0
fi
finish
