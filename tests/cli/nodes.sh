#!/usr/bin/env bash
# The command lines of exogym-head and exogym-worker; tests/cluster has what they do.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

mkdir -m 700 here
for program in exogym-head exogym-worker; do
    EXOGYM=$EXO_BUILD/$program
    see="(see \`$program --help\`)"
    ok --version
    has out "$program 0."
    ok --help
    has out "Usage: $program [OPTIONS]"
    [ "$(awk 'length > 100' out)" = '' ] || fail "$program --help: a line is too long"
    for option in $(grep -oE -- '^  --[a-z-]+' out); do
        grep -qF -- "$option" "$EXO_SOURCE/docs/cluster.md" || fail "docs/cluster.md does not have $option of $program"
    done
    if [ -d "$EXO_BUILD/share/$program" ]; then
        ok --man
        cmp -s out "$EXO_BUILD/share/$program/man/man1/$program.1" || fail "the build's page of $program is another"
    fi
    expect 2 "$program: 'word' is one word too many $see" word
    expect 2 "$program: --threads: expected a number from 1 to 1024, got 'x' $see" --threads x
    expect 2 "$program: --peer-timeout: its value is empty $see" --peer-timeout=
    expect 2 "$program: --peer-timeout: '0' is too short $see" --peer-timeout 0
    expect 2 "$program: --no-ipc leaves nothing to listen on: say where with --listen $see" --no-ipc
    expect 2 "$program: unknown option --clutser; did you mean --cluster? $see" --clutser
done
EXOGYM=$EXO_BUILD/exogym-head
expect 2 "exogym-head: 'tcp://0.0.0.0:0' can be reached by others, who could run code as this user: give keys, which \`exogym keygen\` makes, or say --insecure" \
    --listen tcp://0.0.0.0:0 --folder here --state none
for address in tcp://127.0.0.1:0 tcp://localhost:0 'tcp://[::1]:0'; do
    expect 2 "exogym-head: '$address' can be reached by every user of this host, who could run code as this user: give keys, which \`exogym keygen\` makes, or say --insecure" \
        --listen "$address" --folder here --state none
done
EXOGYM=$EXO_BUILD/exogym-worker
expect 2 "exogym-worker: whoever answers at 'tcp://127.0.0.1:1' could run code here as this user: give --keys and --head-key, which \`exogym keygen\` makes, or say --insecure" \
    --head tcp://127.0.0.1:1 --folder here --grace 1s
see='(see `exogym-worker --help`)'
expect 2 "exogym-worker: 'gpus': expected NAME=AMOUNT $see" --resource gpus
expect 2 "exogym-worker: the node's name 'a/b': expected no '/'" --name a/b --folder here
expect 2 "exogym-worker: the cluster's name '..': expected at most 47 letters, digits, '.', '_' and '-', no '.' first" --cluster .. --folder here
[ "$(ls -A here/default)" = head.lock ] || fail "something is left: $(ls -A here/default)"
finish
