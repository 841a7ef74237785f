#!/usr/bin/env bash
# The same job in one process and in worker processes, over every transport: the same bits, the same
# bytes, and nothing left behind.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

export TMPDIR=$folder

cat >job.yaml <<'YAML'
exogym: 1
name: spread
seed: 11
model: {name: mlp, hidden: 32}
data: {name: synthetic, count: 1024}
nodes: 3
train: {max_steps: 24, batch_size: 32, val_size: 64, val_interval: 6, checkpoint_interval: 8, correlation_interval: 6}
strategy: {optimizer: {name: adamw, lr: 1e-3}, max_norm: 1.0}
compare: [ddp, {name: diloco, H: 5}, {name: sparta, p: 0.3, selector: shuffled_sequential}, {name: fedavg, H: 4, island_size: 2}]
YAML

# what RESULT: hashes, bytes and losses of a result.
what() {
    grep -E '"(sha256|bytes_sent_per_node|local_loss|global_loss)"' "$1"
}

ok run job.yaml --json --no-plot --save-dir embedded
what out >wanted
[ "$(grep -c sha256 wanted)" = 4 ] || fail 'four results are not there'
for workers in 1 2 3; do
    for transport in ipc 'tcp --insecure' curve; do
        [ "$workers" = 2 ] || [ "$transport" = ipc ] || continue
        # shellcheck disable=SC2086
        ok run job.yaml --json --no-plot --save-dir "far_${workers}_${transport%% *}" --workers "$workers" --transport $transport
        what out >got
        cmp -s wanted got || fail "$workers workers over $transport: $(diff wanted got)"
        cmp -s embedded/spread/ddp/train.csv "far_${workers}_${transport%% *}/spread/ddp/train.csv" || fail "train.csv differs"
    done
done

# As after ctrl-Z, over tcp too: what pauses for longer than hosts may be silent goes on. It does so below.
"$EXOGYM" run job.yaml --no-plot --save-dir paused --set train.max_steps=1000000 --workers 2 --transport curve >paused.out 2>&1 </dev/null &
paused=$!
for ((i = 0; i < 600; i++)); do
    grep -q 'step 6/' paused.out && break
    sleep 0.1
done
kill -STOP $paused
since=$SECONDS

# Stopped in one process, resumed in workers, and the other way round.
steps=700
grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt" || steps=200 # sanitizers are slow
sed -i "s/max_steps: 24/max_steps: $steps/" job.yaml
ok run job.yaml --json --no-plot --save-dir whole
what out | grep sha256 >wanted
way=--no-plot
for part in 1 2 3; do
    timeout -s INT "0.$((part + 4))" "$EXOGYM" run job.yaml --json --no-plot --save-dir parts --resume $way >out 2>err
    [ "$way" = --no-plot ] && way='--workers 2' || way=--no-plot
done
# shellcheck disable=SC2086
ok run job.yaml --json --no-plot --save-dir parts --resume $way
what out | grep sha256 >got
cmp -s wanted got || fail "stopped and resumed elsewhere: $(diff wanted got)"

# Where the time of nodes and links goes is known where they are: of workers nothing says so, nor
# does what an earlier part here has left.
cat >links.yaml <<'YAML'
model: {name: mlp, hidden: 4}
data: {name: synthetic, count: 64}
nodes: 2
train: {max_steps: 2, batch_size: 2, val_size: 2}
strategy: ddp
hosts: {home: {count: 2, up: 1 Gbit/s, down: 1 Gbit/s}}
links: {default: {latency: 1 ms}}
YAML
ok run links.yaml --no-plot
[ -s runs/links/ddp/network.json ] || fail 'no network.json over links'
ok run links.yaml --no-plot --resume --set train.max_steps=4 --workers 2
has err 'on workers there is no network.json'
[ ! -e runs/links/ddp/network.json ] || fail 'network.json of a part for the whole run'
[ -s runs/links/ddp/ledger.csv ] || fail 'no ledger'

expect 2 "exogym: run: --workers 0: expected a number from 1 to 256 (see \`exogym help run\`)" run job.yaml --workers 0
expect 2 "exogym: run: --transport is for --workers (see \`exogym help run\`)" run job.yaml --transport tcp
for option in --keys --head-key; do
    expect 2 "exogym: run: $option is for a cluster that runs already: name it by --head or --cluster (see \`exogym help run\`)" run job.yaml $option none
    EXOGYM_HEAD=tcp://127.0.0.1:1 bad 2 "run: $option is for a cluster that runs already" run job.yaml --workers 1 $option none
    "$EXOGYM" run job.yaml --cluster none $option none >out 2>err && fail "--cluster none: it runs"
    ! grep -q 'is for a cluster that runs already' err || fail "$option does not go with --cluster: $(cat err)"
done
expect 2 "exogym: run: --transport tcp: every user of this host could run code as this user meanwhile: take curve, or say --insecure (see \`exogym help run\`)" \
    run job.yaml --workers 1 --transport tcp
expect 2 "exogym: run: --insecure is for --transport tcp (see \`exogym help run\`)" run job.yaml --workers 1 --insecure
expect 2 "exogym: run: --transport: expected ipc, tcp or curve, got 'udp' (see \`exogym help run\`)" run job.yaml --workers 1 --transport udp

while [ $((SECONDS - since)) -lt 8 ]; do
    sleep 0.1
done
kill -CONT $paused
sleep 1
kill -INT $paused
wait $paused
[ $? = 130 ] || fail "a pause: $(tail -n 2 paused.out)"

# Neither a full disk under standard output nor a place for the sockets that is not there goes by without its reason.
"$EXOGYM" run job.yaml --no-plot --set train.max_steps=1 --save-dir full --workers 1 >/dev/full 2>err
[ $? = 1 ] || fail 'a full disk under standard output is not noticed'
has err 'exogym: cannot write to standard output: No space left on device'
TMPDIR=$folder/none bad 1 'none/exogym-run-' run job.yaml --no-plot --workers 1
has err 'no folder can be made: No such file or directory (TMPDIR: an absolute path of less than 40 characters where you may write)'

# However a run ends, and whenever, its processes and its folder go. One that is killed before it has started
# anybody leaves its folder to the next command; before it has locked that, the folder stays, with lock.new at most.
left() {
    find "$folder" -path '*/exogym-run-*/*' ! -name lock.new
    grep -ls "$folder/exogym[-]run-" /proc/[0-9]*/cmdline # not itself
}
for signal in INT TERM KILL; do
    for after in 0.02 0.1 0.4; do
        timeout -s "$signal" "$after" "$EXOGYM" run job.yaml --json --no-plot --save-dir stopped --workers 2 >out 2>err
    done
done
ok run job.yaml --no-plot --save-dir next --set train.max_steps=1 --workers 1
for ((i = 0; i < 600 && $(left | wc -l) > 0; i++)); do
    sleep 0.1
done
[ -z "$(left)" ] || fail "left behind: $(left)"
finish
