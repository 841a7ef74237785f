#!/usr/bin/env bash
# Text from a trained language model: of a run, a checkpoint and a Hugging Face directory, the same
# each time.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

fox_text 200
cat >lm.yaml <<'END'
model: {name: gpt, layers: 2, heads: 4, width: 32, context: 32}
data: {name: text, path: text.txt, block: 32}
nodes: 2
train: {max_steps: 20, batch_size: 8, val_size: 8, val_interval: 0, checkpoint_interval: 10}
strategy: {name: ddp, optimizer: {name: adamw, lr: 3e-3}}
END
ok run lm.yaml --no-plot
run=runs/lm/ddp

# The prompt and 20 characters, and the same again with one thread.
ok generate --model $run --prompt 'line 5' --max-new-tokens 20
[ "$(head -c 6 out)" = 'line 5' ] || fail "it does not begin with the prompt: $(cat out)"
[ "$(wc -m <out)" = 27 ] || fail "6 characters, 20 new ones and a line's end are not $(wc -m <out)"
cp out first
EXOGYM_THREADS=1 ok generate --model $run --prompt 'line 5' --max-new-tokens 20
cmp out first || fail 'one thread gives another text'
ok generate --model $run --prompt 'line 5' --max-new-tokens 20 --seed 2
! cmp -s out first || fail 'another seed gives the same text'

# The run's folder is enough: the text that it learned from may be gone.
mv text.txt gone.txt
ok generate --model $run --prompt 'line 5' --max-new-tokens 20
cmp out first || fail 'without the data it is another text'
mv gone.txt text.txt

# Damage is found before a word is said: in the model, in a checkpoint, in the newest of a run that
# has no model.
flip() { # FILE OFFSET: the byte there becomes another
    printf "\\$(printf %o $(($(od -An -tu1 -j "$2" -N 1 "$1") ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
cp -r runs/lm damaged
size=$(stat -c %s $run/model.safetensors)
for at in $((size - 1)) $((size / 2)); do
    flip damaged/ddp/model.safetensors $at
    bad 1 'damaged/ddp/model.safetensors: is damaged' generate --model damaged/ddp --prompt x
    bad 1 'damaged/ddp/model.safetensors: is damaged' export damaged/ddp exported
    has err '; once it is removed, the newest checkpoint is taken'
    flip damaged/ddp/model.safetensors $at
done
rm damaged/ddp/model.safetensors
ok generate --model damaged/ddp --prompt 'line 5' --max-new-tokens 20
cmp out first || fail 'the newest checkpoint gives another text'
flip damaged/ddp/checkpoints/step_00000020/node_1.safetensors 5000
bad 1 'step_00000020/node_1.safetensors: is damaged' generate --model damaged/ddp --prompt x
has err 'damaged/ddp/checkpoints/step_00000010 is older and intact'
bad 1 'step_00000020/node_1.safetensors: is damaged' generate --model damaged/ddp/checkpoints/step_00000020 --prompt x
ok generate --model damaged/ddp/checkpoints/step_00000010 --prompt x

# Of the last checkpoint, of the exported model, and from a file: the same.
ok generate --model $run/checkpoints/step_00000020 --prompt 'line 5' --max-new-tokens 20
cmp out first || fail 'the last checkpoint gives another text'
ok export $run model
ok generate --model model --prompt 'line 5' --max-new-tokens 20
cmp out first || fail 'the exported model gives another text'
printf 'line 5' >prompt
ok generate --model $run --prompt-file prompt --max-new-tokens 20
cmp out first || fail 'the prompt in a file gives another text'

# Sample 1 does not depend on how many there are; more than are generated at once, too.
ok generate --model $run --prompt 'line 5' --max-new-tokens 5 --samples 20
[ "$(grep -c '^--- ' out)" = 20 ] || fail "20 samples: $(cat out)"
[ "$(sed -n '/^--- 1$/,/^--- 2$/p' out | sed '1d;$d')" = "$(head -c 11 first)" ] || fail "sample 1: $(cat out)"

# The device: its name changes nothing, and another one is an error.
ok generate --model $run --prompt 'line 5' --max-new-tokens 20 --device cpu
cmp out first || fail 'the CPU by its name gives another text'
bad 2 "--device: there is no device 'abacus'; known are: auto, cpu, cuda, mps" generate --model $run --prompt x --device abacus
ok list devices
has out 'cpu '

# Why it ends.
ok generate --model $run --prompt 'line 5' --max-new-tokens 100
has err 'the context of 32 tokens is full'
ok generate --model $run --prompt 'line 5' --temperature 0 --json --max-new-tokens 7 --weights int8
has out '"finish": "length"'
has out '"new_tokens": 7'
python3 - out <<'END' || fail "the log-probabilities are not one a token, or their sums are others: $(cat out)"
import json, sys
sample = json.load(open(sys.argv[1]))["samples"][0]
for key in ("log_prob", "plain_log_prob"):
    each = sample[key + "s"]
    assert len(each) == len(sample["tokens"]) == 7 and all(p <= 0 for p in each), key
    assert abs(sum(each) - sample[key]) < 1e-6, key
END
ok generate --model $run --prompt 'line 5' --temperature 0 --json --max-new-tokens 20
stop=$(grep -o '"text": ".*"' out | head -1 | cut -c 14-15)
ok generate --model $run --prompt 'line 5' --temperature 0 --json --max-new-tokens 20 --stop "$stop" --weights fp32
has out '"finish": "stop"'

# The prompt stands there once, also while all of the text may be the beginning of a stop text, or
# where the stop text comes at once.
ok generate --model $run --prompt 'line 5' --temperature 0 --max-new-tokens 20
cp out greedy
begin=$(head -c 14 greedy | tail -c 8)
ok generate --model $run --prompt 'line 5' --temperature 0 --max-new-tokens 20 --stop "$begin@"
cmp out greedy || fail "with a stop text that does not occur it is another text: $(cat out)"
ok generate --model $run --prompt 'line 5' --temperature 0 --max-new-tokens 20 --stop "${begin:0:2}" --samples 2
[ "$(cat out)" = $'--- 1\nline 5\n--- 2\nline 5' ] || fail "two texts that end at once: $(cat out)"

# An answer's first word keeps the space before it, which SentencePiece's decoders leave out at the
# beginning of a text.
ok run lm.yaml --no-plot --name pieces --set data.tokenizer="$EXO_SOURCE/tests/golden/tokenizers/llama2" --set train.max_steps=2
ok generate --model runs/pieces/ddp --prompt 'The' --temperature 1 --top-k 0 --max-new-tokens 2 --samples 40 --json
python3 - out "$EXO_SOURCE/tests/golden/tokenizers/llama2/tokenizer.json" <<'END' || fail "texts are not those of their tokens: $(cat out)"
import json, sys
answer, file = (json.load(open(path)) for path in sys.argv[1:])
spelled = {number: token for token, number in file["model"]["vocab"].items()}
spaces = 0
for sample in answer["samples"]:
    text = "".join(spelled[t] for t in sample["tokens"]).replace("\u2581", " ")
    if "<" not in text: # bytes and special tokens
        assert sample["text"] == text, (sample["text"], text)
        spaces += text[0] == " "
assert spaces > 0
END

# Mistakes.
bad 2 'top-k' generate --model $run --prompt x --top-k -3
bad 2 'twice' generate --model $run --prompt x --prompt-file prompt
bad 1 'is no run' generate --model nowhere --prompt x
bad 2 'the prompt: ' generate --model $run --prompt 'Ω'
bad 2 'no room' generate --model $run --prompt-file text.txt
bad 2 'prompt TEXT is missing' generate --model $run
mv text.txt elsewhere.txt
rm $run/tokenizer.json
bad 1 'tokenizer' generate --model $run --prompt x
ok generate --model $run --prompt 'line 5' --max-new-tokens 20 --tokenizer model
cmp out first || fail 'a tokenizer that is named gives another text'

finish
