#!/usr/bin/env python3
"""Weight updates of a small GPT that PPO fine-tunes: bytes by form and learning rate, transfer, uptake and pause.

    exogym data get shakespeare
    exogym run examples/02_nanogpt/nanogpt.yaml --set nodes=1 --set 'compare=[ddp]' --set train.max_steps=300
    exogym export runs/nanogpt/ddp gpt
    bench/deltas.py gpt TEXT [--lr 1e-5 1e-6] [--updates 20] [--exogym build/release/exogym]

TEXT is a file whose lines are the prompts. A maker and a trainer run in two processes of this host, for each form of updates and each
rate; the maker exchanges weights between two steps of generation (swap: step). Bytes are means over the updates after the first one,
which is whole, in percent of fp32 weights; times are those of the maker's meters. An answer ends with its line (token 0). At the end the gap
of generation at an exchange, with caches that are kept and computed anew.
"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GRAPH = """exogym: 1
name: deltas
seed: 1
actors:
  maker:
    class: experience_maker
    config:
      model: {{name: gpt, path: {model}}}
      prompts: {{path: {prompts}, tokenizer: {model}}}
      reward: {{name: expression, formula: 'count("e")'}}
      answers: 4
      batch: {places}
      epochs: 0
      swap: step
      kv: {kv}
      generate: {{max_new_tokens: 192{stop}}}
  trainer:
    class: ppo_trainer
    config:
      model: {{name: gpt, path: {model}}}
      algorithm: {{name: reinforce++}}
      batch: {batch}
      updates: {updates}
      staleness: {staleness}
      update: {{form: {form}}}
      optimizer: {{name: adamw, lr: {lr}}}
edges:
  - {{from: maker, to: trainer, carries: experience}}
  - {{from: trainer, to: maker, carries: parameters, route: broadcast, buffer: {{on_full: latest}}}}
"""


def measure(args, prompts, form, lr, kv="recompute", busy=False):
    """The meters of a run. busy: the maker has long answers under way whenever weights come."""
    text = GRAPH.format(model=os.path.abspath(args.model), prompts=prompts, form=form, lr=lr, kv=kv, updates=args.updates,
                        places=4 if busy else 8, batch=1 if busy else 4, staleness=7 if busy else 3, stop="" if busy else ", stop: [0]")
    with open("deltas.yaml", "w", encoding="utf-8") as file:
        file.write(text)
    done = subprocess.run([args.exogym, "run", "deltas.yaml", "--workers", "2", "--overwrite", "--name", args.name], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("the run failed: " + (done.stdout + done.stderr)[-2000:])
    with open(f"runs/{args.name}/result.json", encoding="utf-8") as file:
        meters = {path: meter["value"] for path, meter in json.load(file)["meters"].items()}
    return {name.split(".")[1]: value for name, value in meters.items()}


def size_of(args):
    """The bytes of the model's fp32 weights."""
    with open(os.path.join(args.model, "model.safetensors"), "rb") as file:
        return os.path.getsize(file.name) - 8 - int.from_bytes(file.read(8), "little")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--lr", nargs="+", default=["1e-5", "1e-6"])
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--name", default="deltas", help="of the runs")
    parser.add_argument("--exogym", default=os.path.join(ROOT, "build/release/exogym"))
    args = parser.parse_args()
    with open(args.text, encoding="utf-8") as file:
        lines = [line for line in (line.strip() for line in file) if 8 <= len(line) <= 60][:200]
    prompts = os.path.abspath("deltas_prompts.txt")
    with open(prompts, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
    whole = size_of(args)
    print("%d bytes of fp32 weights, %d updates, load %.1f" % (whole, args.updates, os.getloadavg()[0]))
    print("%-6s %-11s %10s %6s %12s %10s %9s" % ("lr", "form", "bytes", "%", "transfer, ms", "uptake, ms", "pause, us"))
    for lr in args.lr:
        for form in ("whole", "bf16", "int8", "delta", "bf16_delta"):
            m = measure(args, prompts, form, lr)
            first = {"whole": whole, "delta": whole, "bf16_delta": whole / 2}.get(form, m["update_bytes"] / m["updates_sent"])
            each = (m["update_bytes"] - first) / (m["updates_sent"] - 1)
            print("%-6s %-11s %10d %6.1f %12.1f %10.1f %9.1f" % (lr, form, each, 100 * each / whole, 1e3 * m["transfer"], 1e3 * m["uptake"],
                                                                1e6 * m["pause"]), flush=True)
    for kv in ("keep", "recompute"):
        m = measure(args, prompts, "delta", args.lr[0], kv, busy=True)
        print("16 answers of 192 tokens, kv: %s: %d exchanges, the longest pause %.1f us, gap %.1f ms" % (kv, m["swaps"], 1e6 * m["pause"],
                                                                                                     1e3 * m["gap"]), flush=True)


if __name__ == "__main__":
    main()
