#!/usr/bin/env bash
# A strategy built outside the tree, by CMake and by the compiler alone, runs in a job beside the
# built-in ones; a plugin that cannot be loaded is one line that names the place in the job.
set -euo pipefail

fail() {
    echo "$*" >&2
    exit 1
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prefix=$folder/prefix
example=$folder/example
export CC PKG_CONFIG_PATH
cmake --install "$EXO_BUILD" --prefix "$prefix" >"$folder/install.log" || fail "$(cat "$folder/install.log")"
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name exogym.pc)")
cp -r "$EXO_SOURCE/examples/20_int8_gradients" "$example"
rm -rf "$example/build"

# run [OPTION...]: trains the example's job on data that needs no files; the result is in
# $folder/result.json
run() {
    "$EXOGYM" run "$example/job.yaml" --set data=synthetic --set train.max_steps=6 --set train.batch_size=8 \
        --set train.val_size=32 --save-dir "$folder/runs" --overwrite --no-plot --json "$@" >"$folder/result.json" 2>"$folder/log"
}

# --- Built by CMake
# ---------------------------------------------------------------------------------------------------

{
    cmake -S "$example" -B "$example/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$example/build"
} >"$folder/cmake.log" 2>&1 || fail "$(cat "$folder/cmake.log")"
if ldd "$example/build/libint8.so" | grep -q libexogym; then
    fail "the plugin links libexogym: there would be two of it in a program"
fi
run || fail "$(cat "$folder/log")"
grep -q '"strategy": "int8_ddp"' "$folder/result.json" || fail "the job did not run int8_ddp: $(cat "$folder/result.json")"

# Bytes per node: ddp 2 (N - 1) / N of 4 Psi a step; int8_ddp (N - 1) (Psi + 4 chunks), chunks of
# 256.
python3 - "$folder/result.json" <<'PYTHON' || fail "$(cat "$folder/result.json")"
import json, sys
runs = {run["strategy"]: run for run in json.load(open(sys.argv[1]))["runs"]}
nodes, steps = 4, 6
psi = runs["ddp"]["bytes_sent_per_node"] * nodes // (8 * (nodes - 1) * steps)
chunks = -(-psi // 256)
expected = steps * (nodes - 1) * (psi + 4 * chunks)
assert runs["int8_ddp"]["bytes_sent_per_node"] == expected, (psi, expected, runs["int8_ddp"]["bytes_sent_per_node"])
PYTHON

# --- Built by the compiler alone
# --------------------------------------------------------------------------------------

rm -rf "$example/build"
mkdir "$example/build"
read -ra flags <<<"$(pkg-config --cflags exogym)"
"$CC" -std=c17 -O2 -Wall -Wextra -Wconversion -Wshadow -Werror -shared -fPIC "${flags[@]}" "$example/int8.c" \
    -o "$example/build/libint8.so" -lm
run || fail "$(cat "$folder/log")"

# --- An operation of one's own, in a model
# ----------------------------------------------------------------------------

# The same bits in one process and in workers, and all parameters are learnt.
own=$folder/own
cp -r "$EXO_SOURCE/examples/23_own_operation" "$own"
rm -rf "$own/build"
mkdir "$own/build"
"$CC" -std=c17 -O2 -Wall -Wextra -Wconversion -Wshadow -Werror -shared -fPIC "${flags[@]}" "$own/snake.c" \
    -o "$own/build/libsnake.so" -lm
for workers in 0 2; do
    options=(--save-dir "$folder/own$workers" --no-plot --json)
    [ $workers = 0 ] || options+=(--workers $workers)
    "$EXOGYM" run "$own/job.yaml" --set 'data={name: synthetic, count: 256}' --set train.max_steps=30 --set train.batch_size=16 \
        --set train.val_size=32 "${options[@]}" >"$folder/own$workers.json" 2>"$folder/log" || fail "$(cat "$folder/log")"
done
python3 - "$folder/own0.json" "$folder/own2.json" <<'PYTHON' || fail "$(cat "$folder/own0.json" "$folder/own2.json")"
import json, sys
here, there = ({run["strategy"]: run for run in json.load(open(path))["runs"]} for path in sys.argv[1:])
for name in "ddp", "diloco":
    assert here[name]["sha256"] == there[name]["sha256"], name
    assert here[name]["global_loss"] < 2.25, here[name] # ln 10 at first
PYTHON

# --- Data of one's own
# ----------------------------------------------------------------------------

# The same bits in one process and in workers; mistakes have their places.
data=$folder/data
cp -r "$EXO_SOURCE/examples/27_own_data" "$data"
rm -rf "$data/build"
mkdir "$data/build"
"$CC" -std=c17 -O2 -Wall -Wextra -Wconversion -Wshadow -Werror -shared -fPIC "${flags[@]}" "$data/table.c" \
    -o "$data/build/libtable.so" -lm
# rows NAME [OPTION...]: a run of the table.
rows() {
    "$EXOGYM" run "$data/job.yaml" --set "data.path=$data/flowers.csv" --set seeds=1 --save-dir "$folder/$1" --no-plot --json \
        "${@:2}" >"$folder/$1.json" 2>"$folder/log"
}
rows data0 || fail "$(cat "$folder/log")"
rows data2 --workers 2 || fail "$(cat "$folder/log")"
python3 - "$folder/data0.json" "$folder/data2.json" <<'PYTHON' || fail "$(cat "$folder/data0.json" "$folder/data2.json")"
import json, sys
here, there = ({run["strategy"]: run for run in json.load(open(path))["runs"]} for path in sys.argv[1:])
for name in "ddp", "diloco":
    assert here[name]["sha256"] == there[name]["sha256"], name
    assert here[name]["global_accuracy"] > 0.7, here[name]
PYTHON
sed '20s/,/,x/' "$data/flowers.csv" >"$folder/wrong.csv"
{ head -9 "$data/flowers.csv" && printf '1,2,1e39,4,1\n'; } >"$folder/large.csv"
for wrong in "data.path=$folder/wrong.csv wrong.csv:20: column 2 is no number" \
    "data.path=$folder/large.csv large.csv:10: column 3: no float holds 1e39" 'data.label=colour flowers.csv:1: no such label' \
    "data.val_evry=3 unknown key 'val_evry'; did you mean 'val_every'?" 'data=table table: needs the key'; do
    ! rows wrong --set "${wrong%% *}" || fail "it takes ${wrong%% *}"
    grep -q "${wrong#* }" "$folder/log" || fail "it says no '${wrong#* }': $(cat "$folder/log")"
done
"$EXOGYM" list data --plugin "$data/build/libtable.so" | grep -q '^table .*CSV' || fail "it is not listed"

# --- Rewards of a program
# ----------------------------------------------------------------------------

score=$folder/score
cp -r "$EXO_SOURCE/examples/28_python_reward" "$score"
rm -rf "$score/build"
mkdir "$score/build"
"$CC" -std=c17 -O2 -Wall -Wextra -Wconversion -Wshadow -Werror -shared -fPIC "${flags[@]}" "$score/command.c" \
    -o "$score/build/libcommand.so"
# scored COMMAND [OPTION...]: a run whose answers COMMAND scores.
scored() {
    timeout 120 "$EXOGYM" run "$score/graph.yaml" --set actors.maker.config.epochs=4 --set "actors.maker.config.reward.command=$1" \
        --save-dir "$folder/scored" --overwrite "${@:2}" >"$folder/out" 2>"$folder/log"
}
for workers in 0 2; do
    options=()
    [ $workers = 0 ] || options=(--workers $workers)
    scored "[python3, $score/reward.py]" "${options[@]}" || fail "$(cat "$folder/log")"
    grep -q 'trainer_0.items *16 items' "$folder/out" || fail "not all answers: $(cat "$folder/out")"
done
for wrong in '[sh, -c, "exit 3"] it ended with status 3' '[sh, -c, "kill -9 $$"] it was killed by signal 9' \
    '[sleep, 100] no reply within 0.5 s' '[cat] a line with a number is expected' \
    '[yes, 1] its output is not one line for each answer' '[no_such_program] No such file'; do
    options=(--set actors.maker.config.reward.timeout=60s)
    [[ $wrong != *sleep* ]] || options=(--set actors.maker.config.reward.timeout=500ms)
    ! scored "${wrong%%]*}]" "${options[@]}" || fail "it takes $wrong"
    grep -q "maker_0: .*${wrong#*] }" "$folder/log" || fail "it says no '${wrong#*] }': $(cat "$folder/log")"
done

# --- What cannot be loaded
# --------------------------------------------------------------------------------------------

# refused STATUS REASON: the job does not start, with one line that names the plugin's place in it
# and the reason.
refused() {
    local status=0
    run || status=$?
    [ "$status" = "$1" ] || fail "exit status $status instead of $1: $(cat "$folder/log")"
    [ "$(wc -l <"$folder/log")" = 1 ] || fail "more than one line: $(cat "$folder/log")"
    grep -q "job.yaml:[0-9]*:[0-9]*: .*$2" "$folder/log" || fail "it says no '$2': $(cat "$folder/log")"
}
sed 's/"int8_ddp"/"ddp"/' "$example/int8.c" >"$example/taken.c"
"$CC" -std=c17 -shared -fPIC "${flags[@]}" "$example/taken.c" -o "$example/build/libint8.so" -lm
refused 2 "'ddp'"
status=0
"$EXOGYM" list strategies --plugin "$example/build/libint8.so" >"$folder/out" 2>"$folder/log" || status=$?
[ $status = 2 ] && grep -q "'ddp'" "$folder/log" || fail "list took a plugin whose name is taken: $status, $(cat "$folder/log")"
rm "$example/taken.c" "$example/build/libint8.so"
echo "no shared object" >"$example/build/libint8.so"
refused 2 "cannot load plugin"
rm "$example/build/libint8.so"
refused 1 "No such file"
