#!/usr/bin/env bash
# Pictures of runs, from metrics.csv alone.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
command -v gnuplot >/dev/null || exit 77

header=step,seconds,bytes_sent,local_loss,global_loss,local_accuracy,global_accuracy
make_run() {
    mkdir -p "$1"
    printf '%s\n0,0.1,0,2.3,2.3,0.1,0.1\n10,1.5,%s,1.2,1.1,0.5,0.6\n20,3,%s,0.6,0.5,nan,nan\n' $header "$2" "$3" >"$1/metrics.csv"
}
make_run runs/compare/ddp 1000000 2000000
make_run runs/compare/diloco 50000 100000
make_run "runs/it's/one_run" 0 0

ok plot runs/compare -o all.svg
[ "$(cat out)" = all.svg ] || fail 'the path is not printed'
for text in '<svg' ddp diloco 'sent per node' 'time (seconds)' compare; do
    has all.svg "$text"
done
ok plot runs/compare/ddp runs/compare -o twice.png
[ "$(head -c 4 twice.png | tail -c 3)" = PNG ] || fail 'no PNG'
ok plot "runs/it's" --output="it's.svg" --title "a 'title'"
has "it's.svg" "one_run"
has "it's.svg" "bytes sent per node: none"
cp -r runs/compare runs/other
ok plot runs/compare runs/other -o labels.svg
has labels.svg other/ddp

# A run that is still going: the line that is being written is left out.
printf '30,4,30' >>runs/compare/ddp/metrics.csv
ok plot runs/compare -o going.svg

expect 2 "exogym: 'a.gif': a picture's name ends with .png or .svg" plot runs/compare -o a.gif
expect 2 "exogym: 'runs' is no run: there is no metrics.csv in it or in its folders" plot runs -o a.png
expect 2 "exogym: cannot read the folder 'none': No such file or directory" plot none -o a.png
expect 1 "exogym: cannot write '/nonexistent/a.png': No such file or directory" plot runs/compare -o /nonexistent/a.png
printf 'x,y\n' >runs/compare/ddp/metrics.csv
expect 1 "exogym: $folder/runs/compare/ddp/metrics.csv:1: expected '$header'" plot runs/compare -o a.png
printf '%s\n1,2,3,x,4\n' $header >runs/compare/ddp/metrics.csv
expect 1 "exogym: $folder/runs/compare/ddp/metrics.csv:2: field 4 is no number" plot runs/compare -o a.png
printf '%s\n' $header >runs/compare/ddp/metrics.csv
expect 2 "exogym: $folder/runs/compare/ddp/metrics.csv: there is no evaluation in it yet" plot runs/compare -o a.png
[ ! -e a.png ] || fail 'half a picture is left'

# gnuplot's PNG writer ends with 0 on a full disk, after a part of the picture.
mkdir fake
printf '#!/bin/sh\n%s "$@" | head -c 2000\n' "$(command -v gnuplot)" >fake/gnuplot
chmod +x fake/gnuplot
for picture in a.png a.svg; do
    PATH=$PWD/fake:$PATH "$EXOGYM" plot runs/other -o $picture >out 2>err
    [ $? = 1 ] || fail "a part of $picture: not status 1"
    has err "exogym: gnuplot could not write all of '$picture': is the disk full?"
    [ -z "$(find . -name 'a.*')" ] || fail 'half a picture is left'
done

# As under a parent that ignores SIGCHLD, for which the kernel keeps no status of processes that end.
printf '#!/bin/sh\ncat >/dev/null\nexit 1\n' >fake/dot
chmod +x fake/dot
trap '' CHLD
ok plot runs/other -o ignored.png
PATH=$PWD/fake:$PATH "$EXOGYM" graph dot "$EXO_SOURCE/examples/01_compare/compare.yaml" --run ddp -o a.png >out 2>err
[ $? = 1 ] || fail 'dot failed while SIGCHLD is ignored: not status 1'
trap - CHLD
has err "exogym: graphviz's dot could not draw the graph"
[ -z "$(find . -name 'a.png*')" ] || fail 'an empty picture is left'

# A command that is stopped while another program draws ends that one, and leaves no part.
# stopped SIGNAL STATUS ARGUMENTS...
for name in gnuplot dot; do
    printf '#!/bin/sh\necho $$ >started\nexec sleep 600\n' >fake/$name
    chmod +x fake/$name
done
stopped() {
    local signal=$1 status=$2 pid
    shift 2
    rm -f started
    PATH=$PWD/fake:$PATH "$EXOGYM" "$@" -o a.png >out 2>err &
    pid=$!
    until [ -s started ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
    kill "-$signal" $pid
    wait $pid
    [ $? = "$status" ] || fail "$1 with SIG$signal: not status $status: $(cat err)"
    [ -z "$(find . -name 'a.png*')" ] || fail "$1 with SIG$signal leaves $(echo a.png*)"
    ! kill -0 "$(cat started)" 2>/dev/null || fail "$1 with SIG$signal: the other program goes on"
}
stopped INT 130 plot runs/other
stopped TERM 143 plot runs/other
stopped HUP 129 plot runs/other
stopped TERM 143 graph dot "$EXO_SOURCE/examples/01_compare/compare.yaml" --run ddp

PATH=/nonexistent "$EXOGYM" plot runs/other -o a.png >out 2>err
[ $? = 1 ] || fail 'without gnuplot: not status 1'
has err 'exogym: gnuplot is not installed (Debian: apt install gnuplot-nox)'
finish
