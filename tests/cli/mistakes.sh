#!/usr/bin/env bash
# A wrong job is one line with its place and exit status 2, before anything starts; a missing thing is exit status 1.
. "$EXO_SOURCE/tests/cli/common.bash"

# wrong TEXT MESSAGE: job.yaml without its line of the same key and with TEXT as its last line is refused with
# "exogym: wrong.yaml:LINE:MESSAGE".
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
wrong 'device: cuda' "9: device: expected cpu, got 'cuda'"
wrong 'name: a/b' "7: name 'a/b': expected letters, digits, '_', '.' and '-', beginning with a letter, digit or '_'"
wrong 'train: {max_step: 3}' "9: unknown key 'max_step'; did you mean 'max_steps'?"
wrong 'train: {batch_size: "16"}' '21: batch_size: expected an integer, got the string "16"'
wrong 'train: {batch_size: 16, minibatch_size: 5}' '41: minibatch_size 5 does not divide batch_size 16'
wrong 'train: {shuffle: yes}' "18: shuffle: expected true or false, got 'yes'"
wrong 'train: {autocast: fp8}' "19: autocast: expected one of none, bf16, false, true, got 'fp8'"
wrong 'train: []' '8: train: expected a mapping, got a list'
wrong 'presets: {quick: 3}' "18: quick: expected a mapping, got '3'"
wrong 'compare: []' '10: compare: the list is empty'
wrong 'compare: [ddp, ddp]' "16: two runs are named 'ddp': give one of them a label"
wrong 'compare: [{name: diloco, H: 0}]' '29: H must be at least 1, got 0'
wrong 'compare: [{name: diloco, H: 2.5}]' "29: H: expected an integer, got '2.5'"
wrong 'compare: [{name: sparta, p: 1.5}]' '29: p must be at most 1, got 1.5'
wrong 'compare: [{name: fedavg, island_size: 3}]' '39: island_size must be at most 2, the number of nodes, got 3; leave it out for all of them'
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
set_wrong compare.1.H=0 'H must be at least 1, got 0'
set_wrong data.augment=false "'augment' cannot be set inside the value 'synthetic'"
set_wrong train.max_step=3 "unknown key 'max_step'; did you mean 'max_steps'?"
expect 2 'exogym: --set nodes: expected KEY=VALUE' run job.yaml --set nodes
expect 2 'exogym: --preset fast: the job has no such preset; it has: quick' run job.yaml --preset fast
expect 2 "exogym: --name '../x': expected letters, digits, '_', '.' and '-', beginning with a letter, digit or '_'" \
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

expect 1 "exogym: cannot read 'none.yaml': No such file or directory" run none.yaml
[ ! -e runs ] || fail 'something was started'
finish
