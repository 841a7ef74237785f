#!/usr/bin/env bash
# A path that leads to other files on the host of a worker than on that of the user, be they data of a job
# or texts, prompts and models of a graph, or a plugin that a worker has loaded before it changed, is found
# before the first step. One host has two such files here,
# because /proc/self/cwd is another folder for each process.
# shellcheck disable=SC2154 # start sets variables by name
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

export TMPDIR=$folder
mkdir elsewhere
# The name of the worker is told although the path contains it.
printf 'The quick brown fox jumps over the lazy dog. %.0s' {1..20} >words.txt
cp words.txt elsewhere/words.txt
cat >job.yaml <<'JOB'
name: files
model: {name: gpt, layers: 1, heads: 1, width: 8, context: 8}
data: {name: text, path: /proc/self/cwd/words.txt, block: 8}
nodes: 2
train: {max_steps: 2, batch_size: 2, val_size: none}
strategy: ddp
JOB

# job OPTIONS...: runs it on the cluster.
job() {
    timeout 120 "$EXOGYM" run job.yaml --head "ipc://$place/head" --save-dir runs --no-plot --overwrite "$@" >out 2>err </dev/null
}

head
cd elsewhere && worker words
cd .. || exit 1
job || fail "the same files: $(tail -3 err)"
echo 'and more' >>elsewhere/words.txt
job && fail 'other files were not noticed'
has err 'on words: the data have '
has err 'the same files must be on all hosts'
# As many samples, but others: an edit in the first one, a shift, another text.
sed 's/The quick/the quick/' words.txt >elsewhere/words.txt
job && fail 'another first sample was not noticed'
has err 'on words: the data have other samples on this host'
{ command tail -c +2 words.txt && printf .; } >elsewhere/words.txt
job && fail 'a shift was not noticed'
has err 'on words: the data have other samples on this host'
tr a-z b-za <words.txt >elsewhere/words.txt
job && fail 'another text was not noticed'
has err 'on words: the data have other samples on this host'
rm elsewhere/words.txt
job && fail 'missing files were not noticed'
has err 'on words: /proc/self/cwd/words.txt: No such file or directory'
cp words.txt elsewhere/words.txt

# A plugin that is built again while the worker lives is not that which the worker has loaded. Bytes after
# the end of a shared object change nothing but its SHA-256.
cp "$EXO_BUILD/tests/plugins/counts.so" "$EXO_BUILD/tests/plugins/numbers.so" .
build_again() {
    cp "$1" built.so && printf . >>built.so && mv built.so "$1"
}
job=(--set strategy=counted --set "plugins=[$folder/counts.so]")
job "${job[@]}" || fail "a plugin: $(tail -3 err)"
build_again counts.so
job "${job[@]}" && fail 'a plugin that was built again was not noticed'
has err "on words: plugin '$folder/counts.so' has changed since this process loaded it"
cp "$EXO_BUILD/tests/plugins/counts.so" .
job "${job[@]}" || fail "the plugin that the worker has: $(tail -3 err)"

cat >graph.yaml <<END
name: numbers
plugins: [$folder/numbers.so]
actors:
  source: {class: source, config: {items: 3}}
  sink: {class: sink}
edges:
  - {from: source, to: sink, carries: numbers}
END
graph() {
    timeout 120 "$EXOGYM" run graph.yaml --head "ipc://$place/head" --save-dir runs --overwrite >out 2>err </dev/null
}
graph || fail "a graph with a plugin: $(tail -3 err)"
build_again numbers.so
graph && fail 'a plugin of a graph that was built again was not noticed'
has err "on words: plugin '$folder/numbers.so' has changed since this process loaded it"
cp "$EXO_BUILD/tests/plugins/numbers.so" .
graph || fail "the plugin of a graph that the worker has: $(tail -3 err)"

# The same of what actors read: texts, prompts, weights of a policy and of a reward model. Before, two trainers
# that learn as one went on from two policies, and ended with two.
here=/proc/self/cwd
for ((i = 0; i < 8; i++)); do
    echo "{\"prompt\": \"p$i:\", \"answer\": \"aab\"}"
done >texts.jsonl
model='{name: gpt, layers: 1, heads: 2, width: 16, context: 32, vocabulary: 256'
printf 'p%d:\n' 1 2 3 4 >prompts.txt
for seed in 1 2; do
    cat >sft.yaml <<END
name: model$seed
seed: $seed
actors: {trainer: {class: sft_trainer, config: {model: $model, values: true}, data: {path: texts.jsonl}, checkpoint: {every: 0}}}}
END
    "$EXOGYM" run sft.yaml --save-dir models --no-plot >out 2>err </dev/null || fail "a model: $(tail -3 err)"
done
cp -r models/model1/model_trainer_0 policy
cp -r policy reward
cp -r policy reward texts.jsonl prompts.txt elsewhere
cat >sft.yaml <<END
name: texts
actors:
  trainer: {class: sft_trainer, config: {model: {name: gpt, path: $here/policy}, data: {path: $here/texts.jsonl}}}
END
cat >ppo.yaml <<END
name: policies
actors:
  maker:
    class: experience_maker
    config:
      model: {name: gpt, path: $here/policy}
      prompts: {path: $here/prompts.txt}
      reward: {name: model, path: $here/reward}
      answers: 2
      generate: {max_new_tokens: 4}
  trainer:
    class: ppo_trainer
    config: {model: {name: gpt, path: $here/policy}, algorithm: {name: grpo}, batch: 2}
edges:
  - {from: maker, to: trainer, carries: experience}
  - {from: trainer, to: maker, carries: parameters, buffer: {on_full: latest}}
END
# actors FILE: runs the graph on the cluster.
actors() {
    timeout 120 "$EXOGYM" run "$1" --head "ipc://$place/head" --save-dir runs --no-plot --overwrite >out 2>err </dev/null
}
# other GRAPH FILE OTHER: the graph is refused while the worker has OTHER in the place of FILE.
other() {
    actors "$1" || fail "the same files: $(tail -3 err)"
    mv "elsewhere/$2" kept
    cp "$3" "elsewhere/$2"
    actors "$1" && fail "another $2 was not noticed"
    grep -Eq "on words: start: text: $1:[0-9]+:[0-9]+: '$here/$2' is not on this host what it is on that of the run" err ||
        fail "it said: $(tail -3 err)"
    mv kept "elsewhere/$2"
}
sed s/aab/aac/ texts.jsonl >other.jsonl
printf 'q%d:\n' 1 2 3 4 >other.txt
other sft.yaml texts.jsonl other.jsonl
other ppo.yaml prompts.txt other.txt
other ppo.yaml policy/model.safetensors models/model2/model_trainer_0/model.safetensors
other ppo.yaml reward/value_head.safetensors models/model2/model_trainer_0/value_head.safetensors
# A folder with a file more is another one, and files that only the host of a worker has do not matter.
cp reward/config.json elsewhere/policy/more.safetensors
actors ppo.yaml && fail 'a file more was not noticed'
has err "'$here/policy/more.safetensors' is not on this host what it is"
mv elsewhere/policy/more.safetensors elsewhere/policy/more
actors ppo.yaml || fail "a note in a folder: $(tail -3 err)"

x stop || fail 'stop'
ended 15 "$head_pid" 0

# The folder of a run is another one on the host of its nodes: they write no checkpoints there. A job that
# writes none trains, and says what ctrl-C could not save.
mkdir far && unshare --mount mount -t tmpfs none far 2>/dev/null || finish
head
unshare --mount --propagation private sh -c 'mount -t tmpfs none far && exec "$@"' sh \
    "$EXO_BUILD/exogym-worker" --folder "$clusters" --name far --resource cpus=4 >far_pid.out 2>far_pid.err &
far_pid=$!
started+=("$far_pid")
until_true 10 is_ready far_pid || fail "far: $(cat far_pid.err)"
job --save-dir far && fail 'a folder that is not shared was not noticed'
has err 'so all hosts must share it, or train without any: train.final_checkpoint=false'
"$EXOGYM" run job.yaml --head "ipc://$place/head" --save-dir far --no-plot --overwrite --set train.max_steps=100000000 \
    --set train.final_checkpoint=false --set train.val_interval=10 >out 2>err </dev/null &
run_pid=$!
started+=("$run_pid")
until_true 60 eval "gone $run_pid || grep -q 'step ' err"
kill -INT "$run_pid"
ended 60 "$run_pid" 1
has err 'the run was stopped, and its state is not saved, for which all hosts must share its folder: node_'
x stop || fail 'stop'
ended 15 "$head_pid" 0
finish
