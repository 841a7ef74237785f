#!/usr/bin/env bash
# Small files that claim much: each is refused, or read, in little memory and soon, whatever reads
# it. A reader that would take what they claim is ended by its limits. What config.json claims of
# the weights is in huge_claims.sh.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

if ! grep -q '^EXO_SANITIZE:[A-Z]*=$' "$EXO_BUILD/CMakeCache.txt"; then
    echo "sanitizers take more memory than what this allows: skipped"
    exit 77
fi
cat >measure.py <<'END'
# measure.py MIB PROGRAM...: runs it; says how it ended, and on standard error why. More than MIB of
# memory, or a minute, is an end of its own.
import os, resource, signal, sys
most = int(sys.argv[1])
def limit():
    resource.setrlimit(resource.RLIMIT_AS, ((most + 2048) << 20,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
pid = os.fork()
if pid == 0:
    limit()
    os.execv(sys.argv[2], sys.argv[2:])
_, status, usage = os.wait4(pid, 0)
if os.WIFSIGNALED(status):
    print(f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
elif usage.ru_maxrss > most << 10:
    print(f"took {usage.ru_maxrss >> 10} MiB")
else:
    print(os.WEXITSTATUS(status))
END
# small FILE STATUS TEXT COMMAND...: the file is small, and the command ends with STATUS within 400
# MiB and says TEXT.
small() {
    local file=$1 status=$2 text=$3 got
    shift 3
    [ "$(stat -c %s "$file")" -le 300000 ] || fail "$file is not small"
    got=$(python3 measure.py 400 "$EXOGYM" "$@" 2>err </dev/null | tail -1)
    [ "$got" = "$status" ] || fail "$file: exogym $*: $got instead of $status: $(tail -1 err | head -c 300)"
    [ "$status" = 0 ] || grep -qF -- "$text" err || fail "$file: exogym $*: $(head -c 400 err)"
}

# --- Jobs and graphs
# --------------------------------------------------------------------------------------------------

job() { printf 'model: %s\ndata: %s\nnodes: %s\ntrain: {max_steps: 1, batch_size: 2, val_size: 2}\nstrategy: ddp\n' "$1" "$2" "$3" >big.yaml; }
job mlp synthetic 1000000000
small big.yaml 2 'nodes' run big.yaml --no-plot
job mlp '{name: synthetic, count: 1000000000000}' 1
small big.yaml 2 'count' run big.yaml --no-plot
job '{name: mlp, layers: [1048576, 1048576]}' synthetic 1
python3 measure.py 400 "$EXOGYM" run big.yaml --no-plot >got 2>err </dev/null
grep -qx '[12]' got || fail "a job of 10^12 parameters: $(cat got err)"
{
    printf 'a: &a [x,x,x,x,x,x,x,x,x]\n'
    for i in {1..30}; do printf 'a%d: &a%d [*a%s,*a%s,*a%s,*a%s,*a%s]\n' $i $i $(for k in 1 2 3 4 5; do echo $((i - 1)); done); done
} | sed 's/\*a0/*a/g' >laughs.yaml
small laughs.yaml 2 'laughs.yaml:' run laughs.yaml
python3 -c 'print("[" * 200000)' >deep.yaml
small deep.yaml 2 'deep.yaml:' run deep.yaml
small deep.yaml 2 'deep.yaml:' graph check deep.yaml
graph() { printf 'actors:\n  source: {class: source, count: %s}\n  sink: {class: sink, count: %s}\nedges: [{from: source, to: sink, carries: numbers}]\n' "$1" "$1" >big_graph.yaml; }
graph 10000000000
small big_graph.yaml 2 'count' graph check big_graph.yaml
graph 30000
for command in check plan expand dot; do
    python3 measure.py 1000 "$EXOGYM" graph $command big_graph.yaml >said 2>err </dev/null
    [[ $(tail -1 said) == [012] ]] || fail "graph $command of 60,000 actors: $(tail -1 said)"
done

# --- Data
# -------------------------------------------------------------------------------------------------------------

cat >shard.py <<'END'
import hashlib, struct, sys
def write(name, count, vocabulary, tokens, width=4):
    head = b"EXOTOKEN" + struct.pack("<IIQQi", 1, width, count, vocabulary, -1)
    head = head.ljust(96, b"\0")
    open(name, "wb").write(head + hashlib.sha256(head).digest() + tokens)
write("count.tokens", 1 << 60, 100, b"\0" * 64)
write("vocabulary.tokens", 1000, (1 << 31) - 1, b"\0" * 4000)
END
python3 shard.py
gpt='{name: gpt, layers: 1, heads: 1, width: 64, context: 16}'
job "$gpt" '{name: tokens, path: count.tokens, block: 8}' 1
small count.tokens 1 'count.tokens: is truncated' run big.yaml --no-plot
job "$gpt" '{name: tokens, path: vocabulary.tokens, block: 8}' 1
python3 measure.py 400 "$EXOGYM" run big.yaml --no-plot >got 2>err </dev/null
[ "$(tail -1 got)" = 1 ] || fail "a vocabulary of 2^31-1: $(tail -1 got) $(tail -1 err)"
grep -q 'parameters' err || fail "a vocabulary of 2^31-1: $(cat err)"
mkdir idx
python3 - <<'END'
import gzip, struct
for half in ("train", "t10k"):
    open(f"idx/{half}-images-idx3-ubyte", "wb").write(struct.pack(">IIII", 0x803, 60000, 256, 256))
    open(f"idx/{half}-labels-idx1-ubyte", "wb").write(struct.pack(">II", 0x801, 60000))
END
job mlp '{name: mnist, path: idx}' 1
small idx/train-images-idx3-ubyte 1 'train-images-idx3-ubyte' run big.yaml --no-plot
rm idx/train-images-idx3-ubyte
python3 - <<'END'
import gzip, struct
with gzip.open("idx/train-images-idx3-ubyte.gz", "wb", 9) as f:
    f.write(struct.pack(">IIII", 0x803, 4000, 256, 256))
    for i in range(250): f.write(bytes(1 << 20))
END
small idx/train-images-idx3-ubyte.gz 1 'times the file' run big.yaml --no-plot

# --- Models
# -----------------------------------------------------------------------------------------------------------

cp -r "$EXO_SOURCE/tests/golden/decoders/llama" llama
sed -i 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 2147483647/' llama/config.json
small llama/config.json 0 '' generate --model llama --tokenizer bytes --prompt a --max-new-tokens 2
cp -r "$EXO_SOURCE/tests/golden/decoders/gpt2" gpt2
python3 - <<'END'
import json, struct
header = {f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(4000)}
text = json.dumps(header, separators=(",", ":")).encode()
open("gpt2/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text)
END
small gpt2/model.safetensors 1 'model.safetensors' generate --model gpt2 --tokenizer bytes --prompt a
printf '\377\377\377\377\377\377\377\177{}' >gpt2/model.safetensors
small gpt2/model.safetensors 1 'model.safetensors' generate --model gpt2 --tokenizer bytes --prompt a
rm gpt2/model.safetensors
python3 - <<'END'
import json
json.dump({"weight_map": {f"t{i}": f"m{i}" for i in range(12000)}}, open("gpt2/model.safetensors.index.json", "w"))
END
small gpt2/model.safetensors.index.json 1 'model.safetensors.index.json' generate --model gpt2 --tokenizer bytes --prompt a
python3 -c 'print("[" * 100000)' >gpt2/config.json
small gpt2/config.json 1 'config.json' generate --model gpt2 --tokenizer bytes --prompt a

# --- Tokenizers
# -------------------------------------------------------------------------------------------------------

cat >tokenizers.py <<'END'
import json
vocab = {"a": 0, "b": 1}
def write(name, **parts):
    model = parts.pop("model", {"type": "BPE", "vocab": vocab, "merges": []})
    everything = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    json.dump({**everything, **parts, "model": model}, open(name + ".json", "w"))
def replace(pattern, content): return {"type": "Replace", "pattern": {"String": pattern}, "content": content}
double = [replace("a", "aa")] * 60
write("normalizer", normalizer={"type": "Sequence", "normalizers": double})
write("prepend", normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "a" * 1000}] + [replace("a", "a" * 1000)] * 3})
write("added", normalizer={"type": "Sequence", "normalizers": double},
      added_tokens=[{"id": 2, "content": "aba", "single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False}])
write("pre", pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}] * 60})
write("decoder", decoder={"type": "Sequence", "decoders": double})
write("number", model={"type": "BPE", "vocab": {"a": 0, "b": 4194303}, "merges": []})
write("regex", pre_tokenizer={"type": "Split", "pattern": {"Regex": "((a+)+)+$|(a|aa)+c"}, "behavior": "Isolated", "invert": False})
write("repeat", pre_tokenizer={"type": "Split", "pattern": {"Regex": "(?:(?:(?:a{1000}){1000}){1000}){1000}"}, "behavior": "Isolated", "invert": False})
open("text.txt", "w").write("ab" * 2000 + "a" * 3000 + "b\n")
open("text_of_bytes.txt", "w").write("\xe9" * 1000)
END
python3 tokenizers.py
for name in normalizer prepend; do
    small $name.json 1 'which is refused' data tokenize text.txt --tokenizer $name.json -o out.$name
done
small added.json 1 'which is refused' data tokenize text.txt --tokenizer added.json -o out.added
small pre.json 1 'which is refused' data tokenize text_of_bytes.txt --tokenizer pre.json -o out.pre
small number.json 1 'far beyond the 2 tokens' data tokenize text.txt --tokenizer number.json -o out.number
for name in regex repeat; do
    python3 measure.py 400 "$EXOGYM" data tokenize text.txt --tokenizer $name.json -o out.$name >got 2>err </dev/null
    [[ $(tail -1 got) == [01] ]] || fail "$name.json: $(tail -1 got): $(tail -1 err)"
done

# --- Runs
# -------------------------------------------------------------------------------------------------------------

ok run job.yaml --no-plot
for file in result.json config.json progress.json checkpoints; do
    [ -e runs/small/ddp/$file ] || continue
    rm -rf again
    cp -r runs/small again
    if [ -f again/ddp/$file ]; then python3 -c 'print("[" * 100000)' >again/ddp/$file; fi
    python3 measure.py 400 "$EXOGYM" status --run again >got 2>err </dev/null
    [[ $(tail -1 got) == [01] ]] || fail "$file of a run: $(tail -1 got)"
done
if command -v gnuplot >/dev/null; then
    for value in 1e999 nan 1e-320 99999999999999999999999; do
        mkdir -p "plot/$value"
        printf 'step,seconds,bytes_sent,local_loss,global_loss,local_accuracy,global_accuracy\n0,0,0,1,1,0,0\n%s,%s,%s,%s,%s,0,0\n' \
            1 $value $value $value $value >"plot/$value/metrics.csv"
        python3 measure.py 400 "$EXOGYM" plot "plot/$value" -o x.svg >got 2>err </dev/null
        [[ $(tail -1 got) == [01] ]] || fail "plot of $value: $(tail -1 got)"
    done
fi
finish
