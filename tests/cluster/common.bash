# What the scripts of this folder share: a cluster of real processes, in an empty folder of its own.
. "$EXO_SOURCE/tests/cli/common.bash"
unset EXOGYM_HEAD EXOGYM_HEAD_KEY EXOGYM_LOG
plugin=$EXO_BUILD/tests/plugins/actors.so
chmod 700 "$folder"
clusters=$folder/x # where the clusters' folders are
mkdir -m 700 "$clusters"
place=$clusters/default
started=()
trap 'for pid in "${started[@]}"; do kill -9 "$pid" 2>/dev/null; done; rm -rf "$folder"' EXIT
export ASAN_OPTIONS=handle_segv=0${ASAN_OPTIONS:+:$ASAN_OPTIONS} # a fault shall look like one
slower=1                                                          # sanitizers are
grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt" || slower=20

now_ms() {
    echo $((${EPOCHREALTIME/./} / 1000))
}

# until_true SECONDS COMMAND...: tries it again and again until it succeeds; false after that time.
until_true() {
    local end=$(($(now_ms) + $1 * 1000 * slower))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$(now_ms)" -lt "$end" ] || return 1
        read -rt 0.005 <> <(:) || :
    done
}

# start NAME PROGRAM ARGUMENTS...: sets the variable NAME to its process number when it says that it is ready.
start() {
    local variable=$1 program=$2
    shift 2
    rm -f "$variable.out" # of one before it
    "$EXO_BUILD/$program" --folder "$clusters" "$@" >"$variable.out" 2>"$variable.err" &
    printf -v "$variable" %s $!
    started+=($!)
    until_true 10 grep -q ' is ready at ' "$variable.out" || fail "$program $*: not ready: $(cat "$variable.err")"
}

head() {
    if [ $# = 0 ] || [[ $1 == --* ]]; then
        start head_pid exogym-head --state "$folder/db" "$@"
    else
        command head "$@"
    fi
}

# worker NAME OPTIONS...: $NAME_pid is its watcher.
worker() {
    local name=$1
    shift
    start "${name}_pid" exogym-worker --name "$name" --resource cpus=4 "$@"
}

# The worker of a watcher.
child_of() {
    local child
    child=$(<"/proc/$1/task/$1/children")
    echo "${child%% *}"
}

# ended SECONDS PID STATUS: the process ends in time, with that status.
ended() {
    local got
    until_true "$1" gone "$2" || fail "process $2 goes on"
    wait "$2"
    got=$?
    [ "$got" = "$3" ] || fail "process $2 ended with $got instead of $3"
}

gone() {
    [ ! -e "/proc/$1" ] || [[ $(cat "/proc/$1/stat") == *') Z '* ]]
}

# x COMMAND...: exogym, with this cluster.
x() {
    "$EXOGYM" "$@" --folder "$clusters"
}

# says EXPECTED COMMAND...: what exogym prints.
says() {
    local expected=$1 got
    shift
    got=$(x "$@" 2>&1 </dev/null)
    [ "$got" = "$expected" ] || fail "exogym $*: said '$got' instead of '$expected'"
}

# replies EXPECTED COMMAND...: whether that is all that exogym prints.
replies() {
    local expected=$1
    shift
    [ "$(x "$@" 2>&1 </dev/null)" = "$expected" ]
}

# tells TEXT COMMAND...: what exogym prints has the text.
tells() {
    local text=$1
    shift
    x "$@" >told 2>&1 </dev/null
    grep -qF -- "$text" told
}

# fails TEXT COMMAND...: exogym ends with 1, and says so.
fails() {
    local text=$1 got
    shift
    x "$@" >out 2>err </dev/null
    got=$?
    [ "$got" = 1 ] || fail "exogym $*: ended with $got instead of 1"
    has err "$text"
}
