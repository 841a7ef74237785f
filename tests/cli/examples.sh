#!/usr/bin/env bash
# The examples that are programs: built outside the tree against an installation, as their READMEs say, and run.
set -euo pipefail

if ! grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt"; then
    echo "a sanitized library needs sanitized programs: skipped"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export CC

cmake --install "$EXO_BUILD" --prefix "$folder/prefix" >"$folder/log" || { cat "$folder/log"; exit 1; }
for example in 02_hello_actor 04_c_api; do
    cp -r "$EXO_SOURCE/examples/$example" "$folder/$example"
    {
        cmake -S "$folder/$example" -B "$folder/$example/build" -G Ninja -DCMAKE_PREFIX_PATH="$folder/prefix" \
            -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" && cmake --build "$folder/$example/build"
    } >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
done

# What the README says that it prints, it prints.
expected=$(sed -n '/^It prints/,/^\[docs/p' "$EXO_SOURCE/examples/02_hello_actor/README.md" | sed -n '/^```/,/^```/{/^```/!p}')
printed=$("$folder/02_hello_actor/build/hello")
diff <(echo "$expected") <(echo "$printed")

# All three strategies tell the spirals apart, and again with the same bits.
first=$("$folder/04_c_api/build/two_spirals")
echo "$first"
awk '{if ($5 < 0.9) exit 1}' <<<"$first"
[ "$(wc -l <<<"$first")" = 3 ]
[ "$first" = "$("$folder/04_c_api/build/two_spirals")" ]
