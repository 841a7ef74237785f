#!/usr/bin/env bash
# Text as data: fetched, made into tokens, and trained on, in one process and in workers.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

export TMPDIR=$folder EXOGYM_DATA=$folder/data

# --- Lists
# ------------------------------------------------------------------------------------------------------------

ok list data
for name in fashion_mnist mnist synthetic shakespeare text tokens; do
    has out "$name "
done
ok list downloads
has out 'mnist '
has out 'shakespeare '
[ "$(wc -l <out)" = 2 ] || fail "what can be fetched: $(cat out)"
ok data list
has out 'shakespeare         1.12 MB'

# --- Shakespeare, which is there or is not
# ----------------------------------------------------------------------------

cat >shakespeare.yaml <<END2
plugins: [$EXO_BUILD/tests/plugins/unigram.so]
model: {name: unigram, vocabulary: 65}
data: shakespeare
train: {max_steps: 2}
strategy: ddp
END2
expect 1 "exogym: shakespeare.yaml:3:7: $folder/data/shakespeare/tinyshakespeare.txt: No such file or directory: run 'exogym data get shakespeare', or say where the text is with data.path" \
    run shakespeare.yaml
mkdir -p data/shakespeare
head -c 1115394 /dev/zero | tr '\0' 'a' >data/shakespeare/tinyshakespeare.txt
ok data list
has out "in $folder/data/shakespeare"
ok run shakespeare.yaml --no-plot
has err ' on shakespeare (1,003,598 samples)'

# --- Tokens
# -----------------------------------------------------------------------------------------------------------

mkdir docs
for i in 1 2 3; do
    for j in $(seq 40); do
        echo "Document $i, line $j: the quick brown fox jumps over the lazy dog."
    done >"docs/$i.txt"
done
bytes=$(cat docs/*.txt | wc -c)

ok data tokenize docs --tokenizer characters -o shards --shard-size 2k
has out 'tokens of 3 documents'
has out 'shards: shards'
vocabulary=$(sed 's/.*, vocabulary \([0-9]*\),.*/\1/' out)
[ -f shards/tokenizer.json ] || fail 'the tokenizer does not come with the shards'
shards=$(((bytes + 1999) / 2000))
[ "$(find shards -name 'shard-*.tokens' | wc -l)" = "$shards" ] || fail "not $shards shards: $(ls shards)"
[ "$(stat -c %s shards/shard-000000.tokens)" = $((128 + 2 * 2000)) ] || fail 'the first shard has not 2000 tokens'
ok data tokenize docs/1.txt docs/2.txt docs/3.txt --tokenizer=characters --output again --shard-size 2000
for file in shards/*; do
    cmp -s "$file" "again/${file#shards/}" || fail "$file differs when it is made again"
done

# One that is stopped leaves nothing; it repeats with more text until it is cut.
for signal in TERM:143 INT:130 HUP:129; do
    for lines in 100000 400000 1600000 6400000; do
        yes 'the quick brown fox jumps over the lazy dog' | head -n $lines >much.txt
        rm -rf cut cut.*
        "$EXOGYM" data tokenize much.txt --tokenizer bytes -o cut >out 2>err &
        pid=$!
        until [ -n "$(find . -maxdepth 1 -name 'cut*')" ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
        kill "-${signal%:*}" $pid 2>/dev/null
        wait $pid
        status=$?
        [ $status = 0 ] || break
    done
    [ $status = "${signal#*:}" ] || fail "a stopped tokenize: status $status instead of ${signal#*:}: $(cat err)"
    [ -z "$(find . -maxdepth 1 -name 'cut*')" ] || fail "SIG${signal%:*} leaves $(echo cut*)"
done
rm much.txt

expect 1 "exogym: shards: the folder exists and is not empty: name a new one or remove it" \
    data tokenize docs --tokenizer bytes -o shards
expect 1 "exogym: none.txt: No such file or directory" data tokenize none.txt --tokenizer bytes -o new
expect 2 "exogym: data: tokenize what? FILE is missing (see \`exogym help data\`)" data tokenize
expect 2 "exogym: data: --tokenizer is missing: characters, bytes, or a tokenizer.json (see \`exogym help data\`)" \
    data tokenize docs -o new
expect 2 "exogym: data: --output is missing: the new folder for the shards (see \`exogym help data\`)" \
    data tokenize docs --tokenizer bytes
for size in 0 x 1x 1kk -3 2000G ''; do
    "$EXOGYM" data tokenize docs --tokenizer bytes -o new "--shard-size=$size" >out 2>err
    [ $? = 2 ] || fail "--shard-size '$size' is taken"
    has err '--shard-size: '
done
expect 2 "exogym: data: --output is an option of 'exogym data tokenize' (see \`exogym help data\`)" data get mnist -o new
expect 2 "exogym: data: --documents: expected end or ignore, got 'keep' (see \`exogym help data\`)" \
    data tokenize docs --tokenizer bytes -o new --documents keep
[ ! -e new ] || fail 'what failed left a folder'

# --- Training
# ---------------------------------------------------------------------------------------------------------

cat >job.yaml <<END2
exogym: 1
name: text
plugins: [$EXO_BUILD/tests/plugins/unigram.so]
model: {name: unigram, vocabulary: 100}
data: {name: tokens, path: shards, block: 32}
nodes: 2
train: {max_steps: 30, batch_size: 8, val_size: 32, val_interval: 10}
strategy: {name: ddp, optimizer: {name: adamw, lr: 0.1}}
END2
hash_of() {
    json "$1" sha256
}
ok run job.yaml --json --no-plot --name shards
wanted=$(hash_of out)
loss=$(json out global_loss)
awk -v loss="$loss" 'BEGIN { exit !(loss > 2 && loss < 3.6) }' || fail "the loss is $loss"
ok run job.yaml --json --no-plot --name text --set 'data={name: text, path: docs, block: 32}'
[ "$(hash_of out)" = "$wanted" ] || fail 'the text and its shards train otherwise'
ok run job.yaml --json --no-plot --name workers --workers 2
[ "$(hash_of out)" = "$wanted" ] || fail 'workers train otherwise'
ok run job.yaml --json --no-plot --name split --set data.split_by_node=true
split=$(hash_of out)
[ "$split" != "$wanted" ] || fail 'split_by_node makes no difference'
ok run job.yaml --json --no-plot --name split_far --set data.split_by_node=true --workers 2
[ "$(hash_of out)" = "$split" ] || fail 'workers split otherwise'
ok run job.yaml --json --no-plot --name images --set 'model=mlp' --set 'data={name: synthetic, split_by_node: true}'

# refused STATUS REASON ASSIGNMENT...
refused() {
    local status=$1 reason=$2 got
    shift 2
    "$EXOGYM" run job.yaml "$@" --name refused >out 2>err </dev/null
    got=$?
    [ "$got" = "$status" ] || fail "$*: ended with $got instead of $status: $(cat err)"
    [ "$(wc -l <err)" = 1 ] || fail "$*: more than one line: $(cat err)"
    has err "$reason"
}
refused 2 "unknown key 'blok'; did you mean 'block'?" --set data.blok=3
refused 2 'job.yaml:5:7: shards: the training part, 0 to 0.9 of' --set data.block=8000
refused 2 "start_pc must be less than end_pc" --set data.start_pc=0.95
refused 2 "batch_size 8 is more than node_0's part of the data: 1 sample" \
    --set data.split_by_node=true --set data.end_pc=0.0084 --set nodes=2
refused 2 "the key 'path' is missing: data: {name: text, path: my.txt}" --set 'data=text'
refused 1 'none.txt: No such file or directory' --set 'data={name: text, path: none.txt}'
refused 2 'there is no data set' --set data=imagenet

# A language model gets the data's vocabulary, also on workers, and that is written down: a
# plugin's, too, if its class says so.
ok run job.yaml --json --no-plot --name unigram --set model=unigram
[ "$(json runs/unigram/ddp/config.json vocabulary)" = "$vocabulary" ] || fail "the vocabulary of a plugin's model is not $vocabulary"
refused 2 "vocabulary 3 is less than that of the data, $vocabulary" --set model.vocabulary=3
refused 2 "the model 'unigram_scores' has no objective: programs train it, and jobs cannot" --set model=unigram_scores
if "$EXOGYM" list models | grep -q '^gpt '; then
    gpt='layers: 1, heads: 1, width: 16, context: 32'
    ok run job.yaml --json --no-plot --name gpt --set "model={name: gpt, $gpt}"
    [ "$(json runs/gpt/ddp/config.json vocabulary)" = "$vocabulary" ] || fail "the vocabulary is not $vocabulary"
    wanted=$(hash_of out)
    ok run job.yaml --json --no-plot --name gpt_far --set "model={name: gpt, $gpt}" --workers 2
    [ "$(hash_of out)" = "$wanted" ] || fail 'workers have another language model'
    ok graph expand --load-plugins job.yaml --set model=gpt
    has out "model: {name: gpt, vocabulary: $vocabulary}"
    ok run job.yaml --json --no-plot --name gpt_more --set "model={name: gpt, vocabulary: 64, $gpt}"
    [ "$(json runs/gpt_more/ddp/config.json vocabulary)" = 64 ] || fail 'a vocabulary that is given is not kept'
    refused 2 "vocabulary 30 is less than that of the data, $vocabulary" --set 'model={name: gpt, vocabulary: 30}'

    # Bare tokens say nothing of their vocabulary: a model's default is none of theirs.
    head -c 8000 /dev/zero >bare.bin
    bare='{name: tokens, path: bare.bin, dtype: uint16, block: 8}'
    refused 2 'vocabulary is missing' --set "model={name: gpt, $gpt}" --set "data=$bare"
    ok run job.yaml --no-plot --name bare --set "model={name: gpt, vocabulary: 10, $gpt}" --set "data=$bare"

    # What does not fit together is found before an earlier run's folder is touched.
    ok run job.yaml --json --no-plot --name refused --set "model={name: gpt, $gpt}"
    refused 2 "block 32 is more than the model's context, 31" --set "model={name: gpt, $gpt}" --set model.context=31 --set data.block=32
    refused 2 "'synthetic' has no tokens: the model 'gpt' trains on texts" --set "model={name: gpt, $gpt}" --set data=synthetic
    [ -e runs/refused/ddp/result.json ] || fail 'a job that is wrong changed the folder of an earlier run'
fi

printf 'X' | dd of=shards/shard-000001.tokens bs=1 seek=16 conv=notrunc 2>/dev/null
refused 1 'shards/shard-000001.tokens: byte 96: the header is damaged'
cp again/shard-000001.tokens shards/
truncate -s -1 shards/shard-000001.tokens
refused 1 'shards/shard-000001.tokens: is truncated at byte 4127'
finish
