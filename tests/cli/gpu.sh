#!/usr/bin/env bash
# Whole jobs with `device: cuda` on the emulated GPU (tests/cuda), by the programs themselves: the
# plugin lies beside copies of them. Without a C++ compiler there is no such plugin.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
here=$EXOGYM
emulate_gpu

ok doctor
has out 'cuda:0         emulated GPU, 9.0, with fp8'
mkdir none cudnn
if ! ldconfig -p | grep -q 'libcudnn\.so\.9'; then
    ok doctor
    has out "cuDNN          is not there; exogym's own kernels compute convolutions"
    EXOGYM_CUDNN=on ok doctor
    has out '! cuDNN          is not there'
    has out 'EXOGYM_CUDNN needs it: install cuDNN 9 for CUDA 13'
fi
# One that needs a library that is missing.
export LD_LIBRARY_PATH=$PWD/none
echo 'int gone;' | $CC -shared -fPIC -x c - -o none/libgone.so || fail 'no library'
echo 'extern int gone; int *at = &gone;' | $CC -shared -fPIC -x c - -Lnone -lgone -o none/libcudnn.so.9 || fail 'no library'
rm none/libgone.so
ok doctor
has out "! cuDNN          cannot be used; exogym's own kernels compute convolutions"
has out 'libcudnn.so.9 is there, and cannot be loaded: libgone.so: cannot open shared object file'
LD_LIBRARY_PATH=$PWD/cudnn
stand_in cudnn_test cudnn/libcudnn.so.9
ok doctor
has out 'cuDNN          9.19.0, not used: EXOGYM_CUDNN=on lets it compute convolutions and attention'
EXOGYM_CUDNN=tf32 ok doctor
has out 'cuDNN          9.19.0, computes convolutions'
has out 'CUDA graphs    start steps of generation; EXOGYM_CUDA_GRAPHS=on lets them start those of training, too'
EXOGYM_CUDA_GRAPHS=on ok doctor
has out 'CUDA graphs    start steps of generation and of training'
unset LD_LIBRARY_PATH

# Strategies: equal bits from run to run, over engines and placements; the losses of the CPU.
cat >job.yaml <<'END'
name: job
model: {name: mlp, hidden: [16]}
data: synthetic
nodes: 2
train: {max_steps: 4, batch_size: 8, val_size: 32}
strategy: {optimizer: {name: adamw, lr: 1e-2}}
compare: [ddp, {name: diloco, H: 2, max_norm: 0.5}, {name: sparta, p: 0.2}, quantized, {name: demo, chunk: 8}]
END
# With sanitizers the emulated GPU is slow: each path is taken once.
engines=(auto gpu local) sources=(cpu cuda) models=(job gpt)
grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt" || {
    sed -i 's/^compare:.*/compare: [ddp]/' job.yaml
    engines=() sources=(cpu) models=(job)
}
# train NAME [OPTION...]: hashes of the strategies are in NAME.sha, losses and norms of gradients in NAME.loss.
train() {
    local name=$1
    shift
    ok run job.yaml --name "$name" --no-plot --json "$@"
    python3 -c '
import json, sys
runs = json.load(open("out"))["runs"]
open(sys.argv[1] + ".sha", "w").write("\n".join(r["sha256"] for r in runs))
norms = [m["value"] for r in runs for name, m in r["meters"].items() if name.endswith("grad_norm")]
assert len(norms) == 2 * any(r["strategy"] == "diloco" for r in runs) and all(norms)
open(sys.argv[1] + ".loss", "w").write("\n".join(map(str, [r["global_loss"] for r in runs] + norms)))
' "$name" || fail "$name: no results"
}
train cpu
train one --set device=cuda
EXOGYM_CUDA_GRAPHS=on train two --set device=cuda --set engine=local
EXOGYM_CUDA_GRAPHS=on train far --set device=cuda --workers 2
LD_LIBRARY_PATH=$PWD/none EXOGYM_CUDNN=on bad 1 'cannot be loaded: libgone.so' run job.yaml --no-plot --name none --set device=cuda
cmp -s one.sha two.sha || fail 'engine local and graphs give other bits'
cmp -s one.sha far.sha || fail 'workers and graphs give other bits'
paste cpu.loss one.loss | awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4 || $1 == 0) exit 1 }' || fail "losses: $(paste cpu.loss one.loss)"

# `auto` is the engine gpu for nodes on one GPU: no gradient goes through the host. With it, steps are graphs,
# up to the buckets of gradients that the engine takes.
for engine in "${engines[@]}"; do
    EXOGYM_CUDA_GRAPHS=$([ "$engine" = auto ] && echo on) EXO_CUDA_EMULATOR='say=1' ok run job.yaml --name say --no-plot --overwrite --set device=cuda --set engine=$engine \
        --set compare='[ddp]' --set train.val_interval=0
    sed -n 's/^cuda: \([0-9]*\) bytes to the host$/\1/p' err >$engine.bytes
    [ "$(json runs/say/ddp/result.json sha256)" = "$(head -1 one.sha)" ] || fail "engine $engine gives other bits"
    grep -q '^cuda: 0 graphs' err || [ "$engine" = auto ] || fail "engine $engine: graphs that nobody asked for"
    [ "$engine" != auto ] || grep -q '^cuda: [1-9][0-9]* graphs' err || fail 'no graphs'
done
if [ ${#engines[@]} -gt 0 ]; then
    [ "$(cat auto.bytes)" = "$(cat gpu.bytes)" ] || fail "auto copies $(cat auto.bytes) bytes to the host, gpu $(cat gpu.bytes)"
    [ $(($(cat local.bytes) - $(cat gpu.bytes))) -ge $((4 * 4 * 12730 * 2)) ] || fail "local copies $(cat local.bytes) bytes"
fi

# A checkpoint of the GPU goes on on the CPU, and the other way round.
long=(--set compare='[{name: diloco, H: 2}]' --set train.checkpoint_interval=2 --no-plot)
ok run job.yaml --name whole "${long[@]}" --set train.max_steps=4 --set device=cuda
for from in "${sources[@]}"; do
    to=$([ $from = cpu ] && echo cuda || echo cpu)
    ok run job.yaml --name "$from" "${long[@]}" --set train.max_steps=2 --set device=$from --overwrite
    EXOGYM_CUDA_GRAPHS=on ok run job.yaml --name "$from" "${long[@]}" --set train.max_steps=4 --set device=$to --resume
    a=$(json runs/$from/diloco/result.json global_loss) b=$(json runs/whole/diloco/result.json global_loss)
    awk -v a="$a" -v b="$b" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-4 && d > -1e-4) }' || fail "resumed from $from: $a, not $b"
done

# A decoder trains and generates there; the text of a greedy step is the CPU's.
for i in $(seq 100); do
    printf 'line %d of a text that is learned from, %d\n' "$i" $((i * 7 % 13))
done >text.txt
cat >gpt.yaml <<'END'
name: gpt
model: {name: gpt, layers: 2, heads: 2, width: 16, context: 16}
data: {name: text, path: text.txt, block: 16}
nodes: 2
train: {max_steps: 3, batch_size: 2, val_size: 4}
strategy: ddp
END
ok run gpt.yaml --no-plot --set device=cuda --set engine=gpu
for weights in fp32 int8; do
    ok generate --model runs/gpt/ddp --prompt 'line ' --max-new-tokens 6 --temperature 0 --weights $weights --device cuda
    cp out there
    ok generate --model runs/gpt/ddp --prompt 'line ' --max-new-tokens 6 --temperature 0 --weights $weights
    cmp -s out there || fail "$weights: '$(cat there)' on the GPU, '$(cat out)' on the CPU"
done

# fp8: losses near those of bf16, and one set of bits: with graphs, workers, checkpointed blocks and fsdp.
# learns [OPTION...]: says the loss and the hash.
learns() {
    rm -rf runs/learns
    ok run gpt.yaml --name learns --no-plot --set device=cuda --set 'strategy={name: ddp, optimizer: {name: adamw, lr: 1e-2}}' "$@"
    echo "$(json runs/learns/*/result.json global_loss) $(json runs/learns/*/result.json sha256)"
}
apart() { awk '{ d = $1 - $3; exit !($1 > 0 && d < 0.03 && d > -0.03 && $2 != $4) }' <<<"$2 $3" || fail "fp8, $1: '$3', and '$2' of bf16"; }
eight=$(EXOGYM_CUDA_GRAPHS=on learns --set train.autocast=fp8)
[[ $eight =~ ^[0-9.]+\ [0-9a-f]+$ ]] || fail "fp8: $eight"
if [ ${#engines[@]} -gt 0 ]; then
    half=$(learns --set train.autocast=bf16)
    apart graphs "$half" "$eight"
    apart 'or attention by cuDNN' "$half" "$(LD_LIBRARY_PATH=$PWD/cudnn EXOGYM_CUDNN=on learns --set train.autocast=bf16)"
    got=$(EXOGYM_CUDA_GRAPHS=on learns --set train.autocast=fp8 --set model.checkpoint=true --set strategy.name=fsdp --workers 2)
    [ "$got" = "$eight" ] || fail "fp8 with checkpointed blocks, fsdp and workers: '$got', not '$eight'"
    lora=(--set 'model.lora={rank: 4}')
    apart lora "$(learns "${lora[@]}" --set train.autocast=bf16)" "$(learns "${lora[@]}" --set train.autocast=fp8)"
fi
# The processor needs no bf16 for that.
ONEDNN_MAX_CPU_ISA=AVX2 bad 1 'that are all multiples of 16: use bf16' run gpt.yaml --name narrow --no-plot --set device=cuda --set train.autocast=fp8 --set model.width=8
EXO_CUDA_EMULATOR='capability=86' bad 1 'train.autocast: fp8 needs GPUs of compute capability 8.9 or later, and cuda:0, emulated GPU, has 8.6' \
    run gpt.yaml --name old --no-plot --set device=cuda --set train.autocast=fp8
EXO_CUDA_EMULATOR='capability=86' bad 1 'train.autocast: fp8 needs GPUs of compute capability 8.9 or later' \
    run gpt.yaml --dry-run --set device=cuda --set train.autocast=fp8
EXOGYM=$here bad 1 'train.autocast: fp8 needs a GPU: give device: cuda, or take bf16' \
    run gpt.yaml --name none --no-plot --set device=auto --set train.autocast=fp8
[ ! -e runs/none ] || fail 'fp8 without a GPU: the run began'
for autocast in bf16 fp8; do
    ONEDNN_MAX_CPU_ISA=AVX2 ok run gpt.yaml --dry-run --json --set device=cuda --set train.autocast=$autocast
    [ "$(json out activations)" -gt 0 ] || fail "$autocast: a plan without activations"
done

# Nodes of a graph: the losses of the CPU, and equal bits in one process and on workers.
cat >islands.yaml <<'END'
exogym: 1
name: islands
seed: 42
actors:
  node:
    class: train_node
    count: 4
    config:
      model: {name: mlp, hidden: [16]}
      data: synthetic
      train: {max_steps: 4, batch_size: 8, val_size: 32}
      strategy: {name: islands, island_size: 2, inside: ddp, across: {name: diloco, H: 2}, optimizer: {name: sgd, lr: 0.05}}
edges:
  - {from: node, to: node, carries: gradients, route: all_reduce, members: 2}
  - {from: node, to: node, carries: parameters, route: all_reduce, interval: 2}
END
on_gpu='--set actors.node.config.device=cuda'
if [ ${#engines[@]} -gt 0 ]; then
    for run in "cpu" "one $on_gpu" "far $on_gpu --workers 2"; do
        ok run islands.yaml --name $run
        name=${run%% *}
        meter "runs/$name/result.json" node_0.val_loss >$name.loss
        meter "runs/$name/result.json" node_3.fingerprint >$name.print
    done
    cmp -s one.print far.print || fail 'nodes of a graph on workers have other bits'
    cmp -s one.print cpu.print && fail 'the nodes of the graph computed on the CPU'
    paste cpu.loss one.loss | awk '{ d = $1 - $2; exit !($1 > 0 && d < 1e-4 && d > -1e-4) }' || fail "losses: $(paste cpu.loss one.loss)"
fi
EXO_CUDA_EMULATOR='gpus=0' bad 1 'there is no GPU' run islands.yaml --name w $on_gpu
bad 2 "there is no device 'cude'" run islands.yaml --dry-run --set actors.node.config.device=cude
ok graph expand gpt.yaml --set device=cuda
has out 'device: cuda'

# A pass waits for nothing: the losses are read once a request, which has at least one step of two passes.
waits() {
    EXO_CUDA_EMULATOR='say=1' ok run "$1.yaml" --name steps --no-plot --overwrite --set device=cuda --set nodes=1 \
        --set train.val_interval=0 --set train.batch_size=4 --set train.minibatch_size=2 --set train.max_steps="$2" "${@:3}"
    sed -n 's/^cuda: \([0-9]*\) waits$/\1/p' err
}
sed -i 's/^compare:.*/compare: [ddp]/' job.yaml
for model in "${models[@]}"; do
    few=$(waits "$model" 2) more=$(waits "$model" 5)
    cp runs/steps/ddp/result.json "$model.json"
    [ "${few:-0}" -gt 0 ] && [ $((more - few)) -lt 6 ] || fail "$model: '$few' waits in 2 steps, '$more' in 5"
done

# A step of two passes is a graph where the environment asks for it, with the same bits: the first one comes to
# know the kernels, the next ones are recorded for the slots of copies, and then nothing is. With clang, equal
# arguments may not be equal bytes.
EXOGYM_CUDA_GRAPHS=on waits job 5 >/dev/null
read -r graphs records < <(sed -n 's/^cuda: \([0-9]*\) graphs, \([0-9]*\) records$/\1 \2/p' err)
{ [ "${graphs:-0}" -eq 4 ] && { [ "$records" -le 2 ] || "$CC" --version | grep -q clang; }; } || fail "'$graphs' graphs in 5 steps, of which '$records' are recorded"
cmp -s <(json job.json sha256) <(json runs/steps/ddp/result.json sha256) || fail 'graphs give other bits'

# What knows the host alone says so.
bad 2 'give a number' run job.yaml --no-plot --name auto --set device=cuda --set train.minibatch_size=auto
bad 1 '--memory SIZE --step-time TIME' plan gpt.yaml --nodes 2 --set device=cuda
ok plan gpt.yaml --nodes 2 --set device=cuda --memory 16GiB --step-time 10ms

# A GPU that fails, and one that is full, end the run with the reason; the next run goes on.
EXO_CUDA_EMULATOR='fail_at=200' bad 1 'cudaErrorLaunchFailure' run job.yaml --name fails --no-plot --set device=cuda
EXO_CUDA_EMULATOR='memory=4724304' bad 1 'no memory for an array of' run job.yaml --name full --no-plot --set device=cuda
EXO_CUDA_EMULATOR='memory=9638608' bad 1 'the arrays of this node hold ' run job.yaml --name fuller --no-plot --set device=cuda
ok why runs/fuller
has out 'runs/fuller/ddp: failed'
grep -qE '^cause: .*the arrays of this node hold [1-9][0-9]*, its plans [0-9]+, pages of caches 0 and workspaces [1-9][0-9]*, ' out ||
    fail "why: $(cat out)"
EXO_CUDA_EMULATOR='memory=200000' bad 1 'its 2 nodes need at least' run job.yaml --dry-run --set device=cuda
# Each node has 4 MiB of landing buffers and 65537 partial sums: 9437200 bytes for two.
EXO_CUDA_EMULATOR='memory=9437200' bad 1 'its 2 nodes need at least' run job.yaml --dry-run --set device=cuda
EXO_CUDA_EMULATOR='memory=20000000' ok run job.yaml --dry-run --set device=cuda
has out 'cuda:0'
EXO_CUDA_EMULATOR='memory=200000' bad 1 'its 2 nodes need at least' run job.yaml --dry-run --set device=auto
EXO_CUDA_EMULATOR='memory=20000000' EXOGYM_CUDA_MEMORY=9437200B bad 1 'cuda:0 has 9.44 MB (EXOGYM_CUDA_MEMORY), and its 2 nodes need' run job.yaml --dry-run --set device=cuda
EXO_CUDA_EMULATOR='memory=20000000' EXOGYM_CUDA_MEMORY=0.4 bad 1 'raise the bound' run job.yaml --dry-run --set device=cuda
EXO_CUDA_EMULATOR='memory=20000000' EXOGYM_CUDA_MEMORY=0.9 ok run job.yaml --dry-run --set device=cuda
has out 'of 18.0 MB (EXOGYM_CUDA_MEMORY)'
EXO_CUDA_EMULATOR='memory=20971520' EXOGYM_CUDA_MEMORY=0.5 ok doctor
has out 'cuda:0 bound   a process may have 10.0 of 20.0 MiB (EXOGYM_CUDA_MEMORY)'
EXOGYM_CUDA_MEMORY=1MiB ok doctor
has out 'no device fits within it: raise the bound'
EXO_CUDA_EMULATOR='gpus=2' bad 1 'there is no GPU 2: this process sees 2' run job.yaml --dry-run --set device=cuda:2
bad 1 "Apple's GPUs are not supported" run job.yaml --dry-run --set device=mps
EXO_CUDA_EMULATOR='gpus=2' ok run job.yaml --name gpus --no-plot --set device=cuda
EXO_CUDA_EMULATOR='gpus=2' bad 1 'choose engine: auto' run job.yaml --name both --no-plot --set device=cuda --set engine=gpu
EXO_CUDA_EMULATOR='gpus=0' ok run job.yaml --name none --no-plot --set device=auto
cmp -s <(json runs/none/ddp/result.json sha256) <(json runs/cpu/ddp/result.json sha256) || fail 'auto without a GPU is not the CPU'
# What looks at a GPU's values is itself right: it has the emulated one.
cp "$EXO_BUILD/tests/test_unit_gpu" bin/
checks=('gpu/layers*' 'gpu/heads*')
[ ${#engines[@]} = 0 ] || checks+=('gpu/attention*')
for check in "${checks[@]}"; do
    bin/test_unit_gpu --filter "$check" >out 2>&1 && has out 'Tested: 1 | Passing: 1' || fail "$check: $(cat out)"
done

# The measurements say why they cannot run.
measures() { bash "$EXO_SOURCE/bench/gpu.sh" "$PWD/bench" >out 2>&1 && fail 'bench/gpu.sh has measured without a GPU'; }
EXO_CUDA_EMULATOR='gpus=0' BUILD=$PWD/bin measures
has bench/table.md '| GPU | none that exogym can use: '
has out '| GPU | none that exogym can use: '
# Where this exogym finds no cuDNN and no NCCL, they take those of Python's packages, or say that there is none.
mkdir -p stand_in found packages/cudnn/lib packages/nccl/lib packages/cu13/lib
touch packages/{cudnn/lib/libcudnn.so.9,nccl/lib/libnccl.so.2,cu13/lib/libnvrtc.so.13,cu13/lib/libcublasLt.so.13}
cat >found/exogym <<'END'
#!/bin/sh
[ "$1" = doctor ] || exit 1
folder=${LD_LIBRARY_PATH%%:*}
[ -z "${LACKS_CUBLASLT-}" ] || [ -e "$folder/libcublasLt.so.13" ] || exec printf '! CUDA           exogym-cuda.so is there, and cannot be loaded\n                 cannot load plugin: libcublasLt.so.13: cannot open shared object file\n'
echo '  cuda:0         a GPU'
[ -e "$folder/libcudnn.so.9" ] && echo '  cuDNN          9.26.0' || echo "  cuDNN          is not there; exogym's own kernels compute convolutions and attention"
[ -e "$folder/libnccl.so.2" ] && echo '  NCCL           2.30.7' || printf '! NCCL           cannot be used\n                 install NCCL\n'
END
cat >stand_in/python <<'END'
#!/bin/sh
case "$2" in 'import nvidia'*) echo "$HERE/packages" ;; *) exit 1 ;; esac
END
chmod +x found/exogym stand_in/python
export HERE=$PWD
BUILD=$PWD/found PYTHON=$PWD/stand_in/python measures
has bench/doctor.log 'cuDNN          9.26.0'
has bench/doctor.log 'NCCL           2.30.7'
[ "$(ls bench/lib | tr '\n' ' ')" = 'libcudnn.so.9 libnccl.so.2 libnvrtc.so.13 ' ] || fail "other libraries: $(ls bench/lib)"
LACKS_CUBLASLT=yes BUILD=$PWD/found PYTHON=$PWD/stand_in/python measures
has bench/doctor.log 'cuDNN          9.26.0'
has bench/table.md '| kernels | not run: test_unit_gpu is not built, as without Criterion | | |'
grep -q kernels_cudnn bench/table.md && fail 'bench/gpu.sh runs kernels that are not built'
# What was ended goes on: what was done is not done again, and keeps its row.
mkdir found/tests
printf '#!/bin/sh\necho once >>"$HERE/kernels"\n' >found/tests/test_unit_gpu
chmod +x found/tests/test_unit_gpu
BUILD=$PWD/found PYTHON=false measures
RESUME=yes BUILD=$PWD/found PYTHON=false measures
has bench/table.md '| kernels | ok | | |'
has bench/table.md '| gpt | failed: '
[ "$(wc -l <kernels)" = 1 ] || fail 'RESUME=yes does again what was done'
BUILD=$PWD/found PYTHON=false measures
[ "$(wc -l <kernels)" = 2 ] || fail 'without RESUME=yes there is something left'
has bench/table.md "| cuDNN | not compared: cuDNN is not there; exogym's own kernels compute convolutions and attention |"
has bench/logs.txt '== doctor.log'
# The sanitizer gets what it is to run. This one runs it.
mkdir -p found/bench sanitizer
printf '#!/bin/sh\necho "$*" >>"$HERE/steps"\n' >found/bench/bench_gpt_step
cat >sanitizer/compute-sanitizer <<'END'
#!/bin/sh
echo "$*" >>"$HERE/checks"
while :; do
    case $1 in
    --target-processes | --launch-timeout | --error-exitcode | --report-api-errors | --tool) shift 2 ;;
    *) exec "$@" ;;
    esac
done
END
chmod +x found/bench/bench_gpt_step sanitizer/compute-sanitizer
PATH=$PATH:$PWD/sanitizer BUILD=$PWD/found PYTHON=false measures
for row in sanitizer_step sanitizer sanitizer_synccheck sanitizer_racecheck; do
    has bench/table.md "| $row | ok | | |"
done
has checks '--error-exitcode 1 --tool racecheck '
has steps '--size small --block 100 --batch 2 --dtype bf16 --steps 1 --device cuda'
# A maker and a trainer learn on the GPU, here on the emulated one.
sed -i '2i case "$*" in *ppo.yaml*) exec "$HERE/bin/exogym" "$@" ;; esac' found/exogym
BUILD=$PWD/found PYTHON=false measures
has bench/table.md '| a trainer beside a maker: ratios before its first step | off by 0 | | |'
has bench/table.md '| two runs of a maker and a trainer | equal bits | | |'
has bench/table.md '| a maker and a trainer in one process, and in two workers | equal bits | | |'
# A pack has the programs with their libraries, in place of a build.
if [ ${#engines[@]} -gt 0 ]; then
    mkdir -p bin/tests
    ln -s ../test_unit_gpu bin/tests/test_unit_gpu
    bash "$EXO_SOURCE/bench/gpu_pack.sh" bin pack.tar.gz >out 2>&1 || fail "no pack: $(cat out)"
    has out 'bin has no bench/bench_gpt_step; it is left out'
    tar tzf pack.tar.gz >out
    has out pack/bin/exogym-cuda.so
    has out pack/bin/exogym-worker
    has out pack/lib/libzmq.so
    PACK=$PWD/pack.tar.gz EXO_CUDA_EMULATOR='gpus=0' measures
    has bench/table.md '| GPU | none that exogym can use: '
    PACK=$PWD/out measures
    has bench/table.md 'out is no file of bench/gpu_pack.sh | | |'
fi
# Without Criterion they go on without the kernels. This cmake has none, and has built the programs.
cat >stand_in/cmake <<'END'
#!/bin/sh
case "$*" in
*-DEXO_TESTS=OFF*) ln -s "$HERE/bin" "$HERE/bench/build" ;;
*--build*) [ -e "$HERE/bench/build" ] ;;
*)
    printf 'CMake Error at tests/CMakeLists.txt:12 (pkg_check_modules):\n  none of:\n\n   - criterion\n-- incomplete\n'
    exit 1
    ;;
esac
END
chmod +x stand_in/cmake
PATH=$PWD/stand_in:$PATH EXO_CUDA_EMULATOR='gpus=0' measures
has bench/table.md '| build | failed: CMake Error at tests/CMakeLists.txt:12 (pkg_check_modules): none of: - criterion'
has bench/table.md '| build_again | failed: CMake Error'
has bench/table.md '| GPU | none that exogym can use: '
rm bench/build
sed -i 's/EXO_TESTS=OFF/nothing/' stand_in/cmake
PATH=$PWD/stand_in:$PATH measures
has bench/table.md '| build_without_tests | failed: CMake Error'
has bench/table.md '| build | for a machine without the packages to build with: bench/gpu_pack.sh'
EXOGYM=$here
finish
