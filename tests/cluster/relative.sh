#!/usr/bin/env bash
# A cluster whose folder is given as a relative path: processes in other folders reach its members by
# their addresses, which are absolute.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

absolute=$clusters
clusters=x
head --name h
worker w1 --plugin "$plugin"
has head_pid.out "ipc://$absolute/default/head"
has w1_pid.out "ipc://$absolute/default/worker-"
says counter spawn counter 5

mkdir elsewhere
cd elsewhere || exit 1
clusters=$absolute
says 6 call counter add 1
clusters=../x
says 7 call counter add 1

# With that of the current folder, a path may be too long for a socket.
deep=$folder/$(printf 'd%.0s' {1..90})
mkdir "$deep"
cd "$deep" || exit 1
"$EXOGYM" status --folder x 2>err && fail 'a path that is too long is taken'
has err 'x: the path is too long for a socket, with that of the current folder'
cd "$folder" || exit 1
