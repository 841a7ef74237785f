#!/usr/bin/env bash
# Everything that needs a GPU, in one command: builds exogym with the device `cuda`, runs every kernel
# against the reference there, and measures training and generation beside PyTorch and transformers.
# Prints a table for docs/gpu.md. Ends in 20 minutes.
#
#     bench/gpu.sh [OUT]
#
# OUT (default: build/gpu) gets the log of each step and table.md, which has each row as soon as it is known.
# Needs nvcc of CUDA 13 with cuBLASLt, what `tools/bootstrap.sh run` installs, Criterion for the kernels, cuDNN 9
# to compare with it, and for the ratios a Python with PyTorch for CUDA and transformers: PYTHON (default: python3).
# Where the loader finds no cuDNN, NCCL or cuBLASLt, those that PyTorch has brought along are taken.
# Nothing is downloaded. BUILD names a folder that is built already, and PACK a file of bench/gpu_pack.sh, for a machine
# that lacks packages to build with. logs.txt in OUT has the ends of all logs, to be taken away as one file. A step that cannot run says why, and the others
# go on. LIMIT (default: 1200) is the seconds for all steps: those for which none are left are named in the table. Speed
# beside the peers comes before what checks strategies and checkpoints. RESUME=yes goes on where a run of the same OUT was
# ended, as on a machine that gives a command ten minutes: steps that went well are not done again.
set -u
cd "$(dirname "$0")/.." || exit 1
PATH=$PATH:/usr/local/cuda/bin # of nvcc and compute-sanitizer, where no folder of PATH has them
out=${1:-build/gpu}
python=${PYTHON:-python3}
limit_of_all=${LIMIT:-1200}
mkdir -p "$out"
out=$(cd "$out" && pwd)
resume=${RESUME:-no}
[ "$resume" = yes ] || rm -f "$out"/*.log "$out"/*.done "$out/table.md" # a number of an earlier run is none of this one
rows=()
failures=0

write_table() {
    {
        echo "$(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD 2>/dev/null), $(sed -n 's/^[ !]*cuda:0 *//p' "$out/doctor.log" 2>/dev/null | head -1)"
        echo
        echo '| what | exogym | peer | ratio |'
        echo '|---|---|---|---|'
        printf '%s\n' ${rows[@]+"${rows[@]}"}
    } >"$out/table.md"
}
write_table

# collect_logs: the end of each log, in one file.
collect_logs() {
    local log
    for log in "$out"/*.log; do
        [ ! -e "$log" ] || printf '== %s\n%s\n' "${log##*/}" "$(tail -c 20000 "$log" | tr -d '\0')"
    done >"$out/logs.txt"
}
trap 'write_table; collect_logs; cat "$out/table.md"' EXIT

# add_row ROW: also to table.md, in case that this process is killed.
add_row() {
    rows+=("$1")
    write_table
}

# note WHAT TEXT: a row without numbers.
note() {
    add_row "| $1 | $(tr '|' '/' <<<"$2") | | |"
}

# reason_of NAME: why a step failed. Builds end with the words of ninja or cmake, behind what they are about.
reason_of() {
    local reason=''
    case $1 in
    build*) reason=$(grep -m1 -A4 -E 'No nvcc of CUDA|(error|Error)( at |:)|unknown target' "$out/$1.log" | tr -s ' \n' ' ' | cut -c1-300) ;;
    esac
    [ -n "$reason" ] || reason=$(tail -1 "$out/$1.log")
    printf '%s' "$reason"
}

# was_done NAME: whether an earlier run that this one resumes has done the step well. doctor sees what was borrowed.
was_done() {
    [ "$resume" = yes ] && [ "$1" != doctor ] && [ -e "$out/$1.done" ]
}

# step NAME SECONDS COMMAND...: runs it with a limit; its output is OUT/NAME.log.
step() {
    local name=$1 limit=$2 began=$SECONDS rc=0 reason
    shift 2
    was_done "$name" && return 0
    if [ $((limit_of_all - SECONDS)) -lt 5 ]; then
        note "$name" "not run: the $limit_of_all s are over"
        failures=$((failures + 1))
        return 1
    fi
    [ $((limit_of_all - SECONDS)) -ge "$limit" ] || limit=$((limit_of_all - SECONDS))
    timeout -k 10 "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null || rc=$?
    if [ $rc = 0 ]; then
        touch "$out/$name.done"
        printf '%-22s ok, %d s\n' "$name" $((SECONDS - began))
        return 0
    fi
    failures=$((failures + 1))
    reason=$(reason_of "$name")
    [ $rc != 124 ] && [ $rc != 137 ] || reason="ended after $limit s: $reason"
    printf '%-22s failed with %d after %d s: %s\n' "$name" $rc $((SECONDS - began)) "$reason"
    note "$name" "failed: $reason"
    return 1
}

# check NAME SECONDS COMMAND...: a step that has a row, too, if all is well.
check() {
    step "$@" && note "$1" ok
}

# value NAME KEY: a number of a JSON line, or of KEY=NUMBER.
value() {
    sed -n "s/.*\"\{0,1\}$2\"\{0,1\}[=:] *\([0-9.e+-]*\).*/\1/p" "$out/$1.log" 2>/dev/null | tail -1
}

# row WHAT UNIT OURS PEERS: nothing without a number of ours, whose step has a row that says why.
row() {
    [ -z "$3" ] ||
        add_row "| $1 | $3 $2 | ${4:-none} | $(awk -v a="$3" -v b="${4:-0}" 'BEGIN { if (b > 0) printf "%.2f", a / b }') |"
}

# best NAME...: the largest of what these steps did in a second.
best() {
    local name
    for name in "$@"; do
        value "$name" '_per_second'
    done | sort -g | tail -1
}

has_cudnn() {
    grep -q 'cuDNN  *[0-9]' "$out/doctor.log"
}

has_nccl() {
    grep -q 'NCCL  *[0-9]' "$out/doctor.log"
}

# has_kernels: whether the program that compares them is built.
has_kernels() {
    [ -x "$build/tests/test_unit_gpu" ]
}

# lack NAME: what doctor says of something that exogym cannot use.
lack() {
    { grep -m1 -A1 "^! *$1 " "$out/doctor.log" || grep -m1 "^ *$1 " "$out/doctor.log"; } | tail -1 | tr -s ' ' | sed 's/^ //'
}

# packaged: the libraries of cuDNN, NCCL, cuBLASLt and NVRTC, by which cuDNN compiles, among Python's packages.
packaged() {
    timeout 60 "$python" -c 'import nvidia
print(*nvidia.__path__, sep="\n")' 2>/dev/null </dev/null | while read -r folder; do
        find -L "$folder" -path '*/lib/lib*.so*' \( -name 'libcudnn*' -o -name 'libnccl.so*' -o -name 'libcublasLt.so*' -o -name 'libnvrtc*' \)
    done
}

# borrow: takes those of which exogym finds none. Links name them one by one: a cuBLASLt that it finds stays in use.
borrow() {
    local library needs_cudnn=no needs_nccl=no needs_cublaslt=no
    has_cudnn || needs_cudnn=yes
    has_nccl || needs_nccl=yes
    ! grep -q 'libcublasLt.*cannot open' "$out/doctor.log" || needs_cublaslt=yes
    [ $needs_cudnn$needs_nccl$needs_cublaslt != nonono ] || return
    rm -rf "${out:?}/lib"
    mkdir "$out/lib"
    while read -r library; do
        case $library in
        */libnccl*) [ $needs_nccl = yes ] ;;
        */libcublasLt*) [ $needs_cublaslt = yes ] ;;
        *) [ $needs_cudnn = yes ] ;;
        esac && ln -sf "$library" "$out/lib/"
    done < <(packaged)
    [ -n "$(ls "$out/lib")" ] || return
    export LD_LIBRARY_PATH=$out/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    step doctor 60 "$build"/exogym doctor
}

# peer NAME SECONDS SCRIPT ARGUMENTS...: a step of PyTorch, or of transformers, where they are.
peer() {
    local name=$1 limit=$2
    shift 2
    case $1 in
    *generate.py) [ "$torch$transformers" = yesyes ] ;;
    *) [ "$torch" = yes ] ;;
    esac && step "$name" "$limit" "$python" "$@"
}

# compiled NAME SECONDS SCRIPT ARGUMENTS...: a peer with torch.compile or, if that fails, without.
compiled() {
    peer "$@" --compile || peer "$@"
}

# compile NAME FOLDER TARGETS OPTIONS...: configures as the preset dev does, and builds.
compile() {
    local name=$1 folder=$2 targets=$3
    shift 3
    # shellcheck disable=SC2016 # of the inner shell
    step "$name" 600 bash -c 'cmake --preset dev -B "$1" "${@:3}" && cmake --build "$1" --target $2' build "$folder" "$targets" "$@"
}

# unpack: the programs of PACK, anew.
unpack() {
    rm -rf "$out/pack"
    tar -C "$out" -xf "$PACK" && [ -x "$out/pack/exogym" ]
}

# cannot_build: what to do where no build goes well.
cannot_build() {
    note build 'for a machine without the packages to build with: bench/gpu_pack.sh on one that has them, and PACK here'
    exit 1
}

if [ -n "${PACK:-}" ]; then
    unpack || {
        note PACK "$PACK is no file of bench/gpu_pack.sh"
        exit 1
    }
    BUILD=$out/pack
fi
# Warnings of another compiler, or a missing Criterion, should not hide what can be measured.
build=${BUILD:-build/dev}
targets="exogym_cli exogym_head exogym_worker exogym_cuda bench_gpt_step bench_cnn_step bench_generate bench_matmul bench_collectives"
if [ -z "${BUILD:-}" ] && ! compile build build/dev "$targets test_unit_gpu"; then
    build=$out/build
    compile build_again "$build" "$targets test_unit_gpu" -DEXO_WERROR=OFF -DEXO_TESTS=ON ||
        compile build_without_tests "$build" "$targets" -DEXO_WERROR=OFF -DEXO_TESTS=OFF || cannot_build
fi
step doctor 60 "$build"/exogym doctor && borrow
grep -A1 'cuda:' "$out/doctor.log"
grep -q '^  cuda:0' "$out/doctor.log" || {
    echo "gpu.sh: there is no GPU that exogym can use:"
    cat "$out/doctor.log"
    note GPU "none that exogym can use: $(grep -m1 -A1 -E '^! *(CUDA|cuda:0)' "$out/doctor.log" | tail -1 | sed 's/^ *//')"
    exit 1
}
has_cudnn || note cuDNN "not compared: $(lack cuDNN)"
torch=no transformers=no
if timeout 120 "$python" -c 'import torch
assert torch.cuda.is_available(), "it sees no GPU"
print("PyTorch", torch.__version__, "with CUDA", torch.version.cuda, "and cuDNN", torch.backends.cudnn.version())' >"$out/torch.log" 2>&1 </dev/null; then
    torch=yes
    note peer "$(tail -1 "$out/torch.log")" # from 2.11 on its attention is cuDNN's on Hopper
    if timeout 120 "$python" -c 'import transformers' >"$out/transformers.log" 2>&1 </dev/null; then
        transformers=yes
    else
        note transformers "not compared: $(tail -1 "$out/transformers.log")"
    fi
else
    note PyTorch "not compared: $(tail -1 "$out/torch.log")"
fi

if has_kernels; then
    check kernels 180 "$build"/tests/test_unit_gpu --verbose
else
    note kernels 'not run: test_unit_gpu is not built, as without Criterion'
fi

# The same bits from run to run.
job=("$build"/exogym run examples/01_compare/compare.yaml --preset quick --no-plot --overwrite --save-dir "$out/runs"
    --set data=synthetic) # no data set has to be there
twice=(--set device=cuda --set train.max_steps=20 --set compare='[ddp, {name: diloco, H: 5}]')
sha() {
    grep -o '"sha256": "[0-9a-f]*"' "$out/runs/$1/result.json" 2>/dev/null | head -1
}
[ "$resume" = yes ] || rm -rf "$out/runs"
# same WHAT A B: two runs have the same bits.
same() {
    if [ -n "$(sha "$2")" ] && [ "$(sha "$2")" = "$(sha "$3")" ]; then
        note "$1" 'equal bits'
    else
        note "$1" 'other bits'
        failures=$((failures + 1))
    fi
}
if step bits_1 60 "${job[@]}" --name one "${twice[@]}" && step bits_2 60 "${job[@]}" --name two "${twice[@]}"; then
    for strategy in ddp diloco; do
        same "two runs of $strategy" one/$strategy two/$strategy
    done
fi
# GPT-2 of 124 million parameters, bf16; the CNN; generation. Medians of five runs of each program's own.
settings=(--size base --vocabulary 50304 --block 1024 --batch 16 --dtype bf16 --steps 10 --device cuda)
step gpt 120 "$build"/bench/bench_gpt_step "${settings[@]}"
compiled gpt_torch 180 bench/peers/gpt_step.py "${settings[@]}"
row "GPT-2 124M, bf16, 16 x 1,024, training" tokens/s "$(value gpt tokens_per_second)" "$(value gpt_torch tokens_per_second)"
EXOGYM_CUDA_EPILOGUES=off step gpt_sweeps 90 "$build"/bench/bench_gpt_step "${settings[@]}"
row "GPT-2 124M, bf16, 16 x 1,024, training, EXOGYM_CUDA_EPILOGUES=on beside off" ms "$(value gpt '"step_ms')" "$(value gpt_sweeps '"step_ms')"
EXOGYM_CUDA_GRAPHS=on step gpt_graphs 90 "$build"/bench/bench_gpt_step "${settings[@]}"
row "GPT-2 124M, bf16, 16 x 1,024, training, EXOGYM_CUDA_GRAPHS=on beside off" ms "$(value gpt_graphs '"step_ms')" "$(value gpt '"step_ms')"
if has_cudnn; then
    EXOGYM_CUDNN=on step gpt_cudnn 90 "$build"/bench/bench_gpt_step "${settings[@]}"
    row "GPT-2 124M, bf16, 16 x 1,024, training, attention by cuDNN (EXOGYM_CUDNN=on) beside off" ms "$(value gpt_cudnn '"step_ms')" "$(value gpt '"step_ms')"
    row "GPT-2 124M, bf16, 16 x 1,024, training, the faster of both" tokens/s "$(best gpt gpt_cudnn)" "$(value gpt_torch tokens_per_second)"
fi
step matmul 60 "$build"/bench/bench_matmul --device cuda --dtype bf16 --size 8192 --products 20
row "GPT-2 124M, bf16, training, beside products of 8,192 x 8,192 matrices" GFLOP/s "$(value gpt '"gflops')" "$(value matmul '"gflops')"
# fp8, on GPUs that have it: the products alone, and training, beside bf16.
if grep -q ', with fp8,' "$out/doctor.log" && step matmul_fp8 60 "$build"/bench/bench_matmul --device cuda --dtype fp8 --size 8192 --products 20; then
    row "products of 8,192 x 8,192 matrices, fp8 beside bf16" GFLOP/s "$(value matmul_fp8 '"gflops')" "$(value matmul '"gflops')"
    settings=(--size base --vocabulary 50304 --block 1024 --batch 16 --dtype fp8 --steps 10 --device cuda)
    step gpt_fp8 90 "$build"/bench/bench_gpt_step "${settings[@]}"
    row "GPT-2 124M, 16 x 1,024, training, fp8 beside bf16" tokens/s "$(value gpt_fp8 tokens_per_second)" "$(value gpt tokens_per_second)"
    EXOGYM_CUDA_EPILOGUES=off step gpt_fp8_sweeps 90 "$build"/bench/bench_gpt_step "${settings[@]}"
    row "GPT-2 124M, 16 x 1,024, training in fp8, EXOGYM_CUDA_EPILOGUES=on beside off" ms "$(value gpt_fp8 '"step_ms')" "$(value gpt_fp8_sweeps '"step_ms')"
    EXOGYM_CUDA_GRAPHS=on step gpt_fp8_graphs 90 "$build"/bench/bench_gpt_step "${settings[@]}"
    row "GPT-2 124M, 16 x 1,024, training in fp8, EXOGYM_CUDA_GRAPHS=on beside off" ms "$(value gpt_fp8_graphs '"step_ms')" "$(value gpt_fp8 '"step_ms')"
fi
# What it costs a trainer to have the bits of generation.
settings=(--size base --vocabulary 50304 --block 512 --batch 8 --loss policy --invariant both --steps 10)
step invariant 120 "$build"/bench/bench_gpt_step "${settings[@]}" --device cuda
row "GPT-2 124M, fp32, 8 x 512, a step with the bits of generation beside an ordinary one" ms "$(value invariant invariant_step_ms)" "$(value invariant '"step_ms')"
settings=(--size base --vocabulary 50304 --block 512 --batch 8 --steps 10 --device cuda)
step fp32 90 "$build"/bench/bench_gpt_step "${settings[@]}"
EXOGYM_CUDA_TF32=on step tf32 90 "$build"/bench/bench_gpt_step "${settings[@]}"
row "GPT-2 124M, fp32, 8 x 512, training, EXOGYM_CUDA_TF32=on beside off" tokens/s "$(value tf32 tokens_per_second)" "$(value fp32 tokens_per_second)"
for dtype in fp32 bf16; do
    step cnn_$dtype 60 "$build"/bench/bench_cnn_step --dtype $dtype --steps 50 --device cuda
    compiled cnn_${dtype}_torch 120 bench/peers/cnn_step.py --dtype $dtype --steps 50 --device cuda
    row "the CNN, $dtype, batch 256, training" images/s "$(value cnn_$dtype images_per_second)" "$(value cnn_${dtype}_torch images_per_second)"
    EXOGYM_CUDA_GRAPHS=on step cnn_${dtype}_graphs 60 "$build"/bench/bench_cnn_step --dtype $dtype --steps 50 --device cuda
    row "the CNN, $dtype, batch 256, training, EXOGYM_CUDA_GRAPHS=on beside off" images/s "$(value cnn_${dtype}_graphs images_per_second)" "$(value cnn_$dtype images_per_second)"
done
# Convolutions: own kernels, and cuDNN where it is found.
for dtype in fp32 bf16; do
    for choice in on tf32; do
        has_cudnn || continue
        [ $dtype = bf16 ] && [ $choice = tf32 ] && continue
        EXOGYM_CUDNN=$choice step cnn_${dtype}_cudnn_$choice 60 "$build"/bench/bench_cnn_step --dtype $dtype --steps 50 --device cuda || continue
        own=$(value cnn_$dtype images_per_second) other=$(value cnn_${dtype}_cudnn_$choice images_per_second)
        row "the CNN, $dtype, EXOGYM_CUDNN=off beside $choice" images/s "$own" "$other"
        awk -v a="$own" -v b="$other" -v d="$dtype" -v c="$choice" \
            'BEGIN { printf "convolutions, %s: EXOGYM_CUDNN=%s is faster (off %s, %s %s images/s)\n", d, (a >= b ? "off" : c), a, c, b }'
    done
    row "the CNN, $dtype, training, the fastest of own convolutions, graphs and cuDNN" images/s \
        "$(best cnn_$dtype cnn_${dtype}_graphs cnn_${dtype}_cudnn_on cnn_${dtype}_cudnn_tf32)" "$(value cnn_${dtype}_torch images_per_second)"
done
for batch in 1 16; do
    step generate_$batch 90 "$build"/bench/bench_generate --batch $batch --device cuda
    peer generate_${batch}_torch 120 bench/peers/generate.py --batch $batch --device cuda
    row "generation, GPT-2 124M, fp32, batch $batch" tokens/s "$(value generate_$batch tokens_per_second)" "$(value generate_${batch}_torch tokens_per_second)"
done

# Four virtual nodes on one GPU, and one node with the same total batch.
for nodes in 1 4; do
    step nodes_$nodes 60 "${job[@]}" --name nodes_$nodes --set device=cuda --set nodes=$nodes --set engine=gpu \
        --set train.max_steps=50 --set train.batch_size=$((256 / nodes)) --set compare='[ddp]'
done
rate() {
    sed -n 's/.*"samples_per_second": *\([0-9.]*\).*/\1/p' "$out/runs/nodes_$1/ddp/result.json" 2>/dev/null | head -1
}
row "the CNN on four nodes of one GPU, beside one node" samples/s "$(rate 4)" "$(rate 1)"

# Steps as graphs: the same bits, and what they cost beside steps whose kernels are started one by one.
if EXOGYM_CUDA_GRAPHS=on step bits_graphs 60 "${job[@]}" --name graphs "${twice[@]}"; then
    for strategy in ddp diloco; do
        same "$strategy, and with EXOGYM_CUDA_GRAPHS=on" one/$strategy graphs/$strategy
    done
fi
for size in small base; do
    settings=(--size "$size" --block 256 --batch 4 --dtype bf16 --steps 50 --device cuda)
    step launches_$size 60 "$build"/bench/bench_gpt_step "${settings[@]}"
    EXOGYM_CUDA_GRAPHS=on step graphs_$size 60 "$build"/bench/bench_gpt_step "${settings[@]}"
    row "the decoder $size, bf16, 4 x 256, EXOGYM_CUDA_GRAPHS=on beside off" ms "$(value graphs_$size '"step_ms')" "$(value launches_$size '"step_ms')"
done

# Identities of strategies, on a small model: equal bits, or equal losses where sums have another order.
cat >"$out/small.yaml" <<'END'
model: {name: mlp, hidden: [64]}
data: synthetic
nodes: 4
device: cuda
train: {max_steps: 20, batch_size: 16, val_size: 256}
strategy: {optimizer: {name: sgd, lr: 1e-2}}
compare:
  - ddp
  - fsdp
  - {label: fedavg, name: fedavg, H: 1}
  - {label: sparta, name: sparta, p: 1}
  - {label: diloco, name: diloco, H: 1, outer_optimizer: {name: sgd, lr: 1}}
END
small=("$build"/exogym run "$out/small.yaml" --no-plot --save-dir "$out/runs")
loss() {
    sed -n 's/.*"global_loss": *\([0-9.e+-]*\).*/\1/p' "$out/runs/$1/result.json" 2>/dev/null | tail -1
}
# agree WHAT A B BOUND: the losses of two runs differ by at most BOUND.
agree() {
    if awk -v a="$2" -v b="$3" -v bound="$4" 'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d <= bound && d >= -bound) }'; then
        note "$1" "equal: losses $2 and $3"
    else
        note "$1" "differ: losses '$2' and '$3'"
        failures=$((failures + 1))
    fi
}
was_done identities || rm -rf "$out/runs/identities"
if step identities 60 "${small[@]}" --name identities; then
    same 'ddp, and fsdp' identities/ddp identities/fsdp
    same 'fedavg of every step, and sparta of all' identities/fedavg identities/sparta
    agree 'ddp, and fedavg of every step' "$(loss identities/ddp)" "$(loss identities/fedavg)" 1e-5
    agree 'ddp, and diloco of every step with plain outer SGD' "$(loss identities/ddp)" "$(loss identities/diloco)" 1e-5
fi

# Checkpoints of the GPU go on on the CPU, and the other way round.
for from in cuda cpu; do
    [ $from = cuda ] && to=cpu || to=cuda
    was_done "from_$from" || rm -rf "$out/runs/from_$from"
    once=("${small[@]}" --name "from_$from" --set 'compare=[ddp]' --set train.checkpoint_interval=10)
    step "from_$from" 60 "${once[@]}" --set train.max_steps=10 --set device="$from" &&
        step "resumed_on_$to" 60 "${once[@]}" --set device="$to" --resume &&
        agree "resumed from $from on $to, and not interrupted" "$(loss from_$from/ddp)" "$(loss identities/ddp)" 1e-4
done

# A maker and a trainer of a graph: before its first step the trainer gives each token the probability that the maker
# gave it, runs have the same bits, and workers hand weights over in the GPU's memory.
cat >"$out/ppo.yaml" <<'END'
exogym: 1
name: ppo
seed: 42
actors:
  maker:
    class: experience_maker
    config:
      model: &policy {name: gpt, layers: 2, heads: 2, width: 32, context: 32, vocabulary: 64}
      prompts: {tokens: [[1], [2], [3, 4]]}
      reward: {name: share, token: 3}
      answers: 4
      batch: 2
      epochs: 2
      generate: {max_new_tokens: 12}
      device: cuda
  trainer:
    class: ppo_trainer
    config:
      model: *policy
      batch: 2
      algorithm: {name: grpo, kl_coef: 0.01}
      optimizer: {name: sgd, lr: 0.5}
      device: cuda
edges:
  - {from: maker, to: trainer, carries: experience}
  - {from: trainer, to: maker, carries: parameters, route: broadcast, buffer: {on_full: latest}}
END
ppo() {
    step "$1" 60 "$build"/exogym run "$out/ppo.yaml" --overwrite --save-dir "$out/runs" --name "$1" "${@:2}"
}
# learned WHAT A B: two runs of the graph have the same figures and weights.
learned() {
    if cmp -s "$out/runs/$2/final_trainer_0.json" "$out/runs/$3/final_trainer_0.json"; then
        note "$1" 'equal bits'
    else
        note "$1" 'other bits'
        failures=$((failures + 1))
    fi
}
# ratios RUN: how far the trainer's probabilities of new tokens are from the maker's, at most.
ratios() {
    awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i }
        NR > 1 && $1 > 0 { n++; if ($column["ratio_off"] > most) most = $column["ratio_off"] }
        END { if (n > 0) print most + 0 }' "$out/runs/$1/versions_trainer_0.csv" 2>/dev/null
}
if ppo ppo_1; then
    note 'a trainer beside a maker: ratios before its first step' "off by $(ratios ppo_1)"
    [ "$(ratios ppo_1)" = 0 ] || failures=$((failures + 1))
    ppo ppo_2 && learned 'two runs of a maker and a trainer' ppo_1 ppo_2
    ppo ppo_workers --workers 2 && learned 'a maker and a trainer in one process, and in two workers' ppo_1 ppo_workers
fi

# The all-reduce of nodes that share a GPU, beside NCCL with two ranks a GPU: 2.30 has them, as an experiment.
all_reduce=("$build"/bench/bench_collectives threads 2 --device cuda:0)
# took NAME BYTES: microseconds.
took() {
    awk -v bytes="$2" '$1 == bytes { print $2 }' "$out/$1.log" 2>/dev/null
}
step all_reduce_gpu 60 "${all_reduce[@]}" --engine gpu
# CUDA may wait for the GPU when it loads a kernel, while one rank waits there for the other: so it loads all before.
NCCL_SOCKET_IFNAME="=lo" NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_MAX_CTAS=8 CUDA_MODULE_LOADING=EAGER step all_reduce_nccl 60 "${all_reduce[@]}" --engine nccl
for bytes in 65536 4194304 134217728; do
    row "all-reduce of $bytes bytes, two nodes of one GPU, beside NCCL with two ranks a GPU" us "$(took all_reduce_gpu $bytes)" "$(took all_reduce_nccl $bytes)"
done

# What checks again, slowly, what has been checked: with the time that is left. Criterion runs each test in a process.
has_kernels && has_cudnn && EXOGYM_CUDNN=on check kernels_cudnn 180 "$build"/tests/test_unit_gpu --verbose
if command -v compute-sanitizer >/dev/null; then
    sanitizer=(compute-sanitizer --target-processes all --launch-timeout 0 --error-exitcode 1)
    # cuBLASLt asks CUDA for what it may refuse: refusals that matter are errors of the steps
    accesses=("${sanitizer[@]}" --report-api-errors no)
    one_step=("$build"/bench/bench_gpt_step --size small --block 100 --batch 2 --dtype bf16 --steps 1 --device cuda)
    check sanitizer_step 120 "${accesses[@]}" "${one_step[@]}"
    has_kernels && check sanitizer 300 "${accesses[@]}" "$build"/tests/test_unit_gpu --filter 'gpu/every*'
    for tool in synccheck racecheck; do
        check sanitizer_$tool 120 "${sanitizer[@]}" --tool $tool "${one_step[@]}"
    done
else
    note sanitizer 'not run: there is no compute-sanitizer'
fi
exit $((failures > 0))
