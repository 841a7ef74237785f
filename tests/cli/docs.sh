#!/usr/bin/env bash
# What the documentation shows is true: links lead somewhere, to a heading that is there; commands
# name files, commands and options that exist; SECURITY.md names tests that exist; the README's C
# compiles without a warning against the public headers alone, and its strategy trains as a plugin;
# its table of four homes is what the example prints; the first cluster of docs/cluster.md can be
# typed as it stands.
set -euo pipefail

fail() {
    echo "$*" >&2
    exit 1
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$EXO_SOURCE"

# --- Links and files
# --------------------------------------------------------------------------------------------------

# anchors PAGE: the headings of a page, as links name them.
anchors() {
    grep -E '^#+ ' "$1" | sed -E 's/^#+ +//; s/[^A-Za-z0-9 _-]//g; s/ /-/g' | tr '[:upper:]' '[:lower:]'
}

while read -r page; do
    while read -r target; do
        file=${target%%#*}
        [ -z "$file" ] && file=$page || file=$(dirname "$page")/$file
        [ -e "$file" ] || fail "$page: the link to $target leads nowhere"
        case $target in
        *.md#* | \#*) anchors "$file" | grep -qxF -- "${target#*#}" || fail "$page: $target is no heading of $file" ;;
        esac
    done < <(grep -oE '\]\([^) ]+' "$page" | sed 's/^](//' | grep -vE '^(https?|mailto):')
done < <(find . -name '*.md' -not -path './build/*')

# docs/README.md leads to every page and to every decision.
while read -r page; do
    grep -qF "(${page#docs/})" docs/README.md || fail "docs/README.md does not lead to $page"
done < <(find docs -name '*.md' -not -path docs/README.md)

# --- What holds the security policy
# ----------------------------------------------------------------------------------

# Every test that it names is there, under that name.
named=$(grep -oE '`(unit|conform|equiv|race|cluster|cli|house|model|fuzz)/[a-z_0-9]+`' SECURITY.md | tr -d '`' | sort -u)
[ "$(wc -l <<<"$named")" -gt 20 ] || fail "SECURITY.md names hardly any tests"
while read -r test; do
    [ -e "tests/$test.c" ] || [ -e "tests/$test.sh" ] || grep -qF "NAME $test " tests/CMakeLists.txt || fail "SECURITY.md: there is no test $test"
done <<<"$named"

pages=(README.md CONTRIBUTING.md docs/*.md examples/*/README.md)
# shown: the lines of the pages' blocks of code, each after its page, with lines that go on put
# together.
shown() {
    awk 'FNR == 1 { inside = 0 } /^```/ { inside = !inside; next }
        inside { sub(/^[a-z0-9]+\$ +/, ""); if (sub(/\\$/, "")) { held = held $0; next } print FILENAME "\t" held $0; held = "" }' "${pages[@]}"
}
while read -r page file; do
    [ -e "$file" ] || fail "$page: a command names $file, which is not there"
done < <(shown | sed -nE 's/[`"'\''(),;]/ /g; s#^([^\t]*)\t(.*[[:space:]])?((tools|bench|examples)/[A-Za-z0-9_./-]+\.(sh|py|yaml|c)).*#\1 \3#p' | sort -u)

# Every command that is shown is one, and has the options that it is shown with.
declare -A help
while IFS=$'\t' read -r page line; do
    line=${line%% #*}
    for part in "${line%%[|&;]*}"; do
        read -ra words <<<"$part"
        while [[ ${words[0]:-} == *=* ]]; do words=("${words[@]:1}"); done # FOO=bar exogym ...
        program=${words[0]##*/}
        case $program in
        exogym) command=${words[1]:-} ;;
        exogym-head | exogym-worker) command= ;;
        *) continue ;;
        esac
        [[ $command =~ ^[a-z]+$ || -z $command ]] || continue # exogym COMMAND --help
        key="$program $command"
        if [ -z "${help[$key]:-}" ]; then
            if [ -n "$command" ]; then
                help[$key]=$("$EXOGYM" help "$command") || fail "$page: '$part': there is no command $command"
            else
                help[$key]=$("$(dirname "$EXOGYM")/$program" --help)
            fi
        fi
        for word in "${words[@]}"; do
            word=${word#[}
            word=${word%%[]=]*}
            [[ $word == --?* ]] || continue
            grep -qE -- "(^|[[:space:],])$word([[:space:],=]|\$)" <<<"${help[$key]}" || [[ $word =~ ^--(help|man|version)$ ]] ||
                fail "$page: '$part': $key has no option $word"
        done
    done
done < <(shown | grep -E $'\t'' *([A-Z_]+=[^ ]* )*(build/[a-z]+/)?exogym(-head|-worker)? ')

# --- The README's C
# ---------------------------------------------------------------------------------------------------

awk -v folder="$folder" '/^```c$/ { inside = 1; n++; next } /^```/ { inside = 0 } inside { print > (folder "/" n ".c") }' README.md
[ -f "$folder/2.c" ] || fail "the README no longer has its two pieces of C"
compile=("$CC" -std=c17 -Wall -Wextra -Wconversion -Wshadow -Werror -Iinclude)
"${compile[@]}" -fsyntax-only "$folder/1.c"
"${compile[@]}" -shared -fPIC "$folder/2.c" -o "$folder/periodic_mean.so"

cat >"$folder/job.yaml" <<'YAML'
plugins: [periodic_mean.so]
model: mlp
data: synthetic
nodes: 2
train: {max_steps: 4, batch_size: 8, val_size: 16}
strategy: {name: periodic_mean, H: 2, optimizer: {name: sgd, lr: 0.1}}
YAML
"$EXOGYM" run "$folder/job.yaml" --save-dir "$folder/runs" --no-plot --json >"$folder/result.json" 2>"$folder/log" ||
    fail "$(cat "$folder/log")"
grep -q '"strategy": "periodic_mean"' "$folder/result.json" || fail "the job did not run periodic_mean: $(cat "$folder/result.json")"
grep -q '"steps": 4' "$folder/result.json" || fail "the job did not do its steps: $(cat "$folder/result.json")"

# --- Four homes
# -------------------------------------------------------------------------------------------------------

# The times and bytes of the README's table, which do not depend on the machine; and the links and
# costs are those of the example.
"$EXOGYM" run examples/05_four_homes/four_homes.yaml --save-dir "$folder/runs" --no-plot >"$folder/homes" 2>"$folder/log" || fail "$(cat "$folder/log")"
for label in ddp diloco sparta; do
    shown=$(awk -v label=$label '/^```/ { inside = !inside } inside && $1 == label { print $4, $5, $6, $7; exit }' README.md)
    printed=$(awk -v label=$label '$1 == label { print $6, $7, $8, $9; exit }' "$folder/homes")
    [ -n "$shown" ] && [ "$shown" = "$printed" ] || fail "the README says of $label in four homes: $shown; the example prints: $printed"
    waits=$(awk -v label=$label '$0 == label { said = 1 } said && $2 == "node_0" { printf "%.0f", $7; exit }' "$folder/homes")
    grep -qE "^$label .* $waits %" README.md || fail "the README says another share of waiting of $label than $waits %"
done
while read -r line; do
    grep -qF -- "${line%% *}" examples/05_four_homes/four_homes.yaml && grep -qF -- "$(sed 's/ *#.*//' <<<"$line")" examples/05_four_homes/four_homes.yaml ||
        fail "examples/05_four_homes/four_homes.yaml does not have the README's line: $line"
done < <(awk '/^```yaml/ { inside = 1; next } /^```/ { inside = 0 } inside && /^(clock|hosts|links|compute):/' README.md)

# --- The first cluster
# --------------------------------------------------------------------------------------------------

awk '/^```/ { if (inside) exit; inside = 1; next } inside' docs/cluster.md >"$folder/cluster.sh"
# Who types it gives the worker the time to join, and both programs the time to end.
sed -i -e '/^exogym-worker/a until exogym status --timeout 20s | grep -q "1 alive"; do sleep 0.05; done' -e '$a wait' "$folder/cluster.sh"
mkdir -m 700 "$folder/run" && mkdir "$folder/clone" && ln -s "$EXO_SOURCE/include" "$EXO_SOURCE/examples" "$folder/clone/"
grep -q '^exogym spawn' "$folder/cluster.sh" || fail 'docs/cluster.md does not begin with a cluster'
if grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt"; then
    (cd "$folder/clone" && mkdir -p build && ln -s "$EXO_BUILD" build/release && unset EXOGYM_HEAD EXOGYM_HEAD_KEY &&
        XDG_RUNTIME_DIR=$folder/run XDG_STATE_HOME=$folder/state timeout 120 bash -e "$folder/cluster.sh" >"$folder/printed" 2>"$folder/log") ||
        fail "docs/cluster.md: $(cat "$folder/log")"
    grep -qx 5 "$folder/printed" || fail "docs/cluster.md: the call does not print 5: $(cat "$folder/printed")"
fi
