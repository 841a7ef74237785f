#!/usr/bin/env bash
# A wrong job is one line with its place and exit status 2, before anything starts; a missing thing
# is exit status 1.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

# wrong TEXT MESSAGE: job.yaml without its line of the same key and with TEXT as its last line is
# refused with "exogym: wrong.yaml:LINE:MESSAGE".
wrong() {
    local key=${1%%:*}
    grep -v "^$key:" job.yaml >wrong.yaml
    printf '%s\n' "$1" >>wrong.yaml
    expect 2 "exogym: wrong.yaml:$(wc -l <wrong.yaml):$2" run wrong.yaml
    [ ! -e runs ] || fail "$1: something was started"
}
# set_wrong ASSIGNMENT MESSAGE
set_wrong() {
    expect 2 "exogym: --set ${1%%=*}: $2" run job.yaml --set "$1"
}

wrong 'trian: {}' "1: unknown key 'trian'; did you mean 'train'?"
wrong 'nodes: four' "8: nodes: expected an integer, got 'four'"
wrong 'nodes: 0' '8: nodes must be at least 1, got 0'
wrong 'seed: -1' '7: seed must be at least 0, got -1'
wrong 'exogym: 2' '9: exogym must be at most 1, got 2'
wrong 'device: tpu' "9: there is no device 'tpu'; did you mean 'cpu'?"
wrong 'name: a/b' "7: name 'a/b': expected at most 100 letters, digits, '_', '.' and '-', beginning with a letter, digit or '_'"
wrong 'resources: {gpus: 1.5}' "19: there cannot be 1.5 of the resource 'gpus' for an actor: take at most 1, a part of one GPU, or whole ones"
wrong 'train: {max_step: 3}' "9: unknown key 'max_step'; did you mean 'max_steps'?"
wrong 'train: {batch_size: "16"}' '21: batch_size: expected an integer, got the string "16"'
wrong 'train: {batch_size: 16, minibatch_size: 5}' '41: minibatch_size 5 does not divide batch_size 16'
wrong 'train: {shuffle: yes}' "18: shuffle: expected true or false, got 'yes'"
wrong 'train: {autocast: fp4}' "19: autocast: expected one of none, bf16, fp8, false, true, got 'fp4'"
wrong 'train: {autocast: fp8}' '8: train.autocast: fp8 needs a GPU: give device: cuda, or take bf16'
wrong 'train: []' '8: train: expected a mapping, got a list'
wrong 'presets: {quick: 3}' "18: quick: expected a mapping, got '3'"
wrong 'compare: []' '10: compare: the list is empty'
wrong 'compare: [ddp, ddp]' "16: two runs are named 'ddp': give one of them a label"
wrong 'compare: [{name: diloco, H: 0}]' '29: H must be at least 1, got 0'
wrong 'compare: [{name: diloco, H: 2.5}]' "29: H: expected an integer, got '2.5'"
wrong 'compare: [{name: sparta, p: 1.5}]' '29: p must be at most 1, got 1.5'
wrong 'compare: [{name: fedavg, island_size: 3}]' '39: island_size must be at most 2, the number of nodes, got 3; leave it out for all of them'
wrong 'compare: [{name: streaming_diloco, fragments: 3}]' '47: the model has 2 units, which is fewer than the 3 fragments: choose at most 2'
wrong 'compare: [streaming_diloco]' '11: the model has 2 units, which is fewer than the 4 fragments: choose at most 2'
wrong 'compare: [{name: diloco, aggregate: mode}]' "37: aggregate: expected one of mean, trimmed_mean, median, krum, norm_clip, got 'mode'"
wrong 'compare: [{name: onebit_adam, optimizer: sgd}]' '42: optimizer: onebit_adam needs adamw without amsgrad, and one beta1 for all parameters'
# A number in quotes is a string, in lists, too.
grep -v '^seed:' job.yaml >wrong.yaml
echo 'seeds: ["3"]' >>wrong.yaml
expect 2 "exogym: wrong.yaml:$(wc -l <wrong.yaml):9: seeds: expected an integer from 0 to 2^63-1, got the string '3'" run wrong.yaml
wrong 'model: {name: mlp, hidden: ["6"]}' '29: hidden must be a list of widths from 1 to 1048576'
wrong 'compare: [{name: ddp, lr_scheduler: cosine, cosine_anneal: true}]' '60: cosine_anneal needs lr_scheduler: lambda_cosine'
wrong 'compare: [{name: ddp, cosine_anneal: true, lr_csheduler: lambda_cosine}]' \
    "38: cosine_anneal needs lr_scheduler: lambda_cosine; is 'lr_csheduler' in line 10 meant to be 'lr_scheduler'?"
wrong 'compare: [{name: ddp, optimizer: {name: adam, betas: ["0.9", 0.95]}}]' '55: betas: expected a number'
wrong 'compare: [{name: ddp, lr_scheduler: {name: step, milestones: ["1"]}}]' '63: milestones must be steps, each greater than the one before and than 0'
wrong 'train: {batch_size: 16, save_dir: ""}' "35: save_dir is empty: give a folder, or leave it out for 'runs'"
wrong 'data: {name: mnist, path: ""}' '27: path is empty: name a file or folder, or leave it out'
wrong 'model: {name: gpt, path: ""}' '26: path is empty: name a file or folder, or leave it out'
wrong 'train: {batch_size: 16, elastic: {min_nodes: 9}}' '34: elastic: min_nodes 9 is more than the 2 nodes of the run'
wrong 'failures: {mean_time_between: 2 h}' '11: failures: hosts fail on the virtual clock: set `clock: virtual`, or leave `failures` out'
wrong 'model: {name: mlp, path: old}' "20: unknown key 'path'; known are: frozen, hidden, out, in, name"
wrong 'data: {name: synthetic, path: old}' "25: unknown key 'path'; known are: augment, seed, count, split_by_node, name"
wrong 'compare: [{nmae: ddp}]' "11: the strategy's 'name' is missing; does 'nmae' stand for it?"
wrong 'compare: [{name: sparta, p: 0}]' '29: p must be greater than 0 and at most 1'
wrong 'compare: [{name: sparseloco, codec: tpok}]' "37: there is no codec 'tpok'; did you mean 'topk'?"
wrong 'model: {name: mlp, in: 783}' "8: the model 'mlp' does not fit the samples of 'synthetic': linear: x (1, 784) and weight (128, 783): expected (N, D) and (O, D), bias (O)"
wrong 'model: {name: mlp, out: 9}' "8: the model 'mlp' does not fit the samples of 'synthetic': softmax_cross_entropy: target 9 of row 0 is not in [0, 9)"
wrong 'compare: [{name: ddp, optimizer: {name: adam, lr: 1e-400}}]' '51: lr: 1e-400 is too small for a number, and would be 0'
grep -v -e compare: -e strategy: job.yaml >wrong.yaml
expect 2 "exogym: wrong.yaml:1:1: the key 'strategy' or 'compare' is missing" run wrong.yaml
grep -v -e model: job.yaml >wrong.yaml
expect 2 "exogym: wrong.yaml:1:1: the key 'model' is missing" run wrong.yaml
printf 'a: [1, 2\n' >wrong.yaml
expect 2 'exogym: wrong.yaml:2:1: flow sequence without a closing bracket' run wrong.yaml
printf 'seed: 1\nseed: 2\n' >wrong.yaml
expect 2 "exogym: wrong.yaml:2:1: duplicate key 'seed', first in line 1" run wrong.yaml
printf 'just words\n' >wrong.yaml
expect 2 'exogym: wrong.yaml:1:1: a job is a mapping: model, data, nodes, train, strategy (docs/jobs.md)' run wrong.yaml

set_wrong nodes=x "nodes: expected an integer, got 'x'"
set_wrong strategy.name=nope "strategy.name has no effect: each entry of 'compare' has its own"
set_wrong compare.1.H=0 'H must be at least 1, got 0'
set_wrong model.hidden=8 "'hidden' cannot be set inside the value 'mlp'"
set_wrong train.max_step=3 "unknown key 'max_step'; did you mean 'max_steps'?"
expect 2 'exogym: --set nodes: expected KEY=VALUE' run job.yaml --set nodes
expect 2 'exogym: --preset fast: the job has no such preset; it has: quick' run job.yaml --preset fast
expect 2 "exogym: --name '../x': expected at most 100 letters, digits, '_', '.' and '-', beginning with a letter, digit or '_'" \
    run job.yaml --name ../x

# Messages that other parts word: their place and what they name.
refused() {
    "$EXOGYM" run job.yaml --set "$1" >out 2>err </dev/null
    local got=$?
    [ "$got" = "$2" ] || fail "--set $1: ended with $got instead of $2"
    [ "$(wc -l <err)" = 1 ] || fail "--set $1: more than one line: $(cat err)"
    has err "exogym: --set ${1%%=*}: "
    has err "$3"
}
refused model=cnn 2 cnn
refused data=imagenet 2 fashion_mnist
refused 'compare=[{name: dilcoo}]' 2 dilcoo
refused compare.1.optimizer.lr=fast 2 "expected a number, got 'fast'"
refused 'compare=[{name: ddp, H: 3}]' 2 "unknown key 'H'"
refused train.batch_size=1000000 2 "batch_size 1000000 is more than a node's share of the data"
refused 'data={name: fashion_mnist, path: /nonexistent}' 1 /nonexistent
refused 'plugins=[nothing.so]' 1 nothing.so

# A key in the wrong mapping is told where it belongs; the case of letters is no other word.
for entry in '{name: ddp, lr: 1}' '{name: diloco, lr: 3e-4}' '{name: sparta, weight_decay: 0.1}' '{name: fedavg, betas: [0.9, 0.95]}'; do
    key=${entry#*, }
    key=${key%%:*}
    refused "compare=[$entry]" 2 "unknown key '$key'; did you mean 'optimizer.$key'?"
done
refused 'compare=[{name: diloco, h: 3}]' 2 "unknown key 'h'; did you mean 'H'?"
refused 'compare=[{name: sparta, P: 0.1}]' 2 "unknown key 'P'; did you mean 'p'?"
refused 'compare=[{name: diloco, outer_optimizer: {name: sgd, LR: 1}}]' 2 "unknown key 'LR'; did you mean 'lr'?"
refused Nodes=3 2 "unknown key 'Nodes'; did you mean 'nodes'?"
refused batch_size=3 2 "unknown key 'batch_size'; did you mean 'train.batch_size'?"
refused H=3 2 "unknown key 'H'; did you mean 'strategy.H'?"
refused lr=3 2 "unknown key 'lr'; did you mean 'strategy.optimizer.lr'?"
refused train.lr=3 2 "unknown key 'lr'; did you mean 'strategy.optimizer.lr'?"
refused train.max_norm=3 2 "unknown key 'max_norm'; did you mean 'strategy.max_norm'?"
refused train.nodes=3 2 "unknown key 'nodes'; it stands beside 'train', not in it"

# Units of rates: a small b is a bit, which is an eighth.
rate() {
    refused "links={default: {bandwidth: 5 $1}}" 2 "'$1' is no unit of a rate; did you mean $2?"
}
rate Mb/s "'Mbit/s', in bits, or 'MB/s', in bytes"
rate Mbps "'Mbit/s', in bits, or 'MB/s', in bytes"
rate mb/s "'Mbit/s', in bits, or 'MB/s', in bytes"
rate gb/s "'Gbit/s', in bits, or 'GB/s', in bytes"
rate kbps "'kbit/s', in bits, or 'kB/s', in bytes"
rate b/s "'bit/s', in bits, or 'B/s', in bytes"
rate Kib/s "'kbit/s', in bits, or 'KiB/s', in bytes"
rate Mbit "'Mbit/s'"
rate MBps "'MB/s'"
rate mB/s "'MB/s'"
rate MIB/s "'MiB/s'"

# Variables of the environment, of every program.
environment() {
    local got program
    for program in "$EXOGYM --version" "$EXOGYM run job.yaml" "$EXO_BUILD/exogym-head --version" "$EXO_BUILD/exogym-worker --version"; do
        # shellcheck disable=SC2086
        env "$1=$2" timeout 60 $program >out 2>err </dev/null
        got=$?
        [ "$got" = 2 ] || fail "$1=$2 $program: ended with $got instead of 2: $(tail -1 err)"
        [ "$(sed 's/^[a-z-]*: //' err)" = "$3" ] || fail "$1=$2 $program: said '$(cat err)' instead of '$3'"
    done
}
for value in 0 -1 two 2.5 '2 ' 1025 99999999999999999999; do
    environment EXOGYM_THREADS "$value" "EXOGYM_THREADS: expected a number from 1 to 1024, got '$value'"
done
environment EXOGYM_LOG verbose "EXOGYM_LOG: expected error, warn, info or debug, got 'verbose'"
environment EXOGYM_HEAD localhost:7700 "EXOGYM_HEAD: expected tcp://HOST:PORT or ipc://PATH, got 'localhost:7700'"
for value in 0 GiB 1XB 1.5GiB ' 1' 8388608TiB; do
    environment EXOGYM_STORE "$value" "EXOGYM_STORE: expected a number of bytes or a size, as 2GiB, got '$value'"
done
environment EXOGYM_CUDNN yes "EXOGYM_CUDNN: expected off, on or tf32, got 'yes'"
environment EXOGYM_CUDA_EPILOGUES yes "EXOGYM_CUDA_EPILOGUES: expected off or on, got 'yes'"
environment EXOGYM_CUDA_GRAPHS yes "EXOGYM_CUDA_GRAPHS: expected off or on, got 'yes'"
environment EXOGYM_CUDA_MEMORY 2 "EXOGYM_CUDA_MEMORY: expected a part of the GPU's memory up to 1, as 0.5, or a size, as 20GiB, got '2'"
environment EXOGYM_CUDA_TF32 yes "EXOGYM_CUDA_TF32: expected off or on, got 'yes'"
environment EXOGYM_THREAD 2 'the environment has EXOGYM_THREAD, which is not read; did you mean EXOGYM_THREADS?'
environment EXOGYM_log debug 'the environment has EXOGYM_log, which is not read; did you mean EXOGYM_LOG?'
for right in EXOGYM_STORE=1048576 EXOGYM_STORE=2GiB EXOGYM_STORE=4194304TiB EXOGYM_THREADS=1 EXOGYM_THREADS=1024 EXOGYM_THREADS= EXOGYM_LOG= EXOGYM_LOG=debug EXOGYM_HEAD= EXOGYM_OF_ANOTHER_PROGRAM=x; do
    env "$right" "$EXOGYM" --version >out 2>err || fail "$right: $(cat err)"
done

expect 1 "exogym: cannot read 'none.yaml': No such file or directory" run none.yaml
[ ! -e runs ] || fail 'something was started'
finish
