#!/usr/bin/env bash
# LoRA from the command line: a base, training of A and B alone under strategies, resuming, export as
# an adapter and merged, generation from all of them, and makers and trainers.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

fox_text 200
cat >base.yaml <<'END'
model: {name: gpt, layers: 2, heads: 2, width: 16, context: 16}
data: {name: text, path: text.txt, block: 16}
train: {max_steps: 4, batch_size: 4, val_size: 8, val_interval: 0}
strategy: {name: ddp, optimizer: {name: adamw, lr: 3e-3}}
END
ok run base.yaml --no-plot
ok export runs/base/ddp base

# --- Training
# -------------------------------------------------------------------------------------------------------------

cat >lora.yaml <<'END'
model: {name: gpt, path: base, lora: {rank: 2, layers: [attention.*, blocks.1.mlp.up]}}
data: {name: text, path: text.txt, block: 16, tokenizer: base}
nodes: 2
train: {max_steps: 6, batch_size: 4, val_size: 8, val_interval: 0, checkpoint_interval: 3}
strategy: {name: ddp, optimizer: {name: adamw, lr: 3e-2}}
END
# A and B: of qkv, of out, and once of up
numel=$((2 * (2 * 16 + 48 * 2) + 2 * (2 * 16 + 16 * 2) + (2 * 16 + 64 * 2)))
sent() { meter "$1/result.json" bytes_sent; }
sha() { json "$1/result.json" sha256; }

ok run lora.yaml --no-plot
run=runs/lora/ddp
has $run/config.json '"rank": 2'
has $run/config.json '"alpha": 16'
[ -n "$(sha $run)" ] || fail "$(cat $run/result.json)"
[ "$(sent $run)" = $((numel * 4 * 6)) ] || fail "ddp sends $(sent $run) B, and A and B have $numel values"
ok run lora.yaml --no-plot --name diloco --set strategy='{name: diloco, H: 3}'
[ "$(sent runs/diloco/diloco)" = $((numel * 4 * 2)) ] || fail "diloco sends $(sent runs/diloco/diloco) B"
ok run lora.yaml --no-plot --name far --workers 2
[ "$(sha runs/far/ddp)" = "$(sha $run)" ] || fail 'workers give other bits'
ok run lora.yaml --no-plot --name parts --set train.max_steps=3
ok run lora.yaml --no-plot --name parts --resume
[ "$(sha runs/parts/ddp)" = "$(sha $run)" ] || fail 'a resumed run gives other bits'
ok run lora.yaml --no-plot --name kept --set model.checkpoint=true
[ "$(sha runs/kept/ddp)" = "$(sha $run)" ] || fail 'activation checkpoints give other bits'

# --- Export and generation
# -------------------------------------------------------------------------------------------------------------

# answer MODEL FILE ARGUMENTS...
answer() {
    local model=$1 file=$2
    shift 2
    ok generate --model "$model" --prompt 'line 7' --max-new-tokens 8 --temperature 0 --json "$@"
    sed '/"model"/d; /"seconds"/d' out >"$file"
}
ok export $run adapter
has out 'LoRA in fp32, with its tokenizer'
[ "$(stat -c %s adapter/adapter_model.safetensors)" -lt $((numel * 4 + 2000)) ] || fail 'the adapter has more than A and B'
has adapter/adapter_config.json "\"base_model_name_or_path\": \"$PWD/base\""
has adapter/adapter_config.json '"transformer.h.1.mlp.c_fc"'
ok export $run merged --merge
[ -s merged/config.json ] || fail 'no merged model'
cmp -s merged/model.safetensors base/model.safetensors && fail 'the merged model is the base'
answer $run of_run
answer merged of_merged
answer adapter of_adapter
answer base of_base
cmp of_run of_merged || fail 'the merged model answers otherwise'
cmp of_run of_adapter || fail 'the adapter answers otherwise'
cmp -s of_run of_base && fail 'the base answers like the adapter'
for weights in int8 int4; do
    answer $run of_$weights --weights $weights
    answer merged of_merged --weights $weights
    cmp of_$weights of_merged || fail "$weights: the merged model answers otherwise"
done
ok export adapter again --merge
cmp merged/model.safetensors again/model.safetensors || fail 'base and adapter merge to another model'

# A job goes on from the adapter: at rate 0 it comes back as it was.
sed 's/lora: {.*\]}/lora: {path: adapter}/' lora.yaml >on.yaml
ok run on.yaml --no-plot --set strategy.optimizer.lr=0 --set train.max_steps=1 --set train.checkpoint_interval=0
ok export runs/on/ddp back
cmp adapter/adapter_model.safetensors back/adapter_model.safetensors || fail 'another adapter came back'

# peft and transformers open what was written.
python=${EXO_PEFT_PYTHON:-python3}
if "$python" -c 'import peft' 2>/dev/null; then
    "$python" "$EXO_SOURCE/tests/golden/adapters.py" --check adapter merged of_run >said 2>&1 || fail "$(cat said)"
fi

# --- Makers and trainers
# -------------------------------------------------------------------------------------------------------------

example=$EXO_SOURCE/examples/07_ppo_text_1m1t/1m1t.yaml
lora=(--set 'actors.maker.config.model.lora={rank: 4}' --set 'actors.trainer.config.model.lora={rank: 4}')
for weights in fp32 int8; do
    ok run "$example" --name ppo_$weights "${lora[@]}" --set actors.maker.config.epochs=4 --set actors.maker.config.weights=$weights
done
[ "$(cut -d, -f8 runs/ppo_fp32/versions_trainer_0.csv | sort -u)" = "$(printf '\n0\nratio_off' | sort)" ] ||
    fail 'a maker with LoRA samples other probabilities than the trainer computes'
[ "$(cut -d, -f3 runs/ppo_fp32/versions_trainer_0.csv | sort -u | wc -l)" -gt 3 ] || fail 'the trainer learns nothing'

[ ! -e runs/ppo_fp32/adapter_trainer_0 ] || fail 'an adapter whose base is no directory'

# What trainers have learned, as an adapter and merged.
model="{name: gpt, path: base, lora: {rank: 2, layers: 'attention.*'}}"
ok run "$example" --name ppo_based --set "actors.maker.config.model=$model" --set "actors.trainer.config.model=$model" \
    --set actors.maker.config.epochs=4
cat >sft.yaml <<END
exogym: 1
name: sft
actors:
  sft: {class: sft_trainer, config: {model: $model, data: {text: text.txt, block: 16, tokenizer: base}, steps: 2}}
edges: []
END
ok run sft.yaml
for trained in ppo_based/trainer_0 sft/sft_0; do
    folder=runs/${trained%/*} actor=${trained#*/}
    ok export "$folder/adapter_$actor" "merged_$actor" --merge
    cmp "merged_$actor/model.safetensors" "$folder/model_$actor/model.safetensors" || fail "the adapter of $trained is not its model"
    cmp -s base/model.safetensors "merged_$actor/model.safetensors" && fail "$trained has learned nothing"
    bad 1 "name one of adapter_$actor, model_$actor in it" export "$folder" whole
done

# --- Mistakes
# -------------------------------------------------------------------------------------------------------------

bad 2 "lora: no layer matches 'attention.q'; those of blocks.0 are attention.qkv" run lora.yaml --name w --set model.lora.layers=attention.q
bad 2 "did you mean 'rank'" run lora.yaml --name w --set model.lora.rnk=4
bad 2 "'rank' cannot be set beside 'path'" run lora.yaml --name w --set model.lora.path=adapter
bad 2 'an adapter is one file of fp32; --dtype is for the whole model: add --merge' export $run x --dtype bf16
bad 2 '--merge: the model of base has no LoRA' export base x --merge
bad 2 'the folder has a model, and an adapter needs its own' export $run merged
bad 2 'the folder has an adapter, and a model needs its own' export $run adapter --merge
ok run base.yaml --no-plot --name drawn --set 'model.lora={rank: 2}'
bad 2 'the base of this LoRA was drawn from a seed' export runs/drawn/ddp x
ok export runs/drawn/ddp x --merge
rm -r base
bad 1 "its base '$PWD/base' is no Hugging Face directory here" generate --model adapter --prompt x
finish
