# What the scripts of this folder share. Each runs $EXOGYM as a user does, in an empty folder of its
# own.
set -u
folder=$(mktemp -d)
# A process in the background that gets a signal before it has become its program is bash still, with this trap.
trap 'status=$?; [ $BASHPID = $$ ] || exit $status; rm -rf "$folder"; [ "$failures" = 0 ] || status=1; exit $status' EXIT
cd "$folder" || exit 1
failures=0

fail() {
    printf 'FAIL %s\n' "$*"
    failures=$((failures + 1))
}

# expect STATUS MESSAGE ARGUMENTS...: exogym ends with STATUS and says MESSAGE, one line, on
# standard error alone.
expect() {
    local status=$1 message=$2 got
    shift 2
    "$EXOGYM" "$@" >out 2>err </dev/null
    got=$?
    [ "$got" = "$status" ] || fail "exogym $*: ended with $got instead of $status: $(head -3 err)"
    [ "$(cat err)" = "$message" ] || fail "exogym $*: said '$(cat err)' instead of '$message'"
    [ ! -s out ] || fail "exogym $*: wrote to standard output: $(head -1 out)"
}

# ok ARGUMENTS...: exogym ends with 0; its output is in `out` and `err`.
ok() {
    "$EXOGYM" "$@" >out 2>err </dev/null || fail "exogym $*: ended with $?: $(tail -3 err)"
}

# bad STATUS TEXT ARGUMENTS...: exogym ends with STATUS, and says TEXT, perhaps among other things.
bad() {
    local status=$1 text=$2 got
    shift 2
    "$EXOGYM" "$@" >out 2>err </dev/null
    got=$?
    [ "$got" = "$status" ] || fail "exogym $*: ended with $got instead of $status: $(head -3 err)"
    has err "$text"
}

# has FILE TEXT: the file has a line with the text.
has() {
    grep -qF -- "$2" "$1" || fail "$1 does not have '$2': $(head -c 600 "$1")"
}

# json FILE KEY: the first value of a key in a JSON file as exogym writes it.
json() {
    sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$1" | head -1
}

# meter FILE PATH: of a result.json or progress.json.
meter() {
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["meters"][sys.argv[2]]["value"])' "$1" "$2"
}

# fox_text N: a text of N lines to learn from, text.txt.
fox_text() {
    local i
    for ((i = 1; i <= $1; i++)); do
        printf 'line %d: the quick brown fox jumps over the lazy dog, %d times\n' "$i" $((i * 7 % 13))
    done >text.txt
}

# Makes copies of the programs with the emulated GPU (tests/cuda) as their plugin, in bin/, of which
# $EXOGYM is one from now on. Without a C++ compiler there is no such plugin.
emulate_gpu() {
    local plugin=$EXO_BUILD/tests/cuda/exogym-cuda.so program
    [ -e "$plugin" ] || { echo 'skipped: the emulated GPU is not built'; exit 77; }
    mkdir bin
    for program in exogym exogym-head exogym-worker exogym-node exogym-watcher; do
        [ -e "$EXO_BUILD/$program" ] && cp "$EXO_BUILD/$program" bin/
    done
    ln -s "$plugin" bin/exogym-cuda.so
    EXOGYM=$PWD/bin/exogym
}

# stand_in TARGET AS: a library of the tests takes the name of NVIDIA's. One that is not built would be a
# link to nothing, for which the loader takes NVIDIA's own.
stand_in() {
    local library=$EXO_BUILD/tests/${1%_test}/lib$1.so
    [ -e "$library" ] || { echo "FAIL $library is not there: build the target $1"; exit 1; }
    ln -s "$library" "$2"
}

# Makes the NCCL of the tests (tests/nccl) that of the programs in bin/. Its communicators are files in rooms/.
emulate_nccl() {
    mkdir rooms
    export EXO_NCCL_ROOMS=$PWD/rooms LD_LIBRARY_PATH=$PWD/bin
    stand_in nccl_test bin/libnccl.so.2
}

# The last command of a script. (Whatever is last, one with failures does not end with 0.)
finish() {
    [ "$failures" = 0 ] || exit 1
}

# A job that takes a moment: an MLP on made-up images, few, as making them takes longest; two nodes.
cat >job.yaml <<'END'
exogym: 1
name: small
seed: 7
model: mlp
data: {name: synthetic, count: 256}
nodes: 2
train: {max_steps: 12, batch_size: 16, val_size: 64, val_interval: 5, correlation_interval: 6}
strategy: {optimizer: {name: adamw, lr: 1e-3}}
compare: [ddp, {name: diloco, H: 4}, {name: sparta, p: 0.1}]
presets: {quick: {train.max_steps: 4, compare.1.H: 2}}
END
