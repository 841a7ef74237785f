#!/usr/bin/env bash
# A run's config.json has every option of its strategy, optimizers, schedule, model and data, given
# or not, with the value that is used; it is a job that gives the same run and the same config.json;
# and --resume takes it for the job that it came from. Every listed name is tried, so an option that
# is added without a default that can be written is noticed here.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

# --- Data
# -------------------------------------------------------------------------------------------------------------

python3 - <<'END'
import os, random, struct
random.seed(1)
os.mkdir("images")
for half, count in ("train", 64), ("t10k", 16):
    with open(f"images/{half}-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">IIII", 2051, count, 28, 28) + random.randbytes(count * 784))
    with open(f"images/{half}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">II", 2049, count) + bytes(random.randrange(10) for _ in range(count)))
open("text.txt", "w").write("".join(random.choice("abcdefgh \n") for _ in range(4000)))
END
ok data tokenize text.txt --tokenizer characters --output shards

# --- The table
# --------------------------------------------------------------------------------------------------------
# KIND NAME | what a job says besides the name | what config.json has besides the name

cat >table <<'END'
optimizers adamw | | "lr": 0.001, "weight_decay": 0.01, "eps": 1e-08, "betas": [0.9, 0.999], "amsgrad": false
optimizers adam | | "lr": 0.001, "weight_decay": 0, "eps": 1e-08, "betas": [0.9, 0.999], "amsgrad": false
optimizers sgd | | "lr": 0.001, "weight_decay": 0, "momentum": 0, "dampening": 0, "nesterov": false
optimizers rmsprop | | "lr": 0.01, "weight_decay": 0, "eps": 1e-08, "alpha": 0.99, "momentum": 0, "centered": false
optimizers adagrad | | "lr": 0.01, "weight_decay": 0, "eps": 1e-10, "lr_decay": 0, "initial_accumulator_value": 0
optimizers muon | | "lr": 0.001, "weight_decay": 0.1, "eps": 1e-07, "momentum": 0.95, "nesterov": true, "ns_coefficients": [3.4445, -4.775, 2.0315], "ns_steps": 5, "adjust_lr_fn": "original", "matrices": "hidden", "adamw": {"lr": 0.001, "weight_decay": 0.01, "eps": 1e-08, "betas": [0.9, 0.999], "amsgrad": false}
optimizers muon | "matrices": "all", "adamw": {"lr": 0.5} | "lr": 0.001, "weight_decay": 0.1, "eps": 1e-07, "momentum": 0.95, "nesterov": true, "ns_coefficients": [3.4445, -4.775, 2.0315], "ns_steps": 5, "adjust_lr_fn": "original", "matrices": "all", "adamw": {"lr": 0.5, "weight_decay": 0.01, "eps": 1e-08, "betas": [0.9, 0.999], "amsgrad": false}
optimizers sgd | "momentum": 0.1234567890123456789, "groups": [{"max_dims": 1}] | "lr": 0.001, "weight_decay": 0, "momentum": 0.1234567890123456789, "dampening": 0, "nesterov": false, "groups": [{"match": "*", "min_dims": 0, "max_dims": 1, "lr": 0.001, "weight_decay": 0, "momentum": 0.12345678901234568, "dampening": 0, "nesterov": false}]
schedules constant | | "warmup_steps": 0
schedules constant | "max_steps": 9 | "warmup_steps": 0, "max_steps": 9
schedules lambda_cosine | "max_steps": 0 | "warmup_steps": 0, "max_steps": 0, "cosine_anneal": false
schedules lambda_cosine | | "warmup_steps": 0, "cosine_anneal": false
schedules cosine | "warmup_steps": 1 | "warmup_steps": 1, "max_steps": 0, "end_factor": 0
schedules linear | "warmup_steps": 1 | "warmup_steps": 1, "max_steps": 0, "end_factor": 0
schedules polynomial | "warmup_steps": 1 | "warmup_steps": 1, "max_steps": 0, "end_factor": 0, "power": 1
schedules step | "step_size": 3 | "warmup_steps": 0, "max_steps": 0, "gamma": 0.1, "step_size": 3
schedules step | "milestones": [1, 3] | "warmup_steps": 0, "max_steps": 0, "gamma": 0.1, "milestones": [1, 3]
schedules wsd | "warmup_steps": 18446744073709551615 | "warmup_steps": 18446744073709551615, "max_steps": 0, "end_factor": 0, "decay_steps": 0, "decay": "linear"
strategies ddp | | "bucket_size": "0 B"
strategies ddp | "bucket_size": "1 kB" | "bucket_size": "1 kB"
strategies diloco | | "H": 100, "offset": 0, "outer_optimizer": {"name": "sgd", "lr": 0.7, "weight_decay": 0, "momentum": 0.9, "dampening": 0, "nesterov": true}, "aggregate": {"name": "mean"}
strategies diloco | "H": 18446744073709551615, "outer_optimizer": "sgd" | "H": 18446744073709551615, "offset": 0, "outer_optimizer": {"name": "sgd", "lr": 0.001, "weight_decay": 0, "momentum": 0, "dampening": 0, "nesterov": false}, "aggregate": {"name": "mean"}
strategies diloco | "H": 1, "outer_optimizer": {"lr": 0.3} | "H": 1, "offset": 0, "outer_optimizer": {"name": "sgd", "lr": 0.3, "weight_decay": 0, "momentum": 0.9, "dampening": 0, "nesterov": true}, "aggregate": {"name": "mean"}
strategies diloco | "outer_momentum": {"name": "linear", "warmup_steps": 3} | "H": 100, "offset": 0, "outer_optimizer": {"name": "sgd", "lr": 0.7, "weight_decay": 0, "momentum": 0.9, "dampening": 0, "nesterov": true}, "outer_momentum": {"name": "linear", "warmup_steps": 3, "max_steps": 0, "end_factor": 0}, "aggregate": {"name": "mean"}
strategies muloco | | "H": 30, "offset": 0, "outer_optimizer": {"name": "sgd", "lr": 0.7, "weight_decay": 0, "momentum": 0.9, "dampening": 0, "nesterov": true}, "aggregate": {"name": "mean"}
strategies fedavg | | "H": 1, "offset": 0, "aggregate": {"name": "mean"}
strategies fedavg | "aggregate": {"name": "norm_clip"} | "H": 1, "offset": 0, "aggregate": {"name": "norm_clip", "max_norm": 0}
strategies fedavg | "island_size": 2 | "H": 1, "offset": 0, "island_size": 2, "aggregate": {"name": "mean"}
strategies fsdp | | "sharding_strategy": "hybrid_shard", "group_size": 0, "prefetch": false
strategies fsdp | "group_size": 1, "across": {"name": "fedavg"}, "prefetch": true | "sharding_strategy": "hybrid_shard", "group_size": 1, "prefetch": true, "across": {"name": "fedavg", "H": 1, "offset": 0, "aggregate": {"name": "mean"}}
strategies sparta | | "p": 0.005, "interval": 1, "delay": 0, "selector": "random"
strategies local_sgd | | "H": 10, "offset": 0, "aggregate": {"name": "mean"}
strategies noloco | | "H": 50, "offset": 0, "outer_optimizer": {"name": "sgd", "lr": 0.7, "weight_decay": 0, "momentum": 0.5, "dampening": 0, "nesterov": false}
strategies sparta_diloco | | "p": 0.005, "sparta_interval": 1, "delay": 0, "selector": "random", "H": 100, "offset": 0, "outer_optimizer": {"name": "sgd", "lr": 0.7, "weight_decay": 0, "momentum": 0.9, "dampening": 0, "nesterov": true}
strategies async_diloco | | "H": 100, "outer_optimizer": {"name": "sgd", "lr": 0.7, "weight_decay": 0, "momentum": 0.9, "dampening": 0, "nesterov": true}, "momentum_every": 0, "c": 0, "dynamic": true
strategies decoupled_diloco | "fragments": 2, "grace": "20 ms" | "H": 100, "offset": 0, "fragments": 2, "delay": 1, "alpha": 0.5, "quorum": 1, "grace": "20 ms", "patience": "auto", "outer_optimizer": {"name": "sgd", "lr": 0.4, "weight_decay": 0, "momentum": 0.9, "dampening": 0, "nesterov": true}
strategies powersgd | | "rank": 1, "min_compression_rate": 1
strategies quantized | | "chunk": 256, "error_feedback": false
strategies demo | | "k": 32, "chunk": 64, "beta": 0.999, "weight_decay": 0
strategies onebit_adam | | "freeze_step": 100
strategies streaming_diloco | "fragments": 2 | "H": 100, "offset": 0, "fragments": 2, "delay": 1, "alpha": 0.5, "codec": "e3m0", "feedback": 0, "outer_optimizer": {"name": "sgd", "lr": 0.4, "weight_decay": 0, "momentum": 0.9, "dampening": 0, "nesterov": true}
strategies streaming_diloco | "fragments": 2, "delay": 0, "codec": {"name": "int8", "block": 64} | "H": 100, "offset": 0, "fragments": 2, "delay": 0, "alpha": 0, "codec": {"name": "int8", "block": 64, "scale": "fp32"}, "feedback": 0, "outer_optimizer": {"name": "sgd", "lr": 0.4, "weight_decay": 0, "momentum": 0.9, "dampening": 0, "nesterov": true}
strategies sparseloco | | "H": 30, "offset": 0, "codec": "[{name: topk, k: 64, block: 4096, error_feedback: false}, bins]", "feedback": 0.95, "outer_optimizer": {"name": "sgd", "lr": 1, "weight_decay": 0, "momentum": 0, "dampening": 0, "nesterov": false}
strategies sparseloco | "codec": {"name": "topk", "k": 5, "error_feedback": false} | "H": 30, "offset": 0, "codec": {"name": "topk", "k": 5, "error_feedback": false, "ratio": 0, "block": 0, "decay": 1}, "feedback": 0.95, "outer_optimizer": {"name": "sgd", "lr": 1, "weight_decay": 0, "momentum": 0, "dampening": 0, "nesterov": false}
strategies sparseloco | "codec": [{"name": "topk", "error_feedback": false}, "bf16"] | "H": 30, "offset": 0, "codec": [{"name": "topk", "error_feedback": false, "ratio": 0.01, "block": 0, "decay": 1}, "bf16"], "feedback": 0.95, "outer_optimizer": {"name": "sgd", "lr": 1, "weight_decay": 0, "momentum": 0, "dampening": 0, "nesterov": false}
strategies eager_diloco | | "H": 100, "offset": 0, "delay": 1, "outer_optimizer": {"name": "sgd", "lr": 0.7, "weight_decay": 0, "momentum": 0.9, "dampening": 0, "nesterov": true}
strategies compose | "exchanges": [{"every": 2}, {"select": {"name": "random"}, "apply": "mix"}] | "exchanges": [{"what": "parameters", "every": 2, "offset": 0, "delay": 0, "select": {"name": "all"}, "partners": {"name": "all"}, "apply": {"name": "mean"}, "aggregate": {"name": "mean"}, "codec": "raw", "feedback": 0}, {"what": "parameters", "every": 1, "offset": 0, "delay": 0, "select": {"name": "random", "p": 0.005}, "partners": {"name": "all"}, "apply": {"name": "mix", "alpha": 0.5}, "aggregate": {"name": "mean"}, "codec": "raw", "feedback": 0}]
strategies compose | "exchanges": [{"what": "gradients"}] | "exchanges": [{"what": "gradients", "bucket_size": "0 B"}]
strategies compose | "exchanges": [{"partners": "pairs", "apply": "outer"}] | "exchanges": [{"what": "parameters", "every": 1, "offset": 0, "delay": 0, "select": {"name": "all"}, "partners": {"name": "pairs"}, "apply": {"name": "outer", "optimizer": {"name": "sgd", "lr": 0.7, "weight_decay": 0, "momentum": 0.9, "dampening": 0, "nesterov": true}, "alpha": 0}, "aggregate": {"name": "mean"}, "codec": "raw", "feedback": 0}]
models mlp | | "in": 784, "out": 10, "hidden": 128
models mlp | "hidden": [8, 9], "frozen": "fc1.*" | "in": 784, "out": 10, "hidden": [8, 9], "frozen": "fc1.*"
models mnist_cnn | |
models gpt | | "vocabulary": 10, "size": "small", "context": 1024, "layers": 4, "heads": 4, "width": 128, "head_width": 32, "kv_heads": 4, "inner": 512, "position": "learned", "norm": "layer", "activation": "gelu_tanh", "gated": false, "bias": true, "tied": true, "embedding_norm": false, "qk_norm": false, "norm_eps": 1e-05, "rope_theta": 10000, "dropout": 0, "checkpoint": false, "values": false
models gpt | "layers": 1, "heads": 2, "width": 8, "vocabulary": 12, "norm_eps": 1e-12 | "vocabulary": 12, "size": "small", "context": 1024, "layers": 1, "heads": 2, "width": 8, "head_width": 4, "kv_heads": 2, "inner": 32, "position": "learned", "norm": "layer", "activation": "gelu_tanh", "gated": false, "bias": true, "tied": true, "embedding_norm": false, "qk_norm": false, "norm_eps": 1e-12, "rope_theta": 10000, "dropout": 0, "checkpoint": false, "values": false
models gpt | "path": "hf" | "path": "hf", "dropout": 0, "checkpoint": false, "values": false
models gpt | "path": "hf", "lora": {"rank": 2} | "path": "hf", "dropout": 0, "checkpoint": false, "values": false, "lora": {"rank": 2, "alpha": 16, "layers": "*"}
data synthetic | | "split_by_node": false, "count": 2048, "seed": 1, "augment": false
data synthetic | "seed": 18446744073709551615, "count": 32 | "split_by_node": false, "count": 32, "seed": 18446744073709551615, "augment": false
data fashion_mnist | "path": "images" | "path": "images", "split_by_node": false, "augment": true, "rotate": 10, "translate": 0.1, "mean": 0.1307, "deviation": 0.3081
data mnist | "path": "images" | "path": "images", "split_by_node": false, "augment": true, "rotate": 10, "translate": 0.1, "mean": 0.1307, "deviation": 0.3081
data text | "path": "text.txt", "block": 8 | "path": "text.txt", "split_by_node": false, "block": 8, "stride": 1, "start_pc": 0, "end_pc": 0.9, "val_start_pc": 0.9, "val_end_pc": 1, "documents": "auto", "tokenizer": "characters"
data shakespeare | "path": "text.txt", "stride": "block", "end_pc": "50 %" | "path": "text.txt", "split_by_node": false, "block": 256, "stride": "block", "start_pc": 0, "end_pc": "50 %", "val_start_pc": 0.9, "val_end_pc": 1, "documents": "auto", "tokenizer": "characters"
data tokens | "path": "shards", "val_start_pc": 0.5 | "path": "shards", "split_by_node": false, "block": 1024, "stride": 1, "start_pc": 0, "end_pc": 0.9, "val_start_pc": 0.5, "val_end_pc": 1, "documents": "auto", "dtype": "shards"
END

# Nothing that is listed is missing in the table. Optimizers are listed by the error that names
# them.
listed() {
    case $1 in
    optimizers) "$EXOGYM" run job.yaml --set strategy.optimizer.name=nothing 2>&1 | sed 's/.*one of //; s/, got.*//; s/, /\n/g' ;;
    *) "$EXOGYM" list "$1" | cut -d' ' -f1 ;;
    esac
}
for kind in optimizers schedules strategies models data; do
    [ "$(listed $kind | wc -l)" -gt 2 ] || fail "no $kind are listed"
    for name in $(listed $kind); do
        [ "$name" != islands ] || continue # a job has one edge, and is refused: cli/two_islands
        grep -q "^$kind $name |" table || fail "$kind: '$name' is not in the table of this test"
    done
done

# --- The runs
# ---------------------------------------------------------------------------------------------------------

# A schedule by its name alone has its options beside it.
cat >mix.py <<'END'
"""mix.py writes jobs/N.json for row N of the table, as sparse as can be; mix.py results compares results/N/config.json and
result.json with row N, and prints what differs."""
import json, os, sys

def write(kind, name, text):
    key = {"models": "model", "data": "data"}.get(kind)
    texts = kind == "models" and name == "gpt" or kind == "data" and name in ("text", "shakespeare", "tokens")
    given = json.loads("{%s}" % text)
    said = {"name": name, **given} if given else name
    job = {"name": "x", "nodes": 2, "train": {"max_steps": 1, "batch_size": 2, "val_size": 2},
           "model": {"name": "gpt", "layers": 1, "heads": 1, "width": 4} if texts else {"name": "mlp", "hidden": 4},
           "data": {"name": "text", "path": "text.txt", "block": 4} if texts else {"name": "synthetic", "count": 64}, "strategy": "ddp"}
    if key:
        job[key] = said
    elif kind == "strategies":
        job["strategy"] = said
    else:
        job["strategy"] = {"name": "diloco", "H": 1, "optimizer" if kind == "optimizers" else "lr_scheduler": said}
    return job

def read(path):
    return json.load(open(path), parse_float=str, parse_int=str)

def difference(kind, name, text, folder):
    key = {"models": "model", "data": "data"}.get(kind)
    config = json.load(open(folder + "/config.json"))
    shared = {"optimizer", "lr_scheduler", "warmup_steps", "max_norm", "label"}
    got = config[key] if key else config["strategy"]
    if kind == "strategies":
        got = {k: v for k, v in got.items() if k not in shared}
    elif kind == "optimizers":
        got = got["optimizer"]
    elif kind == "schedules" and isinstance(got["lr_scheduler"], dict):
        got = got["lr_scheduler"]
    elif kind == "schedules":
        own = {"name", "optimizer", "max_norm", "label", "H", "offset", "outer_optimizer", "aggregate"}
        got = {"name": got["lr_scheduler"], **{k: v for k, v in got.items() if k not in own and k != "lr_scheduler"}}
    want = {"name": name, **json.loads("{%s}" % text)}
    if read(folder + "/result.json")["config"] != read(folder + "/config.json"):
        return "is not what result.json has"
    if got != want:
        return "has %s instead of %s" % (json.dumps(got, sort_keys=True), json.dumps(want, sort_keys=True))

for row, line in enumerate(open("table"), 1):
    entry, given, expected = line.split("|")
    kind, name = entry.split()
    if len(sys.argv) == 1:
        os.makedirs("jobs", exist_ok=True)
        json.dump(write(kind, name, given), open("jobs/%d.json" % row, "w"))
    else:
        what = difference(kind, name, expected, "results/%d" % row)
        if what:
            print("%s|%s: config.json %s" % (entry.strip(), given, what))
END
cat >hf.json <<'END'
{"name": "hf", "model": {"name": "gpt", "layers": 1, "heads": 2, "width": 8}, "data": {"name": "text", "path": "text.txt", "block": 4},
 "train": {"max_steps": 1, "batch_size": 2}, "strategy": "ddp"}
END
ok run hf.json --no-plot
ok export runs/hf/ddp hf

python3 mix.py || fail 'no jobs'
count=0
while IFS='|' read -r entry given _; do
    count=$((count + 1))
    rm -rf runs again
    cp "jobs/$count.json" job.json
    ok run job.json --no-plot --json
    first=$(json out sha256)
    config=$(ls runs/x/*/config.json)
    mkdir -p "results/$count"
    cp "$config" "${config/config.json/result.json}" "results/$count"
    ok run "$config" --save-dir again --no-plot --json
    [ -n "$first" ] && [ "$(json out sha256)" = "$first" ] || fail "$entry|$given: its config.json gives other parameters"
    cmp "$config" "${config/runs/again}" || fail "$entry|$given: the config.json of its config.json is another"
    # Each is the other for a run that goes on: also by the checkpoint alone, and with options in
    # another order. Every fifth row is enough: the comparison does not know which option it
    # compares.
    [ $((count % 5)) = 1 ] || continue
    cp "$config" whole.json
    python3 - <<'END'
import json
job = json.load(open("whole.json"))
job["strategy"] = dict(reversed(job["strategy"].items()))
json.dump(job, open("turned.json", "w"))
END
    ok run whole.json --no-plot --resume --set train.max_steps=2
    rm "$config"
    ok run turned.json --no-plot --resume --set train.max_steps=3
    ok run job.json --no-plot --resume --set train.max_steps=3
    has err 'finished before'
done <table
[ $count -gt 30 ] || fail "only $count jobs were tried"
why=$(python3 mix.py results 2>&1) && [ -z "$why" ] || fail "$why"

# --- Other settings are noticed, whoever said them
# --------------------------------------------------------------------

rm -rf runs
cp "jobs/$(grep -n '^strategies diloco | |' table | cut -d: -f1).json" job.json
ok run job.json --no-plot
cp runs/x/diloco/config.json whole.json
for change in strategy.H=99 strategy.outer_optimizer=sgd strategy.outer_optimizer.momentum=0.8 strategy.optimizer=adam data.seed=2 \
    data.split_by_node=true clock=virtual strategy.lr_scheduler=cosine strategy.max_norm=1 strategy.optimizer.eps=1.0000000000000002e-8; do
    "$EXOGYM" run whole.json --no-plot --resume --set train.max_steps=2 --set "$change" >out 2>err </dev/null && fail "resumed with $change"
    has err "--resume: runs/x/diloco was begun with another ${change%%=*}"
done
# A clock that is said is the same as none.
ok run job.json --no-plot --resume --set clock=real
has err 'finished before'

# An exogym with fewer options, or one that wrote down what was given, has left less.
python3 - <<'END'
import json
path = "runs/x/diloco/config.json"
job = json.load(open(path))
job["strategy"] = {"name": "diloco", "label": "diloco"}
job["model"] = {"name": "mlp", "hidden": 4}
job["data"] = {"name": "synthetic", "count": 64}
del job["clock"]
json.dump(job, open(path, "w"), indent=2)
END
ok run job.json --no-plot --resume
has err 'finished before'
finish
