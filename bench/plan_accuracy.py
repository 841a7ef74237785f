#!/usr/bin/env python3
"""How right `exogym plan` is: for five models, the memory and the time of the first compositions, each
as planned and in a run.

Memory is the largest resident size of any process of a run with a worker for each node. Time is that of
a step on the virtual clock, and of one on the real clock over emulated links, of runs that really train:
links are declared and computation costs what `compute` says, so that the ratio judges the rehearsal and
not this machine. On the real clock `compute` has to be longer than what this machine takes for all nodes.
Two compositions whose planned times differ by less than 1 % are in no order.

usage: bench/plan_accuracy.py [--exogym build/release/exogym] [--first 3] [--model gpt]
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

LINKS = """
clock: virtual
compute: {step: %d ms}
hosts: {home: {count: 4, up: %d Mbit/s, down: 1 Gbit/s}}
links: {default: {bandwidth: 1 Gbit/s, latency: 2 ms}}
"""
JOB = """
seed: 1
train: {max_steps: 3, batch_size: %d, val_size: 64}
strategy: {name: ddp, optimizer: {name: adamw, lr: 1e-3}}
nodes: %d
model: %s
data: %s
"""
STEP = {"mlp": 200, "mnist_cnn": 1000, "gpt": 1000, "texts": 1000, "copies": 1000}  # ms
UP = {"texts": 20, "copies": 20}  # Mbit/s; else 200
MODELS = {
    "mlp": JOB % (32, 4, "{name: mlp, hidden: [1500, 1500]}", "{name: synthetic, count: 2560}"),
    "mnist_cnn": JOB % (64, 2, "mnist_cnn", "{name: synthetic, count: 2560}"),
    "gpt": JOB % (8, 2, "{name: gpt, layers: 6, heads: 4, width: 256, context: 64}",
                  "{name: text, path: text.txt, block: 64}"),
    # few tokens and a slow uplink: activations are smaller than gradients
    "texts": JOB % (2, 2, "{name: gpt, layers: 2, heads: 4, width: 256, context: 64, tied: false}",
                    "{name: text, path: text.txt, block: 32}"),
    # four nodes, whose products are wanted (--products)
    "copies": JOB % (2, 4, "{name: gpt, layers: 4, heads: 4, width: 256, context: 64}",
                     "{name: text, path: text.txt, block: 64}"),
}


def sets_of(entry):
    return [word for one in entry["set"] for word in ("--set", one)]


def run(exogym, words, **kwargs):
    done = subprocess.run([exogym, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)
    if done.returncode != 0:
        sys.exit(f"exogym {' '.join(words)}: {done.stderr}")
    return done.stdout


def used(exogym, job, nodes, entry):
    """The largest resident size of the run's processes, in bytes."""
    words = ["run", job, "--no-plot", "--overwrite", "--workers", str(nodes), *sets_of(entry)]
    child = subprocess.Popen([exogym, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"exogym {' '.join(words)}: status {status}")
    return usage.ru_maxrss * 1024


def took(exogym, job, entry, clock, cost_ms):
    """Seconds of a step, of those after the second."""
    seconds = []
    for steps in (2, 5):
        words = ["run", job, "--no-plot", "--overwrite", "--json", *sets_of(entry),
                 "--set", f"train.max_steps={steps}", "--set", f"clock={clock}",
                 "--set", f"compute={{step: {cost_ms} ms}}", "--set", "train.val_size=none"]
        seconds.append(json.loads(run(exogym, words))["runs"][0]["train_seconds"])
    return (seconds[1] - seconds[0]) / 3


def is_product(entry):
    return sum(entry[key] > 1 for key in ("tensor", "pipeline", "context")) > 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--exogym", default="build/release/exogym")
    parser.add_argument("--first", type=int, default=3, help="compositions of each model")
    parser.add_argument("--model", choices=MODELS, help="this one only")
    parser.add_argument("--products", action="store_true", help="only copies that nodes share in several ways")
    args = parser.parse_args()
    exogym = os.path.abspath(args.exogym)
    os.chdir(tempfile.mkdtemp())
    with open("text.txt", "w") as file:
        file.writelines(f"line {i} of a text that is learned from\n" for i in range(300))
    print("model      rank  memory: planned  used   ratio   step: planned  virtual      real   ratio  composition")
    for name, job in MODELS.items():
        if args.model not in (None, name):
            continue
        with open("plain.yaml", "w") as file:
            file.write(job)
        with open("linked.yaml", "w") as file:
            file.write(job + LINKS % (STEP[name], UP.get(name, 200)))
        plan = json.loads(run(exogym, ["plan", "linked.yaml", "--json"]))
        entries = [e for e in plan["compositions"] if is_product(e) or not args.products]
        first, times = entries[: args.first], []
        for rank, e in enumerate(first):
            bytes_used = used(exogym, "plain.yaml", plan["nodes"], e)
            cost = STEP[name] * (4 / 3 if e["checkpoint"] else 1)  # forward, a third of a step, is repeated
            virtual = took(exogym, "linked.yaml", e, "virtual", cost)
            times.append(took(exogym, "linked.yaml", e, "real", cost))
            form = [e["strategy"], e["sharding_strategy"], e["pipeline"] > 1 and f"pipeline of {e['pipeline']}",
                    e["tensor"] > 1 and f"{'sequence' if e['sequence'] else 'tensor'} of {e['tensor']}",
                    e["context"] > 1 and f"context of {e['context']}",
                    e["overlap"] and "overlap", e["checkpoint"] and "checkpoint"]
            print(f"{name:10} {rank + 1:4} {e['memory'] / 1e6:13.1f} MB {bytes_used / 1e6:6.1f} MB {e['memory'] / bytes_used:6.3f}"
                  f" {e['step_seconds'] * 1e3:12.1f} ms {virtual * 1e3:7.1f} ms {times[-1] * 1e3:7.1f} ms {e['step_seconds'] / times[-1]:6.3f}"
                  f"  {' '.join(word for word in form if word)}", flush=True)
        pairs = [(a, b) for a in range(len(times)) for b in range(a) if
                 first[a]["step_seconds"] > 1.01 * first[b]["step_seconds"]]
        same = all(times[a] > times[b] for a, b in pairs)
        print(f"{name}: the order on the real clock is {'the same' if same else 'ANOTHER'}")


if __name__ == "__main__":
    main()
