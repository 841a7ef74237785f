#!/usr/bin/env bash
# What files of others say reaches the terminal as one harmless line: keys, values, names of
# tensors, options of a job.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"
decoders=$EXO_SOURCE/tests/golden/decoders
bad=$'w\n\e[2J\e]0;title\a\xc2\x9b'
shown='w\n\x1b[2J\x1b]0;title\x07\u009b'

# refused STATUS TEXT ARGUMENTS...: it ends with STATUS and one line, harmless, that has TEXT.
refused() {
    local status=$1 text=$2 got
    shift 2
    "$EXOGYM" "$@" >out 2>err </dev/null
    got=$?
    [ "$got" = "$status" ] || fail "exogym $*: ended with $got instead of $status: $(cat -v err)"
    has err "$text"
    [ "$(wc -l <err)" = 1 ] || fail "exogym $*: more than a line: $(cat -v err)"
    LC_ALL=C grep -qaP '[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' err && fail "exogym $*: raw: $(cat -v err)"
    iconv -f utf-8 -t utf-8 err >iconv.out 2>&1 || fail "exogym $*: not UTF-8: $(cat -v err)"
}

# edit FILE EXPRESSION: the JSON of the file, `d`, after a Python expression.
edit() {
    python3 - "$1" "$2" "$bad" <<'END'
import json, sys
path, what, bad = sys.argv[1:]
d = json.load(open(path))
exec(what)
json.dump(d, open(path, "w"))
END
}

cp -r "$decoders/llama" keys
edit keys/config.json 'd[bad] = 1'
refused 1 "$shown" export keys x
cp -r "$decoders/llama" values
edit values/config.json 'd["hidden_act"] = bad * 40'
refused 1 'hidden_act' export values x
cp -r "$decoders/llama" types
edit types/config.json 'd["rope_parameters"] = {"rope_type": bad}'
refused 1 "$(printf %.1s "$shown")" export types x

# A tensor whose name is an order to the terminal.
cp -r "$decoders/llama" tensors
python3 - tensors/model.safetensors "$bad" <<'END'
import json, struct, sys
path, bad = sys.argv[1:]
data = open(path, "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
name = sorted(k for k in header if k.endswith("norm.weight"))[0]
header[bad] = header.pop(name)
text = json.dumps(header).encode()
open(path, "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
END
"$EXOGYM" export tensors x >out 2>err </dev/null
LC_ALL=C grep -qaP '[\x00-\x09\x0b-\x1f\x7f]' err && fail "a tensor's name is raw: $(cat -v err)"
[ "$(wc -l <err)" = 1 ] || fail "a tensor's name breaks the line: $(cat -v err)"

# A tokenizer, a job, a graph, and bytes that are no UTF-8.
mkdir tokenizer
printf '{"model": {"type": "w\\n\\u001b[2J"}}' >tokenizer/tokenizer.json
refused 1 'w\n\x1b[2J' data tokenize job.yaml --tokenizer tokenizer -o shards
printf 'model: mlp\ndata: synthetic\n"w\\n\\e[2J": 1\nstrategy: ddp\n' >keys.yaml
refused 2 'w\n\x1b[2J' run keys.yaml
printf 'actors: {"w\\n\\e[2J": {class: no}}\n' >graph.yaml
refused 2 'w\n\x1b[2J' graph check graph.yaml
refused 2 '\xff\x1b' run job.yaml --set $'\xff\e=1'
refused 1 '\xff\n.yaml' run $'\xff\n.yaml'

# A path that is no UTF-8: the table of a run, its JSON, and what is said of it later.
ok run job.yaml --preset quick --no-plot --json --save-dir $'r\xff'
python3 -c 'import json, sys; json.load(open(sys.argv[1], encoding="utf-8"))' out || fail "run --json: $(cat -v out)"
ok status --run $'r\xff/small' --json
python3 -c 'import json, sys; json.load(open(sys.argv[1], encoding="utf-8"))' out || fail "status --json: $(cat -v out)"
# A job says where its runs lie, and is anybody's.
sed -i 's/^train: {/train: {save_dir: "red\\e[31m", /' job.yaml
ok run job.yaml --set train.max_steps=2
has out 'files:   red\x1b[31m/small'
command -v gnuplot >/dev/null && has out 'picture: red\x1b[31m/small/compare.png'
if grep -q $'\e' out err; then fail "a job's save_dir gives orders to the terminal: $(cat -v out err)"; fi
finish
