#!/usr/bin/env bash
# The stages of examples/32_rlhf, small, and DPO with `device: cuda` on the emulated GPU (tests/cuda):
# the figures and weights of the CPU within 1e-4, equal bits from run to run and on workers, trainers
# on two GPUs, also by NCCL and after a death, checkpoints that go on on another device, and GPUs that are
# missing or fail.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
here=$EXOGYM
emulate_gpu
emulate_nccl

for i in 1 2 3 4 5 6 7 8; do
    printf '{"prompt": "p%d:", "chosen": "aab", "rejected": "bbb"}\n' "$i"
done >pairs.jsonl
sed 's/"chosen": \("[^"]*"\).*/"answer": \1}/' pairs.jsonl >answers.jsonl
printf 'p1:\np2:\np3:\n' >prompts.txt
cat >sft.yaml <<'END'
exogym: 1
name: sft
seed: 42
actors:
  trainer:
    class: sft_trainer
    config:
      model: {name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: 256}
      data: {path: answers.jsonl}
      validation: 25 %
      batch: 3
      rows: 2
      steps: 4
      checkpoint: {every: 1}
      optimizer: {name: sgd, lr: 0.5}
END
sed 's/sft_trainer/dpo_trainer/; s/name: sft/name: dpo/; s/answers/pairs/; s/rows: 2/beta: 0.2/' sft.yaml >dpo.yaml
cat >reward.yaml <<'END'
exogym: 1
name: reward
seed: 142
actors:
  maker:
    class: experience_maker
    config:
      model: {name: gpt, path: runs/sft_cpu/model_trainer_0}
      prompts: {path: prompts.txt}
      reward: {name: expression, formula: 'count("a")'}
      answers: 4
      epochs: 2
      batch: 3
      generate: {max_new_tokens: 6}
  trainer:
    class: reward_trainer
    config:
      model: {name: gpt, path: runs/sft_cpu/model_trainer_0, values: true}
      validation: 25 %
      batch: 4
      optimizer: {name: sgd, lr: 0.1}
edges:
  - {from: maker, to: trainer, carries: experience}
END
cat >ppo.yaml <<'END'
exogym: 1
name: ppo
seed: 242
actors:
  maker:
    class: experience_maker
    config:
      model: &policy {name: gpt, path: runs/sft_cpu/model_trainer_0}
      prompts: {path: prompts.txt}
      reward:
        - {name: model, path: runs/reward_cpu/model_trainer_0, normalize: true}
        - {name: expression, formula: 'length', weight: 0.1}
      answers: 2
      batch: 3
      generate: {max_new_tokens: 6}
  trainer:
    class: ppo_trainer
    config:
      model: *policy
      critic: {name: gpt, path: runs/reward_cpu/model_trainer_0, values: true}
      algorithm: {name: ppo, kl_coef: 0.2}
      batch: 3
      updates: 2
      optimizer: {name: sgd, lr: 0.1}
      critic_optimizer: {name: sgd, lr: 0.1}
      ptx: {coef: 0.5, batch: 2, path: answers.jsonl}
edges:
  - {from: maker, to: trainer, carries: experience}
  - {from: trainer, to: maker, carries: parameters, route: broadcast, buffer: {on_full: latest}}
END
maker=actors.maker.config
trainer=actors.trainer.config
both=(--set $maker.device=cuda --set $trainer.device=cuda)
# go STAGE NAME [OPTION...]: a run.
go() {
    local stage=$1
    shift
    ok run "$stage.yaml" --name "$@"
}
# same A B: runs with the same figures and weights, to the bit.
same() {
    cmp -s "runs/$1/final_trainer_0.json" "runs/$2/final_trainer_0.json" || fail "$1 and $2 have other bits"
}
# near A B: the figures and weights of two runs differ by 1e-4 at most, but are not the same.
near() {
    cmp -s "runs/$1/final_trainer_0.json" "runs/$2/final_trainer_0.json" && fail "$1 and $2 have the same bits"
    python3 - "$@" <<'END' || fail "$1 and $2 differ"
import glob, json, struct, sys
def weights(run):
    found = {}
    for path in sorted(glob.glob(f"runs/{run}/model_trainer_0/*.safetensors")):
        data = open(path, "rb").read()
        end = 8 + struct.unpack("<Q", data[:8])[0]
        found |= {k: struct.unpack(f"<{(b - a) // 4}f", data[end + a:end + b]) for k, t in
                  json.loads(data[8:end]).items() if k != "__metadata__" for a, b in [t["data_offsets"]]}
    return found
def figures(run):
    final = json.load(open(f"runs/{run}/final_trainer_0.json"))
    return {k: v for k, v in final.items() if isinstance(v, (int, float))}
a, b = map(weights, sys.argv[1:])
off = max(max(abs(x - y) for x, y in zip(a[k], b[k])) / max(1e-6, *map(abs, a[k])) for k in a)
f, g = map(figures, sys.argv[1:])
off = max([off] + [abs(f[k] - g[k]) / max(1, abs(f[k])) for k in f])
print("off by", off)
sys.exit(not (a.keys() == b.keys() and f.keys() == g.keys() and off <= 1e-4))
END
}

# Texts: sft and DPO.
for stage in sft dpo; do
    go $stage ${stage}_cpu
    go $stage ${stage}_gpu --set $trainer.device=cuda
    near ${stage}_cpu ${stage}_gpu
    EXOGYM_CUDA_GRAPHS=on go $stage ${stage}_far --set $trainer.device=cuda --workers 1
    same ${stage}_gpu ${stage}_far
done
# Two trainers on two GPUs learn as one. A worker is killed: both get another life, with another
# communicator of NCCL. A run that ends before is repeated with more steps.
for steps in 4 8 16 32; do
    rm -rf runs/nccl
    two=(--overwrite --set $trainer.device=cuda --set $trainer.steps=$steps --set actors.trainer.count=2)
    TMPDIR=$folder EXO_CUDA_EMULATOR='gpus=2' "$EXOGYM" run dpo.yaml --name nccl --workers 2 "${two[@]}" \
        --set actors.trainer.restart.when=on_failure \
        --set 'edges=[{from: trainer, to: trainer, carries: gradients, engine: nccl, equal_bits: false}]' >out 2>err </dev/null &
    run=$!
    until [ -e runs/nccl/checkpoint_trainer_0_0000000001.safetensors ]; do
        kill -0 "$run" 2>/dev/null || break
        sleep 0.05
    done
    pgrep -f "$folder/bin/exogym-worker" | tail -1 | xargs -r kill -9
    wait "$run" || fail "nccl: ended with $?: $(tail -3 err)"
    ! grep -q 'it begins life 2' err || break
done
has err 'it begins life 2'
EXO_CUDA_EMULATOR='gpus=2' go dpo pair "${two[@]}" --set 'edges=[{from: trainer, to: trainer, carries: gradients, route: all_reduce}]'
[ "$(cat runs/{pair,nccl}/final_trainer_*.json | grep -o '"sha256": "[0-9a-f]*"' | sort -u | wc -l)" = 1 ] ||
    fail 'two trainers have different weights'

# Comparisons of a maker, then PPO with the reward model on the maker's GPU.
go reward reward_cpu
go reward reward_gpu "${both[@]}"
near reward_cpu reward_gpu
go ppo ppo_cpu
go ppo ppo_gpu "${both[@]}" --set $maker.reward.0.device=cuda
near ppo_cpu ppo_gpu
go ppo ppo_score --set $maker.reward.0.device=cuda
near ppo_cpu ppo_score

# A checkpoint of the CPU goes on on a GPU, and the other way round. cut STEP: the run ended with it.
cut() {
    local step
    rm runs/moved/result.json
    for ((step = $1 + 1; step <= 4; step++)); do
        rm "runs/moved/checkpoint_trainer_0_000000000$step.safetensors"
    done
}
# line RUN STEP: loss and norm of a step.
line() {
    sed -n "s/^$2,[^,]*,//p" "runs/$1/steps_trainer_0.csv"
}
go sft moved
cut 1
go sft moved --set $trainer.device=cuda --resume
[ "$(line moved 1)" = "$(line sft_cpu 1)" ] || fail 'the run on the GPU began anew'
near sft_cpu moved
cut 3
learned=$(line moved 3)
go sft moved --resume
[ "$(line moved 3)" = "$learned" ] || fail 'the run on the CPU began anew'
near sft_cpu moved
rm runs/ppo_cpu/result.json
go ppo ppo_cpu --set $maker.reward.0.device=auto --resume

# What is wrong, and `auto`.
EXO_CUDA_EMULATOR='gpus=0' go sft auto --set $trainer.device=auto
same sft_cpu auto
EXO_CUDA_EMULATOR='gpus=0' bad 1 'trainer_0: there is no GPU' run sft.yaml --name w1 --set $trainer.device=cuda
EXO_CUDA_EMULATOR='gpus=0' bad 1 'maker_0: there is no GPU' run ppo.yaml --name w2 --set $maker.reward.0.device=cuda
EXO_CUDA_EMULATOR='fail_at=200' bad 1 'cudaErrorLaunchFailure' run dpo.yaml --name w3 --set $trainer.device=cuda
EXO_CUDA_EMULATOR='fail_at=20' bad 1 'cudaErrorLaunchFailure' run ppo.yaml --name w4 --set $maker.reward.0.device=cuda
bad 2 "actors.trainer.config.device: there is no device 'cude'" run sft.yaml --dry-run --set $trainer.device=cude
bad 2 "there is no device 'cude'" run ppo.yaml --dry-run --set $maker.reward.0.device=cude
EXOGYM=$here
finish
