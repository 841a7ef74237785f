#!/usr/bin/env bash
# Completion as bash does it, driven through COMP_WORDS; of zsh and fish, what is installed reads
# its script.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

PATH=$(dirname "$EXOGYM"):$PATH
"$EXOGYM" completion bash >script || fail 'no script for bash'
# shellcheck disable=SC1091
source ./script
[ "$(complete -p exogym)" = 'complete -F _exogym exogym' ] || fail 'exogym is not registered'

# completes EXPECTED WORD...: what the last of the words becomes, sorted. The words are as bash
# divides them: "=" is one.
completes() {
    local expected=$1 got
    shift
    COMP_WORDS=(exogym "$@")
    COMP_CWORD=$#
    COMPREPLY=()
    _exogym exogym "${*: -1}" ''
    got=$(printf '%s\n' "${COMPREPLY[@]}" | LC_ALL=C sort | tr '\n' ' ')
    [ "${got% }" = "$expected" ] || fail "exogym $*: completed to '$got' instead of '$expected'"
}

mkdir runs runs/a 'my runs'
touch jobs.txt

commands=$("$EXOGYM" list commands | cut -d' ' -f1 | LC_ALL=C sort | tr '\n' ' ')
completes "${commands% }" ''
completes 'plan plot' p
completes '--help --version' -
completes '' nothing ''

completes '--save-dir --set' run --s
completes '--save-dir --set' run job.yaml --json --s
completes 'job.yaml jobs.txt' run j
completes 'job.yaml jobs.txt' run --json j
completes '' run job.yaml j
completes runs run --save-dir ru
completes runs run --save-dir = ru
completes '' run --set ''
completes '--device' generate --d
completes 'cpu cuda' generate --device c
completes 'job.yaml jobs.txt' run --set nodes = 2 j
completes '' run --set nodes = 2
completes '' run -- --s

completes 'my runs' plot m
completes runs plot runs/a runs/b ru
completes 'runs/a' plot runs/
completes 'job.yaml jobs.txt' plot runs -o jo
completes 'job.yaml jobs.txt' plot runs --output = jo

completes 'get list tokenize' data ''
sets=$({ "$EXOGYM" list downloads | cut -d' ' -f1 && ls -A; } | LC_ALL=C sort | tr '\n' ' ')
completes "${sets% }" data get ''
completes mnist data get mn
completes 'job.yaml jobs.txt' data tokenize j
completes 'job.yaml jobs.txt' data tokenize job.yaml j
completes runs data tokenize job.yaml --output ru
completes 'actors classes codecs commands data devices downloads engines environments jobs methods models nodes objects rewards schedules strategies tools' list ''
completes 'apply check dot expand plan schema' graph ''
completes 'job.yaml jobs.txt' graph check j
completes 'schedules strategies' list --plugin job.yaml s
completes 'plan plot' help p
completes '--help --man' help -
completes 'bash fish zsh' completion ''

# Without the program there is nothing to say, and nothing is said.
mkdir bin
ln -s "$(command -v cut)" bin/cut
noise=$(
    PATH=$PWD/bin
    COMP_WORDS=(exogym data get zz) COMP_CWORD=3
    _exogym 2>&1
    echo "${COMPREPLY[*]}"
)
[ -z "$noise" ] || fail "without exogym: $noise"

if command -v zsh >/dev/null; then
    "$EXOGYM" completion zsh >_exogym
    zsh -n _exogym 2>err || fail "zsh: $(cat err)"
fi
if command -v fish >/dev/null; then
    "$EXOGYM" completion fish >exogym.fish
    got=$(fish --no-config -c 'source exogym.fish; complete -C "exogym run --sa"' | cut -f1)
    [ "$got" = --save-dir ] || fail "fish: completed to '$got'"
fi
if command -v shellcheck >/dev/null; then
    shellcheck -s bash script >err || fail "shellcheck: $(cat err)"
fi
finish
