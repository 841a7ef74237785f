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
ok list commands
commands=$(cut -d' ' -f1 out)
[ "$(wc -w <<<"$commands")" -ge 6 ] || fail "too few commands: $commands"
for command in $commands; do
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
ok list data
has out mnist
ok data list
has out mnist

# The commands stand in one list; what lists them is made from it.
all=$("$EXOGYM" list commands | awk '{ names[NR] = $1 } END { for (i = 1; i < NR; i++) printf "%s%s", names[i], i < NR - 1 ? ", " : " or "; print names[NR] }')
see="(see \`exogym --help\`)"
expect 2 "exogym: which command? $all $see"
expect 2 "exogym: unknown command 'trian'; expected $all $see" trian
expect 2 "exogym: unknown command 'trian'; expected $all $see" help trian
expect 2 "exogym: unknown command 'plto'; did you mean plot? $see" plto
expect 2 "exogym: unknown option --verison; did you mean --version? $see" --verison
expect 2 "exogym: run: unknown option --version; known are --set, --preset, --resume, --save-dir, --name, --json, --workers, --transport, --head, --cluster, --head-key, --keys, --no-plot, --help (see \`exogym help run\`)" run --version

see="(see \`exogym help run\`)"
expect 2 "exogym: run: JOB.yaml is missing $see" run
expect 2 "exogym: run: 'b.yaml' is one word too many $see" run a.yaml b.yaml
expect 2 "exogym: run: unknown option --sett; did you mean --set? $see" run job.yaml --sett nodes=2
expect 2 "exogym: run: unknown option --stes; did you mean --set? $see" run job.yaml --stes=nodes=2
expect 2 "exogym: run: unknown option --hlep; did you mean --help? $see" run --hlep
expect 2 "exogym: run: unknown option -x; known are --set, --preset, --resume, --save-dir, --name, --json, --workers, --transport, --head, --cluster, --head-key, --keys, --no-plot, --help $see" run -x
expect 2 "exogym: run: --set needs a value $see" run job.yaml --set
expect 2 "exogym: run: --json takes no value $see" run job.yaml --json=yes
expect 2 'exogym: plot: RUN is missing (see `exogym help plot`)' plot -o a.png
expect 2 'exogym: plot: --output FILE is missing (see `exogym help plot`)' plot runs
expect 2 'exogym: data: expected list or get (see `exogym help data`)' data
expect 2 'exogym: data: get which data set? NAME is missing (see `exogym help data`)' data get
expect 2 "exogym: data: 'mnist' is one word too many (see \`exogym help data\`)" data list mnist
expect 2 'exogym: list: expected strategies, models, data or commands (see `exogym help list`)' list
expect 2 "exogym: list: expected strategies, models, data or commands, got 'nodes' (see \`exogym help list\`)" list nodes

# What cannot be written is not done.
"$EXOGYM" list models >/dev/full 2>err
[ $? = 1 ] || fail 'a full disk under standard output is not noticed'
has err 'exogym: cannot write to standard output: No space left on device'
finish
