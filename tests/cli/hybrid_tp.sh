#!/usr/bin/env bash
# examples/30_hybrid_tp: makers that share each generation give the weights of whole makers, to the
# bit, wherever they are; and what such a graph refuses.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
example=$EXO_SOURCE/examples/30_hybrid_tp/hybrid.yaml
few=(--set actors.maker.config.epochs=6 --set actors.maker.config.answers=2)
maker=actors.maker.config

sha() {
    sed -n 's/.*"sha256": "\([^"]*\)".*/\1/p' "runs/$1/final_trainer_0.json"
}

ok run "$example" "${few[@]}"
[ -n "$(sha hybrid_tp)" ] || fail 'no hash of the weights'
[ "$(cut -d, -f8 runs/hybrid_tp/versions_trainer_0.csv | sort -u)" = "$(printf '\n0\nratio_off' | sort)" ] ||
    fail 'the makers sample other probabilities than the trainers compute'
[ "$(tail -q -n +2 runs/hybrid_tp/learned_trainer_?.csv | cut -d, -f1 | sort -un | wc -l)" = 24 ] || fail 'not each item was learned from'
"$EXO_SOURCE/tools/check_meters.py" --result runs/hybrid_tp/result.json || fail 'docs/meters.md does not have all meters'

# The plain graph: two makers with the whole model.
ok run "$example" "${few[@]}" --name plain --set actors.maker.count=2 --set $maker.parallel.tensor=1
[ "$(sha plain)" = "$(sha hybrid_tp)" ] || fail 'the plain graph gives other bits'
ok run "$example" "${few[@]}" --name virtual --set clock=virtual
[ "$(sha virtual)" = "$(sha hybrid_tp)" ] || fail 'the virtual clock gives other bits'
ok run "$example" "${few[@]}" --name far --workers 2
[ "$(sha far)" = "$(sha hybrid_tp)" ] || fail 'workers give other bits'

# Trainers that end before the makers.
ok run "$example" "${few[@]}" --name short --set actors.trainer.config.updates=1

# Every form without changes, and quantized makers: also as the plain graph.
lossy=(--set actors.trainer.config.update.form=bf16 --set $maker.weights=int8)
ok run "$example" "${few[@]}" "${lossy[@]}" --name lossy
ok run "$example" "${few[@]}" "${lossy[@]}" --name plain_lossy --set actors.maker.count=2 --set $maker.parallel.tensor=1
[ "$(sha plain_lossy)" = "$(sha lossy)" ] || fail 'quantized makers that share a model give other bits'

bad 1 "set the trainer's update.form to whole, bf16 or int8" run "$example" "${few[@]}" --name w --set actors.trainer.config.update.form=delta
bad 2 "it must divide the model's heads (2)" run "$example" --name w --set $maker.parallel.tensor=3
bad 2 'does not divide the 3 makers' run "$example" "${few[@]}" --name w --set actors.maker.count=3
bad 2 'swap: step does not go with parallel' run "$example" --name w --set $maker.swap=step
bad 2 'dropout' run "$example" --name w --set $maker.model.dropout=0.1
bad 2 'parallel.pipeline' run "$example" --name w --set $maker.parallel.pipeline=2
bad 1 'does not go with a codec that rounds' run "$example" "${few[@]}" --name w --set edges.3.codec=bf16
bad 1 'does not support restart rules' run "$example" "${few[@]}" --name w --set actors.maker.restart.when=on_failure
bad 2 'balance does not go with makers that share a model' run "$example" "${few[@]}" --name w --set actors.trainer.config.balance=true
sed '/carries: activations/d' "$example" > no_edge.yaml
bad 2 'needs an edge for the makers' run no_edge.yaml "${few[@]}" --name w
finish
