#!/usr/bin/env bash
# Stopped by a signal, a job says how to go on, and ends as if it had never been stopped.
. "$EXO_SOURCE/tests/cli/common.bash"

# stop SIGNAL STATUS NAME: begins a job and stops it in its second run; `steps` grows until that is slow enough to hit.
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
[ "$(tail -1 err)" = "exogym: stopped in diloco, its state is saved; to go on: exogym run job.yaml --name stopped --no-plot --set train.max_steps=$steps --resume" ] ||
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
finish
