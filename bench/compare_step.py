#!/usr/bin/python3
"""Compares the time of a training step of four nodes: exogym against four PyTorch processes with
gloo, in alternation.

    bench/compare_step.py [--strategy ddp|diloco|sparta|all] [--rounds 2] [--steps 20]
                          [--dtype fp32|bf16] [--layout ...]

Each round runs exogym, then the peer (bench/peers/mnist_gloo.py), with the same network, data,
batch and number of steps. A step is the steps of all nodes. exogym's time includes all steps; the
peer's leaves out the first two. Prints the medians over the rounds, and their ratio.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OPTIONS = {"ddp": {}, "diloco": {"H": 20}, "sparta": {"p": 0.005}}


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("%s failed:\n%s" % (" ".join(command), done.stderr))
    return done.stdout


def ours(strategy, args, folder):
    job = {
        "model": "mnist_cnn", "data": "fashion_mnist", "nodes": args.nodes,
        "train": {"max_steps": args.steps, "batch_size": args.batch, "val_size": 64, "val_interval": 0,
                  "autocast": "bf16" if args.dtype == "bf16" else "none"},
        "strategy": {"name": strategy, "optimizer": {"name": "adamw", "lr": 3e-4, "weight_decay": 1e-4},
                     "lr_scheduler": "lambda_cosine", "warmup_steps": 100, **OPTIONS[strategy]},
    }
    path = os.path.join(folder, "job.yaml")
    with open(path, "w") as file:
        json.dump(job, file)  # JSON is YAML
    result = json.loads(run([args.exogym, "run", path, "--json", "--no-plot", "--save-dir", folder]))["runs"][0]
    return result["train_seconds"] / result["steps"]


def peer(strategy, args):
    line = run([args.python, os.path.join(ROOT, "bench/peers/mnist_gloo.py"), "--strategy", strategy, "--json",
                "--nodes", str(args.nodes), "--batch", str(args.batch), "--steps", str(args.steps),
                "--dtype", args.dtype, "--layout", args.layout, "--threads", str(args.threads), "--allocator", args.allocator])
    return json.loads(line)["seconds_per_step"]


def main():
    parser = argparse.ArgumentParser(description="exogym against PyTorch with gloo, seconds a step of all nodes.")
    parser.add_argument("--strategy", choices=[*OPTIONS, "all"], default="all")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--batch", type=int, default=256, help="per node and step")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--layout", choices=["default", "channels_last"], default="default", help="the peer's")
    parser.add_argument("--threads", type=int, default=1, help="of each of the peer's processes; 0: the faster of 1 and 2")
    parser.add_argument("--allocator", choices=["keep", "default"], default="keep", help="the peer's, see bench/peers")
    parser.add_argument("--exogym", default=os.path.join(ROOT, "build/release/exogym"))
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has PyTorch")
    args = parser.parse_args()

    print("%d nodes, batch %d, %s, %d steps, %d rounds; the peer: layout %s, allocator %s" % (
        args.nodes, args.batch, args.dtype, args.steps, args.rounds, args.layout, args.allocator))
    print("%-8s %12s %12s %8s" % ("", "exogym s", "PyTorch s", "ratio"))
    for strategy in OPTIONS if args.strategy == "all" else [args.strategy]:
        mine, theirs = [], []
        for _ in range(args.rounds):
            with tempfile.TemporaryDirectory() as folder:
                mine.append(ours(strategy, args, folder))
            theirs.append(peer(strategy, args))
        a, b = statistics.median(mine), statistics.median(theirs)
        print("%-8s %12.3f %12.3f %7.2fx" % (strategy, a, b, b / a), flush=True)


if __name__ == "__main__":
    main()
