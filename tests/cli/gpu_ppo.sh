#!/usr/bin/env bash
# Makers with `device: cuda` on the emulated GPU (tests/cuda): the figures of the CPU, equal bits from
# run to run and over placements, and GPUs that are missing or fail.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
here=$EXOGYM
emulate_gpu
cat >ppo.yaml <<'END'
exogym: 1
name: ppo
seed: 42
actors:
  maker:
    class: experience_maker
    config:
      model: &policy {name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: 8}
      prompts: {tokens: [[1], [2], [3, 4]]}
      reward: {name: share, token: 3}
      answers: 2
      batch: 2
      epochs: 2
      generate: {max_new_tokens: 4}
  trainer:
    class: ppo_trainer
    config:
      model: *policy
      batch: 2
      algorithm: {name: grpo, kl_coef: 0.01}
      optimizer: {name: sgd, lr: 0.5}
edges:
  - {from: maker, to: trainer, carries: experience}
  - {from: trainer, to: maker, carries: parameters, route: broadcast, buffer: {on_full: latest}}
END
maker=actors.maker.config.device
# go NAME [OPTION...]: a run.
go() {
    ok run ppo.yaml --name "$@"
}
# same A B: runs with the same items, figures and weights, to the bit.
same() {
    cmp -s "runs/$1/final_trainer_0.json" "runs/$2/final_trainer_0.json" || fail "$1 and $2 have other bits"
}
# near A B: the figures and weights of two runs differ by 1e-5 of the largest weight of a tensor at most.
near() {
    python3 - "$@" <<'END' || fail "$1 and $2 differ"
import json, struct, sys
def weights(run):
    data = open(f"runs/{run}/model_trainer_0/model.safetensors", "rb").read()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {k: t["data_offsets"] for k, t in json.loads(data[8:end]).items() if k != "__metadata__"}
    return {k: struct.unpack(f"<{(b - a) // 4}f", data[end + a:end + b]) for k, (a, b) in tensors.items()}
def figures(run):
    final = json.load(open(f"runs/{run}/final_trainer_0.json"))
    return final["score"], final["kl"], final["updates"], final["items"]
a, b = map(weights, sys.argv[1:])
off = max(max(abs(x - y) for x, y in zip(a[k], b[k])) / max(map(abs, a[k])) for k in a)
off = max([off] + [abs(x - y) / max(1, abs(x)) for x, y in zip(*map(figures, sys.argv[1:]))])
print("off by", off)
sys.exit(not (a.keys() == b.keys() and off <= 1e-5))
END
}

go cpu
go one --set $maker=cuda
go two --set $maker=cuda
go far --set $maker=cuda --workers 2
near cpu one
same one two
same one far
cmp -s runs/cpu/final_trainer_0.json runs/one/final_trainer_0.json && fail 'nothing was computed on the GPU'
# Two makers take two GPUs, and have the bits of one.
EXO_CUDA_EMULATOR='gpus=2' go gpus --set $maker=cuda --set actors.maker.count=2
same one gpus
EXO_CUDA_EMULATOR='gpus=0' go none --set $maker=auto
same cpu none
# Weights that change between two steps, also quantized ones.
go steps --set $maker=cuda --set actors.maker.config.swap=step --set actors.maker.config.weights=int8 \
    --set actors.trainer.config.staleness=1

# What is wrong
EXO_CUDA_EMULATOR='gpus=0' bad 1 'maker_0: there is no GPU' run ppo.yaml --name w1 --set $maker=cuda
EXO_CUDA_EMULATOR='fail_at=200' bad 1 'cudaErrorLaunchFailure' run ppo.yaml --name w2 --set $maker=cuda
bad 2 "actors.maker.config.device: there is no device 'cude'" run ppo.yaml --dry-run --set $maker=cude
bad 2 'parallel: {tensor: 2} goes with device: cpu only' run ppo.yaml --dry-run --set $maker=cuda \
    --set actors.maker.config.parallel.tensor=2
EXOGYM=$here
finish
