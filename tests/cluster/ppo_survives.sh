#!/usr/bin/env bash
# Makers and trainers of a language model on workers that are killed at random moments, and workers
# that take their place: the run goes on, and ends with the bits of a run in one process. Each draw is
# learned from once, by the ledger in the run's folder. Two of the graphs have a tool: a dialogue that a
# death cuts begins anew. In two, draws are dealt to makers as they get on, in the last one by two
# trainers, each to makers of its own. Then everything is killed at once, and --resume ends with the same
# bits. The graph `over` oversamples: which draws an update takes depends on the real clock, so only the
# ledger is compared.
#
# EXO_CHAOS_SEED: of the moments, and of the graph that is first. EXO_CHAOS_ROUNDS: how many runs are
# killed in parts and as a whole (1), each with EXO_CHAOS_KILLS deaths of workers (2). EXO_CHAOS_STALE=N
# runs with staleness N: then only the ledger is compared, as the real clock decides about versions.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

RANDOM=${EXO_CHAOS_SEED:=$(($$ % 32768))}
echo "EXO_CHAOS_SEED=$EXO_CHAOS_SEED EXO_CHAOS_ROUNDS=${EXO_CHAOS_ROUNDS:=1} EXO_CHAOS_KILLS=${EXO_CHAOS_KILLS:=2}"
model='{name: gpt, layers: 1, heads: 2, width: 16, context: 24, vocabulary: 16}'
numbers='prompts: {tokens: [[1], [2], [3, 4], [5, 6, 7]]}'
dialogues='prompts: {alphabet: "*+-.0123456789=?", lines: [1+, 2+, 3-4, 5*6]}
      tool: {name: calculator, turns: 3, turn_tokens: 3, reply_tokens: 4}'
stale=${EXO_CHAOS_STALE:-0}

# graph NAME MAKERS TRAINERS BATCH ROUTE TASK: a graph in NAME.yaml, with 60 updates of 8 items. TASK: the
# prompts, and a tool with which each answer is a dialogue.
graph() {
    cat >"$1.yaml" <<YAML
exogym: 1
name: $1
seed: 7
actors:
  maker:
    class: experience_maker
    count: $2
    restart: {when: on_failure}
    config:
      model: $model
      $6
      reward: {name: share, token: 3}
      answers: 4
      epochs: 120
      generate: {max_new_tokens: 6}
  trainer:
    class: ppo_trainer
    count: $3
    restart: {when: on_failure}
    config:
      model: $model
      algorithm: {name: grpo, kl_coef: 0.01}
      batch: $4
      staleness: $stale
      checkpoint: {every: 7}
      optimizer: {name: adamw, lr: 3e-3}
YAML
    [ "$5" != buffer ] || echo '  buffer: {class: replay_buffer, restart: {when: on_failure}, config: {capacity: 4}}' >>"$1.yaml"
    echo 'edges:' >>"$1.yaml"
    if [ "$5" = buffer ]; then
        echo '  - {from: maker, to: buffer, carries: experience}'
        echo '  - {from: buffer, to: trainer, carries: experience}'
    else
        echo "  - {from: maker, to: trainer, carries: experience, route: $5}"
    fi >>"$1.yaml"
    echo '  - {from: trainer, to: maker, carries: parameters, route: broadcast, buffer: {on_full: latest}}' >>"$1.yaml"
    [ "$3" = 1 ] || echo '  - {from: trainer, to: trainer, carries: gradients, route: all_reduce}' >>"$1.yaml"
}

sha() {
    sed -n 's/.*"sha256": "\([0-9a-f]*\)".*/\1/p' "$1"
}

# same RUN: its weights are those of the run in one process, and each draw was learned from once.
same() {
    local name=${1##*/} final exact=yes
    [ "$stale" = 0 ] && [ "$name" != over ] || exact=
    [ -z "$exact" ] || [ -d "embedded/$name" ] || ok run "$name.yaml" --save-dir embedded
    for final in "$1"/final_trainer_*.json; do
        [ -z "$exact" ] || [ "$(sha "$final")" = "$(sha "embedded/$name/final_trainer_0.json")" ] ||
            fail "$1: $(cat "$final") instead of $(cat "embedded/$name/final_trainer_0.json")"
    done
    ok explain "$1"
    grep -q '^480 items, each learned from once' out || fail "$1: $(cat out)"
    ! grep -q 'were not learned from' out || fail "$1: $(cat out)"
}

# train FOLDER NAME OPTIONS...: in the background; $run_pid.
train() {
    local folder=$1 name=$2
    shift 2
    "$EXOGYM" run "$name.yaml" --save-dir "$folder" "$@" >"$folder.out" 2>"$folder.err" </dev/null &
    run_pid=$!
    started+=($!)
}

# learns FOLDER LINES: the tables have more lines, or the run has ended.
learns() {
    [ "$(cat "$1"/learned_trainer_*.csv 2>/dev/null | wc -l)" -gt "$2" ] || gone "$run_pid"
}

# anywhere: how many lines the tables have at a random moment of a run, which has 480 items.
anywhere() {
    echo $((20 + RANDOM % 462))
}

# survives NAME ROUND: workers are killed and replaced from a random moment of the run on.
survives() {
    local name=$1 folder=killed$2 kills=0 victim
    train "$folder" "$name" --head "ipc://$place/head"
    until_true 60 learns "$folder/$name" "$(anywhere)" || fail "$name does not go on: $(cat "$folder.err")"
    while [ $kills -lt "$EXO_CHAOS_KILLS" ] && ! gone "$run_pid"; do
        nap 400
        victim=w$((RANDOM % 3 + 1))
        slay $victim
        worker $victim
        kills=$((kills + 1))
    done
    wait "$run_pid" || fail "$name did not survive $kills deaths of workers: $(cat "$folder.err")"
    same "$folder/$name"
    deaths=$((deaths + $(grep -c 'begins life' "$folder.err")))
    points=$((points + kills))
}

# resumes NAME ROUND: the whole run is killed, and resumed, in odd rounds on the cluster.
resumes() {
    local name=$1 folder=cut$2 where=()
    train "$folder" "$name"
    until_true 60 learns "$folder/$name" "$(anywhere)" || fail "$name does not go on: $(cat "$folder.err")"
    kill -9 "$run_pid" 2>/dev/null
    wait "$run_pid" 2>/dev/null
    [ $(($2 % 2)) = 0 ] || where=(--head "ipc://$place/head")
    ok run "$name.yaml" --save-dir "$folder" --resume "${where[@]}"
    same "$folder/$name"
    points=$((points + 1))
}

points=0 deaths=0
graph one 1 1 8 round_robin "$dialogues"
graph two 2 2 4 modulo "$numbers"
graph three 3 1 8 buffer "$dialogues"
graph four 3 2 4 buffer "$numbers"
graph over 2 1 8 round_robin "$numbers"
sed -i 's/^\( *\)staleness: .*/\1staleness: 2\n\1oversample: 1.5/; s/^\( *\)answers: 4/&\n\1swap: step/' over.yaml
sed -i 's/^\( *\)staleness: .*/&\n\1balance: true/' three.yaml four.yaml
sed -i 's/route: broadcast/route: modulo/' four.yaml
grep -q 'balance: true' three.yaml && grep -q 'route: modulo' four.yaml || exit 1
names=(one two three four)
count=${#names[@]}
head
for w in w1 w2 w3; do
    worker $w
done
for ((round = 0; round < EXO_CHAOS_ROUNDS; round++)); do
    survives ${names[(EXO_CHAOS_SEED + round) % count]} $round
    resumes ${names[(EXO_CHAOS_SEED + round + 1) % count]} $round
done
EXO_CHAOS_KILLS=1
survives over $round
resumes over $round
echo "$points kills; $deaths lives of makers, trainers and buffers ended; each draw was learned from once"
bad 2 'was begun with another actors.trainer.config.batch' run "${names[(EXO_CHAOS_SEED + 1) % count]}.yaml" --save-dir cut0 --resume --set actors.trainer.config.batch=2
bad 1 'holds no run that has begun: leave --resume out' run one.yaml --save-dir nowhere --resume

# Without a rule a death ends the run, and says so.
sed 's/^ *restart:.*//; s/epochs: 120/epochs: 1000000/' one.yaml >mortal.yaml # it does not end by itself
train mortal mortal --head "ipc://$place/head"
until_true 60 learns mortal/one 20 || fail "mortal does not begin: $(cat mortal.err)"
for w in w1 w2 w3; do
    slay $w
done
ended 60 "$run_pid" 1
grep -Eq "(maker|trainer)_0: its node 'w[1-3]' was killed by signal 9" mortal.err || fail "it said: $(tail -n 2 mortal.err)"
x stop || fail 'stop'
ended 60 "$head_pid" 0
finish
