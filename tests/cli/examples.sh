#!/usr/bin/env bash
# The examples that are programs: built outside the tree against an installation, as their READMEs
# say, and run, alone and on a cluster of a head and two workers.
set -euo pipefail

if ! grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt"; then
    echo "a sanitized library needs sanitized programs: skipped"
    exit 77
fi
folder=$(mktemp -d)
programs=()
clean_up() {
    if [ ${#programs[@]} -gt 0 ]; then
        kill "${programs[@]}" || true
        wait "${programs[@]}" || true
    fi
    rm -rf "$folder"
}
trap clean_up EXIT
export CC XDG_RUNTIME_DIR=$folder/run
mkdir -m 700 "$XDG_RUNTIME_DIR"
unset EXOGYM_HEAD EXOGYM_HEAD_KEY

fail() {
    echo "$*" >&2
    exit 1
}

cmake --install "$EXO_BUILD" --prefix "$folder/prefix" >"$folder/log" || fail "$(cat "$folder/log")"
for example in "$EXO_SOURCE"/examples/*/CMakeLists.txt; do
    example=$(basename "$(dirname "$example")")
    cp -r "$EXO_SOURCE/examples/$example" "$folder/$example"
    rm -rf "${folder:?}/$example/build"
    {
        cmake -S "$folder/$example" -B "$folder/$example/build" -G Ninja -DCMAKE_PREFIX_PATH="$folder/prefix" \
            -DCMAKE_C_FLAGS="-Wall -Wextra -Wconversion -Wshadow -Werror" && cmake --build "$folder/$example/build"
    } >"$folder/log" 2>&1 || fail "$(cat "$folder/log")"
done

# readme EXAMPLE: what its README says that it prints.
readme() {
    awk '/[Ii]t prints/ { said = 1 } said && /^```/ { if (inside) exit; inside = 1; next } inside' \
        "$EXO_SOURCE/examples/$1/README.md"
}

# start NAME PROGRAM [OPTION...]: starts it, and waits until it is ready.
start() {
    "$folder/prefix/bin/$2" --name "$1" "${@:3}" >"$folder/$1.out" 2>&1 &
    programs+=($!)
    for _ in $(seq 1200); do
        ! grep -q "is ready at" "$folder/$1.out" || return 0
        sleep 0.05
    done
    fail "$2 is not ready: $(cat "$folder/$1.out")"
}
start head exogym-head --state none
start one exogym-worker --resource cpus=8
start two exogym-worker --resource cpus=8

# alone EXAMPLE/PROGRAM [OPTION...], on_cluster EXAMPLE/PROGRAM [OPTION...]: what it prints.
alone() {
    timeout 120 "$folder/${1%/*}/build/${1#*/}" "${@:2}" || fail "$1 ended with $?"
}
on_cluster() {
    timeout 120 "$folder/${1%/*}/build/${1#*/}" "${@:2}" --head "ipc://$XDG_RUNTIME_DIR/exogym/default/head" ||
        fail "$1 on a cluster ended with $?"
}

# same WHAT EXPECTED PRINTED
same() {
    diff <(echo "$2") <(echo "$3") || fail "$1 does not print what is expected"
}

same 10 "$(readme 10_hello_actor)" "$(alone 10_hello_actor/hello)"

# All three strategies tell the spirals apart, and again with the same bits.
first=$(alone 21_c_api/two_spirals)
awk '{if ($5 < 0.9) exit 1}' <<<"$first"
[ "$(wc -l <<<"$first")" = 3 ]
same 21 "$first" "$(alone 21_c_api/two_spirals)"

# The small GPT comes within 0.01 of the optimum.
printed=$(alone 26_own_grpo/grpo)
tail -1 <<<"$printed" | awk '{exit $NF >= -1e-6 && $NF <= 0.01 ? 0 : 1}' || fail "26: $printed"

# Two trainers, whose lines come in any order.
same 34 "$(readme 34_c_makers | sort)" "$(alone 34_c_makers/c_makers | sort)"
same 36 "$(readme 36_c_rlhf)" "$(alone 36_c_rlhf/c_rlhf "$folder/models")"

# The players are done in any order; what each hit depends on how the processor rounds, pi does not.
darts() {
    sed 's/hit [0-9]* times/hit/; s/\(3\.14\)[0-9]*/\1/' | sort
}
for how in alone on_cluster; do
    same "11 $how" "$(readme 11_futures | darts)" "$($how 11_futures/futures | darts)"
done

# One after the other, the same at every run; on their own, as many updates, and they learn.
first=$(alone 13_parameter_server/parameter_server --sync)
same 13 "$first" "$(alone 13_parameter_server/parameter_server --sync)"
same "13 on a cluster" "$first" "$(on_cluster 13_parameter_server/parameter_server --sync)"
for how in alone on_cluster; do
    printed=$($how 13_parameter_server/parameter_server)
    same "13 $how" "$(readme 13_parameter_server | cut -c 1-13)" "$(cut -c 1-13 <<<"$printed")"
    awk 'NR == 1 && $4 < 10 || NR > 2 && $4 > 0.01 { exit 1 }' <<<"$printed" || fail "it does not learn: $printed"
done

for how in alone on_cluster; do
    same "14 $how" "$(readme 14_supervision)" "$($how 14_supervision/supervision)"
    same "16 $how" "$(readme 16_same_job)" "$($how 16_same_job/driver)"
    same "12 $how" "$(readme 12_objects)" "$($how 12_objects/objects)"
done

# Fewer on a cluster: each is started by three processes in turn, which wait long for a busy processor.
printed=$(readme 15_ten_thousand | cut -c 1-29)
same '15 alone' "$printed" "$(alone 15_ten_thousand/ring | cut -c 1-29)"
same '15 on_cluster' "${printed//10000/ 1000}" "$(on_cluster 15_ten_thousand/ring 1000 | cut -c 1-29)"
