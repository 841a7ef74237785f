#!/usr/bin/env bash
# What a head has in memory stays there: no other process of its user can trace it or read its
# memory, descriptors or environment; it leaves no core file when it crashes, unless
# EXOGYM_DUMPABLE=1 says so; a head whose filter of system calls is off works as well; a wrong value
# is told.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

mkdir crash
# crash: a head that dies of SIGSEGV, in a folder of its own.
crash() {
    rm -f crash/* crash.out # of one before it
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

# A process of the same user cannot look into a head, however it tries; into one with
# EXOGYM_DUMPABLE=1 it can, so the tries are good. Root may look into everything: then head and
# thief are of a user without rights.
as=()
[ "$(id -u)" != 0 ] || as=(setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all)
cat >thief.py <<'END'
import ctypes, os, sys
pid, libc = int(sys.argv[1]), ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
def attempt(name, got):
    print(name if got else "refused: " + name)
def opens(name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as f:
            if name != "mem":
                f.read(1)
        return True
    except OSError:
        return False
def lists(name):
    try:
        return [os.readlink(f"/proc/{pid}/{name}/{entry}") for entry in os.listdir(f"/proc/{pid}/{name}")] != []
    except OSError:
        return False
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
here = ctypes.create_string_buffer(16)
local, remote = Piece(ctypes.addressof(here), 16), Piece(int(sys.argv[2], 16), 16)
for name in ("environ", "maps", "mem", "auxv", "stack", "syscall", "io"):
    attempt(name, opens(name))
for name in ("fd", "map_files"):
    attempt(name, lists(name))
attempt("process_vm_readv", libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) >= 0)
attempt("pidfd_getfd", libc.syscall(438, libc.syscall(434, pid, 0), 0, 0) >= 0)
attempt("seize", libc.ptrace(0x4206, pid, None, None) == 0)
attempt("attach", libc.ptrace(16, pid, None, None) == 0)
END
# rob: what the thief gets of a head of that user, in `stolen`.
rob() {
    rm -rf robbed robbed.out # of one before it
    mkdir -m 700 robbed
    [ ${#as[@]} = 0 ] || chown 65534:65534 robbed
    (cd / && exec "${as[@]}" "$EXO_BUILD/exogym-head" --folder "$folder/robbed" --state none >"$folder/robbed.out" 2>"$folder/robbed.err") &
    local pid=$!
    started+=("$pid")
    until_true 10 grep -q ' is ready at ' robbed.out || fail "the head is not ready: $(cat robbed.err)"
    address=$(sed -n '1s/-.*//p' "/proc/$pid/maps" 2>/dev/null)
    (cd / && exec "${as[@]}" $python - "$pid" "${address:-1000}") <thief.py >stolen 2>thief.err || fail "the thief: $(cat thief.err)"
    [ "$(wc -l <stolen)" = 13 ] || fail "the thief tried less: $(cat stolen thief.err)"
    kill "$pid"
    wait "$pid" 2>/dev/null
}
chmod 711 .
# A python3 that this user may start.
python=$(for python in python3 /usr/bin/python3; do (cd / && "${as[@]}" $python -c 'import ctypes') 2>/dev/null && echo $python && break; done)
if [ -n "$python" ] && (cd / && "${as[@]}" test -x "$EXO_BUILD/exogym-head"); then
    unset EXOGYM_DUMPABLE
    rob
    ! grep -v '^refused: ' stolen || fail "a process of the same user looks into a head: $(cat stolen)"
    export EXOGYM_DUMPABLE=1
    rob
    grep -q '^environ$' stolen && grep -q '^fd$' stolen || fail "the tries are no good: $(cat stolen)"
else
    echo 'there is no python3, or no program, that another user may start: whether a head can be looked into is not tried'
fi
export EXOGYM_DUMPABLE=1

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
