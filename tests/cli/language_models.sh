#!/usr/bin/env bash
# The examples of language models run, on a text of the test's own.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

for i in $(seq 200); do
    printf 'line %d of a text that is learned from, %d\n' "$i" $((i * 7 % 13))
done >text.txt
small=(--set data.path=text.txt --set data.block=32 --set 'model={name: gpt, layers: 1, heads: 2, width: 16, context: 32}')

ok run "$EXO_SOURCE/examples/02_nanogpt/nanogpt.yaml" "${small[@]}" --preset quick --set train.max_steps=3 --set train.val_size=8 --set train.val_interval=0 --no-plot
for label in ddp diloco sparta fedavg; do
    has out "$label"
    [ -s runs/nanogpt/$label/tokenizer.json ] || fail "$label: no tokenizer"
done
has out 'global perplexity'
has err ', perplexity '
ok generate --model runs/nanogpt/fedavg --prompt line --max-new-tokens 5

ok run "$EXO_SOURCE/examples/04_generate/shakespeare.yaml" "${small[@]}" --preset quick --set train.max_steps=2 --set train.val_size=8 --no-plot

EXOGYM=$EXOGYM "$EXO_SOURCE/examples/03_diloco_scaling/run.sh" --ks '0 1 2' --steps 2 --h 1 --batch 4 --save-dir scaling data.path=text.txt data.block=32 \
    'model={name: gpt, layers: 1, heads: 2, width: 16, context: 32}' train.val_size=8 >out 2>err || {
    command -v gnuplot >/dev/null && fail "run.sh ended with $?: $(tail -3 err)"
}
[ "$(grep -c '^[012]  ' out)" = 3 ] || fail "run.sh: $(cat out)"
"$EXO_SOURCE/examples/03_diloco_scaling/run.sh" --ks 3 --batch 4 >out 2>err && fail 'a batch of 4 for 3 nodes is no error'
has err 'a batch of 4 sequences cannot be shared out to 3 nodes'
finish
