#!/usr/bin/env bash
# A config.json of some hundred bytes can claim a model of any size: what the weights do not have
# gets no memory.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

if ! grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt"; then
    echo "sanitizers take more address space than what this leaves: skipped"
    exit 77
fi
printf 'abcd efgh\n%.0s' {1..200} >text.txt
cat >job.yaml <<'END'
name: tiny
model: {name: gpt, layers: 1, heads: 1, width: 8, context: 16}
data: {name: text, path: text.txt, block: 8}
train: {max_steps: 2, batch_size: 2, checkpoint_interval: 1}
strategy: ddp
END
ok run job.yaml --no-plot
cp -r runs/tiny/ddp stopped
ok export runs/tiny/ddp hf
rm stopped/{model.safetensors,result.json}
# limited ARGUMENTS...: exogym with less memory than what is claimed takes.
limited() {
    (
        ulimit -v 3000000
        "$EXOGYM" "$@" >out 2>err </dev/null
    )
}
sed -i 's/"width": 8/"width": 65536/; s/"layers": 1/"layers": 64/; /"inner"/d; /"head_width"/d' runs/tiny/ddp/config.json stopped/config.json
for run in runs/tiny/ddp stopped; do
    for command in generate export; do
        [ $command = generate ] && limited generate --model $run --prompt a || limited export $run out.hf
        [ $? = 1 ] || fail "$command $run: a claim of 64 layers of 65,536 is taken: $(cat err)"
        grep -q "as the run's config.json describes it" err || fail "$command $run: $(cat err)"
    done
done
sed -i 's/"n_embd": 8/"n_embd": 65536/; s/"n_layer": 1/"n_layer": 64/; s/"n_inner": 32/"n_inner": 262144/' hf/config.json
for command in generate export; do
    [ $command = generate ] && limited generate --model hf --prompt a || limited export hf out.hf
    [ $? = 1 ] || fail "$command hf: a claim of 64 layers of 65,536 is taken: $(cat err)"
    grep -q 'hf/model.safetensors: tensor' err || fail "$command hf: $(cat err)"
done
finish
