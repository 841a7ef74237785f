#!/usr/bin/env bash
# What a head has in memory stays there: it leaves no core file when it crashes, unless EXOGYM_DUMPABLE=1 says so; a head whose filter of system
# calls is off works as well; a wrong value is told.
. "$EXO_SOURCE/tests/cluster/common.bash"

mkdir crash
# crash: a head that dies of SIGSEGV, in a folder of its own.
crash() {
    rm -f crash/*
    (cd crash && exec "$EXO_BUILD/exogym-head" --folder "$clusters" --state none >"$folder/crash.out" 2>"$folder/crash.err") &
    local pid=$!
    started+=("$pid")
    until_true 10 grep -q ' is ready at ' crash.out || fail "the head is not ready: $(cat crash.err)"
    kill -SEGV "$pid"
    wait "$pid" 2>/dev/null
}

crash
# Where core files go elsewhere, or are not written, there is nothing to compare with.
if compgen -G 'crash/core*' >/dev/null; then
    unset EXOGYM_DUMPABLE
    crash
    ! compgen -G 'crash/core*' >/dev/null || fail "a head left its memory in a core file"
fi
rm -rf crash

EXOGYM_DUMPABLE=yes "$EXO_BUILD/exogym-head" --state none >out 2>err && fail "a wrong EXOGYM_DUMPABLE was taken"
has err "EXOGYM_DUMPABLE: expected 1, got 'yes'"

head --no-seccomp
worker w1 --plugin "$plugin"
grep -q '^Seccomp:.*0$' "/proc/$head_pid/status" || fail "--no-seccomp: there is a filter"
tells w1 list nodes || fail "a head without a filter does not work: $(cat told)"
kill "$head_pid"
ended 10 "$head_pid" 0
head
if [ $slower = 1 ]; then # not under sanitizers
    for status in "/proc/$head_pid"/task/*/status; do
        grep -q '^Seccomp:.*2$' "$status" || fail "a thread of the head has no filter: $status"
        grep -q '^NoNewPrivs:.*1$' "$status" || fail "a thread of the head may gain privileges: $status"
    done
fi
x stop >/dev/null
finish
