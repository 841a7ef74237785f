#!/usr/bin/env bash
# Jobs, graphs and prompts from pipes and standard input: read once, to the end. Files that must be
# files are refused when they are pipes, at once.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

# within SECONDS COMMAND...: it must end well within the time, whatever it waits for.
within() {
    timeout -k 1 "$@" >out 2>err
    local got=$?
    [ $got = 124 ] && fail "it hangs: ${*:2}"
    return $got
}

sed 's/max_steps: 12/max_steps: 3/; s/^compare:.*/compare: [ddp]/' job.yaml >short.yaml
within 60 "$EXOGYM" run short.yaml --no-plot --name file || fail "a file: $(tail -3 err)"
sha=$(json runs/file/ddp/result.json sha256)

# Standard input, a pipe of the shell, a named pipe: the same job.
within 60 "$EXOGYM" run - --no-plot --name stdin <short.yaml || fail "standard input: $(tail -3 err)"
within 60 "$EXOGYM" run <(cat short.yaml) --no-plot --name pipe || fail "a pipe: $(tail -3 err)"
mkfifo fifo
(sleep 0.2; cat short.yaml) >fifo &
within 60 "$EXOGYM" run fifo --no-plot --name named || fail "a named pipe: $(tail -3 err)"
wait
for name in stdin pipe named; do
    [ "$(json runs/$name/ddp/result.json sha256)" = "$sha" ] || fail "$name: another result"
done

# It gives the run no name; mistakes are named by what was read; the whole of a slow writer is
# waited for.
grep -v '^name:' short.yaml >nameless.yaml
within 60 "$EXOGYM" run - <nameless.yaml && fail 'a job without a name from standard input'
[ "$(cat err)" = "exogym: standard input:1:1: a job that is read from a pipe needs a name: add the key 'name', or give --name" ] ||
    fail "no name: $(cat err)"
within 60 "$EXOGYM" run - --no-plot --name given <nameless.yaml || fail "--name: $(tail -3 err)"
(echo 'model: mlp'; sleep 0.2; echo 'madel: mlp') | within 60 "$EXOGYM" run - && fail 'a wrong key'
[ "$(cat err)" = "exogym: standard input:2:1: unknown key 'madel'; did you mean 'model'?" ] || fail "a wrong key: $(cat err)"
within 60 "$EXOGYM" graph check - <short.yaml || fail "graph check: $(cat err)"
has out 'small/ddp: 2 actors'
cat >graph.yaml <<END
exogym: 1
name: tiny
clock: virtual
plugins: [$EXO_BUILD/tests/plugins/numbers.so]
actors:
  source: {class: source, config: {items: 3}}
  sink: {class: sink}
edges: [{from: source, to: sink, carries: numbers}]
END
within 60 "$EXOGYM" graph check --load-plugins graph.yaml || fail "the graph itself: $(cat err)"
within 60 "$EXOGYM" graph check --load-plugins <(cat graph.yaml) || fail "graph check of a pipe: $(cat err)"
within 60 "$EXOGYM" run <(cat graph.yaml) || fail "a graph from a pipe: $(tail -3 err)"

# A pipe that nobody writes into is waited for, but not for ever.
within 60 "$EXOGYM" graph check fifo && fail 'a pipe without a writer'
[ "$(cat err)" = 'exogym: fifo: is a pipe that nobody writes into' ] || fail "a pipe without a writer: $(cat err)"

# Data and models are gone back and forth in: no pipe will do, and none is waited for.
refuses() {
    within 60 "${@:2}"
    [ $? = 1 ] || fail "a pipe gives another status than 1: ${*:2}"
    has err "$1: is a pipe; a file is expected"
}
text='{max_steps: 1, batch_size: 1}'
printf 'model: {name: gpt, layers: 1, heads: 1, width: 8}\ndata: {name: text, path: fifo, block: 8}\nstrategy: ddp\ntrain: %s\n' "$text" >text.yaml
refuses fifo "$EXOGYM" run text.yaml
sed 's/name: text, path: fifo/name: tokens, path: fifo, dtype: uint16/' text.yaml >tokens.yaml
refuses fifo "$EXOGYM" run tokens.yaml
mkdir idx
for file in train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte; do mkfifo idx/$file.gz; done
printf 'model: mlp\ndata: {name: mnist, path: idx}\nstrategy: ddp\ntrain: %s\n' "$text" >idx.yaml
refuses idx/train-images-idx3-ubyte.gz "$EXOGYM" run idx.yaml
mkdir model
mkfifo model/config.json
refuses model/config.json "$EXOGYM" generate --model model
cp -r "$EXO_SOURCE/tests/golden/decoders/gpt2" pretrained
rm pretrained/model.safetensors
mkfifo pretrained/model.safetensors
refuses pretrained/model.safetensors "$EXOGYM" generate --model pretrained --tokenizer bytes --max-new-tokens 1
refuses fifo "$EXOGYM" data tokenize fifo --tokenizer bytes -o tokens
finish
