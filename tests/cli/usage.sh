#!/usr/bin/env bash
# The command line itself: help, version, and one clear line for what is wrong.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

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
ok list schedules
has out wsd
ok list models
has out mnist_cnn
has out mlp
ok list classes
has out train_node
ok list data
has out mnist
has out synthetic
ok list downloads
has out mnist
ok data list
has out mnist
ok list codecs
has out bf16
has out topk
ok list engines
has out local
has out net

# The commands stand in one list; what lists them is made from it.
all=$("$EXOGYM" list commands | awk '{ names[NR] = $1 } END { for (i = 1; i < NR; i++) printf "%s%s", names[i], i < NR - 1 ? ", " : " or "; print names[NR] }')
see="(see \`exogym --help\`)"
expect 2 "exogym: which command? $all $see"
expect 2 "exogym: unknown command 'trian'; expected $all $see" trian
expect 2 "exogym: unknown command 'trian'; expected $all $see" help trian
expect 2 "exogym: unknown command 'plto'; did you mean plot? $see" plto
expect 2 "exogym: unknown option --verison; did you mean --version? $see" --verison
expect 2 "exogym: run: unknown option --version; known are --set, --preset, --resume, --overwrite, --dry-run, --save-dir, --name, --json, --workers, --transport, --insecure, --head, --cluster, --head-key, --keys, --no-plot, --help (see \`exogym help run\`)" run --version

see="(see \`exogym help run\`)"
expect 2 "exogym: run: JOB.yaml is missing $see" run
expect 2 "exogym: run: 'b.yaml' is one word too many $see" run a.yaml b.yaml
expect 2 "exogym: run: unknown option --sett; did you mean --set? $see" run job.yaml --sett nodes=2
expect 2 "exogym: run: unknown option --stes; did you mean --set? $see" run job.yaml --stes=nodes=2
expect 2 "exogym: run: unknown option --hlep; did you mean --help? $see" run --hlep
expect 2 "exogym: run: unknown option -x; known are --set, --preset, --resume, --overwrite, --dry-run, --save-dir, --name, --json, --workers, --transport, --insecure, --head, --cluster, --head-key, --keys, --no-plot, --help $see" run -x
expect 2 "exogym: run: --set needs a value $see" run job.yaml --set
expect 2 "exogym: run: --json takes no value $see" run job.yaml --json=yes
expect 2 'exogym: plot: RUN is missing (see `exogym help plot`)' plot -o a.png
expect 2 'exogym: plot: --output FILE is missing (see `exogym help plot`)' plot runs
expect 2 'exogym: data: expected list, get or tokenize (see `exogym help data`)' data
expect 2 'exogym: data: get which data set? NAME is missing (see `exogym help data`)' data get
expect 2 "exogym: data: 'mnist' is one word too many (see \`exogym help data\`)" data list mnist
expect 2 'exogym: list: expected strategies, schedules, models, data, downloads, codecs, engines, devices, classes, environments, rewards, tools, commands, nodes, actors, jobs, objects or methods (see `exogym help list`)' list
expect 2 "exogym: list: expected strategies, schedules, models, data, downloads, codecs, engines, devices, classes, environments, rewards, tools, commands, nodes, actors, jobs, objects or methods, got 'node' (see \`exogym help list\`)" list node

ok list models --json
[ "$(json out name)" != '' ] || fail "list --json: $(cat out)"

# Those that look at a cluster; tests/cluster has one.
expect 2 'exogym: call: NAME is missing (see `exogym help call`)' call
expect 2 'exogym: call: METHOD is missing (see `exogym help call`)' call one
expect 2 'exogym: kill: NAME is missing (see `exogym help kill`)' kill
expect 2 'exogym: spawn: CLASS is missing (see `exogym help spawn`)' spawn
expect 2 "exogym: spawn: --restart: expected never, on_failure or always, got 'often' (see \`exogym help spawn\`)" spawn a --restart often
expect 2 "exogym: spawn: --max-restarts: expected a number from 0 to 1000000, got 'x' (see \`exogym help spawn\`)" spawn a --max-restarts x
expect 2 "exogym: spawn: --max-concurrency: expected a number from 1 to 1000000, got '0' (see \`exogym help spawn\`)" spawn a --max-concurrency 0
expect 2 "exogym: spawn: --max-pending-calls: its value is empty (see \`exogym help spawn\`)" spawn a --max-pending-calls ''
expect 2 "exogym: spawn: 'cpus': expected NAME=AMOUNT (see \`exogym help spawn\`)" spawn a --resource cpus
expect 2 "exogym: spawn: 'cpus=4GB': expected an amount such as 4, 0.5 or 16GiB (see \`exogym help spawn\`)" spawn a --resource cpus=4GB
expect 2 "exogym: status: --timeout: expected a time such as 90s, 500ms or 5m, got 'soon' (see \`exogym help status\`)" status --timeout soon
mkdir -m 700 here
expect 2 "exogym: status: the head's address 'http://x': expected tcp://HOST:PORT or ipc://PATH (see \`exogym help status\`)" status --head http://x --folder here
expect 2 "exogym: status: the cluster's name 'a b': expected at most 47 letters, digits, '.', '_' and '-', no '.' first (see \`exogym help status\`)" status --cluster 'a b' --folder here
mkdir -m 755 open
expect 2 "exogym: status: $folder/open: must be a folder of your own that nobody else can enter (chmod 700) (see \`exogym help status\`)" status --folder open
expect 1 "exogym: no head can be reached (there is no head at ipc://$folder/here/other/head): start one with \`exogym-head\`" status --cluster other --folder here --timeout 10ms

# What cannot be written is not done.
"$EXOGYM" list models >/dev/full 2>err
[ $? = 1 ] || fail 'a full disk under standard output is not noticed'
has err 'exogym: cannot write to standard output: No space left on device'

# A full pipe that another program has made non-blocking loses nothing, however slowly it is read.
python3 - "$EXOGYM" 2>err <<'END' || fail "a slow reader of a non-blocking pipe: $(tail -n 1 err)"
import os, subprocess, sys, time
for stream, words, status in (("stdout", ["graph", "schema"], 0), ("stderr", ["x"], 2)):
    command = [sys.argv[1], *words]
    expected = getattr(subprocess.run(command, capture_output=True), stream)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    full = os.write(writer, b"-" * (1 << 20))
    program = subprocess.Popen(command, **{stream: writer})
    os.close(writer)
    time.sleep(0.2)
    got = b"".join(iter(lambda: os.read(reader, 10000), b""))[full:]
    assert (program.wait(), got) == (status, expected), f"{stream}: {len(got)} of {len(expected)} bytes, status {program.returncode}"
END

# Nor is what would exceed the limit of a file's size; and a line is redrawn only on a terminal that can.
cat >job.yaml <<'YAML'
model: mlp
data: {name: synthetic, count: 64}
nodes: 1
train: {max_steps: 1, batch_size: 8, val_size: 8}
strategy: ddp
YAML
(ulimit -f 1; exec "$EXOGYM" run job.yaml --no-plot --name limited >out 2>err </dev/null)
[ $? = 1 ] || fail "a file beyond the limit of its size: $(tail -n 3 out err)"
has err 'File too large'
terminal='import os, pty, sys; os.environ["TERM"] = sys.argv[1]; sys.exit(pty.spawn(sys.argv[2:]) >> 8)'
for kind in xterm dumb; do
    python3 -c "$terminal" $kind "$EXOGYM" run job.yaml --no-plot --overwrite >out 2>err </dev/null || fail "$kind: $(tail -n 3 out err)"
    [ "$(grep -c $'\e' out)" -gt 0 ] && redrawn=xterm || redrawn=dumb
    [ $redrawn = $kind ] || fail "$kind: $(cat -v out)"
done
finish
