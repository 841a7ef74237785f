#!/usr/bin/env bash
# Files of a Hugging Face directory: what lies beside the weights is carried or named, how it wants
# texts generated is done, and what cannot be read says what to do.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

# value FILE EXPRESSION: of the JSON `d`.
value() {
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$1" "$2"
}

fox_text 200
cat >lm.yaml <<'END'
model: {name: gpt, layers: 2, heads: 4, width: 32, context: 64, vocabulary: 300}
data: {name: text, path: text.txt, block: 32}
train: {max_steps: 4, batch_size: 8, val_size: 8, val_interval: 0}
strategy: {name: ddp, optimizer: {name: adamw, lr: 3e-3}}
END
ok run lm.yaml --no-plot
ok export runs/lm/ddp model

# --- Everything but weights goes along
# ----------------------------------------------------------------------------------

printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}' >model/chat_template.jinja
printf '# A model' >model/README.md
mkdir -p model/additional_chat_templates model/onnx model/.git
printf 'tools' >model/additional_chat_templates/tools.jinja
printf 'weights' >model/onnx/model.onnx
printf 'weights' >model/pytorch_model.bin
printf '{"onnx": 1}' >model/onnx/settings.json
printf 'x' >model/.git/HEAD
printf '.bin lfs' >model/.gitattributes
mkfifo model/pipe
printf '{"temperature": 0.5, "eos_token_id": [1, 2]}' >model/generation_config.json
ok export model again
for file in chat_template.jinja README.md additional_chat_templates/tools.jinja onnx/settings.json .gitattributes generation_config.json \
    tokenizer.json tokenizer_config.json; do
    cmp model/$file again/$file || fail "$file was not carried"
done
for file in pytorch_model.bin onnx/model.onnx .git/ pipe; do
    has err "$file"
    [ ! -e "again/$file" ] || fail "$file was carried"
done
has err 'exogym: left out: '
grep -q 'config.json\|safetensors' err && fail "what is written anew is said to be left out: $(cat err)"
ok export again again
[ ! -s err ] || fail "a directory onto itself: $(cat err)"
cmp model/chat_template.jinja again/chat_template.jinja || fail 'a directory onto itself lost a file'

# A run that began there, whose data have the tokenizer: the template goes along as well.
cat >more.yaml <<'END'
model: {name: gpt, path: model}
data: {name: text, path: text.txt, block: 32, tokenizer: model}
train: {max_steps: 1, batch_size: 8, val_size: 8, val_interval: 0}
strategy: {name: ddp, optimizer: {name: sgd, lr: 0}}
END
ok run more.yaml --no-plot
ok export runs/more/ddp of_run
cmp model/chat_template.jinja of_run/chat_template.jinja || fail 'a run lost the chat template of its directory'
cmp model/generation_config.json of_run/generation_config.json || fail 'a run lost the generation_config.json of its directory'
# Of the tokenizer alone: a run from scratch with it, and --tokenizer.
cat >scratch.yaml <<'END'
model: {name: gpt, layers: 1, heads: 2, width: 8, context: 32}
data: {name: text, path: text.txt, block: 32, tokenizer: model}
train: {max_steps: 1, batch_size: 8, val_size: 8, val_interval: 0}
strategy: {name: ddp, optimizer: {name: sgd, lr: 0.1}}
END
ok run scratch.yaml --no-plot
ok export runs/scratch/ddp of_scratch
cmp model/chat_template.jinja of_scratch/chat_template.jinja || fail "a run lost its tokenizer's chat template"
ok export runs/lm/ddp named --tokenizer model
cmp model/chat_template.jinja named/chat_template.jinja || fail "--tokenizer lost the tokenizer's chat template"
cmp model/tokenizer_config.json named/tokenizer_config.json || fail '--tokenizer lost tokenizer_config.json'
ok export runs/lm/ddp named
[ ! -e named/chat_template.jinja ] || fail 'the chat template of another tokenizer stayed'

# --- generation_config.json
# ----------------------------------------------------------------------------------------------

sampling() {
    value out "d['sampling']['$1']"
}
cat >model/generation_config.json <<'END'
{"do_sample": true, "temperature": 0.25, "top_p": 0.75, "top_k": 7, "repetition_penalty": 1.5, "max_new_tokens": 9,
 "bos_token_id": 3, "eos_token_id": [5, 6, 900], "pad_token_id": 0, "num_beams": 4, "transformers_version": "5.0"}
END
ok generate --model model --prompt 'line 5' --json
for pair in temperature:0.25 top_p:0.75 top_k:7 repetition_penalty:1.5 max_new_tokens:9 'end_tokens:[5, 6]'; do
    [ "$(sampling "${pair%%:*}")" = "${pair#*:}" ] || fail "${pair%%:*} is $(sampling "${pair%%:*}") instead of ${pair#*:}"
done
has err 'exogym: model/generation_config.json: is not done here: num_beams'
ok generate --model runs/more/ddp --prompt 'line 5' --json
[ "$(sampling temperature)" = 0.25 ] || fail 'a run does not know how its directory wants texts generated'
ok generate --model model --prompt 'line 5' --json --temperature 0.9 --top-k 0 --top-p 1 --repetition-penalty 1 --max-new-tokens 3
for pair in temperature:0.9 top_p:1.0 top_k:0 repetition_penalty:1.0 max_new_tokens:3; do
    [ "$(sampling "${pair%%:*}")" = "${pair#*:}" ] || fail "the option ${pair%%:*} does not count"
done
ok generate --model model --json --seed 5
[ "$(value out "d['prompt_tokens']")" = 1 ] || fail 'bos_token_id does not begin a text'

# Every one of several end tokens ends a text: all tokens but one are.
printf '{"eos_token_id": [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]}' >model/generation_config.json
for seed in 1 2 3 4; do
    ok generate --model model --prompt 'line 5' --json --seed $seed --temperature 5 --top-k 0 --max-new-tokens 50
    [ "$(value out "[s for s in d['samples'] if s['finish'] == 'stop' and 4 <= s['tokens'][-1] <= 19] != []")" = True ] ||
        fail "no end token ended it: $(cat out)"
    [ "$(value out "any(4 <= t <= 19 for t in d['samples'][0]['tokens'][:-1])")" = False ] || fail "it went on: $(cat out)"
done
printf '{"do_sample": false}' >model/generation_config.json
ok generate --model model --prompt 'line 5' --json --max-new-tokens 3
[ "$(sampling temperature)" = 0.0 ] || fail 'do_sample false draws'
ok generate --model model --prompt 'line 5' --json --max-new-tokens 3 --top-k 5
[ "$(sampling temperature)" = 0.8 ] || fail '--top-k does not draw'

# Older directories say it in config.json; the export writes a generation_config.json of it.
rm model/generation_config.json
python3 - <<'END'
import json
d = json.load(open("model/config.json"))
d.update(eos_token_id=7, bos_token_id=3, temperature=0.5)
json.dump(d, open("model/config.json", "w"))
END
ok generate --model model --prompt 'line 5' --json --max-new-tokens 3
[ "$(sampling temperature)$(sampling end_tokens)" = '0.5[7]' ] || fail "config.json does not count: $(cat out)"
ok export model older
[ "$(value older/generation_config.json "d['eos_token_id'], d['bos_token_id']")" = '(7, 3)' ] || fail 'end tokens of config.json are lost'

for wrong in '"temperature": "hot"' '"temperature": -1' '"top_p": 2' '"top_k": 1.5' '"eos_token_id": ["a"]' '"eos_token_id": -2' \
    '"do_sample": 1' '"max_new_tokens": 0'; do
    printf '{%s}' "$wrong" >model/generation_config.json
    bad 1 'model/generation_config.json: "' generate --model model --prompt x
    has err 'is wrong: expected'
done
printf '{' >model/generation_config.json
bad 1 'model/generation_config.json:1:' generate --model model --prompt x
rm model/generation_config.json

# --- Prompts
# -------------------------------------------------------------------------------------------------------------

printf 'line \xff5' >bytes
cp -r model broken
: >broken/model.safetensors # whatever is wrong with the prompt is said before the weights are read
bad 2 "exogym: bytes: is not UTF-8 at byte 5" generate --model broken --prompt-file bytes --json
bad 2 "exogym: --prompt: is not UTF-8 at byte 0" generate --model broken --prompt $'\xc3' --json
ok generate --model model --prompt-file bytes --tokenizer bytes --max-new-tokens 3
printf 'line\0 5' >zero
ok generate --model model --prompt-file zero --tokenizer bytes --max-new-tokens 3 --json
[ "$(value out "repr(d['prompt'])")" = "'line\\x00 5'" ] || fail "a prompt with a 0 byte was cut: $(cat out)"

# --- Tokenizers
# ----------------------------------------------------------------------------------------------------------

cp -r model other
rm other/tokenizer.json
printf 'x' >other/tokenizer.model
bad 1 'other/tokenizer.model (SentencePiece) is not read' generate --model other --prompt x
has err 'save_pretrained'
bad 1 'other/tokenizer.model (SentencePiece) is not read' data tokenize text.txt --tokenizer other/tokenizer.model -o shards

# vocab.json with merges.txt give the tokens of the tokenizer.json that they stand for, and are said
# to be a tokenizer when exported.
pair() {
    mkdir -p "$2"
    python3 - "$EXO_SOURCE/tests/golden/tokenizers/$1/tokenizer.json" "$2" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
vocab = d["model"]["vocab"]
for token in d["added_tokens"]:
    vocab.setdefault(token["content"], token["id"])
json.dump(vocab, open(sys.argv[2] + "/vocab.json", "w"))
merges = [m if isinstance(m, str) else " ".join(m) for m in d["model"]["merges"]]
open(sys.argv[2] + "/merges.txt", "w").write("#version: 0.2\n" + "\n".join(merges) + "\n")
END
}
tr -d '\0' <"$EXO_SOURCE/tests/golden/tokenizers/corpus.bin" >corpus.txt
pair gpt2 gpt2
pair opt opt
printf '{"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true, "add_bos_token": true, "bos_token": "</s>", "eos_token": "</s>",
    "unk_token": "<unk>", "pad_token": "<pad>", "additional_special_tokens": ["<s>"]}' >opt/tokenizer_config.json
for name in gpt2 opt; do
    ok data tokenize corpus.txt --tokenizer "$EXO_SOURCE/tests/golden/tokenizers/$name" -o "$name.golden" --documents ignore
    ok data tokenize corpus.txt --tokenizer $name -o $name.pair --documents ignore
    ok data tokenize corpus.txt --tokenizer $name.pair -o $name.saved --documents ignore
    for of in golden saved; do
        cmp <(tail -c +129 $name.$of/shard-000000.tokens) <(tail -c +129 $name.pair/shard-000000.tokens) ||
            fail "$name: vocab.json and merges.txt give other tokens than the $of tokenizer.json"
    done
done
[ -s opt.pair/tokenizer_config.json ] || fail 'shards do not have what was beside their tokenizer'
printf 'a b c\n' >>gpt2/merges.txt
bad 1 "gpt2/merges.txt:$(wc -l <gpt2/merges.txt): two tokens with a space between them" data tokenize corpus.txt --tokenizer gpt2 -o x
printf '{"tokenizer_class": "Qwen2Tokenizer"}' >opt/tokenizer_config.json
bad 1 "of 'Qwen2Tokenizer': write a tokenizer.json" data tokenize corpus.txt --tokenizer opt -o x
rm opt/merges.txt
bad 1 'opt/vocab.json (without a merges.txt) is not read' data tokenize corpus.txt --tokenizer opt -o x

# tokenizer_config.json against tokenizer.json.
warns() {
    cp "$EXO_SOURCE/tests/golden/tokenizers/$1/tokenizer.json" against/
    printf '%s' "$2" >against/tokenizer_config.json
    rm -rf x
    ok data tokenize text.txt --tokenizer against -o x
    if [ -n "$3" ]; then has err "$3"; else [ ! -s err ] || fail "a warning of what agrees: $(cat err)"; fi
}
mkdir against
warns gpt2 '{"add_bos_token": true}' 'add_bos_token is true, but tokenizer.json, which counts, puts nothing before a text'
warns llama2 '{"add_bos_token": false}' 'add_bos_token is false, but tokenizer.json, which counts, puts a token before a text'
warns gpt2 '{"add_prefix_space": true}' 'add_prefix_space is true, but tokenizer.json, which counts, has it false'
warns gpt2 '{"tokenizer_class": "BertTokenizerFast"}' "tokenizer_class is 'BertTokenizerFast', WordPiece"
warns gpt2 '{"added_tokens_decoder": {"3": {"content": "<|endoftext|>", "special": true}}}' "gives '<|endoftext|>' the number 3; tokenizer.json, which counts, 700"
warns gpt2 '{"added_tokens_decoder": {"700": {"content": "<|endoftext|>", "special": false}}}' 'is not special; tokenizer.json, which counts, does not'
warns gpt2 '{"added_tokens_decoder": {"701": {"content": "<new>", "special": true}}}' "'<new>' with the number 701, which tokenizer.json does not have"
warns gpt2 '{"add_bos_token": false, "add_prefix_space": false, "tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>",
    "added_tokens_decoder": {"700": {"content": "<|endoftext|>", "special": true}}}' ''
printf '{"eos_token": "a"}' >against/special_tokens_map.json
warns gpt2 '{"eos_token": "<|endoftext|>"}' "eos_token is 'a', but tokenizer_config.json, which counts, says something else"

# --- Data of a larger vocabulary than the model's are found before anything is trained
# -------------------------------------

python3 - <<'END'
import struct
tokens = [i % 40 for i in range(20000)]
for name, at in (("early", 100), ("late", 17900), ("val", 19990), ("none", None)):
    mine = list(tokens)
    if at is not None:
        mine[at] = 300
    open(name + ".bin", "wb").write(struct.pack("<%dH" % len(mine), *mine))
END
for name in early late val; do
    cat >vocabulary.yaml <<END
model: {name: gpt, path: model}
data: {name: tokens, path: $name.bin, dtype: uint16, block: 32}
train: {max_steps: 1, batch_size: 8, val_size: 8, val_interval: 0}
strategy: {name: ddp, optimizer: {name: sgd, lr: 0.1}}
END
    bad 2 "$name.bin: the token 300 at byte " run vocabulary.yaml --no-plot
    has err "is not in the model's vocabulary of 300"
    has err 'vocabulary.yaml:'
    [ ! -e runs/vocabulary ] || fail 'something was trained'
done
sed -i 's/val.bin/none.bin/' vocabulary.yaml
ok run vocabulary.yaml --no-plot
# Shards say their vocabulary: if it is larger, what counts are the tokens that occur.
ok data tokenize corpus.txt --tokenizer "$EXO_SOURCE/tests/golden/tokenizers/gpt2" -o shards
sed -i 's/path: none.bin, dtype: uint16/path: shards/' vocabulary.yaml
bad 2 "shards/shard-000000.tokens: the token " run vocabulary.yaml --no-plot --name shards
sed -i 's/name: tokens, path: shards/name: text, path: corpus.txt, tokenizer: shards/' vocabulary.yaml
bad 2 "which is not in the model's vocabulary of 300" run vocabulary.yaml --no-plot --name text

# --- Damaged files end with 1: neither the command line nor the job is wrong
# ------------------------------------------------

damaged() {
    bad 1 "$1" generate --model damaged --prompt x
    bad 1 "$1" export damaged x
    bad 1 "$1" run damaged.yaml --no-plot --name damaged
    rm -rf damaged
    cp -r model damaged
}
rm -rf model/pipe
sed 's/path: model/path: damaged/' more.yaml >damaged.yaml
cp -r model damaged
head -c 1000 model/model.safetensors >damaged/model.safetensors
damaged 'damaged/model.safetensors: is truncated'
has err ': fetch it again'
printf x | dd of=damaged/model.safetensors bs=1 seek=9 conv=notrunc status=none
damaged 'damaged/model.safetensors: '
printf x >>damaged/model.safetensors
damaged "its last 1 bytes belong to no tensor"
printf '{' >damaged/config.json
damaged 'damaged/config.json'
sed -i 's/"n_layer": 2/"n_layer": 3/' damaged/config.json
damaged 'has no tensor'
sed -i 's/"n_embd": 32/"n_embd": "x"/' damaged/config.json
damaged 'n_embd'
printf '{' >damaged/tokenizer.json
bad 1 'damaged/tokenizer.json' generate --model damaged --prompt x
bad 1 'damaged/tokenizer.json' run scratch.yaml --no-plot --name damaged --set data.tokenizer=damaged
head -c 200 shards/shard-000000.tokens >cut.tokens
bad 1 'cut.tokens: is truncated' run vocabulary.yaml --no-plot --name cut --set data='{name: tokens, path: cut.tokens, block: 8}'
bad 1 'nowhere' run vocabulary.yaml --no-plot --name gone --set model.path=nowhere

# --- A reason is said, whatever the value
# ----------------------------------------------------------------------------------

cp -r "$EXO_SOURCE/tests/golden/decoders/llama" rope
python3 - <<'END'
import json
d = json.load(open("rope/config.json"))
d.pop("rope_parameters", None)
d["rope_scaling"] = {"long_factor": [1.0] * 64, "short_factor": [1.0] * 64, "type": "longrope"}
json.dump(d, open("rope/config.json", "w"))
END
bad 1 '"rope_scaling.type": "longrope" is not supported: expected default, linear or llama3' export rope x
python3 - <<'END'
import json
d = json.load(open("rope/config.json"))
d["rope_scaling"] = {"type": "linear", "factor": 2.0, "beta": 1}
json.dump(d, open("rope/config.json", "w"))
d["rope_scaling"] = None
d["layer_norms"] = ["x" * 300]
END
bad 1 '"rope_scaling.beta" is not supported: the key is unknown' export rope x
python3 - <<'END'
import json
d = json.load(open("rope/config.json"))
d["rope_scaling"] = None
d["hidden_act"] = "x" * 3000
json.dump(d, open("rope/config.json", "w"))
END
bad 1 'is not supported: expected gelu_new' export rope x
has err '"hidden_act": "xxxxxxxxxx'
finish
