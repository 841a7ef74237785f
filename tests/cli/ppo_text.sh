#!/usr/bin/env bash
# examples/07_ppo_text_1m1t and 08_ppo_2m2t: makers and trainers of a language model learn, with equal
# bits wherever they are; `exogym explain`; and what is wrong in such a graph.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
example=$EXO_SOURCE/examples/07_ppo_text_1m1t two=$EXO_SOURCE/examples/08_ppo_2m2t/2m2t.yaml

# Under sanitizers a tenth of the items: nothing is learned, and all else holds.
items=400
few=()
grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt" || { items=40 few=(--set actors.maker.config.epochs=10); }

# final RUN KEY: a number or hash of the first trainer's result.
final() {
    sed -n "s/.*\"$2\": \"\{0,1\}\([^\",}]*\).*/\1/p" "runs/$1/final_trainer_0.json"
}

ok run "$example/1m1t.yaml" "${few[@]}"
[ $items = 40 ] || awk "BEGIN { exit !($(final ppo_text_1m1t score) > 0.9) }" || fail "the score is $(final ppo_text_1m1t score)"
"$EXO_SOURCE/tools/check_meters.py" --result runs/ppo_text_1m1t/result.json || fail 'docs/meters.md does not have all meters'
[ "$(cut -d, -f8 runs/ppo_text_1m1t/versions_trainer_0.csv | sort -u)" = "$(printf '\n0\nratio_off' | sort)" ] ||
    fail 'a maker samples other probabilities than the trainer computes'
awk -F, 'NR > 2 && !($9 == 0 && $10 == 0 && $11 == 1) { exit 1 }' runs/ppo_text_1m1t/versions_trainer_0.csv ||
    fail 'the policy of a maker differs from the trainer'"'"'s'
[ "$(tail -n +2 runs/ppo_text_1m1t/learned_trainer_0.csv | cut -d, -f1 | sort -un | wc -l)" = $items ] || fail 'not each item was learned from'

# The same bits with two makers, with two trainers, on workers and on the virtual clock.
sha=$(final ppo_text_1m1t sha256)
ok run "$example/1m1t.yaml" "${few[@]}" --name two --set actors.maker.count=2
[ "$(final two sha256)" = "$sha" ] || fail 'two makers give other bits'
ok run "$example/1m1t.yaml" "${few[@]}" --name virtual --set clock=virtual
[ "$(final virtual sha256)" = "$sha" ] || fail 'the virtual clock gives other bits'
ok run "$example/1m1t.yaml" "${few[@]}" --name far --workers 2
[ "$(final far sha256)" = "$sha" ] || fail 'workers give other bits'
ok run "$example/1m1t.yaml" "${few[@]}" --name far_two --set actors.maker.count=2 --workers 2
[ "$(final far_two sha256)" = "$sha" ] || fail 'two makers on workers give other bits'
ok run "$two" "${few[@]}"
ok run "$two" "${few[@]}" --name far2 --workers 2
[ "$(final far2 sha256)" = "$(final ppo_text_2m2t sha256)" ] || fail 'two trainers on workers give other bits'
cmp runs/far2/final_trainer_0.json runs/far2/final_trainer_1.json || fail 'two trainers that learn as one have two policies'

# examples/31_trainers_over_wan: trainers that DiLoCo keeps together, on both clocks and on workers.
wan=$EXO_SOURCE/examples/31_trainers_over_wan/wan.yaml
short=(--set actors.trainer.config.updates=4 --set actors.trainer.config.strategy.H=4)
ok run "$wan" "${short[@]}"
"$EXO_SOURCE/tools/check_meters.py" --result runs/trainers_over_wan/result.json || fail 'docs/meters.md does not have all meters'
cmp runs/trainers_over_wan/final_trainer_0.json runs/trainers_over_wan/final_trainer_1.json && fail 'two trainers with items of their own have the same figures'
[ "$(final trainers_over_wan sha256)" = "$(sed 's/.*"sha256": "\([^"]*\)".*/\1/' runs/trainers_over_wan/final_trainer_1.json)" ] ||
    fail 'two trainers differ after a round'
ok run "$wan" --name far_wan "${short[@]}" --workers 2 --set clock=real --set links.default='{latency: 1 ms}'
[ "$(final far_wan sha256)" = "$(final trainers_over_wan sha256)" ] || fail 'workers give other bits under diloco'
bad 2 "fsdp': trainers need whole parameters" run "$wan" --name w --set actors.trainer.config.strategy=fsdp
bad 2 'strategy: each trainer needs the number of `updates`' run "$wan" --name w --set actors.trainer.config.updates=0

# Stale items are corrected for, and no staleness is above its bound.
ok run "$example/1m1t.yaml" "${few[@]}" --name stale --set actors.trainer.config.staleness=3 \
    --set actors.trainer.config.algorithm.correction=truncated_token --set actors.trainer.config.algorithm.weight_max=2
awk -F, 'NR > 1 { split($8, v, ":"); if ($13 - 1 - v[1] > 3 || $13 - 1 - v[1] < 0) exit 1 }' runs/stale/learned_trainer_0.csv ||
    fail 'an item is older than the bound'

# Weights that change inside a generation, on the real clock: the bound holds for every token.
ok run "$example/1m1t.yaml" --name partial --set actors.trainer.config.staleness=3 --set actors.maker.config.swap=step \
    --set actors.maker.config.epochs=30 --set actors.trainer.config.algorithm.correction=truncated_token
awk -F, 'NR > 1 { n = split($8, r, " "); for (i = 1; i <= n; i++) { split(r[i], v, ":"); if ($13 - 1 - v[1] > 3 || $13 - 1 < v[1]) exit 1 } }' \
    runs/partial/learned_trainer_0.csv || fail 'a token is older than the bound'

# Oversampling on the real clock: the bound holds, and each draw is learned from once.
ok run "$example/1m1t.yaml" "${few[@]}" --name over --set actors.trainer.config.staleness=2 --set actors.trainer.config.oversample=1.5 \
    --set actors.maker.config.swap=step --set actors.trainer.config.algorithm.correction=truncated_token
awk -F, 'NR > 1 { n = split($8, r, " "); for (i = 1; i <= n; i++) { split(r[i], v, ":"); if ($13 - 1 - v[1] > 2 || $13 - 1 < v[1]) exit 1 } }' \
    runs/over/learned_trainer_0.csv || fail 'a token is older than the bound'
ok explain runs/over
grep -q "^$items items, each learned from once" out || fail "$(cat out)"
! grep -q 'were not learned from' out || fail "$(cat out)"

# exact.yaml: through makers and trainers, GRPO, RLOO and PPO come within 0.01 of the best policy, by
# enumeration; the policy that they begin with is far from it.
exact=$example/exact.yaml
trainer=actors.trainer.config
value_model='{name: gpt, layers: 1, heads: 2, width: 32, context: 8, vocabulary: 3, values: true}'
ppo=(--set "$trainer.algorithm={name: ppo, kl_coef: 0.2}" --set "$trainer.critic=$value_model" --set "$trainer.critic_optimizer={name: adamw, lr: 5e-3}")
regret() {
    sed 's/.*"regret": \([^,]*\),.*/\1/' "runs/$1/exact_trainer_0.json"
}
short=(--set $trainer.updates=120)
[ $items = 400 ] || short=(--set $trainer.updates=3)
ok run "$exact" --name first --set $trainer.updates=1 --set $trainer.optimizer.lr=1e-9
awk "BEGIN { exit !($(regret first) > 0.1) }" || fail "J* - J is $(regret first) at the beginning"
ok run "$exact" --name exact_grpo "${short[@]}"
ok run "$exact" --name exact_rloo "${short[@]}" --set $trainer.algorithm.name=rloo
ok run "$exact" --name exact_ppo "${short[@]}" "${ppo[@]}"
for run in exact_grpo exact_rloo exact_ppo; do
    awk "BEGIN { r = $(regret $run); exit !(r > -1e-6 && r <= ($items == 400 ? 0.01 : 1)) }" || fail "$run: J* - J is $(regret $run)"
    awk "BEGIN { d = $(meter runs/$run/result.json trainer_0.regret) - $(regret $run); exit !(d < 1e-6 && d > -1e-6) }" ||
        fail "$run: the meter has another regret"
done

# examples/09_quantized_makers: ratios are near 1 with int8, and are 1 with fp32.
quantized=$EXO_SOURCE/examples/09_quantized_makers/int8.yaml
ok run "$quantized" --set actors.maker.config.epochs=8
awk -F, 'NR > 2 && !($8 > 0 && $8 < 0.05) { exit 1 }' runs/quantized_makers/versions_trainer_0.csv || fail 'the ratios with int8 makers'
awk -F, 'NR > 2 && !($9 > 0 && $10 != 0 && $11 > 0.9 && $11 < 1) { exit 1 }' runs/quantized_makers/versions_trainer_0.csv ||
    fail 'the distance of int8 makers'
ok run "$quantized" --name plain --set actors.maker.config.epochs=8 --set actors.maker.config.weights=fp32
awk -F, 'NR > 2 && $8 != 0 { exit 1 }' runs/plain/versions_trainer_0.csv || fail 'the ratios with fp32 makers'

# With LoRA only its parameters travel, and they reach the sampler: the ratios of every version are 1.
lora=(--set 'actors.maker.config.model.lora={rank: 4}' --set 'actors.trainer.config.model.lora={rank: 4}' --set actors.maker.config.epochs=10)
ok run "$example/1m1t.yaml" --name lora "${lora[@]}"
awk -F, 'NR > 2 && $8 != 0 { exit 1 }' runs/lora/versions_trainer_0.csv || fail 'the ratios with LoRA'
bytes=$(grep -A4 '"trainer_0.update_bytes"' runs/lora/result.json | sed -n 's/.*"value": \([0-9]*\).*/\1/p')
[ "${bytes:-0}" -gt 20000 ] && [ "$bytes" -lt 300000 ] || fail "updates with LoRA have ${bytes:-no} bytes"

# explain
# the clocks of workers begin at the same time
awk -F, 'FNR > 1 && !($10 <= $11 && $11 <= $12) { print FILENAME ": " $0; wrong = 1 } END { exit wrong }' runs/far2/learned_*.csv ||
    fail 'an item came before it was sent'
ok explain runs/far2 21
grep -q '^item       21: .* from maker 1$' out || fail "$(cat out)"
version=$(sed -n 's/^weights .*version \([0-9]*\), SHA-256 \(.*\)$/\1 \2/p' out)
grep -q "^${version% *},[0-9.]*,${version#* }," runs/far2/versions_trainer_0.csv || fail "the weights of '$version' are not in the list of versions"
ok explain runs/far2
grep -q "^$items items, each learned from once, in $((items / 8)) versions by 2 trainers$" out || fail "$(cat out)"
ok explain runs/far2 21 --json
grep -q '"trainer": "trainer_1"' out || fail "$(cat out)"
bad 1 'no trainer of runs/far2 has learned from item 4000' explain runs/far2 4000
bad 2 "'x' is no number of an item" explain runs/far2 x
bad 1 'no file learned_*.csv' explain . 1
# Hosts that share no folder: each has the tables of its own trainer.
mkdir alone
cp runs/far2/{learned,versions}_trainer_1.csv alone
bad 1 'or they wrote it to that folder of their own hosts' explain runs
ok explain alone
has out 'items before the last one were not learned from, or by trainers whose tables are on other hosts'
ok list rewards
grep -q '^share ' out || fail "$(cat out)"

# More makers than draws, which are dealt out; makers of two names, whose draws would be the same.
spare=(--set actors.maker.count=6 --set actors.maker.config.epochs=1 --set actors.trainer.config.balance=true)
ok run "$example/1m1t.yaml" --name spare "${spare[@]}"
ok run "$example/1m1t.yaml" --name spare_lives "${spare[@]}" --set actors.maker.restart.when=on_failure
sed 's/^  maker:/  maker: \&maker/; s/^  trainer:/  other: *maker\n  trainer:/' "$example/1m1t.yaml" >names.yaml
cat >>names.yaml <<'YAML'
  - {from: other, to: trainer, carries: experience}
  - {from: trainer, to: other, carries: parameters, route: broadcast, buffer: {on_full: latest}}
YAML
bad 2 "edge 'other>trainer:experience': makers 'maker' and 'other' would make the same draws" run names.yaml --name w6
bad 2 "maker_1 would get no weights" graph check "$two" --set edges.1.route=listed --set 'edges.1.targets={trainer_0: [maker_0]}'
bad 2 "maker_1 would get no weights" run "$two" --name w6 --dry-run --set edges.1.route=listed --set 'edges.1.targets={trainer_0: [maker_0]}'

# What is wrong
bad 2 '1m1t.yaml:11:22: model: the vocabulary is 16, but the prompts need 21' run "$example/1m1t.yaml" --name w --set 'actors.maker.config.prompts.tokens=[[20]]'
bad 2 'the vocabulary is 16, but answers stop at the token 16' graph check "$example/1m1t.yaml" --set 'actors.maker.config.generate.stop=[3, 16]'
bad 1 'prompts: none.txt: No such' graph check "$example/1m1t.yaml" --set 'actors.maker.config.prompts={path: none.txt}'
bad 2 '--set actors.maker.config.weights: weights: expected' graph check "$example/1m1t.yaml" --set actors.maker.config.weights=fp8
bad 2 '--set actors.trainer.config.critic: critic: only' graph check "$example/1m1t.yaml" --set 'actors.trainer.config.critic={name: gpt, layers: 1, heads: 1, width: 8, context: 32, vocabulary: 16, values: true}'
bad 2 '1m1t.yaml:11:22: model: the context is 32, but prompts of 3 tokens and answers of 40 need 43' run "$example/1m1t.yaml" --name w --set actors.maker.config.generate.max_new_tokens=40
bad 2 "did you mean 'share'" run "$example/1m1t.yaml" --name w --set actors.maker.config.reward=shar
bad 2 'let makers have at least 2 answers' run "$example/1m1t.yaml" --name w --set actors.maker.config.answers=1
bad 2 'ppo needs values' run "$example/1m1t.yaml" --name w --set actors.trainer.config.algorithm=ppo
bad 2 "unknown key 'clap'" run "$example/1m1t.yaml" --name w --set actors.trainer.config.algorithm.clap=1
bad 2 'slices: 3 is no multiple of the 2 trainers' run "$two" --name w --set actors.trainer.config.slices=3
bad 2 "they differ in the shape of 'embedding.weight'" graph check "$example/1m1t.yaml" --set actors.maker.config.model.width=16
bad 2 "unknown key 'from'" run "$example/1m1t.yaml" --name w --set 'actors.trainer.config.update={from: whole}'
bad 2 '--set actors.maker.config.kv: kv says nothing without swap: step' run "$example/1m1t.yaml" --name w --set actors.maker.config.kv=keep
bad 2 'oversample needs staleness of at least 1' run "$example/1m1t.yaml" --name w --set actors.trainer.config.oversample=1.5
bad 2 'oversample' run "$example/1m1t.yaml" --name w --set actors.trainer.config.oversample=2.5 --set actors.trainer.config.staleness=1
bad 2 "exact: the model's vocabulary is 4, the task's 3" run "$exact" --name w --set $trainer.model.vocabulary=4
bad 2 'kl_target moves kl_coef' run "$exact" --name w --set $trainer.algorithm.kl_target=1
bad 2 'set algorithm.kl_coef' run "$exact" --name w --set $trainer.algorithm.kl_coef=0
bad 2 'more than 1048576 sequences' run "$exact" --name w --set $trainer.exact.length=20
bad 2 'set generate: {max_new_tokens: 3}' run "$exact" --name w4 --set actors.maker.config.generate.max_new_tokens=4
bad 2 "let the makers' reward be the same task" run "$exact" --name w5 --set actors.maker.config.reward.seed=12
bad 2 "'every' does not fit this edge" graph check "$example/1m1t.yaml" --set edges.1.every=2
finish
