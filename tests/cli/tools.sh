#!/usr/bin/env bash
# Dialogues with tools: examples/35_calculator, a tool of a plugin, `exogym explain`, and what is wrong.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
example=$EXO_SOURCE/examples/35_calculator/calculator.yaml
plugin=$EXO_BUILD/tests/plugins/countdown.so

# final RUN KEY: a number or hash of the trainer's result.
final() {
    sed -n "s/.*\"$2\": \"\{0,1\}\([^\",}]*\).*/\1/p" "runs/$1/final_trainer_0.json"
}

# The calculator: short, with exact ratios and equal bits wherever the actors are.
short=(--set actors.maker.config.epochs=2)
ok run "$example" "${short[@]}"
awk -F, 'NR > 2 && $8 != 0 { exit 1 }' runs/calculator/versions_trainer_0.csv || fail 'the ratios are not 1'
sha=$(final calculator sha256)
[ ${#sha} = 64 ] || fail "the hash is '$sha'"
ok run "$example" "${short[@]}" --name far --workers 2
[ "$(final far sha256)" = "$sha" ] || fail 'workers give other bits'
ok run "$example" "${short[@]}" --name two --set actors.maker.count=2 --set clock=virtual
[ "$(final two sha256)" = "$sha" ] || fail 'two makers give other bits'
ok run "$example" "${short[@]}" --name partial --set actors.maker.config.swap=step --set actors.trainer.config.staleness=2
ok explain runs/partial
has out '32 items, each learned from once'
ok explain runs/calculator 3
grep -q '^turns      answer 0: policy [0-9]*, tool [0-9]*' out || fail "$(cat out)"
ok explain runs/calculator 3 --json
python3 -c '
import json
d = json.load(open("out"))
assert len(d["turns"]) == 16, d["turns"]
assert sum(sum(t[::2]) for t in d["turns"]) == d["tokens"] == sum(w["tokens"] for w in d["weights"])
' || fail 'turns of the item'

# Under sanitizers few items: nothing is learned, and all else holds.
epochs=320
grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt" || epochs=16

# A tool of a plugin: the policy learns to write the token that it rewards in each turn.
cat >dialogue.yaml <<YAML
exogym: 1
plugins: [$plugin]
actors:
  maker:
    class: experience_maker
    config:
      model: &policy {name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: 16}
      prompts: {tokens: [[1]]}
      tool: {name: countdown, from: 3}
      reward: {name: share, token: 15}
      answers: 16
      epochs: $epochs
  trainer:
    class: ppo_trainer
    config: {model: *policy, algorithm: rloo, optimizer: {name: adamw, lr: 1e-2}}
edges:
  - {from: maker, to: trainer, carries: experience}
  - {from: trainer, to: maker, carries: parameters, route: broadcast, buffer: {on_full: latest}}
YAML
ok run dialogue.yaml
score=$(final dialogue score)
[ $epochs = 16 ] || awk "BEGIN { exit !($score > 2.5) }" || fail "the score with the plugin's tool is $score of 3"
ok explain runs/dialogue 5
has out 'answer 15: policy 1, tool 1, policy 1, tool 1, policy 1, tool 1'
ok list tools
grep -q '^calculator ' out || fail "$(cat out)"
ok list tools --plugin "$plugin"
grep -q '^countdown ' out || fail "$(cat out)"

# What is wrong
bad 2 "did you mean 'calculator'" run "$example" --name w --set actors.maker.config.tool=calculater
bad 2 "nothing ends a turn" run dialogue.yaml --name w --set actors.maker.config.tool.turn_tokens=0
bad 2 "the tool's replies included" run "$example" --name w --set actors.maker.config.tool.turns=9
bad 2 'did you mean' run "$example" --name w --set actors.maker.config.tool.turn=9
bad 2 'it reads text' run "$example" --name w --set 'actors.maker.config.prompts={tokens: [[1]]}'

finish
