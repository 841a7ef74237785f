#!/usr/bin/env bash
# What actors print, answer, fail with and die of reaches no terminal raw: no order for it, no
# second line, nothing that is not UTF-8.
. "${EXO_SOURCE:?: run this with ctest}/tests/cluster/common.bash"

# harmless FILE WHAT: no control character in it but newlines and tabs, and all of it is UTF-8.
harmless() {
    LC_ALL=C grep -qaP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' "$1" && fail "$2 is raw: $(cat -v "$1")"
    iconv -f utf-8 -t utf-8 "$1" >/dev/null 2>&1 || fail "$2 is not UTF-8: $(cat -v "$1")"
}

bad=$'one\ntwo \e[2J\e]0;title\a \xc2\x9b31m \xff end'
shown='one\ntwo \x1b[2J\x1b]0;title\x07 \u009b31m \xff end'

head
worker w1 --plugin "$plugin"
says one spawn counter --name one

x call one echo "$bad" >out
harmless out 'a reply in hexadecimal'
x call one echo $'one\r\ntwo \xc2\x9b31m \xe2\x80\xae' >out
harmless out 'a reply'
has out 'one\r'
has out 'two \u009b31m \u202e'
x call one echo "$bad" --raw >out
[ "$(cat out)" = "$bad" ] || fail "--raw is not raw: $(cat -v out)"

x call one fail "$bad" >out 2>err
harmless err 'an error'
has err "$shown"
[ "$(wc -l <err)" = 1 ] || fail "an error is no line: $(cat -v err)"

x call one say "$bad" || fail 'say'
until_true 5 tells 'two \x1b[2J\x1b]0;title\x07 \u009b31m \xff end' logs || fail "logs: $(cat -v told)"
x logs >out
harmless out 'logs'
x logs --json >out
python3 -c 'import json, sys; any("two \x1b[2J" in json.loads(line)["line"] for line in open(sys.argv[1])) or sys.exit(1)' out ||
    fail "logs --json is no JSON, or has lost something: $(cat -v out)"
grep -qaF $'two \e[2J' "$place/w1.log" || fail 'the log file does not have what was printed'

# Names and causes: in tables, errors, status and JSON.
x spawn counter --name "$bad" >out 2>err || fail "spawn: $(cat -v err)"
harmless out 'the name of a new actor'
x kill "$bad" --cause "$bad" || fail 'kill'
x why "$bad" >out
harmless out 'why'
has out "cause: $shown"
[ "$(grep -c 'cause: ' out)" = 1 ] || fail "why has a cause of several lines: $(cat -v out)"
x call one die "$bad" >out 2>err
harmless err 'the loss of an actor'
[ "$(wc -l <err)" = 1 ] || fail "a death is no line: $(cat -v err)"
x list actors >out
harmless out 'list actors'
[ "$(wc -l <out)" = 3 ] || fail "list actors: $(cat -v out)"
for command in 'list actors' status "why one"; do
    # shellcheck disable=SC2086
    x $command --json >out
    python3 -c 'import json, sys; json.load(open(sys.argv[1]))' out || fail "$command --json is no JSON: $(cat -v out)"
done
x call nobody "$bad" >out 2>err
harmless err 'an argument in an error'
x stop || fail 'stop'
finish
