#!/usr/bin/env bash
# An engine built outside the tree moves a job's collectives, among nodes in one process and in two,
# with the bits of the library's; one that does not promise them, is not there, or cannot do what
# the job needs is one line with the place in the job.
set -euo pipefail

fail() {
    echo "$*" >&2
    exit 1
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
example=$folder/example
cp -r "$EXO_SOURCE/examples/22_shm_engine" "$example"
rm -rf "$example/build"
mkdir "$example/build"

# build_plugin: by the compiler alone, as CMake does.
build_plugin() {
    "$CC" -std=c17 -D_GNU_SOURCE -O2 -Wall -Wextra -Wconversion -Wshadow -Werror -shared -fPIC -I"$EXO_SOURCE/include" \
        "$example/shm.c" -o "$example/build/libshm.so"
}
build_plugin

# run [OPTION...]: trains the example's job on data that needs no files; the result is in
# $folder/result.json
run() {
    timeout 120 "$EXOGYM" run "$example/job.yaml" --set data=synthetic --set train.max_steps=6 --set train.batch_size=8 \
        --set train.val_size=32 --save-dir "$folder/runs" --overwrite --no-plot --json "$@" >"$folder/result.json" 2>"$folder/log"
}

# digests: of the runs' parameters.
digests() {
    python3 -c 'import json, sys; print([run["sha256"] for run in json.load(open(sys.argv[1]))["runs"]])' "$folder/result.json"
}

"$EXOGYM" list engines --plugin "$example/build/libshm.so" >"$folder/list"
[ "$(awk '$1 != "gpu" && $1 != "mpi" && $1 != "nccl" {print $1}' "$folder/list" | xargs)" = "local net shm" ] || fail "list engines: $(cat "$folder/list")"

run --set engine=auto || fail "$(cat "$folder/log")"
expected=$(digests)
for options in "" "--workers 2" "--workers 2 --set engine=net" "--set engine=local"; do
    # shellcheck disable=SC2086
    run $options || fail "'$options': $(cat "$folder/log")"
    [ "$(digests)" = "$expected" ] || fail "'$options' gives other bits: $(digests) instead of $expected"
done
leftover=$(find /dev/shm -name 'shm_engine.exogym-*' -user "$(id -u)" -newer "$folder/list" 2>/dev/null | wc -l)
[ "$leftover" = 0 ] || fail "$leftover segments are left in /dev/shm"

# refused REASON [OPTION...]: the job does not start, with one line that has the place in it and the
# reason.
refused() {
    local status=0
    run "${@:2}" || status=$?
    [ "$status" = 2 ] || fail "exit status $status instead of 2: $(cat "$folder/log")"
    [ "$(wc -l <"$folder/log")" = 1 ] || fail "more than one line: $(cat "$folder/log")"
    grep -Eq "(job.yaml:[0-9]+:[0-9]+|--set).*$1" "$folder/log" || fail "it says no '$1': $(cat "$folder/log")"
}
refused "engine.*smh" --set engine=smh
refused "engine shm has no emulated links" --set clock=virtual
run --set engine=local --workers 2 && fail "local ran on workers"
grep -q "engine local is for members in one process" "$folder/log" || fail "$(cat "$folder/log")"
run --set engine=net && fail "net ran in one process"
grep -q "engine net is for members on workers" "$folder/log" || fail "$(cat "$folder/log")"

# The ways of the library's messages: those that sum in rank order have the bits of direct, the others
# have their own in one process and in two.
for options in "--set engine=auto" "--set engine=net --workers 2"; do
    # shellcheck disable=SC2086
    run $options --set collectives=tree || fail "$(cat "$folder/log")"
    [ "$(digests)" = "$expected" ] || fail "'$options': a tree gives other bits"
done
run --set engine=auto --set nodes=3 || fail "$(cat "$folder/log")"
direct=$(digests)
run --set engine=auto --set nodes=3 --set collectives=ring --set equal_bits=false || fail "$(cat "$folder/log")"
ring=$(digests)
[ "$ring" != "$direct" ] || fail "a ring of three sums as direct does: it was not used"
run --set engine=net --workers 2 --set nodes=3 --set collectives=ring --set equal_bits=false || fail "$(cat "$folder/log")"
[ "$(digests)" = "$ring" ] || fail "a ring among processes gives other bits"
refused "ring sums in another order" --set engine=auto --set collectives=ring
refused "collectives go direct, tree, ring" --set engine=auto --set collectives=star
refused "engine shm has its own messages" --set collectives=tree

# One that does not promise the order of sums.
sed -i 's/EXO_ENGINE_ORDERED | //' "$example/shm.c"
build_plugin
refused "engine shm does not promise equal bits"
run --set equal_bits=false || fail "$(cat "$folder/log")"
