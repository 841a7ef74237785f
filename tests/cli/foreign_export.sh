#!/usr/bin/env bash
# A folder that came from elsewhere is exported into, and text made into tokens beside one: nothing
# outside of it changes, whichever names are links, and pipes are waited for by nobody. The names
# are those that an export leaves.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

printf 'abcd efgh\n%.0s' {1..200} >text.txt
cat >job.yaml <<'END'
name: tiny
model: {name: gpt, layers: 1, heads: 1, width: 8, context: 16}
data: {name: text, path: text.txt, block: 8}
train: {max_steps: 1, batch_size: 2}
strategy: ddp
END
ok run job.yaml --no-plot
ok export runs/tiny/ddp whole
printf '{}' >whole/chat_template.json
printf 'x' >whole/chat_template.jinja
mkdir -p whole/additional_chat_templates whole/more/inner
printf 'tools' >whole/additional_chat_templates/tools.jinja
printf '{}' >whole/more/inner/settings.json

outside() { (cd outside && find . -printf '%P %y %s %T@ %m\n' | sort && find . -type f -exec sha256sum {} + | sort); }
# try FROM NAMES...: an export of FROM into a folder where these names are links to what lies
# outside.
try() {
    local from=$1 name
    shift
    rm -rf out.hf outside
    mkdir out.hf outside
    for name; do
        mkdir -p "out.hf/$(dirname "$name")"
        if [ -d "whole/$name" ]; then
            cp -r "whole/$name" "outside/${name//\//_}"
        else
            echo 'a file of a person' >"outside/${name//\//_}"
        fi
        ln -s "$PWD/outside/${name//\//_}" "out.hf/$name"
    done
    outside >before
    timeout 60 "$EXOGYM" export "$from" out.hf --shard-size 2kB >said 2>err </dev/null
    got=$?
    outside >after
    cmp -s before after || fail "export $from, with links for $*: $(diff before after | head -5)"
}
mapfile -t files < <(cd whole && find . -type f -printf '%P\n' | sort)
files+=(model-00001-of-00002.safetensors model-00009-of-00009.safetensors model.safetensors.index.json added_tokens.json)
[ "${#files[@]}" -ge 10 ] || fail "an export leaves ${#files[@]} files"
for from in whole runs/tiny/ddp; do
    for name in "${files[@]}"; do try $from "$name"; done
    try $from additional_chat_templates
    try $from more
    [ $from != whole ] || [ $got = 1 ] || fail 'what goes into a folder that is a link is taken'
done
try whole more
has err 'there is a link on the way'

# Pipes are replaced as links are.
rm -rf out.hf
mkdir out.hf
for name in config.json model.safetensors tokenizer.json; do mkfifo out.hf/$name; done
timeout 60 "$EXOGYM" export whole out.hf >said 2>err </dev/null || fail "pipes in the folder: $(cat err)"
cmp whole/config.json out.hf/config.json || fail 'a pipe stays'

# The way to the folder may have links: that is the user's.
rm -rf elsewhere linked
mkdir elsewhere
ln -s elsewhere linked
ok export whole linked
[ -f elsewhere/model.safetensors ] || fail 'the folder may not be a link'

# Tokens are made beside their folder, with what the umask leaves; a failure leaves nothing.
(umask 027 && "$EXOGYM" data tokenize text.txt --tokenizer characters -o tokens >said 2>err </dev/null) || fail "tokenize: $(cat err)"
[ "$(stat -c %a tokens)" = 750 ] || fail "tokens: mode $(stat -c %a tokens)"
find tokens -type f -printf '%m %P\n' | grep -v '^640 ' && fail 'files of tokens have another mode than the umask leaves'
printf 'ab\xff' >bad.txt
"$EXOGYM" data tokenize bad.txt --tokenizer characters -o bad >said 2>err </dev/null && fail 'bytes that are no text become tokens'
compgen -G 'bad*partial*' >/dev/null && fail "a failure leaves $(ls -d bad*)"
finish
