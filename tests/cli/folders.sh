#!/usr/bin/env bash
# A folder holds one run. What is finished is not replaced unasked, goes on with more steps, and is
# resumed whatever does not matter changes.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

sed -i 's/^compare:.*/compare: [ddp, {name: diloco, H: 4}]/' job.yaml
run() { ok run job.yaml --no-plot "$@"; }
# refused STATUS MESSAGE ARGUMENTS...: the job ends with STATUS, and MESSAGE is the last thing that
# it says.
refused() {
    local status=$1 message=$2 got
    shift 2
    "$EXOGYM" run job.yaml --no-plot "$@" >out 2>err </dev/null
    got=$?
    [ "$got" = "$status" ] || fail "$*: ended with $got instead of $status"
    [ "$(tail -1 err)" = "$message" ] || fail "$*: said '$(tail -1 err)' instead of '$message'"
}
sha() { json "runs/$1/$2/result.json" sha256; }

run --name whole --set train.max_steps=20
run
first=$(sha small ddp)
cp -r runs/small kept

# --- Starting over
# ----------------------------------------------------------------------------------------------------

refused 1 "exogym: runs/small/ddp: holds a finished run: --overwrite starts it over, --resume keeps it or goes on with more steps, and another name leaves it alone" \
    --set seed=8
diff -r kept runs/small || fail 'a refused start changed the folder'
run --overwrite --set seed=8
[ "$(sha small ddp)" != "$first" ] || fail '--overwrite kept the result'
[ ! -e runs/small/ddp/checkpoints.1 ] || fail '--overwrite put checkpoints of a finished run aside'
expect 2 "exogym: run: --resume goes on with what is there, --overwrite starts it over: give one of them (see \`exogym help run\`)" \
    run job.yaml --resume --overwrite

# While another run trains, no model of the one before is there; what was left of it is gone.
"$EXOGYM" run job.yaml --no-plot --overwrite --set train.max_steps=100000000 >out 2>err </dev/null &
pid=$!
until { grep -q 100000000 runs/small/ddp/config.json && [ "$(wc -l <runs/small/ddp/train.csv)" -gt 3 ]; } 2>/dev/null || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
for file in ddp/model.safetensors ddp/result.json diloco/model.safetensors diloco/result.json diloco/config.json diloco/checkpoints; do
    [ ! -e runs/small/$file ] || fail "while another run trains there is still $file"
done
# Nobody starts over what is being written.
"$EXOGYM" run job.yaml --no-plot >out2 2>err2 </dev/null && fail 'two runs in one folder'
has err2 'runs/small/ddp: another run writes into this folder'
[ -s runs/small/ddp/config.json ] || fail "the running run's config.json is gone"
kill -KILL $pid
wait $pid 2>/dev/null

# --- More steps
# -------------------------------------------------------------------------------------------------------

rm -rf runs/small
run
run --resume
has err 'finished before'
[ "$(sha small ddp)" = "$first" ] || fail '--resume changed a finished run'
run --resume --set train.max_steps=20
for label in ddp diloco; do
    [ "$(json runs/small/$label/result.json steps)" = 20 ] || fail "$label: does not go on to 20 steps"
    [ "$(sha small $label)" = "$(sha whole $label)" ] || fail "$label: 12 steps and 8 more are not 20"
    cmp -s runs/small/$label/train.csv runs/whole/$label/train.csv || fail "$label: train.csv differs"
done
refused 2 'exogym: --resume: runs/small/ddp is finished after 20 steps, 12 are asked for' --resume
# Epochs are steps, too: 2048 samples, 2 nodes, 16 a batch.
run --name epochs --set data.count=2048 --set 'train={num_epochs: 1, batch_size: 256, val_size: 16}'
[ "$(json runs/epochs/ddp/result.json steps)" = 4 ] || fail 'an epoch is not 4 steps'
run --name epochs --set data.count=2048 --set 'train={num_epochs: 2, batch_size: 256, val_size: 16}' --resume
[ "$(json runs/epochs/ddp/result.json steps)" = 8 ] || fail 'two epochs are not 8 steps'
# What this processor cannot compute is refused before a finished run is removed.
cp -r runs/small before
ONEDNN_MAX_CPU_ISA=AVX2 refused 1 'exogym: linear: autocast to bf16 needs a processor with AVX-512; run without it' --overwrite --set train.autocast=bf16
diff -r before runs/small || fail 'bf16 on another processor: the finished runs were touched'
rm -rf before
# Without the final checkpoint there is nothing to go on from, and nothing is lost.
run --name bare --set train.final_checkpoint=false
refused 1 'exogym: ddp: runs/bare/ddp: the run is finished and has no checkpoint to continue from: start it over, or choose another name' \
    --name bare --resume --set train.max_steps=20
[ -s runs/bare/ddp/model.safetensors ] || fail 'the model of a run that cannot go on is gone'

# --- Other settings
# ---------------------------------------------------------------------------------------------------

begin() { # a run of 20 steps, as far as step 8, in runs/part
    rm -rf runs/part
    run --name part --set train.max_steps=20 --set train.checkpoint_interval=4 "$@"
    for label in ddp diloco; do
        rm -rf runs/part/$label/{model.safetensors,result.json,checkpoints/step_00000020}
    done
}
for change in checkpoint_interval=3 val_interval=7 correlation_interval=0 num_epochs=5 timeout=50 final_checkpoint=false; do
    begin
    run --name part --set train.max_steps=20 --resume --set train.$change
    [ "$(sha part ddp)" = "$(sha whole ddp)" ] || fail "resumed with $change: other parameters"
done
begin
for change in seed=8 train.batch_size=8 train.shuffle=false train.val_size=32 strategy.optimizer.lr=2e-3 model.hidden=64; do
    [ "${change%%.*}" = model ] && change='model={name: mlp, hidden: 64}'
    "$EXOGYM" run job.yaml --no-plot --name part --set train.max_steps=20 --resume --set "$change" >out 2>err </dev/null &&
        fail "resumed with $change"
    has err 'was begun with another'
done

# --- auto
# -------------------------------------------------------------------------------------------------------------

begin --set train.minibatch_size=auto
chosen=$(json runs/part/ddp/config.json minibatch_size)
[ "$chosen" = 16 ] || fail "config.json has minibatch_size '$chosen', not the number that was chosen"
run --name part --set train.max_steps=20 --resume --set train.minibatch_size=16
# Whatever memory is free: a run that was begun with less keeps its number.
begin --set train.minibatch_size=4
cp -r runs/part runs/explicit
run --name part --set train.max_steps=20 --resume --set train.minibatch_size=auto
run --name explicit --set train.max_steps=20 --resume --set train.minibatch_size=4
[ "$(sha part ddp)" = "$(sha explicit ddp)" ] || fail 'auto goes on with another number'

# --- Damage
# -----------------------------------------------------------------------------------------------------------

for file in config.json result.json; do
    for size in 0 40; do
        rm -rf runs/damaged
        cp -r kept runs/damaged
        truncate -s $size runs/damaged/ddp/$file
        "$EXOGYM" run job.yaml --no-plot --name damaged --resume >out 2>err </dev/null && fail "resumed with $file of $size bytes"
        [ $? != 2 ] || fail "$file of $size bytes is no mistake of the job"
        has err "runs/damaged/ddp/$file: is damaged"
        has err '; once it is removed, --resume goes on from the checkpoints that are there; --overwrite starts the run over'
        [ -s runs/damaged/ddp/model.safetensors ] || fail 'the model is gone'
    done
done
rm -rf runs/damaged
cp -r kept runs/damaged
rm runs/damaged/ddp/.graph.lock
mkfifo runs/damaged/ddp/.graph.lock
refused 1 'exogym: ddp: runs/damaged/ddp/.graph.lock: is no plain file: remove it' --name damaged --overwrite
# Without config.json the checkpoint itself says what the run was.
rm -rf runs/damaged
cp -r kept runs/damaged
rm runs/damaged/ddp/{config.json,result.json,model.safetensors}
run --name damaged --resume
[ "$(sha damaged ddp)" = "$first" ] || fail 'a run without config.json began anew'

# --- config.json is a job
# ---------------------------------------------------------------------------------------------

ok run job.yaml --name kept --no-plot --json --set 'compare=[{name: diloco, H: 3, label: mine}, {name: sparta, p: 0.1}]' \
    --set train.max_steps=6
first=$(json out sha256)
cp runs/kept/mine/config.json mine.json
ok run mine.json --name again --no-plot --json
[ "$(json out sha256)" = "$first" ] || fail 'a config.json gives other parameters than its run'
[ -e runs/again/mine/result.json ] || fail 'a config.json has lost the label of its run'
finish
