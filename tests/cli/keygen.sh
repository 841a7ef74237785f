#!/usr/bin/env bash
# `exogym keygen`: two files, what is said of them, and nothing ever overwritten.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

# golden WHAT FILE: the file is standard input, with every key of 40 characters written as KEY.
golden() {
    sed -E 's/^(public|secret) [^ ]{40}$/\1 KEY/; s/("public": )"[^ ]+",/\1"KEY",/' "$2" >got
    cat >wanted
    cmp -s got wanted || fail "$1: $(diff wanted got)"
}

ok keygen n1 --role worker -o keys
golden 'the text' out <<'END'
public key  keys/n1.key
secret key  keys/n1.secret
Copy n1.key into the authorized folder of each node that should accept this one.
Keep n1.secret on this machine: whoever has it can pretend to be this node.
END
[ ! -s err ] || fail "keygen says on standard error: $(cat err)"
golden n1.key keys/n1.key <<'END'
# exogym public key 'n1'. Not secret: copy it into the authorized folder of each node that should accept it.
public KEY
role worker
END
golden n1.secret keys/n1.secret <<'END'
# exogym secret key 'n1'. Whoever has this file is this node: keep it here, mode 0600, and send it nowhere.
public KEY
secret KEY
END
[ "$(stat -c %a keys/n1.key keys/n1.secret | tr '\n' ' ')" = '644 600 ' ] || fail "modes: $(stat -c '%a %n' keys/*)"
public=$(sed -n 's/^public //p' keys/n1.key)
[ "$public" = "$(sed -n 's/^public //p' keys/n1.secret)" ] || fail 'the files hold different public keys'
has keys/n1.secret "public $public"
! grep -qF "$(sed -n 's/^secret //p' keys/n1.secret)" out keys/n1.key || fail 'the secret is shown'

# A mask that hides everything, and one that hides nothing, change no mode.
(umask 077 && "$EXOGYM" keygen n2 --role worker -o keys >out)
(umask 000 && "$EXOGYM" keygen n3 --role worker -o keys >out)
[ "$(stat -c %a keys/n[23].key keys/n[23].secret | tr '\n' ' ')" = '644 644 600 600 ' ] ||
    fail "modes under another umask: $(stat -c '%a %n' keys/*)"
[ "$(cat keys/*.key | grep -c '^public ')" = 3 ] || fail 'three keys are not there'
[ "$(grep -h '^public ' keys/*.key | sort -u | wc -l)" = 3 ] || fail 'two keys are the same'

# Nothing is overwritten, and nothing half is left.
cp -r keys before
expect 1 'exogym: keys/n1.key: exists already; a key is never overwritten' keygen n1 --role worker -o keys
rm keys/n1.key before/n1.key
expect 1 'exogym: keys/n1.secret: exists already; a key is never overwritten' keygen n1 --role worker -o keys
ln -s "$PWD/elsewhere" keys/n4.secret
expect 1 'exogym: keys/n4.secret: exists already; a key is never overwritten' keygen n4 --role worker -o keys
[ ! -e elsewhere ] || fail 'a link was followed'
rm keys/n4.secret
diff -r before keys || fail 'files changed'
: >file
expect 1 'exogym: file: is there and is no folder' keygen n5 --role worker -o file

# --json, and where files go by default.
XDG_CONFIG_HOME=$PWD/config ok keygen n6 --role worker --json
sed -i "s|$PWD|HERE|" out
golden 'the JSON' out <<'END'
{
  "public": "KEY",
  "files": [
    "HERE/config/exogym/n6.key",
    "HERE/config/exogym/n6.secret"
  ]
}
END
[ -f config/exogym/n6.secret ] || fail 'no file in XDG_CONFIG_HOME'
XDG_CONFIG_HOME='' HOME=$PWD/home ok keygen n7 --role worker
[ -f home/.config/exogym/n7.secret ] || fail 'no file in ~/.config'
XDG_CONFIG_HOME=relative HOME=$PWD/home ok keygen n8 --role worker
[ -f home/.config/exogym/n8.secret ] || fail 'a relative XDG_CONFIG_HOME is not ignored'
XDG_CONFIG_HOME='' HOME='' expect 1 'exogym: there is no home folder for keys: say where with -o FOLDER' keygen n9 --role worker

expect 2 "exogym: the folder's name is not UTF-8, and JSON cannot hold it" keygen n9 --role worker --json -o "$(printf 'bad\377')"
[ -z "$(find . -name 'n9*')" ] || fail 'a failed keygen left files'

# One key for the other: a public one where a secret one is wanted, a secret one in a place that others see, the key instead of its file.
ok keygen n10 --role worker -o keys
expect 2 'exogym: status: keys/n10.key: is a public key, and a secret one is wanted: the NAME.secret beside it (see `exogym help status`)' \
    status --head tcp://127.0.0.1:1 --head-key keys/n10.key --keys keys/n10.key --timeout 5s
chmod 600 keys/n10.key
"$EXO_BUILD/exogym-head" --listen tcp://127.0.0.1:0 --keys keys/n10.key >out 2>err && fail 'a head takes a public key for its secret one'
has err 'keys/n10.key: is a public key, and a secret one is wanted'
secret=$(sed -n 's/^secret //p' keys/n10.secret)
"$EXOGYM" status --head tcp://127.0.0.1:1 --head-key keys/n10.key --keys "$secret" --timeout 5s >out 2>err && fail 'a key for a file'
has err 'this is a key itself; the path of a NAME.secret is wanted'
if grep -qF -- "$secret" err; then fail 'a secret key is shown'; fi

letters="1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit"
expect 2 'exogym: keygen: NAME is missing (see `exogym help keygen`)' keygen
expect 2 "exogym: keygen: 'b' is one word too many (see \`exogym help keygen\`)" keygen a b
expect 2 "exogym: keygen: '../a' cannot name a key: $letters (see \`exogym help keygen\`)" keygen ../a
expect 2 "exogym: keygen: '.a' cannot name a key: $letters (see \`exogym help keygen\`)" keygen .a
expect 2 "exogym: keygen: '' cannot name a key: $letters (see \`exogym help keygen\`)" keygen ''
expect 2 'exogym: keygen: -o needs a value (see `exogym help keygen`)' keygen a -o

# What the holder may do, for how long, and where.
ok keygen d1 -o keys --role driver --namespace team --expires 2040-02-29
golden d1.key keys/d1.key <<'END'
# exogym public key 'd1'. Not secret: copy it into the authorized folder of each node that should accept it.
public KEY
role driver
namespace team
expires 2040-02-29T00:00:00Z
END
ok keygen d2 -o keys --role observer --expires 12h
expires=$(date -d "$(sed -n 's/^expires //p' keys/d2.key)" +%s)
[ $((expires - $(date +%s))) -gt $((11 * 3600)) ] || fail "12h are $(sed -n 's/^expires //p' keys/d2.key)"
roles='observer, driver, worker or admin'
expect 2 "exogym: keygen: say with --role what the key's holder may do: $roles (see \`exogym help keygen\`)" keygen d3 -o keys
expect 2 "exogym: keygen: --role: expected $roles, got 'root' (see \`exogym help keygen\`)" keygen d3 -o keys --role root
expect 2 "exogym: keygen: --namespace is for drivers (see \`exogym help keygen\`)" keygen d3 -o keys --role worker --namespace a
expect 2 "exogym: keygen: --expires: expected a time from now such as 90d, 12h or 30m, or a date such as 2030-01-31, got 'soon' (see \`exogym help keygen\`)" \
    keygen d3 -o keys --role worker --expires soon
[ ! -e keys/d3.key ] || fail 'a key was made all the same'
finish
