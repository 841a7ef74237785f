#!/usr/bin/env bash
# Trainers of texts that are stopped or killed, and go on with --resume: the weights, the figures and the
# lines of all steps are those of a whole run. A damaged checkpoint is passed over; other texts are
# refused.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

for ((i = 0; i < 40; i++)); do
    printf '{"prompt": "p%d:", "answer": "aab", "chosen": "aab", "rejected": "bb%d, which is not so good as the other"}\n' "$i" "$i"
done >texts.jsonl
model='{name: gpt, layers: 1, heads: 2, width: 32, context: 64, vocabulary: 128, values: true}'

# graph CLASS STEPS: a graph in CLASS.yaml, with a checkpoint after each 7 steps.
graph() {
    local count=1 data=''
    case $1 in
    sft_trainer) data='      data: {path: texts.jsonl}' ;;
    dpo_trainer) count=2 data='      data: {path: texts.jsonl}' ;;
    esac
    cat >"$1.yaml" <<END
exogym: 1
name: $1
actors:
  trainer:
    class: $1
    count: $count
    config:
      model: $model
      validation: 20 %
      batch: $((16 / count))
      steps: $2
      val_interval: 10
      checkpoint: {every: 7}
      optimizer: {name: adamw, lr: 1e-3}
      lr_scheduler: {name: cosine}
$data
END
    case $1 in
    dpo_trainer) cat >>"$1.yaml" <<END ;;
edges:
  - {from: trainer, to: trainer, carries: gradients, route: all_reduce}
END
    reward_trainer) cat >>"$1.yaml" <<END ;;
  maker:
    class: experience_maker
    config: {model: $model, prompts: {tokens: [[1], [2], [3, 4], [5, 6, 7]]}, reward: {name: share, token: 3}, answers: 8, epochs: $(($2 / 5)), generate: {max_new_tokens: 6}}
edges:
  - {from: maker, to: trainer, carries: experience}
END
    esac
}

# steps FOLDER: the lines of all steps, without their times.
steps() {
    cut -d, -f1,3- "$1/steps_trainer_0.csv"
}

# same CLASS FOLDER
same() {
    local file
    for file in "whole/$1"/final_trainer_*.json; do
        cmp "$file" "$2/$1/${file##*/}" || fail "$2/$1: $(cat "$2/$1/${file##*/}") instead of $(cat "$file")"
    done
    diff <(steps "whole/$1") <(steps "$2/$1") || fail "$2/$1 has other steps"
}

# flip FILE: changes its last byte.
flip() {
    local size byte
    size=$(stat -c %s "$1")
    byte=$(tail -c 1 "$1" | od -An -tu1)
    printf "\\x$(printf %x $((byte ^ 1)))" | dd of="$1" bs=1 seek=$((size - 1)) conv=notrunc status=none
}

# cut_run SIGNAL CLASS FOLDER: a run that gets the signal after some steps; $cut_at is the step. Where the
# run came to its end before, the graph asks for more steps.
steps=50
cut_run() {
    local pid
    while :; do
        rm -rf "$3"
        graph "$2" $steps
        "$EXOGYM" run "$2.yaml" --save-dir "$3" --no-plot >out 2>err </dev/null &
        pid=$!
        until [ "$(cat "$3/$2/steps_trainer_0.csv" 2>/dev/null | wc -l)" -gt 15 ]; do
            kill -0 $pid 2>/dev/null || break
            read -rt 0.005 <> <(:) || :
        done
        kill "-$1" $pid 2>/dev/null
        wait $pid 2>/dev/null
        [ -e "$3/$2/final_trainer_0.json" ] && [ $steps -lt 100000 ] || break
        steps=$((4 * steps))
    done
    [ ! -e "$3/$2/final_trainer_0.json" ] || fail "$2 was not cut"
    cut_at=$(tail -n 1 "$3/$2/steps_trainer_0.csv" | cut -d, -f1)
}

for class in sft_trainer dpo_trainer reward_trainer; do
    cut_run KILL $class cut
    ok run $class.yaml --save-dir whole --no-plot
    ok run $class.yaml --save-dir cut --no-plot --resume
    same $class cut
done

# A trainer that is alone writes a checkpoint when the run is stopped.
cut_run TERM sft_trainer stopped
[ "$(tail -n 1 err)" = "exogym: stopped in sft_trainer; to go on from its newest checkpoints: $EXOGYM run sft_trainer.yaml --save-dir stopped --no-plot --resume" ] ||
    fail "no command to go on: $(tail -n 1 err)"
newest=$(printf '%s\n' stopped/sft_trainer/checkpoint_trainer_0_* | tail -n 1)
[ $((10#$(basename "${newest##*_}" .safetensors))) = "$cut_at" ] || fail "the newest checkpoint is $newest after step $cut_at"
flip "$newest"
rm -rf whole
ok run sft_trainer.yaml --save-dir whole --no-plot
ok run sft_trainer.yaml --save-dir stopped --no-plot --resume
grep -q 'event=damaged' err || fail "it does not tell of the damage: $(cat err)"
same sft_trainer stopped

cut_run TERM sft_trainer other
sed -i s/aab/aac/ texts.jsonl
bad 2 "the texts are not those that the checkpoint of step $cut_at" run sft_trainer.yaml --save-dir other --no-plot --resume
finish
