#!/usr/bin/env bash
# Jobs that mpirun starts: every rank is a worker, and the hash is that of one process, with the
# engine `mpi`, too. Stops, deaths and mistakes. Skipped without MPI.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
command -v mpirun >/dev/null && [ -e "$EXO_BUILD/exogym-mpi.so" ] || exit 77
mpirun --version 2>/dev/null | grep -q 'Open MPI' || exit 77
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir t
export TMPDIR=$folder/t
unset EXOGYM_HEAD EXOGYM_HEAD_KEY
sed -i -e '/^compare:/d' -e '/^presets:/d' -e 's/^nodes: 2/nodes: 4/' -e 's/^strategy: {/strategy: {name: diloco, H: 3, /' job.yaml

# ranks N ARGUMENTS...: exogym on N ranks; its output is in `out` and `err`.
ranks() {
    local n=$1
    shift
    mpirun --oversubscribe -n "$n" "$EXOGYM" "$@" >out 2>err </dev/null
}

# sha256 NAME: the hash of a run's parameters.
sha256() {
    json "runs/$1/$2/result.json" sha256
}

nothing_left() {
    ! compgen -G "$TMPDIR/exogym-run-*" >/dev/null
}

# settled: waits until nothing of a run is left in the temporary folder.
settled() {
    local end=$((SECONDS + 120))
    until nothing_left; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}

ok list engines
has out 'mpi '

# The same bits for each strategy, engine, and number of ranks.
for strategy in '{name: ddp}' '{name: diloco, H: 3}' '{name: noloco, H: 3}'; do
    name=$(sed 's/.*name: \([a-z]*\).*/\1/' <<<"$strategy")
    ok run job.yaml --name one --no-plot --overwrite --set "strategy=$strategy"
    sent=$(json "runs/one/$name/result.json" bytes_sent_per_node)
    for case in '4 mpi' '4 auto' '2 mpi' '1 mpi'; do
        [ "$name" = diloco ] || [ "$case" = '4 mpi' ] || continue # one strategy tries all numbers
        read -r n engine <<<"$case"
        ranks "$n" run job.yaml --name many --no-plot --overwrite --set "strategy=$strategy" --set engine="$engine" ||
            fail "$name on $n ranks, engine $engine: $(tail -12 err)"
        [ "$(sha256 one "$name")" = "$(sha256 many "$name")" ] || fail "$name on $n ranks, engine $engine: other bits"
        [ "$(json "runs/many/$name/result.json" bytes_sent_per_node)" = "$sent" ] || fail "$name, engine $engine: other bytes"
        [ "$(grep -c '^diloco  *starts\|^ddp  *starts\|^noloco  *starts' err)" = 1 ] || fail "not one rank speaks: $(head -5 err)"
        settled || fail "$name on $n ranks left $(ls "$TMPDIR")"
    done
done
ok run job.yaml --name here --no-plot --set engine=mpi
ok run job.yaml --name net --no-plot
[ "$(sha256 here diloco)" = "$(sha256 net diloco)" ] || fail 'engine mpi in one process: other bits'

# A mistake is said once, and all ranks end.
ranks 3 run nojob.yaml && fail 'a missing job succeeds'
[ "$(grep -c "^exogym: cannot read 'nojob.yaml'" err)" = 1 ] || fail "a missing job: $(head -5 err)"
ranks 2 run job.yaml --workers 2 && fail '--workers under mpirun'
has err 'the ranks of MPI are the workers'
ranks 2 run job.yaml --dry-run || fail "--dry-run: $(tail -3 err)"
[ "$(grep -c '^diloco: mlp' out)" = 1 ] || fail 'not one rank plans'
bad 2 'engine mpi is for processes that MPI starts' run job.yaml --workers 2 --set engine=mpi --name workers
SLURM_STEP_NUM_TASKS=4 bad 1 'srun started several tasks without MPI' run job.yaml --name slurm

# begin NAME: starts a run on four ranks that does not end by itself; $mpirun. rank N: the process number of
# a rank.
begin() {
    mpirun --oversubscribe -n 4 "$EXOGYM" run job.yaml --name "$1" --no-plot --set train.max_steps=1000000 --set train.checkpoint_interval=200 \
        --set train.val_interval=1000 --set engine=mpi >out 2>err </dev/null &
    mpirun=$!
    until compgen -G "runs/$1/diloco/checkpoints/step_*" >/dev/null || ! kill -0 $mpirun 2>/dev/null; do sleep 0.01; done
}
rank() {
    local process
    for process in $(pgrep -x -P "$mpirun" exogym); do
        tr '\0' '\n' <"/proc/$process/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$1" && echo "$process"
    done
}

# further NAME: $steps is 200 more than those of its newest checkpoint, and `whole` a run of so many that was
# left alone.
further() {
    steps=$(printf '%s\n' "runs/$1/diloco/checkpoints"/step_* | tail -1)
    steps=$((10#${steps##*_} + 200))
    ok run job.yaml --name whole --no-plot --overwrite --set train.max_steps=$steps --set train.val_interval=1000
}

# Rank 0 is told to stop: it saves the state, all ranks end, and one process goes on to the same
# bits.
begin stopped
kill -TERM "$(rank 0)" || fail "no rank 0: $(tail -3 err)"
wait $mpirun && fail 'a stopped run succeeds'
has err 'its state is saved'
settled || fail "a stop left $(ls "$TMPDIR")"
further stopped
ok run job.yaml --name stopped --no-plot --set train.max_steps=$steps --set train.val_interval=1000 --resume
[ "$(sha256 whole diloco)" = "$(sha256 stopped diloco)" ] || fail 'a stopped run ends with other bits'

# A rank that is killed ends the job, and nothing is left; it goes on from the checkpoint.
begin killed
kill -KILL "$(rank 2)" || fail "no rank 2: $(tail -3 err)"
wait $mpirun && fail 'a run without a rank succeeds'
settled || fail "a death left $(ls "$TMPDIR")"
further killed
ranks 4 run job.yaml --name killed --no-plot --set train.max_steps=$steps --set train.val_interval=1000 --set engine=mpi --resume ||
    fail "--resume after a death: $(tail -5 err)"
[ "$(sha256 whole diloco)" = "$(sha256 killed diloco)" ] || fail 'other bits after a death'

finish
