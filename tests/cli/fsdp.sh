#!/usr/bin/env bash
# Data parallelism under the key `parallel` of a job is the same as under `strategy`: the same bits, the same
# bytes and the same config.json; and wrong settings are named with their place.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

cat >job.yaml <<'YAML'
model: {name: mlp, hidden: [16, 12]}
data: {name: synthetic, count: 200}
nodes: 4
train: {max_steps: 3, batch_size: 4, val_size: 8}
parallel: {use_fsdp: true, sharding_strategy: full_shard, cpu_offload: true, sync_module_states: false}
strategy: {optimizer: {name: adamw, lr: 1e-3}}
YAML
# what: hash and bytes of a result.
what() {
    grep -E '"(sha256|bytes_sent_per_node)"' out
}
# same WANTED ARGUMENTS...: a run gives the hash and the bytes in the file WANTED.
same() {
    local wanted=$1
    shift
    ok run "$@" --json --no-plot
    what >got
    cmp -s "$wanted" got || fail "exogym run $*: $(diff "$wanted" got)"
}

ok run job.yaml --json --no-plot
what >wanted
[ "$(wc -l <wanted)" = 2 ] || fail "no figures: $(cat out)"
for key in '"name": "fsdp"' '"sharding_strategy": "full_shard"' '"cpu_offload": true' '"sync_module_states": false'; do
    has runs/job/fsdp/config.json "$key"
done
! grep -q '"parallel"' runs/job/fsdp/config.json || fail 'config.json has the key parallel, too'
same wanted runs/job/fsdp/config.json --name again
same wanted job.yaml --name workers --workers 2
sed '/^parallel/d; s/^strategy: {/&name: fsdp, sharding_strategy: full_shard, /' job.yaml >strategy.yaml
same wanted strategy.yaml
grep -v bytes wanted >hash
sed '/^parallel/d; s/^strategy: {/&name: ddp, /' job.yaml >ddp.yaml
ok run ddp.yaml --json --no-plot
what >wanted_of_ddp
grep -v bytes wanted_of_ddp >got
cmp -s hash got || fail "ddp: $(diff hash got)"
same wanted_of_ddp job.yaml --name off --set 'parallel={use_fsdp: false}'
same wanted_of_ddp job.yaml --name defaults --set \
    'parallel={use_fsdp: false, cpu_offload: false, sharding_strategy: hybrid_shard, sync_module_states: true}'
same wanted_of_ddp job.yaml --name alone --set 'parallel={sync_module_states: false}' --set strategy.name=ddp

# A plan takes such a job, and the command that it prints runs.
"$EXOGYM" plan job.yaml --step-time 5ms >plan 2>err || fail "plan: $(cat err)"
grep -q ' ddp' plan || fail "plan: no ddp: $(cat plan)"
command=$(grep -m 1 'exogym run job.yaml' plan) || fail "no command: $(cat plan)"
eval "ok ${command#*exogym } --no-plot --dry-run"

# --- Mistakes
# ---------------------------------------------------------------------------------------------------------

# wrong PARALLEL MESSAGE SET...: with this value of the key.
wrong() {
    sed "s/^parallel: .*/parallel: $1/" job.yaml >wrong.yaml
    local message=$2
    shift 2
    expect 2 "exogym: $message" run wrong.yaml --save-dir none "$@"
}
wrong '{use_fsdp: true, sharding_strategy: full}' "wrong.yaml:5:47: sharding_strategy: expected one of hybrid_shard, full_shard, shard_grad_op, no_shard, hybrid_shard_zero2, got 'full'"
wrong '{sharding_strategy: full_shard}' 'wrong.yaml:5:31: parallel: sharding_strategy belongs to fsdp: add use_fsdp: true'
wrong '{use_fsdp: false, cpu_offload: true}' 'wrong.yaml:5:42: parallel: cpu_offload belongs to fsdp: add use_fsdp: true'
wrong '{use_fsdp: true, tensor: 2}' "wrong.yaml:5:11: tensor parallelism needs a model of the class gpt, not 'mlp'"
wrong '{auto: {}, use_fsdp: true}' "wrong.yaml:5:32: parallel: auto chooses the rest: leave 'use_fsdp' out"
wrong '{use_fsdp: maybe}' "wrong.yaml:5:22: use_fsdp: expected true or false, got 'maybe'"
wrong '{use_fsdp: true}' "--set strategy.name: the strategy 'diloco' and parallel: use_fsdp, which means 'fsdp', differ: leave one of the two out" --set strategy.name=diloco
wrong '{use_fsdp: true}' '--set compare: parallel: use_fsdp names the only strategy: leave compare out' --set 'compare=[ddp]'
wrong '{use_fsdp: true, sharding_strategy: no_shard}' 'wrong.yaml:5:47: sharding_strategy is given twice, also under strategy' --set strategy.sharding_strategy=no_shard
wrong '{use_fdsp: true}' "wrong.yaml:5:12: unknown key 'use_fdsp'; did you mean 'use_fsdp'?" --set strategy.name=ddp
[ ! -e none ] || fail 'a refused job made a folder'
finish
