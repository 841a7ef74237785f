#!/usr/bin/env bash
# The command line itself: help, version, and one clear line for what is wrong.
. "$EXO_SOURCE/tests/cli/common.bash"

ok --version
has out 'exogym 0.'
for arguments in --help -h help; do
    ok "$arguments"
    has out 'Usage: exogym COMMAND'
    has out 'Exit status:'
done
for command in run plot data list; do
    ok help "$command"
    has out "Usage: exogym $command"
    cp out asked
    ok "$command" --help
    cmp -s out asked || fail "exogym $command --help is not exogym help $command"
done
ok list strategies
has out ddp
has out diloco
has out sparta
ok list models
has out mnist_cnn
has out mlp
ok data list
has out mnist

all='run, plot, data, list'
expect 2 "exogym: which command? $all or help (see \`exogym --help\`)"
expect 2 "exogym: unknown command 'trian'; known are $all and help (see \`exogym --help\`)" trian
expect 2 "exogym: unknown command 'trian'; known are $all and help (see \`exogym --help\`)" help trian
expect 2 'exogym: run: which job? JOB.yaml is missing (see `exogym help run`)' run
expect 2 "exogym: run: one job at a time, and 'b.yaml' is a second one (see \`exogym help run\`)" run a.yaml b.yaml
expect 2 "exogym: run: unknown option '--sett' (see \`exogym help run\`)" run job.yaml --sett nodes=2
expect 2 'exogym: run: --set needs a value (see `exogym help run`)' run job.yaml --set
expect 2 'exogym: run: --json takes no value (see `exogym help run`)' run job.yaml --json=yes
expect 2 'exogym: plot: which runs? RUN is missing (see `exogym help plot`)' plot -o a.png
expect 2 'exogym: plot: -o FILE.png is missing (see `exogym help plot`)' plot runs
expect 2 'exogym: data: expected `list` or `get NAME` (see `exogym help data`)' data
expect 2 'exogym: list: what? strategies or models (see `exogym help list`)' list
expect 2 "exogym: list: expected strategies or models, got 'nodes' (see \`exogym help list\`)" list nodes

# What cannot be written is not done.
"$EXOGYM" list models >/dev/full 2>err
[ $? = 1 ] || fail 'a full disk under standard output is not noticed'
has err 'exogym: cannot write to standard output: No space left on device'
finish
