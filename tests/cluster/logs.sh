#!/usr/bin/env bash
# A folder for logs in which somebody else has put links, a pipe and a file with a second name: a
# worker writes into none of them and waits for none, nor does it pass on what a link leads to. And a
# log that may not grow: a worker goes on without.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

mkdir logs
echo 'a file of a person' >mine
cp mine before
ln -s "$PWD/mine" logs/w1.log
mkfifo logs/w2.log
ln mine logs/w3.log
ln -s "$PWD/nothing" logs/w4.log
head
for name in w1 w2 w3 w4; do
    worker $name --plugin "$plugin" --logs logs
    pid=${name}_pid
    [ -f "logs/$name-${!pid}.log" ] || fail "$name has no log of its own: $(ls logs)"
done
says "$(x logs --node w1)" logs --node w1
x logs >told
! grep -q 'a file of a person' told || fail 'what a link leads to is passed on'
ulimit -Sf 2
worker w5 --plugin "$plugin" --logs logs
ulimit -Sf unlimited
says writer spawn counter 5 --name writer --node w5
line=$(printf '%0500d' 7)
for i in 1 2 3 4 5 6; do
    says '' call writer say "$line"
done
says 5 call writer add 0
is_full() { # its watcher writes it
    [ "$(stat -c %s logs/w5.log)" = 2048 ]
}
until_true 10 is_full || fail "the log reached no limit: $(ls -l logs)"
x stop >/dev/null
for name in w1 w2 w3 w4 w5; do
    pid=${name}_pid
    ended 10 "${!pid}" 0
done
cmp mine before || fail "a worker wrote where a link leads: $(cat mine)"
[ ! -e nothing ] || fail 'a worker made what a link leads to'
[ -L logs/w1.log ] && [ -p logs/w2.log ] || fail "a worker removed what is not its own: $(ls -l logs)"
finish
