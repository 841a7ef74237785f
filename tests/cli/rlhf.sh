#!/usr/bin/env bash
# examples/32_rlhf in its quick form: an sft, a reward model and PPO, each from the model of the one
# before; the picture of score against KL; the same bits on workers; and what is wrong in such graphs.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
example=$EXO_SOURCE/examples/32_rlhf

# final RUN TRAINER KEY: a number or hash of a trainer's result.
final() {
    sed -n "s/.*\"$3\": \"\{0,1\}\([^\",}]*\).*/\1/p" "runs/$1/final_$2_0.json"
}

# A play: 3 speakers.
speakers=(KING QUEEN FOOL)
for ((i = 0; i < 200; i++)); do
    printf '%s:\nThe %d roses of my lord are sweet, and thou art fair. He sees them every day.\n\n' \
        "${speakers[i % 3]}" $((i * 7 % 13))
done >play.txt
EXOGYM=$EXOGYM "$example/run.sh" --quick play.txt >out 2>err || fail "run.sh: $(tail -3 err)"

# The policy begins as the sft's model, and its reference is that model.
version=runs/rlhf_ppo/versions_trainer_0.csv
[ "$(awk -F, '$1 == 0 { print $3 }' $version)" = "$(final rlhf_sft sft sha256)" ] || fail 'version 0 is not the model of the sft'
awk -F, '$1 == 1 { exit !($7 == 0) }' $version || fail 'the first answers have a KL from the reference'
[ "$(cut -d, -f8 $version | sort -u)" = "$(printf '\n0\nratio_off' | sort)" ] || fail 'a maker samples other probabilities'
"$EXO_SOURCE/tools/check_meters.py" --result runs/rlhf_reward/result.json || fail 'docs/meters.md does not have all meters'
for file in runs/rlhf_sft/model_sft_0/tokenizer.json runs/rlhf_reward/model_reward_0/value_head.safetensors \
    runs/rlhf_reward/model_reward_0/reward.json runs/rlhf_ppo/model_trainer_0/config.json; do
    [ -s "$file" ] || fail "there is no $file"
done

# The tokenizer goes with the model from stage to stage.
for model in rlhf_reward/model_reward_0 rlhf_ppo/model_trainer_0; do
    cmp "runs/$model/tokenizer.json" runs/rlhf_sft/model_sft_0/tokenizer.json || fail "$model has no tokenizer, or another one"
done
ok export runs/rlhf_ppo/model_trainer_0 exported
has out 'with its tokenizer'
ok generate --model runs/rlhf_sft/model_sft_0 --prompt KING: --max-new-tokens 5

# The same bits on workers, of all three.
for stage in 1_sft:rlhf_sft:sft 2_reward:rlhf_reward:reward 3_ppo:rlhf_ppo:trainer; do
    IFS=: read -r file run trainer <<<"$stage"
    ok run "$example/$file.yaml" --preset quick --name far --overwrite --workers 2
    [ "$(final far "$trainer" sha256)" = "$(final "$run" "$trainer" sha256)" ] || fail "$file: workers give other bits"
done

# DPO, and two trainers that learn as one, on a file; ptx; a list of rewards.
for i in 1 2 3 4 5 6 7 8; do
    printf '{"prompt": "p%d:", "chosen": "aab", "rejected": "bbb"}\n' "$i"
done >pairs.jsonl
sed 's/"chosen": \("[^"]*"\).*/"answer": \1}/' pairs.jsonl >answers.jsonl
cat >graph.yaml <<'END'
exogym: 1
name: dpo
actors:
  trainer:
    class: dpo_trainer
    count: 2
    config:
      model: {name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: 128}
      data: {path: pairs.jsonl}
      validation: 25 %
      batch: 3
      epochs: 10
      optimizer: {name: adamw, lr: 1e-2}
edges:
  - {from: trainer, to: trainer, carries: gradients, route: all_reduce}
END
ok run graph.yaml
[ "$(final dpo trainer val_accuracy)" = 1 ] || fail "DPO has learned $(cat runs/dpo/final_trainer_0.json)"
[ "$(final dpo trainer sha256)" = "$(sed -n 's/.*"sha256": "\([^"]*\).*/\1/p' runs/dpo/final_trainer_1.json)" ] || fail 'two trainers have two models'
ok run graph.yaml --name one --set actors.trainer.count=1 --set actors.trainer.config.batch=6 --set edges=[]
awk "BEGIN { d = $(final one trainer val_loss) - $(final dpo trainer val_loss); exit !(d * d < 1e-6) }" ||
    fail "two trainers learn other things: $(cat runs/one/final_trainer_0.json runs/dpo/final_trainer_0.json)"
thirty=$EXO_SOURCE/examples/07_ppo_text_1m1t/1m1t.yaml
ok run "$thirty" --name ptx --set actors.maker.config.epochs=2 --set actors.trainer.config.model.vocabulary=128 \
    --set 'actors.maker.config.reward=[{name: share, token: 3}, {name: expression, formula: -length, weight: 0.1}]' \
    --set actors.maker.config.model.vocabulary=128 --set 'actors.trainer.config.ptx={coef: 0.5, batch: 4, path: answers.jsonl}'
awk "BEGIN { exit !($(meter runs/ptx/result.json trainer_0.ptx_loss) > 1) }" || fail 'there is no ptx loss'
ok run "$thirty" --name ptx2 --set actors.maker.config.epochs=2 --set actors.trainer.config.model.vocabulary=128 \
    --set 'actors.maker.config.reward=[{name: share, token: 3}, {name: expression, formula: -length, weight: 0.1}]' \
    --set actors.maker.config.model.vocabulary=128
[ "$(final ptx trainer sha256)" != "$(final ptx2 trainer sha256)" ] || fail 'ptx changes nothing'

# The picture
if command -v gnuplot >/dev/null; then
    ok plot runs/rlhf_ppo runs/ptx -o kl.svg --title 'two runs'
    for text in '<svg' 'KL from version 0' 'two runs' rlhf_ppo ptx; do
        has kl.svg "$text"
    done
    mkdir runs/empty
    head -1 $version >runs/empty/versions_trainer_0.csv
    bad 2 'there is no update in it yet' plot runs/empty -o kl.svg
    printf 'version,score\n' >runs/empty/versions_trainer_0.csv
    bad 1 'expected the columns version, score and kl' plot runs/empty -o kl.svg
fi

# What is wrong
bad 2 "path: 'runs/rlhf_sft/model_sft_0' is no reward model" run "$example/3_ppo.yaml" --name w \
    --set actors.maker.config.reward.path=runs/rlhf_sft/model_sft_0 --set actors.maker.config.reward.normalize=false
bad 2 "normalize: 'runs/rlhf_sft/model_sft_0/reward.json' cannot be read" run "$example/3_ppo.yaml" --name w \
    --set actors.maker.config.reward.path=runs/rlhf_sft/model_sft_0
bad 2 'and an answer of 2000 are longer than the context of the reward model' graph check "$example/3_ppo.yaml" \
    --set actors.maker.config.generate.max_new_tokens=2000 \
    --set 'actors.maker.config.model={name: gpt, layers: 1, heads: 1, width: 8, context: 4096, vocabulary: 256}'
bad 2 'set model.values: true' run "$example/2_reward.yaml" --name w --set actors.reward.config.model.values=false
bad 2 'formula: column 3: expected' run "$example/2_reward.yaml" --name w --set 'actors.maker.config.reward.formula=1 ?'
bad 2 "'maker' makes one answer to a prompt, but 'reward' compares" graph check "$example/2_reward.yaml" --set actors.maker.config.answers=1
bad 2 'on_full: what it drops' graph check "$example/2_reward.yaml" --set 'edges.0.buffer={on_full: latest}'
bad 2 'there is no comparison in the makers' run "$example/2_reward.yaml" --name w --preset quick --set 'actors.maker.config.reward.formula="1"'
grep -v 'data:' graph.yaml >bare.yaml
bad 2 "the key 'data' is missing" run bare.yaml --name w2 --set actors.trainer.class=sft_trainer
bad 2 'trainer has no comparisons' graph check bare.yaml
bad 2 'has no comparisons' run bare.yaml --name w3
bad 2 'pairs.jsonl:1: "answer" is missing' run graph.yaml --name w --set actors.trainer.class=sft_trainer
bad 2 'need an edge that carries gradients' graph check graph.yaml --set edges=[]
bad 2 'need an edge that carries gradients' run graph.yaml --name w4 --set edges=[]
finish
