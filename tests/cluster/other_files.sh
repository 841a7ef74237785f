#!/usr/bin/env bash
# A path that leads to other files on the host of a worker than on that of the user, or a plugin that a
# worker has loaded before it changed, is found before the first step. One host has two such files here,
# because /proc/self/cwd is another folder for each process.
# shellcheck disable=SC2154 # start sets variables by name
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

export TMPDIR=$folder
mkdir elsewhere
# The name of the worker is told although the path contains it.
printf 'The quick brown fox jumps over the lazy dog. %.0s' {1..20} >words.txt
cp words.txt elsewhere/words.txt
cat >job.yaml <<'JOB'
name: files
model: {name: gpt, layers: 1, heads: 1, width: 8, context: 8}
data: {name: text, path: /proc/self/cwd/words.txt, block: 8}
nodes: 2
train: {max_steps: 2, batch_size: 2, val_size: none}
strategy: ddp
JOB

# job OPTIONS...: runs it on the cluster.
job() {
    timeout 120 "$EXOGYM" run job.yaml --head "ipc://$place/head" --save-dir runs --no-plot --overwrite "$@" >out 2>err </dev/null
}

head
cd elsewhere && worker words
cd .. || exit 1
job || fail "the same files: $(tail -3 err)"
echo 'and more' >>elsewhere/words.txt
job && fail 'other files were not noticed'
has err 'on words: the data have '
has err 'the same files must be on all hosts'
# As many samples, but others: an edit in the first one, a shift, another text.
sed 's/The quick/the quick/' words.txt >elsewhere/words.txt
job && fail 'another first sample was not noticed'
has err 'on words: the data have other samples on this host'
{ command tail -c +2 words.txt && printf .; } >elsewhere/words.txt
job && fail 'a shift was not noticed'
has err 'on words: the data have other samples on this host'
tr a-z b-za <words.txt >elsewhere/words.txt
job && fail 'another text was not noticed'
has err 'on words: the data have other samples on this host'
rm elsewhere/words.txt
job && fail 'missing files were not noticed'
has err 'on words: /proc/self/cwd/words.txt: No such file or directory'
cp words.txt elsewhere/words.txt

# A plugin that is built again while the worker lives is not that which the worker has loaded. Bytes after
# the end of a shared object change nothing but its SHA-256.
cp "$EXO_BUILD/tests/plugins/counts.so" "$EXO_BUILD/tests/plugins/numbers.so" .
build_again() {
    cp "$1" built.so && printf . >>built.so && mv built.so "$1"
}
job=(--set strategy=counted --set "plugins=[$folder/counts.so]")
job "${job[@]}" || fail "a plugin: $(tail -3 err)"
build_again counts.so
job "${job[@]}" && fail 'a plugin that was built again was not noticed'
has err "on words: plugin '$folder/counts.so' has changed since this process loaded it"
cp "$EXO_BUILD/tests/plugins/counts.so" .
job "${job[@]}" || fail "the plugin that the worker has: $(tail -3 err)"

cat >graph.yaml <<END
name: numbers
plugins: [$folder/numbers.so]
actors:
  source: {class: source, config: {items: 3}}
  sink: {class: sink}
edges:
  - {from: source, to: sink, carries: numbers}
END
graph() {
    timeout 120 "$EXOGYM" run graph.yaml --head "ipc://$place/head" --save-dir runs --overwrite >out 2>err </dev/null
}
graph || fail "a graph with a plugin: $(tail -3 err)"
build_again numbers.so
graph && fail 'a plugin of a graph that was built again was not noticed'
has err "on words: plugin '$folder/numbers.so' has changed since this process loaded it"
cp "$EXO_BUILD/tests/plugins/numbers.so" .
graph || fail "the plugin of a graph that the worker has: $(tail -3 err)"

x stop || fail 'stop'
ended 15 "$head_pid" 0
finish
