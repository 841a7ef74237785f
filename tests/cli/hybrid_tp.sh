#!/usr/bin/env bash
# examples/30_hybrid_tp: makers that share each generation give the weights of whole makers, to the
# bit, wherever they are, and send what the closed forms say; and what such a graph refuses.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
example=$EXO_SOURCE/examples/30_hybrid_tp/hybrid.yaml
few=(--set actors.maker.config.epochs=6 --set actors.maker.config.answers=2)
maker=actors.maker.config

sha() {
    sed -n 's/.*"sha256": "\([^"]*\)".*/\1/p' "runs/$1/final_trainer_0.json"
}

# ledger RUN: what its edges carried is what the closed forms say (docs/ppo.md), besides a few numbers.
ledger() {
    python3 - "runs/$1" <<'END' || fail "$1: the ledger is not that of the closed forms"
import csv, glob, json, sys
result = json.load(open(sys.argv[1] + "/result.json"))
edges = {e["edge"].split(":")[1]: e for e in result["edges"]}
T, L, W, V, context = 2, 2, 32, 16, 32
block = 12 * W * W + 13 * W
policy = V * W + context * W + L * block + 2 * W
critic = policy + W + 1
# Makers: a row of a pass takes `row` bytes, and one that is drawn from `head` bytes. All answers have their
# prompt's rows and, but for the last token, their own.
row, head = 4 * (T - 1) * (2 * W + L * (W + 4 * W + 2 * W)), 4 * (T - 1) * V
items = [i for f in glob.glob(sys.argv[1] + "/learned_trainer_?.csv") for i in csv.DictReader(open(f))]
prompts = [1, 1, 2, 3]
tokens = sum(int(i["tokens"]) for i in items)
answers = sum(int(i["answers"]) for i in items)
rows = tokens - answers + sum(prompts[int(i["prompt"])] * int(i["answers"]) for i in items)
# A version's canary: four prompts of 1 to 16 tokens with 8 new ones each, and the logits of 4 positions.
canary = (1 + 6 + 11 + 16 + 4 * 7 + 4) * row + (4 * 8 + 4) * head
swaps = sum(result["meters"][maker + ".swaps"]["value"] for maker in ("maker_0", "maker_2"))
wanted = rows * row + tokens * head + swaps * canary
got = edges["activations"]["payload_bytes"]
print("activations", wanted, got)
assert 0 <= got - wanted < 2 * row, (got, wanted)
# Trainers: an all-reduce of all gradients of policy and critic, 2 (N - 1) / N Psi for each of N, a step.
updates = 1 + max(int(i["version"]) for i in items) - min(int(i["version"]) for i in items)
wanted = updates * 2 * (2 * (2 - 1) * (policy + critic) * 4)
got = edges["gradients"]["payload_bytes"]
print("gradients", wanted, got)
assert wanted <= got < 1.001 * wanted, (got, wanted)
# Updates: each item is the whole policy, with its names and its canary.
wanted = edges["parameters"]["items"] * 4 * policy
got = edges["parameters"]["payload_bytes"]
print("parameters", wanted, got)
assert wanted < got < 1.05 * wanted, (got, wanted)
END
}

ok run "$example" "${few[@]}"
ledger hybrid_tp
[ -n "$(sha hybrid_tp)" ] || fail 'no hash of the weights'
[ "$(cut -d, -f8 runs/hybrid_tp/versions_trainer_0.csv | sort -u)" = "$(printf '\n0\nratio_off' | sort)" ] ||
    fail 'the makers sample other probabilities than the trainers compute'
[ "$(tail -q -n +2 runs/hybrid_tp/learned_trainer_?.csv | cut -d, -f1 | sort -un | wc -l)" = 24 ] || fail 'not each item was learned from'
"$EXO_SOURCE/tools/check_meters.py" --result runs/hybrid_tp/result.json || fail 'docs/meters.md does not have all meters'

# The plain graph: two makers with the whole model.
ok run "$example" "${few[@]}" --name plain --set actors.maker.count=2 --set $maker.parallel.tensor=1
[ "$(sha plain)" = "$(sha hybrid_tp)" ] || fail 'the plain graph gives other bits'
ok run "$example" "${few[@]}" --name virtual --set clock=virtual
ledger virtual
[ "$(sha virtual)" = "$(sha hybrid_tp)" ] || fail 'the virtual clock gives other bits'
ok run "$example" "${few[@]}" --name far --workers 2
ledger far
[ "$(sha far)" = "$(sha hybrid_tp)" ] || fail 'workers give other bits'

# Trainers that end before the makers.
ok run "$example" "${few[@]}" --name short --set actors.trainer.config.updates=1

# Every form without changes, and quantized makers: also as the plain graph.
lossy=(--set actors.trainer.config.update.form=bf16 --set $maker.weights=int8)
ok run "$example" "${few[@]}" "${lossy[@]}" --name lossy
ok run "$example" "${few[@]}" "${lossy[@]}" --name plain_lossy --set actors.maker.count=2 --set $maker.parallel.tensor=1
[ "$(sha plain_lossy)" = "$(sha lossy)" ] || fail 'quantized makers that share a model give other bits'

bad 2 "it must divide the model's heads (2)" run "$example" --name w --set $maker.parallel.tensor=3
bad 2 'swap: step does not go with parallel' run "$example" --name w --set $maker.swap=step
bad 2 'dropout' run "$example" --name w --set $maker.model.dropout=0.1
bad 2 'parallel.pipeline' run "$example" --name w --set $maker.parallel.pipeline=2
bad 2 'dealt beforehand, for makers that share a model (parallel) where' run "$example" "${few[@]}" --name w --set actors.trainer.config.balance=true
finish
