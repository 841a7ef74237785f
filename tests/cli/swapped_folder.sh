#!/usr/bin/env bash
# While a run, an export or a picture is written, another process puts links in the place of files
# and folders and takes them away again, at every moment: nothing is written or removed where they
# lead.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

cat >swap.c <<'END'
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
/* swap A B: says that it has begun, and exchanges the two names again and again, until it is killed; then
 * says how often. */
static volatile sig_atomic_t over;
static void end(int signal) { over = signal; }
int main(int argc, char **argv)
{
    unsigned long swaps = 0, number = 88172645463325252u;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, end);
    swaps += renameat2(AT_FDCWD, argv[1], AT_FDCWD, argv[2], RENAME_EXCHANGE) == 0;
    puts("begun");
    fflush(stdout);
    while (!over && argc == 3) {
        swaps += renameat2(AT_FDCWD, argv[1], AT_FDCWD, argv[2], RENAME_EXCHANGE) == 0;
        number ^= number << 13, number ^= number >> 7, number ^= number << 17;
        if (number % 4)
            nanosleep(&(struct timespec){.tv_nsec = (long)(number >> 8) % 100000}, NULL);
    }
    printf("%lu\n", swaps);
    return 0;
}
END
"${CC:-cc}" -O1 -o swap swap.c || fail 'the swapper cannot be built'
# begin A B: a swapper in the background, $pid, that has begun. end_swaps: ends it; $swaps is how often.
begin() {
    local end=$((SECONDS + 60))
    rm -f swaps
    ./swap "$@" >swaps &
    pid=$!
    until [ -s swaps ]; do
        [ $SECONDS -lt $end ] || { echo 'FAIL the swapper does not begin' && exit 1; }
        sleep 0.002
    done
}
end_swaps() {
    kill $pid
    wait $pid
    swaps=$(tail -n 1 swaps)
}
touch a b
begin a b
end_swaps
if [ "$swaps" = 0 ]; then
    echo 'this file system exchanges no names: skipped'
    exit 77
fi

sed -i -e 's/^compare:.*/compare: [{name: diloco, H: 4}]/' -e 's/val_interval: 5,/val_interval: 5, checkpoint_interval: 3,/' job.yaml
ok run job.yaml --no-plot
mv runs/small whole
outside() { (cd outside && find . -printf '%P %y %s %T@ %m\n' | sort && find . -type f -exec sha256sum {} + | sort); }

# swapped WHAT LINKED COMMAND...: WHAT becomes a link to outside/LINKED and itself again while the
# command runs. It may fail.
total=0
swapped() {
    local what=$1 target=$PWD/outside/$2 pid swaps
    shift 2
    rm -rf swap.other
    ln -s "$target" swap.other
    outside >before
    begin "$what" swap.other
    timeout 120 "$@" >out 2>err </dev/null
    [ $? != 124 ] || fail "it hangs: $*"
    end_swaps
    total=$((total + swaps))
    outside >after
    cmp -s before after || fail "$* while $what was swapped: $(diff before after | head -5)"
}
for how in --overwrite --resume; do
    for name in diloco diloco/checkpoints diloco/checkpoints/step_00000003 diloco/checkpoints/step_00000009 diloco/metrics.csv; do
        for round in 1 2; do
            rm -rf runs outside
            mkdir -p runs outside
            cp -r whole runs/small
            cp -r "whole/$name" outside/target
            [ $how != --resume ] || rm -rf runs/small/diloco/result.json runs/small/diloco/checkpoints/step_00000012
            swapped "runs/small/$name" target "$EXOGYM" run job.yaml --no-plot $how
        done
    done
done

# An export: its files, and a folder of what is carried along.
printf 'abcd efgh\n%.0s' {1..200} >text.txt
cat >lm.yaml <<'END'
model: {name: gpt, layers: 1, heads: 1, width: 8, context: 16}
data: {name: text, path: text.txt, block: 8}
train: {max_steps: 1, batch_size: 2}
strategy: ddp
END
ok run lm.yaml --no-plot
ok export runs/lm/ddp model
mkdir -p model/more/inner
for i in 1 2 3 4 5 6 7 8; do printf '{}' >model/more/inner/settings$i.json; done
for name in more more/inner model.safetensors tokenizer.json; do
    for round in 1 2 3 4; do
        rm -rf outside again
        mkdir outside
        cp -r model again
        cp -r "model/$name" outside/target
        swapped "again/$name" target "$EXOGYM" export model again
    done
done

# A picture.
if command -v gnuplot >/dev/null; then
    rm -rf outside runs
    mkdir -p outside runs
    cp -r whole runs/small
    printf 'a file of a person' >outside/target
    for round in 1 2 3; do
        printf 'x' >compare.png
        swapped compare.png target "$EXOGYM" plot runs/small -o compare.png
    done
fi
[ $total -gt 1000 ] || fail "only $total exchanges: nothing was tried"
finish
