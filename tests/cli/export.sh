#!/usr/bin/env bash
# A language model that was trained becomes a Hugging Face directory with its tokenizer, and a job
# goes on from there.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

fox_text 200
cat >lm.yaml <<'END'
model: {name: gpt, layers: 2, heads: 2, width: 16, context: 16}
data: {name: text, path: text.txt, block: 16}
nodes: 2
train: {max_steps: 6, batch_size: 4, val_size: 8, val_interval: 0, checkpoint_interval: 3}
strategy: {name: ddp, optimizer: {name: adamw, lr: 1e-3}}
END
golden=$EXO_SOURCE/tests/golden/decoders

ok run lm.yaml --no-plot
run=runs/lm/ddp
ok export $run model
has out 'model: gpt2, '
has out 'fp32, with its tokenizer'
for file in config.json model.safetensors tokenizer.json tokenizer_config.json generation_config.json; do
    [ -s model/$file ] || fail "model/$file is missing"
done
has model/config.json '"model_type": "gpt2"'
has model/config.json '"n_embd": 16'

# What was exported is read, and written again with the same bytes.
ok export model again
cmp model/model.safetensors again/model.safetensors || fail 'another model came back'
cmp model/tokenizer.json again/tokenizer.json || fail 'another tokenizer came back'

# Shards, and bf16: half the bytes.
ok export $run sharded --shard-size 10kB --dtype bf16
[ -s sharded/model.safetensors.index.json ] || fail 'no index of shards'
[ -s sharded/model-00001-of-00002.safetensors ] || fail "shards: $(ls sharded)"
has sharded/config.json '"bfloat16"'

# A checkpoint is the mean of its nodes; those of ddp are alike, so the last one is the run's
# result.
ok export $run/checkpoints/step_00000006 checkpoint
cmp model/model.safetensors checkpoint/model.safetensors || fail 'the last checkpoint is another model'
ok export $run/checkpoints/step_00000003 earlier
cmp -s model/model.safetensors earlier/model.safetensors && fail 'an earlier checkpoint is the same model'
rm $run/model.safetensors
ok export $run newest
cmp model/model.safetensors newest/model.safetensors || fail 'a run without a result is not its newest checkpoint'

# A job that begins with the directory: no step, the same numbers.
cat >more.yaml <<'END'
model: {name: gpt, path: model, dropout: 0.1}
data: {name: text, path: text.txt, block: 16, tokenizer: model}
train: {max_steps: 1, batch_size: 4, val_size: 8, val_interval: 0}
strategy: {name: ddp, optimizer: {name: sgd, lr: 0}}
END
ok run more.yaml --no-plot
ok export runs/more/ddp same
cmp model/model.safetensors same/model.safetensors || fail 'a run with rate 0 changed the model'
cmp model/tokenizer.json same/tokenizer.json || fail 'the tokenizer of the directory was not kept'

# The tokenizer can be named; without one the model is written all the same.
ok export "$golden/opt" bare
has out 'without a tokenizer'
ok export "$golden/opt" bare --tokenizer model
[ -s bare/tokenizer.json ] || fail '--tokenizer is ignored'
mv text.txt gone.txt
ok export $run/checkpoints/step_00000006 kept
cmp model/tokenizer.json kept/tokenizer.json || fail "the run's tokenizer was not kept"
rm $run/tokenizer.json
ok export $run/checkpoints/step_00000006 without
has err 'no tokenizer was written: '
has out 'without a tokenizer'

# What cannot be exported says why.
expect 1 'exogym: nowhere: is no run with a model.safetensors or checkpoints, no checkpoint, and no Hugging Face directory' export nowhere x
expect 2 "exogym: export: --shard-size '5KB': expected a number of B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 5GB or 500MiB (see \`exogym help export\`)" \
    export model x --shard-size 5KB
ok run job.yaml --preset quick --no-plot
expect 2 "exogym: runs/small/ddp/config.json: the model 'mlp' is no decoder: only 'gpt' is one" export runs/small/ddp x
mv gone.txt text.txt
ok run lm.yaml --no-plot --name gated --set model.gated=true
expect 1 "exogym: transformers' GPT2LMHeadModel cannot express this model: its MLP is not gated" export runs/gated/ddp x
finish
