#!/usr/bin/env bash
# generate and export take the same tokenizer; what belongs to another one (files, numbers of
# tokens) is neither taken nor left behind.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

bad_line() { # STATUS TEXT ARGUMENTS...: bad, and nothing else is said
    bad "$@"
    [ "$(wc -l <err)" = 1 ] || fail "exogym ${*:3}: more than a line: $(cat err)"
}
sampling() { # KEY: of the last generate --json
    python3 -c 'import json, sys; print(json.load(open("out"))["sampling"][sys.argv[1]])' "$1"
}

fox_text 100
cat >lm.yaml <<'END'
model: {name: gpt, layers: 1, heads: 2, width: 16, context: 48, vocabulary: 300}
data: {name: text, path: text.txt, block: 16}
train: {max_steps: 1, batch_size: 4, val_size: 8, val_interval: 0}
strategy: {name: ddp, optimizer: {name: sgd, lr: 0.1}}
END
ok run lm.yaml --no-plot
ok export runs/lm/ddp model
printf '{"temperature": 0.25, "bos_token_id": 3, "eos_token_id": [5, 6]}' >model/generation_config.json
printf '{{ messages }}' >model/chat_template.jinja
printf '{}' >model/added_tokens.json
mkdir model/additional_chat_templates
printf 'tools' >model/additional_chat_templates/tools.jinja
cat >same.yaml <<'END'
model: {name: gpt, path: model}
data: {name: text, path: text.txt, block: 16, tokenizer: model}
train: {max_steps: 1, batch_size: 4, val_size: 8, val_interval: 0}
strategy: {name: ddp, optimizer: {name: sgd, lr: 0.1}}
END
sed 's/tokenizer: model/tokenizer: bytes/' same.yaml >other.yaml
ok run same.yaml --no-plot
ok run other.yaml --no-plot

# --- Numbers of tokens are the tokenizer's that they were written for
# -----------------------------------------------------

numbers="exogym: model/generation_config.json: bos_token_id and eos_token_id do not count: they are another tokenizer's"
ok generate --model model --prompt line --json
[ "$(sampling end_tokens)" = '[5, 6]' ] || fail "a directory's end tokens: $(sampling end_tokens)"
if grep -q 'do not count' err; then fail "its own numbers do not count: $(cat err)"; fi
ok generate --model runs/same/ddp --prompt line --json
[ "$(sampling end_tokens)" = '[5, 6]' ] || fail "end tokens of a run with the directory's tokenizer: $(sampling end_tokens)"
for from in 'runs/other/ddp' 'model --tokenizer bytes'; do
    # shellcheck disable=SC2086
    ok generate --model $from --prompt line --json
    [ "$(sampling end_tokens)$(sampling temperature)" = '[]0.25' ] || fail "$from: ends at $(sampling end_tokens), which are others' numbers"
    has err "$numbers"
done
# The same tokenizer, laid out otherwise, is the same.
mkdir laid_out
python3 -c 'import json; json.dump(json.load(open("model/tokenizer.json")), open("laid_out/tokenizer.json", "w"), indent=7)'
ok generate --model model --prompt line --json --tokenizer laid_out
[ "$(sampling end_tokens)" = '[5, 6]' ] || fail 'the same tokenizer in another file is taken for another'
# Of a directory whose own cannot be read, the one that is named is taken to be the model's.
cp -r model unread
rm unread/tokenizer.json
printf 'x' >unread/tokenizer.model
ok generate --model unread --prompt line --json --tokenizer laid_out
[ "$(sampling end_tokens)" = '[5, 6]' ] || fail 'numbers of a directory without a tokenizer.json do not count'

# --- One order, for both
# ----------------------------------------------------------------------------------------------------

same_text() { # MODEL OPTIONS...: the model and its export go on alike
    rm -rf copy
    ok export "$@" copy
    local option=()
    [ $# = 1 ] || option=(--tokenizer "$3")
    ok generate --model "$1" ${option[@]+"${option[@]}"} --prompt 'line 5' --max-new-tokens 8 --temperature 1 --top-k 0
    mv out first
    ok generate --model copy --prompt 'line 5' --max-new-tokens 8 --temperature 1 --top-k 0
    cmp first out || fail "$*: its export has another tokenizer"
}
same_text runs/same/ddp
same_text runs/other/ddp
[ ! -e copy/chat_template.jinja ] || fail "the chat template of another tokenizer is carried"
rm -rf copy
ok export runs/other/ddp copy
has err 'exogym: left out: added_tokens.json (another tokenizer'
for file in 'chat_template.jinja' 'tokenizer.json' 'generation_config.json' 'additional_chat_templates'; do
    has err "$file (another tokenizer's)"
done
same_text model --tokenizer bytes
has err 'exogym: '
rm -rf copy
ok export model copy --tokenizer bytes
has err "chat_template.jinja (another tokenizer's)"
[ "$(cat copy/generation_config.json)" = '{}' ] || fail "numbers of another tokenizer were carried: $(cat copy/generation_config.json)"
mv runs/same/ddp/tokenizer.json gone.json
same_text runs/same/ddp
mv text.txt gone.txt
bad_line 1 "the tokenizer comes from the run's data" generate --model runs/same/ddp --prompt line
ok export runs/same/ddp without
has err 'no tokenizer was written: '
has out 'without a tokenizer'
mv gone.txt text.txt

bad_line 1 'nowhere' export model unwritten --tokenizer nowhere
[ ! -e unwritten ] || fail 'something was written before the tokenizer was looked for'

# --- Nothing of an earlier export stays
# --------------------------------------------------------------------------------------

for second in 'runs/other/ddp' 'runs/lm/ddp --tokenizer bytes' "$EXO_SOURCE/tests/golden/decoders/opt"; do
    rm -rf twice once
    ok export model twice
    [ -s twice/additional_chat_templates/tools.jinja ] || fail 'chat templates were not carried'
    # shellcheck disable=SC2086
    ok export $second twice
    has err 'exogym: removed what another export left: '
    # shellcheck disable=SC2086
    ok export $second once
    if grep -q 'removed' err; then fail "a new folder had something to remove: $(cat err)"; fi
    diff -r once twice || fail "$second: an earlier export stays"
done
ok export model twice
ok export twice twice
[ ! -s err ] || fail "onto itself: $(cat err)"
diff -r model twice || fail 'onto itself it is another'

# --- generation_config.json: what does nothing, what is not done
# --------------------------------------------------------------

says() { # JSON KEY VALUE [NOT_DONE]
    printf '%s' "$1" >model/generation_config.json
    ok generate --model model --prompt line --json --max-new-tokens 3
    [ "$(sampling "$2")" = "$3" ] || fail "$1: $2 is $(sampling "$2") instead of $3"
    if [ -n "${4-}" ]; then
        has err "exogym: model/generation_config.json: is not done here: $4"
    elif grep -q 'not done' err; then
        fail "$1: $(cat err)"
    fi
}
says '{"top_k": -1}' top_k 0
says '{"top_p": 0}' top_p 1e-06
says '{"top_p": 0.0}' top_p 1e-06
says '{"eos_token_id": -1, "bos_token_id": -1, "pad_token_id": -1}' end_tokens '[]'
says '{"eos_token_id": [-1, 7]}' end_tokens '[7]'
says '{"min_length": 0, "no_repeat_ngram_size": 0, "num_beams": 1, "num_beam_groups": 1, "typical_p": 1.0, "epsilon_cutoff": 0.0,
    "encoder_repetition_penalty": 1.0, "penalty_alpha": 0, "min_p": null, "bad_words_ids": null, "suppress_tokens": [], "stop_strings": "",
    "renormalize_logits": true, "token_healing": false, "forced_eos_token_id": -1, "guidance_scale": 1}' top_k 40
for key in min_length min_new_tokens no_repeat_ngram_size min_p epsilon_cutoff penalty_alpha max_time; do
    says "{\"$key\": 1}" top_k 40 "$key"
done
for key in num_beams typical_p encoder_repetition_penalty forced_eos_token_id forced_bos_token_id guidance_scale; do
    says "{\"$key\": 0}" top_k 40 "$key"
done
says '{"token_healing": true, "suppress_tokens": [3]}' top_k 40 'token_healing, suppress_tokens'
# Of a config.json, as older directories have it.
rm model/generation_config.json
sed -i 's/"n_layer"/"min_length": 1, "no_repeat_ngram_size": 3, "n_layer"/' model/config.json
ok generate --model model --prompt line --json
has err 'exogym: model/config.json: is not done here: min_length, no_repeat_ngram_size'

# --- Adapters
# ------------------------------------------------------------------------------------------------------------------

printf '{}' >model/adapter_config.json
for command in 'generate --prompt x --model model' 'export model x' 'run same.yaml --no-plot --name adapted'; do
    # shellcheck disable=SC2086
    bad_line 1 'model/adapter_config.json: is of an adapter (LoRA), and not of a whole model' $command
done
mkdir lora
mv model/adapter_config.json lora
bad_line 1 "lora/adapter_config.json: is of an adapter (LoRA), and its base '' is no Hugging Face directory here" generate --prompt x --model lora
printf '{\n"r": }' >lora/adapter_config.json
bad_line 1 'lora/adapter_config.json:2:6: ' generate --prompt x --model lora
printf '[]' >lora/adapter_config.json
bad_line 1 'lora/adapter_config.json: is no JSON object' generate --prompt x --model lora
mkdir model/sub
cp lora/adapter_config.json model/sub
ok export model with_sub
has err 'sub/adapter_config.json (an adapter'
finish
