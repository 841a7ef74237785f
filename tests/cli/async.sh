#!/usr/bin/env bash
# async_diloco as a job: nobody waits for a slow node, the virtual clock gives the same run twice,
# the server is reached from other processes, a death is known, a stopped run goes on.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

cat >job.yaml <<'END'
exogym: 1
seed: 3
model: {name: mlp, hidden: 32}
data: {name: synthetic, count: 512}
nodes: 4
strategy: {name: async_diloco, H: 10, dynamic: false, optimizer: {name: adamw, lr: 1e-3}}
train: {max_steps: 60, batch_size: 4, val_size: 32, val_interval: 60}
END
END
sed -n 1,40p tests/cli/common.bash; grep -n "slow\b\|speed" docs/graph.md docs/links.md docs/jobs.md | head; grep -rn "compute:" tests/cli/*.sh examples | head -20
