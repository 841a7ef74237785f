#!/usr/bin/env bash
# Training without validation, and a val_size beyond the set: the whole set is looked at, and that
# is said.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
sed -i '/^compare:/d; /^presets:/d; s/^strategy: {/strategy: {name: ddp, /' job.yaml

# 256 samples to train on, 64 to validate: 0 and 64 and more than that are the same.
for size in 0 64 65 100000; do
    ok run job.yaml --overwrite --set train.val_size=$size --no-plot --json
    json out global_loss >loss.$size
    cmp -s loss.0 loss.$size || fail "val_size $size: another loss than the whole set's"
    [ "$size" -le 64 ] || has err "val_size $size is more than the validation set has: its 64 samples are used"
done
ok run job.yaml --overwrite --set train.val_size=65 --no-plot --workers 2 --json
[ "$(json out global_loss)" = "$(cat loss.0)" ] || fail 'val_size beyond the set: another loss on workers'

# None: no evaluation, no figures of one, no picture; the same parameters.
ok run job.yaml --overwrite --no-plot --json
sha256=$(json out sha256)
for where in '' '--workers 2'; do
    rm -rf runs
    # shellcheck disable=SC2086
    ok run job.yaml --overwrite --set train.val_size=none $where
    has out 'ddp                -            -'
    has err 'training loss '
    if grep -q picture out err; then fail "a picture of nothing: $(cat out err)"; fi
    [ "$(wc -l <runs/small/ddp/validation.csv)" = 1 ] || fail "evaluated: $(cat runs/small/ddp/validation.csv)"
    has runs/small/ddp/config.json '"val_size": "none"'
    [ "$(json runs/small/ddp/result.json sha256)" = "$sha256" ] || fail "$where: other parameters without evaluations"
done
ok run job.yaml --set train.val_size=none --set train.minibatch_size=auto --dry-run

# A text of which no part is left to validate on.
seq 1 300 >text.txt
cat >text.yaml <<'END'
model: {name: gpt, layers: 1, heads: 2, width: 16, context: 32}
data: {name: text, path: text.txt, block: 32, end_pc: 1, val_start_pc: 1}
nodes: 2
train: {max_steps: 2, batch_size: 4, val_size: none}
strategy: ddp
END
ok run text.yaml
has err 'training loss '
rm runs/text/ddp/tokenizer.json # then the run's data have the tokenizer
ok generate --model runs/text/ddp --prompt 1 --max-new-tokens 1
"$EXOGYM" run text.yaml --set train.val_size=8 >out 2>err && fail 'an empty part to validate on is accepted'
"$EXOGYM" run text.yaml --set train.val_size=8 --set data.val_start_pc=0.99 >out 2>err && fail 'a part shorter than a block is accepted'
has err 'a job with val_size: none needs no such part'
expect 2 "exogym: --set train.val_size: val_size: expected an integer, got 'nothing'" run job.yaml --set train.val_size=nothing
finish
