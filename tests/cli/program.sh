#!/usr/bin/env bash
# A program that is one command has all that its table says: parsing, help, a manual page,
# completion. Its texts hold what troff and shells would take for their own.
exogym=$EXOGYM
EXOGYM=$EXO_GREET
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

says() {
    local expected=$1
    shift
    ok "$@"
    [ "$(cat out)" = "$expected" ] || fail "greet $*: said '$(cat out)' instead of '$expected'"
}

# --- Parsing
# ----------------------------------------------------------------------------------------------------------

says 'hello - of 1' hello
says 'hello! a b fancy of 6' -s fancy hello a --loud b
says 'hello with x with y=z plain of 6' --with=x hello --with y=z --style plain
says 'hello --loud - - of 4' hello -- --loud -
says 'hello fancy of 3' --style=plain --style=fancy hello
says 'hello --help - of 3' hello -- --help
see='(see `exogym-greet --help`)'
expect 2 "exogym-greet: GREETING is missing $see"
expect 2 "exogym-greet: GREETING is missing $see" --loud
expect 2 "exogym-greet: --style: expected plain or fancy, got 'fanc' $see" hello --style fanc
expect 2 "exogym-greet: --with needs a value $see" hello --with
expect 2 "exogym-greet: --loud takes no value $see" hello --loud=
expect 2 "exogym-greet: unknown option --lod; did you mean --loud? $see" hello --lod
expect 2 "exogym-greet: unknown option --verzion; did you mean --version? $see" --verzion
expect 2 "exogym-greet: --completion: expected bash, zsh or fish, got 'sh' $see" --completion=sh
expect 2 "exogym-greet: --completion needs a value $see" hello --completion
expect 1 'exogym-greet: as asked' fail

# --- What is made from the table
# --------------------------------------------------------------------------------------

"$exogym" --version | cut -d' ' -f2 | sed 's/-dev\..*//' >version # a test has no commit
says "exogym-greet $(cat version)" --version
says "exogym-greet $(cat version)" hello --version
ok --help
cp out asked
ok hello --lod=3 --help
cmp -s out asked || fail 'no help after a mistake'
has out 'Usage: exogym-greet GREETING [WHOM]... [OPTIONS]'
has out "  -s, --style plain|fancy"
has out ".hidden 'quotes' \\back-slash; a~b^c \`d\` \"e\"."
for option in --help --version --man --completion --with --model --loud; do
    has out "$option"
done

ok --man
if command -v groff >/dev/null; then
    LC_ALL=C.UTF-8 groff -man -Tutf8 -P-c -ww out >page 2>warnings || fail 'groff does not read the page'
    [ ! -s warnings ] || fail "groff warns: $(cat warnings)"
    sed 's/.\x08//g; s/\x1b\[[0-9;]*m//g' page >plain
    has plain 'EXOGYM-GREET(1)'
    has plain 'exogym-greet - greets'
    has plain ".hidden 'quotes' \\back-slash; a~b^c \`d\` \"e\"."
    has plain "'Quoted' first."
    has plain '.Then a dot.'
    has plain '.TH is no request here.'
    has plain 'exogym-greet GREETING [WHOM]... [-s plain|fancy] [--with FILE]...'
fi

ok --completion bash
cp out script
# shellcheck disable=SC1091
source ./script
completes() {
    local expected=$1
    shift
    COMP_WORDS=(exogym-greet "$@")
    COMP_CWORD=$#
    COMPREPLY=()
    PATH=$(dirname "$exogym"):$PATH _exogym_greet
    [ "${COMPREPLY[*]}" = "$expected" ] || fail "exogym-greet $*: completed to '${COMPREPLY[*]}' instead of '$expected'"
}
mkdir inner
completes '--model --man' --m
completes '' h
completes inner hello in
completes inner hello a b in
completes 'plain fancy' -s ''
completes fancy hello --style = f
completes job.yaml --with jo
completes mnist_cnn hello --model mnist_
for shell in zsh fish; do
    ok --completion $shell
    has out exogym-greet
    if command -v $shell >/dev/null; then
        $shell -n out 2>err || fail "$shell: $(cat err)"
    fi
done
finish
