#!/usr/bin/env bash
# What the documentation shows is true: links lead somewhere, commands name files that exist, the README's C compiles without a
# warning against the public headers alone, and its strategy trains as a plugin.
set -euo pipefail

fail() {
    echo "$*" >&2
    exit 1
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$EXO_SOURCE"

# --- Links and files --------------------------------------------------------------------------------------------------

while read -r page; do
    while read -r target; do
        [ -e "$(dirname "$page")/$target" ] || fail "$page: the link to $target leads nowhere"
    done < <(grep -oE '\]\([^)# ]+' "$page" | sed 's/^](//' | grep -vE '^(https?|mailto):')
done < <(find . -name '*.md' -not -path './build/*')

while read -r file; do
    [ -e "$file" ] || fail "a command names $file, which is not there"
done < <(awk '/^```/ { inside = !inside; next } inside' README.md CONTRIBUTING.md docs/testing.md |
    grep -oE '(^|[[:space:]])(tools|bench|examples)/[A-Za-z0-9_./-]+\.(sh|py|yaml)' | tr -d ' ' | sort -u)

# --- The README's C ---------------------------------------------------------------------------------------------------

awk -v folder="$folder" '/^```c$/ { inside = 1; n++; next } /^```/ { inside = 0 } inside { print > (folder "/" n ".c") }' README.md
[ -f "$folder/2.c" ] || fail "the README no longer has its two pieces of C"
compile=("$CC" -std=c17 -Wall -Wextra -Wconversion -Wshadow -Werror -Iinclude)
"${compile[@]}" -fsyntax-only "$folder/1.c"
"${compile[@]}" -shared -fPIC "$folder/2.c" -o "$folder/local_sgd.so"

cat >"$folder/job.yaml" <<'YAML'
plugins: [local_sgd.so]
model: mlp
data: synthetic
nodes: 2
train: {max_steps: 4, batch_size: 8, val_size: 16}
strategy: {name: local_sgd, H: 2, optimizer: {name: sgd, lr: 0.1}}
YAML
"$EXOGYM" run "$folder/job.yaml" --save-dir "$folder/runs" --no-plot --json >"$folder/result.json" 2>"$folder/log" ||
    fail "$(cat "$folder/log")"
grep -q '"strategy": "local_sgd"' "$folder/result.json" || fail "the job did not run local_sgd: $(cat "$folder/result.json")"
grep -q '"steps": 4' "$folder/result.json" || fail "the job did not do its steps: $(cat "$folder/result.json")"
