#!/usr/bin/env bash
# examples/06_ppo_cartpole: every graph learns CartPole. On the virtual clock with declared costs,
# so that the same happens every time.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

# A sanitizer's time is for looking at a few updates of each.
target=400 updates=100
grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt" || target=0 updates=2

# final FILE KEY: a number or hash of a trainer's result.
final() {
    sed -n "s/.*\"$2\": \"\{0,1\}\([^\",}]*\).*/\1/p" "$1"
}

for graph in 1m1t 2m1t 2m2t; do
    ok run "$EXO_SOURCE/examples/06_ppo_cartpole/$graph.yaml" --set clock=virtual \
        --set 'actors.maker.compute={play: 8 ms}' --set 'actors.trainer.compute={learn: 2 ms, apply: 20 us}' \
        --set "actors.trainer.config={target_return: $target, updates: $updates}"
    reached=$(final "runs/$graph/final_trainer_0.json" return_mean)
    awk "BEGIN { exit !($reached >= $target) }" || fail "$graph reached $reached"
    "$EXO_SOURCE/tools/check_meters.py" --result "runs/$graph/result.json" || fail "docs/meters.md does not have all meters of $graph"
done
[ "$(final runs/2m2t/final_trainer_0.json sha256)" = "$(final runs/2m2t/final_trainer_1.json sha256)" ] ||
    fail 'two trainers that learn as one have two policies'

bad 2 "environment: there is no environment 'cartpool'; did you mean 'cartpole'?" graph check "$EXO_SOURCE/examples/06_ppo_cartpole/1m1t.yaml" \
    --set actors.maker.config.environment=cartpool

# Updates are listed, for learning curves; those of a small game with its exact value.
ok run "$EXO_SOURCE/examples/06_ppo_cartpole/kuhn_poker.yaml" --set 'actors.maker.config={environment: kuhn_poker, steps: 16}' \
    --set 'actors.trainer.config={environment: kuhn_poker, batch: 1, updates: 3, minibatches: 4}'
"$EXO_SOURCE/tools/check_meters.py" --result runs/kuhn_poker/result.json || fail 'docs/meters.md does not have all meters of kuhn_poker'
list=runs/kuhn_poker/updates_trainer_0.csv
[ "$(head -1 "$list")" = update,samples,return_mean,loss,game_value,exploitability ] || fail "$(cat "$list")"
[ "$(tail -n +2 "$list" | cut -d, -f1,2 | tr '\n' ' ')" = '1,64 2,128 3,192 ' ] || fail "$(cat "$list")"
for i in 5:game_value 6:exploitability; do
    value=$(final runs/kuhn_poker/final_trainer_0.json "${i#*:}")
    [ "$value" = "$(tail -1 "$list" | cut -d, -f"${i%:*}")" ] || fail "${i#*:} is '$value', other than in $list: $(cat "$list")"
done

# The best policy is kept, and a run can begin with it, here only to evaluate it.
ok run "$EXO_SOURCE/examples/06_ppo_cartpole/cleanrl.yaml" --set actors.trainer.config.updates=3 \
    --set actors.trainer.config.evaluate_every=1 --set actors.trainer.config.evaluate=3
"$EXO_SOURCE/tools/check_meters.py" --result runs/cleanrl/result.json || fail 'docs/meters.md does not have all meters of cleanrl'
[ "$(cut -d, -f1,2 runs/cleanrl/evaluations_trainer_0.csv | tr '\n' ' ')" = 'update,samples 1,512 2,1024 3,1536 ' ] ||
    fail "$(cat runs/cleanrl/evaluations_trainer_0.csv)"
ok run "$EXO_SOURCE/examples/06_ppo_cartpole/cleanrl.yaml" --name evaluated --set actors.trainer.config.updates=0 \
    --set actors.trainer.config.evaluate=3 --set actors.trainer.config.policy=runs/cleanrl/best_trainer_0.safetensors
[ "$(final runs/evaluated/final_trainer_0.json sha256)" = "$(final runs/cleanrl/final_trainer_0.json best_sha256)" ] ||
    fail 'the policy that was evaluated is not the best one'
grep -q '^update,samples,return_mean,loss$' runs/1m1t/updates_trainer_0.csv || fail "$(head -2 runs/1m1t/updates_trainer_0.csv)"
finish
