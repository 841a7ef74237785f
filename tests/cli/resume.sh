#!/usr/bin/env bash
# Stopped by a signal, a job says how to go on, and ends as if it had never been stopped.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

# stop SIGNAL STATUS NAME: begins a job and stops it in its second run; `steps` grows until that is
# slow enough to hit.
steps=64
stop() {
    local pid got
    while :; do
        rm -rf "runs/$3"
        "$EXOGYM" run job.yaml --name "$3" --no-plot --set train.max_steps=$steps >out 2>err </dev/null &
        pid=$!
        until [ "$(cat "runs/$3/diloco/train.csv" 2>/dev/null | wc -l)" -gt 8 ] || ! kill -0 $pid 2>/dev/null; do
            sleep 0.01
        done
        kill "-$1" $pid 2>/dev/null
        wait $pid
        got=$?
        tail -1 err | grep -q 'stopped in diloco' || [ $steps -gt 100000 ] && break
        steps=$((4 * steps))
    done
    [ $got = "$2" ] || fail "SIG$1: ended with $got instead of $2: $(tail -3 err)"
}

stop INT 130 stopped
[ "$(tail -1 err)" = "exogym: stopped in diloco, its state is saved; to go on: $EXOGYM run job.yaml --name stopped --no-plot --set train.max_steps=$steps --resume" ] ||
    fail "no command to go on: $(tail -1 err)"
[ -s runs/stopped/ddp/result.json ] || fail 'the finished run has no result'
[ ! -e runs/stopped/diloco/result.json ] || fail 'the stopped run has a result'

# Other settings are refused before anything is touched.
"$EXOGYM" run job.yaml --name stopped --no-plot --set train.max_steps=$steps --set seed=8 --resume >out 2>err
[ $? = 2 ] || fail 'resumed with another seed'
case $(tail -1 err) in
"exogym: --resume: runs/stopped/"*" was begun with another seed; run with --overwrite to start over, or with --name") ;;
*) fail "resumed with another seed: $(tail -1 err)" ;;
esac

ok run job.yaml --name stopped --no-plot --set train.max_steps=$steps --resume
has err 'finished before'
ok run job.yaml --name whole --no-plot --set train.max_steps=$steps
for label in ddp diloco sparta; do
    [ "$(json runs/stopped/$label/result.json sha256)" = "$(json runs/whole/$label/result.json sha256)" ] ||
        fail "$label: other parameters than without the stop"
    for file in train.csv validation.csv correlation.csv; do
        cmp -s runs/stopped/$label/$file runs/whole/$label/$file || fail "$label: $file differs from that without the stop"
    done
done

stop TERM 143 terminated

# More steps than are asked for are done: refused before anything is written.
cp -r runs/terminated runs/before
"$EXOGYM" run job.yaml --name terminated --no-plot --set train.max_steps=2 --resume >out 2>err
[ $? = 2 ] || fail 'resumed with fewer steps than are done'
grep -q "^exogym: --resume: runs/terminated/ddp is finished after $steps steps, 2 are asked for" err || fail "fewer steps: $(cat err)"
"$EXOGYM" run job.yaml --name terminated --no-plot --set compare=[diloco] --set strategy.H=4 --set train.max_steps=2 --resume >out 2>err
[ $? = 2 ] || fail 'resumed below the checkpoint'
grep -q '^exogym: --resume: runs/terminated/diloco is at step [0-9]*, 2 are asked for' err || fail "below the checkpoint: $(cat err)"
diff -r runs/before runs/terminated || fail 'a refused --resume wrote into the folder'

# The command can be pasted: names with spaces, values with quotes, jobs from pipes.
mkdir 'a b'
sed 's/^compare:.*/strategy: ddp/; /^strategy: {/d; /^presets/d' job.yaml >"a b/it's.yaml"
pasted() {
    local pid
    : >err
    "$@" <&3 >out 2>err &
    pid=$!
    until [ "$(cat 'kept here/pasted/ddp/train.csv' 2>/dev/null | wc -l)" -gt 8 ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
    kill -INT $pid
    wait $pid
    [ $? = 130 ] || fail "$*: not stopped: $(tail -3 err)"
    command=$(tail -1 err | sed 's/.*to go on: //')
    before=$(wc -l <'kept here/pasted/ddp/train.csv') # a header, and the steps that are done
    [[ $command != *[[:cntrl:]]* ]] || fail "the command gives orders to the terminal: ${command@Q}"
    bash -c "${command/100000000/$((before + 3))}" >out 2>err </dev/null || fail "'$command' does not work: $(tail -3 err)"
    grep -q 'goes on' err || fail "'$command' does not go on: $(cat err)"
    rm -rf 'kept here'
}
long=(--no-plot --save-dir 'kept here' --name pasted --set train.max_steps=100000000)
pasted "$EXOGYM" run "a b/it's.yaml" "${long[@]}" --set 'strategy={name: ddp, label: "ddp"}' 3</dev/null
pasted "$EXOGYM" run "a b/it's.yaml" "${long[@]}" --set $'strategy={name: ddp,\tlabel: "ddp"}' 3</dev/null
pasted "$EXOGYM" run - "${long[@]}" 3<"a b/it's.yaml"
mkfifo 'a pipe'
cat "a b/it's.yaml" >'a pipe' &
pasted "$EXOGYM" run 'a pipe' "${long[@]}" 3</dev/null

# Killed after its last checkpoint and before its result: what is shown of it is what was shown
# before. What a kill left of files that were being written goes.
ok run job.yaml --name late --no-plot
cp runs/late/ddp/progress.json before.json
rm runs/late/*/result.json runs/late/*/model.safetensors
for name in graph.yaml config.json model.safetensors graph.next; do
    touch runs/late/ddp/$name.partial-x1Y2z3
done
touch runs/late/ddp/notes.partial-long
ok run job.yaml --name late --no-plot --resume
for path in train.loss step; do
    [ "$(meter runs/late/ddp/progress.json $path)" = "$(meter before.json $path)" ] ||
        fail "$path is $(meter runs/late/ddp/progress.json $path) instead of $(meter before.json $path)"
done
[ "$(json runs/late/ddp/progress.json state)" = "$(json before.json state)" ] ||
    fail "state is $(json runs/late/ddp/progress.json state) instead of $(json before.json state)"

# A run that was killed has left a report that says that it runs.
mkdir -p runs/gone/ddp
sed 's/"state": *"[a-z]*"/"state": "running"/' runs/late/ddp/progress.json >runs/gone/ddp/progress.json
ok why runs/gone
has out 'runs/gone/ddp: killed'
has out 'cause: unknown: its process ended without a word'
[ "$(ls runs/late/ddp | grep partial)" = notes.partial-long ] || fail "left: $(ls runs/late/ddp | grep partial)"

# A table that is damaged refuses more steps, and what the finished run has made stays.
cp -r runs/late damaged
sed -i 1s/step/stop/ runs/late/ddp/validation.csv
"$EXOGYM" run job.yaml --name late --no-plot --set train.max_steps=14 --resume >out 2>err
[ $? = 1 ] || fail 'a damaged table was taken'
has err "exogym: ddp: runs/late/ddp/validation.csv: the first line should be 'step,local_loss,"
for name in result.json model.safetensors; do
    cmp -s damaged/ddp/$name runs/late/ddp/$name || fail "$name did not outlive a damaged table"
done
rm runs/late/ddp/validation.csv
ok run job.yaml --name late --no-plot --set train.max_steps=14 --resume
[ "$(json runs/late/ddp/result.json steps)" = 14 ] || fail 'without the damaged table the run does not go on'
finish
