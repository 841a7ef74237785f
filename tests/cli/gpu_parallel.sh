#!/usr/bin/env bash
# Nodes that share a copy of the model, with `device: cuda` on the emulated GPU (tests/cuda): tensor,
# sequence, context and pipeline parallelism have the parameters of one node on the
# CPU within 1e-5, and equal bits over GPUs, engines and workers, also under autocast; checkpoints go on on
# another device.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
here=$EXOGYM
emulate_gpu
fox_text 20
cat >job.yaml <<'END'
name: job
model: {name: gpt, layers: 2, heads: 4, kv_heads: 2, width: 16, context: 8, position: rotary}
data: {name: text, path: text.txt, block: 8}
nodes: 2
train: {max_steps: 2, batch_size: 4, val_size: 4}
strategy: {name: ddp, optimizer: {name: sgd, lr: 0.5}, max_norm: 0.5}
END
# go NAME [OPTION...]
go() {
    ok run job.yaml --no-plot --name "$@"
}
gpu=(--set device=cuda)
hash_of() {
    json runs/"$1"/*/result.json sha256
}
# same A B...: they ended with the same bits.
same() {
    local other
    for other in "${@:2}"; do
        [ "$(hash_of "$1")" = "$(hash_of "$other")" ] || fail "$1 and $other have other bits"
    done
}
# near A B...: the parameters of A and each other one differ by $most at most (1e-5), and their losses.
near() {
    most=${most:-1e-5} python3 - "$@" <<'END' || fail "$* differ"
import glob, json, os, struct, sys
def weights(run):
    data = open(glob.glob(f"runs/{run}/*/model.safetensors")[0], "rb").read()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {k: t["data_offsets"] for k, t in json.loads(data[8:end]).items() if k != "__metadata__"}
    found = {k: struct.unpack(f"<{(b - a) // 4}f", data[end + a:end + b]) for k, (a, b) in tensors.items()}
    return found | {"loss": [json.load(open(glob.glob(f"runs/{run}/*/result.json")[0]))["local_loss"]]}
first = weights(sys.argv[1])
for run in sys.argv[2:]:
    other = weights(run)
    off = max(abs(x - y) for k in first for x, y in zip(first[k], other[k]))
    print(run, "is off by", off)
    assert first.keys() == other.keys() and 0 < off <= float(os.environ["most"])
END
}

go one --set nodes=1
go sequence "${gpu[@]}" --set 'parallel={tensor: 2, sequence: true}'
go stages "${gpu[@]}" --set 'parallel={pipeline: 2, microbatches: 2}'
go shards "${gpu[@]}" --set nodes=4 --set train.batch_size=2 --set strategy.name=fsdp --set parallel.tensor=2
# Members turn heads by the places of their tokens in the text; the default engine is `gpu`.
both=("${gpu[@]}" --set nodes=4 --set 'parallel={tensor: 2, context: 2}')
go both "${both[@]}"
near one sequence stages shards both
# Muon gathers slices of matrices.
muon=(--set train.max_steps=1 --set 'strategy.optimizer={name: muon, lr: 0.01}')
go matrices "${muon[@]}" --set nodes=1
go slices "${muon[@]}" "${gpu[@]}" --set parallel.tensor=2
near matrices slices

# GPUs, workers, graphs and NCCL.
EXO_CUDA_EMULATOR='gpus=2' go far "${both[@]}" --workers 2
EXOGYM_CUDA_GRAPHS=on go graphs "${both[@]}"
same both far graphs
emulate_nccl
nccl=("${gpu[@]}" --set engine=nccl --set equal_bits=false)
export EXO_CUDA_EMULATOR='gpus=2'
export EXOGYM_CUDA_GRAPHS=on
go sequence_nccl "${nccl[@]}" --set 'parallel={tensor: 2, sequence: true}'
go stages_nccl "${nccl[@]}" --set 'parallel={pipeline: 2, microbatches: 2}'
unset LD_LIBRARY_PATH EXO_CUDA_EMULATOR EXOGYM_CUDA_GRAPHS
same sequence sequence_nccl
same stages stages_nccl

# A checkpoint of the CPU goes on on a GPU.
long=(--name long --set parallel.context=2 --set train.checkpoint_interval=1)
ok run job.yaml --no-plot "${long[@]}" --set train.max_steps=1
ok run job.yaml --no-plot "${long[@]}" "${gpu[@]}" --resume
near one long

# With operands of bf16 and of fp8: a step, whose gradients have three digits and one and a half.
short=("${gpu[@]}" --set train.max_steps=1 --set train.batch_size=2 --set train.val_size=1 --set model.layers=1)
cast=("${short[@]}" --set train.autocast=bf16)
eight=("${short[@]}" --set train.autocast=fp8 --set model.width=32)
go cast_one "${cast[@]}" --set nodes=1
go eight_one "${eight[@]}" --set nodes=1
go cast_context "${cast[@]}" --set parallel.context=2
EXO_CUDA_EMULATOR='gpus=2' go cast_far "${cast[@]}" --set parallel.context=2 --workers 2
go eight_sequence "${eight[@]}" --set 'parallel={tensor: 2, sequence: true}'
most=5e-4 near cast_one cast_context
most=3e-3 near eight_one eight_sequence
same cast_context cast_far
ok run job.yaml --dry-run "${cast[@]}" --set parallel.context=2

# A GPU that fails.
EXO_CUDA_EMULATOR='fail_at=200' bad 1 'cudaErrorLaunchFailure' run job.yaml --no-plot --name fails "${gpu[@]}" --set parallel.tensor=2
EXOGYM=$here
finish
