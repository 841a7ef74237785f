#!/usr/bin/env bash
# Checkpoints on another number of nodes: shards become full and full ones shards, a run of which a node is
# gone goes on with the others, and one that is killed at random moments, a conversion too, ends with the
# bits of one that was left alone.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

head -c 3000 "$EXO_SOURCE/LICENSE" >text.txt
cat >job.yaml <<'YAML'
model: {name: gpt, layers: 1, width: 16, heads: 4, context: 16}
data: {name: text, path: text.txt, block: 8}
nodes: 4
train: {max_steps: 3, batch_size: 2, val_size: none}
strategy: {name: fsdp, optimizer: {name: adamw, lr: 1e-3}}
YAML
on_three=(run job.yaml --set nodes=3 --set train.max_steps=6 --no-plot)
# hash RUN: of the model of a finished run.
hash() {
    json "$1/result.json" sha256
}

ok run job.yaml --no-plot --save-dir runs
ok ckpt reshard runs/job runs/full/ddp --full --nodes 3 # the job's only run
has out 'runs/full/ddp: step 3, 3 nodes instead of 4, ddp'
has out 'to go on: exogym run runs/full/ddp/config.json --save-dir '
ok run runs/full/ddp/config.json --set train.max_steps=6 --no-plot --save-dir runs --resume
ok ckpt reshard runs/job/fsdp runs/three/fsdp --nodes 3
ok "${on_three[@]}" --save-dir runs --name three --resume
cp -r runs/job runs/gone
bad 2 'runs/gone/fsdp was begun with another nodes; run with --resume=reshard, which converts' "${on_three[@]}" --save-dir runs \
    --name gone --resume
ok "${on_three[@]}" --save-dir runs --name gone --resume=reshard
has err 'fsdp: the checkpoint of step 3 is converted: 3 nodes instead of 4'
[ -n "$(hash runs/full/ddp)" ] || fail 'the full run has no result'
for run in three gone; do
    [ "$(hash runs/$run/fsdp)" = "$(hash runs/full/ddp)" ] || fail "$run: other bits than ddp on three nodes"
    [ "$(tail -n +2 runs/$run/fsdp/train.csv | wc -l)" = 6 ] || fail "$run: rows are missing: $(cat runs/$run/fsdp/train.csv)"
done

# Parts of tensor-parallel groups, and back.
ok ckpt reshard runs/job/fsdp runs/one/ddp --full --nodes 1
ok ckpt reshard runs/one/ddp runs/pairs/ddp --nodes 4 --tensor 2
ok ckpt reshard runs/pairs/ddp runs/quarters/ddp --nodes 4 --tensor 4
ok ckpt reshard runs/quarters/ddp runs/again/ddp --nodes 1 --tensor 1
cmp runs/one/ddp/checkpoints/step_00000003/node_0.safetensors runs/again/ddp/checkpoints/step_00000003/node_0.safetensors ||
    fail 'tensor parallel parts do not make the whole again'
# `sequence` stays with the parts, and goes with them
sed -i 's/"tensor": 2/"tensor": 2, "sequence": true/' runs/pairs/ddp/config.json
ok ckpt reshard runs/pairs/ddp runs/quartered/ddp --nodes 4 --tensor 4
[ "$(json runs/quartered/ddp/config.json sequence)" = true ] || fail 'a conversion drops sequence'
ok ckpt reshard runs/quartered/ddp runs/plain/ddp --nodes 4 --tensor 1
! grep -q sequence runs/plain/ddp/config.json || fail 'copies of one node each have sequence'
ok generate --model runs/one/ddp --prompt The --max-new-tokens 3

# Stages of a pipeline, nodes that share sequences, and back. The model is untied, so stages have the bits of
# whole nodes with the same minibatches.
sed 's/context: 16}/context: 16, tied: false}/; s/layers: 1/layers: 2/; s/name: fsdp/name: ddp/; s/batch_size: 2/batch_size: 2, minibatch_size: 1/' job.yaml >untied.yaml
stages='parallel={pipeline: 2, microbatches: 2}'
ok run untied.yaml --no-plot --save-dir runs --set nodes=2 --set train.max_steps=6 --name alone
ok run untied.yaml --no-plot --save-dir runs --set "$stages" --name staged
ok ckpt reshard runs/staged runs/tokens/ddp --nodes 4 --context 2
has out 'runs/tokens/ddp: step 3, 4 nodes (context 2) instead of 4 (pipeline 2), ddp'
ok ckpt reshard runs/tokens/ddp runs/back/ddp --full --nodes 2
ok ckpt reshard runs/back/ddp runs/restaged/ddp --nodes 4 --pipeline 2 --microbatches 2
has out 'runs/restaged/ddp: step 3, 4 nodes (pipeline 2) instead of 2, ddp'
for run in back restaged; do
    ok run runs/$run/ddp/config.json --no-plot --save-dir runs --set train.max_steps=6 --resume
done
ok run untied.yaml --no-plot --save-dir runs --set nodes=2 --set train.max_steps=6 --name staged --resume=reshard
has err 'ddp: the checkpoint of step 3 is converted: 2 nodes instead of 4 (pipeline 2)'
for run in back restaged staged; do
    [ "$(hash runs/$run/ddp)" = "$(hash runs/alone/ddp)" ] || fail "$run: other bits than two whole nodes"
done

# What cannot be converted is not advised: copies of diloco stay as many, and nodes that are apart have states of their own.
sed 's/strategy:.*/strategy: {name: diloco, H: 2}/' untied.yaml >diloco.yaml
ok run diloco.yaml --no-plot --save-dir runs --name copies
bad 2 'begun with another nodes; run with --overwrite to start over' run diloco.yaml --save-dir runs --name copies --resume --set nodes=3
bad 2 'begun with another nodes; run with --resume=reshard, which' run diloco.yaml --save-dir runs --name copies --resume \
    --set nodes=8 --set parallel.context=2

# Where shards are is no setting of the numbers.
ok run job.yaml --no-plot --save-dir offload --set train.max_steps=6
cp -r runs/job runs/moved
ok run job.yaml --no-plot --save-dir runs --name moved --set train.max_steps=6 --set strategy.cpu_offload=true --resume
[ "$(hash runs/moved/fsdp)" = "$(hash offload/job/fsdp)" ] || fail 'cpu_offload: other bits'

# --- Kills
# ---------------------------------------------------------------------------------------------------------

# The checkpoint is converted in the run's own folder, which is killed, and begun again.
cp -r runs/job runs/killed
RANDOM=${EXO_SEED:-7}
for ((kill = 0; kill < ${EXO_KILLS:-3}; kill++)); do
    "$EXOGYM" "${on_three[@]}" --set train.checkpoint_interval=1 --save-dir runs --name killed --resume=reshard >out 2>err &
    sleep "0.$((RANDOM % 5))$((RANDOM % 10))"
    kill -KILL $! 2>/dev/null
    wait $! 2>/dev/null
done
ok "${on_three[@]}" --set train.checkpoint_interval=1 --save-dir runs --name killed --resume=reshard
[ "$(hash runs/killed/fsdp)" = "$(hash runs/full/ddp)" ] || fail 'killed: other bits'

# --- Mistakes
# ---------------------------------------------------------------------------------------------------------

bad 1 'runs: is no checkpoint, and no run with one' ckpt reshard runs none/a
mkdir -p several/ddp && cp -r runs/job/fsdp several/second && cp -r runs/job/fsdp several/first
bad 2 'several: has the checkpoints of 2 runs: name one of several/first, several/second' ckpt reshard several none/a
bad 1 'runs/three/fsdp: holds a run already: give a folder without one' ckpt reshard runs/job/fsdp runs/three/fsdp
bad 2 '--nodes 0: expected a number from 1 to 65536' ckpt reshard runs/job/fsdp none/a --nodes 0
bad 2 '--full is --strategy ddp: give one of them' ckpt reshard runs/job/fsdp none/a --full --strategy ddp
bad 2 "unknown option --node; did you mean --nodes?" ckpt reshard runs/job/fsdp none/a --node 3
bad 2 "there is no strategy 'fdsp'; did you mean 'fsdp'?" ckpt reshard runs/job/fsdp none/a --strategy fdsp
bad 2 "exogym: --strategy:1:24: unknown key 'group_sze'; did you mean 'group_size'?" ckpt reshard runs/job/fsdp none/a --strategy '{name: fsdp, group_sze: 2}'
bad 2 '3 nodes cannot be cut into groups of 2' ckpt reshard runs/job/fsdp none/a --nodes 3 --strategy '{name: fsdp, group_size: 2}'
bad 2 'tensor 2 does not divide the 3 nodes' ckpt reshard runs/job/fsdp none/a --full --nodes 3 --tensor 2
bad 1 "the nodes of the strategy 'diloco' have states of their own" ckpt reshard runs/job/fsdp none/a --strategy diloco
bad 2 '--microbatches goes with --pipeline: give both' ckpt reshard runs/job/fsdp none/a --microbatches 2

# Nothing is written into the source, through dots or a link either.
ln -s ../runs/job/fsdp/checkpoints several/inner
for to in runs/job/fsdp/x runs/job/fsdp/checkpoints/step_00000003 runs/three/../job/fsdp/checkpoints/step_00000003/x/y \
    several/inner/step_00000003/x; do
    bad 2 "$to: lies within $folder/runs/job/fsdp, which is converted" ckpt reshard runs/job/fsdp "$to"
done
ok ckpt reshard runs/job/fsdp runs/job/../dots/ddp --full
rm -rf runs/dots/ddp/checkpoints
bad 1 'runs/dots/ddp: holds a run already' ckpt reshard runs/job/fsdp runs/dots/ddp # a job without a checkpoint
# What is damaged beside the checkpoint, and a checkpoint of another version.
cp -r runs/job/fsdp damaged
for text in '' '[]' '{}' '{"strategy": "fsdp"}'; do
    printf %s "$text" >damaged/config.json
    bad 1 "damaged/config.json: is damaged: it has no mapping 'strategy'" ckpt reshard damaged none/a/b
done
sed -i '1s/checkpoint 1/checkpoint 2/; $d' damaged/checkpoints/step_00000003/manifest.sha256
manifest=damaged/checkpoints/step_00000003/manifest.sha256
printf '# %s\n' "$(sha256sum <$manifest | cut -d ' ' -f 1)" >>$manifest
bad 1 "$manifest: another version of exogym wrote the checkpoint: use that one" ckpt reshard damaged none/a/b
shard=runs/job/fsdp/checkpoints/step_00000003/node_2.safetensors
truncate -s -1 $shard
bad 1 "$shard: is damaged: its SHA-256 is not the one in manifest.sha256" ckpt reshard runs/job/fsdp none/a --nodes 3
bad 1 "$shard: is damaged" "${on_three[@]}" --save-dir runs --resume=reshard
[ ! -e none ] || fail "a refused conversion left $(ls -A none)"
finish
