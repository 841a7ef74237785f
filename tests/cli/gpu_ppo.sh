#!/usr/bin/env bash
# Makers and trainers with `device: cuda` on the emulated GPU (tests/cuda): the figures of the CPU,
# ratios of exactly 1, equal bits from run to run and over placements, checkpoints that go on on another
# device, the engines of several trainers, and GPUs that are missing or fail.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
here=$EXOGYM
emulate_gpu
emulate_nccl
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
trainer=actors.trainer.config
both=(--set "$maker=cuda" --set "$trainer.device=cuda" --set "$trainer.slices=2")
# go NAME [OPTION...]: a run.
go() {
    ok run ppo.yaml --name "$@"
}
# same A B: runs with the same items, figures and weights, to the bit.
same() {
    cmp -s "runs/$1/final_trainer_0.json" "runs/$2/final_trainer_0.json" || fail "$1 and $2 have other bits"
}
# one_hash NAME...: all trainers of these runs ended with the same weights.
one_hash() {
    local hashes
    hashes=$(for name; do cat "runs/$name"/final_trainer_*.json; done | grep -o '"sha256": "[0-9a-f]*"' | sort -u | wc -l)
    [ "$hashes" = 1 ] || fail "trainers of $* have $hashes different weights"
}
# exact NAME: before the first step of each update, each token has the probability that the maker gave it.
exact() {
    local file
    for file in "runs/$1"/versions_*.csv; do
        awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i }
            NR > 1 && $1 > 0 { n++; bad += $column["ratio_off"] != 0 || $column["kl_makers"] != 0 }
            END { exit !(n == 3 && bad == 0) }' "$file" || fail "$1: ratios are not 1: $(cat "$file")"
    done
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
near cpu one
cmp -s runs/cpu/final_trainer_0.json runs/one/final_trainer_0.json && fail 'nothing was computed on the GPU'
# A trainer on a GPU, too.
go both "${both[@]}"
near cpu both
exact both
cmp -s runs/one/final_trainer_0.json runs/both/final_trainer_0.json && fail 'nothing was learned on the GPU'
go two --set $maker=cuda
same one two
EXOGYM_CUDA_GRAPHS=on go far "${both[@]}" --workers 2
same both far
# All updates but the first are handed over in the GPU's memory: the ledger has no bytes of weights for them.
go bytes --workers 2
sent() {
    awk -F, '/trainer>maker:parameters,trainer_0/ {print $6}' "runs/$1/ledger.csv"
}
[ "$(($(sent far) * 3))" -lt "$(($(sent bytes) * 2))" ] || fail "far: $(sent far) bytes of weights, $(sent bytes) without GPUs"
# Two makers take two GPUs, and have the bits of one.
EXO_CUDA_EMULATOR='gpus=2' go gpus --set $maker=cuda --set actors.maker.count=2
same one gpus
EXO_CUDA_EMULATOR='gpus=0' go none --set $maker=auto --set $trainer.device=auto
same cpu none
# Two trainers, with a maker each, learn as one: on one GPU, which adds up their gradients, or with critics
# and a strategy on two GPUs, by NCCL.
edges='{from: maker, to: trainer, carries: experience, route: modulo},
    {from: trainer, to: maker, carries: parameters, route: modulo, buffer: {on_full: latest}}'
pair=(--set actors.maker.count=2 --set actors.trainer.count=2 --set "$trainer.batch=1")
gradients='from: trainer, to: trainer, carries: gradients, route: all_reduce'
go pair "${both[@]}" "${pair[@]}" --set "edges=[$edges, {$gradients}]"
one_hash both pair
wrong() {
    bad "$1" "edge 'trainer>trainer:gradients': $2" run ppo.yaml --name wrong "${both[@]}" "${pair[@]}" --set "edges=[$edges, {$gradients, $3}]" "${@:4}"
}
wrong 2 'engine nccl does not promise equal bits' 'engine: nccl' --dry-run
wrong 2 "there is no engine 'locale'; did you mean 'local'?" 'engine: locale' --dry-run
wrong 2 "there is no engine 'ncl'; did you mean 'nccl'?" 'engine: ncl' --dry-run
wrong 2 "there is no engine 'teleport'; known are: auto, gpu, local, nccl, net; mpi needs MPI (Debian: libopenmpi-dev) and exogym-mpi.so" 'engine: teleport' --dry-run
wrong 2 'engine gpu has no codecs' 'engine: gpu, codec: bf16' --dry-run
wrong 2 'engine gpu has no emulated links and no virtual clock' 'engine: gpu' --dry-run --set clock=virtual
wrong 2 "engine nccl moves data from GPU to GPU, and 'trainer' computes on the CPU" 'engine: nccl, equal_bits: false' \
    --dry-run --set $trainer.device=cpu
wrong 1 'engine gpu is for members in one process' 'engine: gpu' --workers 2
bad 2 "edge 'maker>trainer:experience': engine is of an all_reduce" run ppo.yaml --dry-run --set edges.0.engine=gpu
pair+=(--set "edges=[$edges, {from: trainer, to: trainer, carries: parameters, route: all_reduce}]"
    --set "$trainer.updates=3" --set "$trainer.strategy={name: diloco, H: 3}" --set "$trainer.algorithm.name=ppo"
    --set "$trainer.critic={name: gpt, layers: 1, heads: 2, width: 16, context: 16, vocabulary: 8, values: true}")
go apart_cpu "${pair[@]}"
EXO_CUDA_EMULATOR='gpus=2' go apart "${pair[@]}" "${both[@]}" --workers 2 --set edges.2.engine=nccl --set edges.2.equal_bits=false
[ -z "$(ls rooms)" ] || fail "communicators are left: $(ls rooms)"
near apart_cpu apart
one_hash apart
exact apart
# A checkpoint of a run on the CPU goes on on a GPU, and the other way round.
# cut VERSION: the run `moved` ended with it.
cut() {
    local version
    rm runs/moved/result.json
    for ((version = $1 + 1; version <= 3; version++)); do
        rm runs/moved/checkpoint_trainer_0_000000000$version.safetensors
    done
}
# hash_of NAME VERSION
hash_of() {
    sed -n "s/^$2,[^,]*,\([0-9a-f]*\),.*/\1/p" "runs/$1/versions_trainer_0.csv"
}
go moved --set $trainer.checkpoint.every=1
cut 1
go moved --set $trainer.checkpoint.every=1 --set $trainer.device=cuda --resume
cut 2
[ "$(hash_of moved 1)" = "$(hash_of cpu 1)" ] || fail 'the run on the GPU began anew'
[ "$(hash_of moved 2)" != "$(hash_of cpu 2)" ] || fail 'nothing was learned on the GPU'
learned=$(hash_of moved 2)
go moved --set $trainer.checkpoint.every=1 --resume
[ "$(hash_of moved 2)" = "$learned" ] || fail 'the run on the CPU began anew'
near cpu moved
# Weights that change between two steps, also quantized ones.
go steps --set $maker=cuda --set actors.maker.config.swap=step --set actors.maker.config.weights=int8 \
    --set actors.trainer.config.staleness=1

# Makers that share a model, with a GPU each, in two workers: the bits of one maker.
shared=(--set actors.maker.count=2 --set actors.maker.config.parallel.tensor=2 --set "$trainer.update.form=whole")
shared+=(--set 'edges=[{from: maker, to: trainer, carries: experience},
    {from: trainer, to: maker, carries: parameters, route: broadcast, buffer: {on_full: latest}},
    {from: maker, to: maker, carries: activations, route: all_reduce}]')
EXO_CUDA_EMULATOR='gpus=2' go shared "${both[@]}" "${shared[@]}" --workers 2
same both shared
exact shared
# On one GPU they exchange there, and on two by NCCL.
there="${shared[-1]}"
go there "${both[@]}" "${shared[@]::${#shared[@]}-1}" "${there/route: all_reduce/route: all_reduce, engine: gpu}"
same both there
EXO_CUDA_EMULATOR='gpus=2' go by_nccl "${both[@]}" \
    "${shared[@]::${#shared[@]}-1}" "${there/route: all_reduce/route: all_reduce, engine: nccl, equal_bits: false}" --workers 2
same both by_nccl

# What is wrong
EXO_CUDA_EMULATOR='gpus=0' bad 1 'maker_0: there is no GPU' run ppo.yaml --name w1 --set $maker=cuda
EXO_CUDA_EMULATOR='gpus=0' bad 1 'trainer_0: there is no GPU' run ppo.yaml --name w2 --set $trainer.device=cuda
EXO_CUDA_EMULATOR='fail_at=200' bad 1 'cudaErrorLaunchFailure' run ppo.yaml --name w3 --set $maker=cuda
EXO_CUDA_EMULATOR='fail_at=300' bad 1 'cudaErrorLaunchFailure' run ppo.yaml --name w4 --set $trainer.device=cuda
bad 2 "actors.maker.config.device: there is no device 'cude'" run ppo.yaml --dry-run --set $maker=cude
bad 2 "actors.trainer.config.device: there is no device 'cude'" run ppo.yaml --dry-run --set $trainer.device=cude
EXO_CUDA_EMULATOR='fail_at=400' bad 1 'cudaErrorLaunchFailure' run ppo.yaml --name w5 --set $maker=cuda "${shared[@]}"
bad 1 'engine gpu is for members in one process' run ppo.yaml --name w6 "${shared[@]::${#shared[@]}-1}" \
    "${there/route: all_reduce/route: all_reduce, engine: gpu}" --workers 2
bad 2 'engine gpu has no codecs' run ppo.yaml --name w7 "${shared[@]::${#shared[@]}-1}" \
    "${there/route: all_reduce/route: all_reduce, engine: gpu, codec: bf16}"
bad 2 'engine is of an all_reduce' run ppo.yaml --name w8 "${shared[@]}" --set edges.0.engine=gpu
EXOGYM=$here
finish
