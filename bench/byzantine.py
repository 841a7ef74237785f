#!/usr/bin/env python3
"""Prints what one of eight nodes that sends wrong values costs, by strategy and rule (docs/strategies.md, "Wrong values").

    bench/byzantine.py [BUILD]

Each run trains the small model `mlp` on Fashion-MNIST for 200 steps of 32 images a node, with a round every 10 steps. Losses are those of
node 0, which is right, over 2,048 images: node 7 trains as the others and sends noise or -20 times its parameters. Mean of three seeds; the
percentage is the difference from the mean without a wrong node.
"""
import json
import math
import subprocess
import sys
import tempfile

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build/release"
RULES = ["mean", "trimmed_mean", "median", "krum", "{name: krum, m: 1}"]
STRATEGIES = ["local_sgd", "fedavg", "diloco"]


def loss(folder, strategy, rule, fault, seed):
    inner = f"{{name: {strategy}, H: 10, aggregate: {rule}, optimizer: {{name: adamw, lr: 1e-3}}}}"
    job = f"""exogym: 1
seed: {seed}
plugins: [{folder}/faulty.so]
model: {{name: mlp, hidden: 64}}
data: fashion_mnist
nodes: 8
strategy: {inner if fault == 'none' else f'{{name: faulty, fault: {fault}, strategy: {inner}}}'}
train: {{max_steps: 200, batch_size: 32, val_interval: 0, val_size: 2048, final_checkpoint: false}}
"""
    with open(f"{folder}/job.yaml", "w") as file:
        file.write(job)
    run = subprocess.run([f"{BUILD}/exogym", "run", f"{folder}/job.yaml", "--json", "--no-plot", "--overwrite", "--save-dir", f"{folder}/runs"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    value = json.loads(run.stdout)["runs"][0]["local_loss"]
    return math.inf if value is None or math.isnan(value) else value


def mean(folder, *what):
    return sum(loss(folder, *what, seed) for seed in (42, 43, 44)) / 3


with tempfile.TemporaryDirectory() as folder:
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Iinclude", "bench/plugins/faulty.c", "-o", f"{folder}/faulty.so"], check=True)
    print(f"{'strategy':10} {'rule':20} {'no fault':>9} {'noise':>18} {'negative':>18}")
    for strategy in STRATEGIES:
        clean = mean(folder, strategy, "mean", "none")
        for rule in RULES:
            row = [clean if rule == "mean" else mean(folder, strategy, rule, "none")]
            row += [mean(folder, strategy, rule, fault) for fault in ("noise", "negative")]
            cells = "".join(f" {value:9.4g}" + (f" ({100 * (value / clean - 1):+4.1f} %)" if value < 10 * clean else "") for value in row[1:])
            print(f"{strategy:10} {rule:20} {row[0]:9.4f}{cells}", flush=True)
