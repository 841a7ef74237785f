#!/usr/bin/env python3
"""Compares an update of PPO with TRL's PPOTrainer, in alternation: samples/s of each, and the ratio.

    bench/ppo_step.py [--rounds 3] [--threads 1] [--size tiny|small] [--exogym build/release/exogym] [--python build/peers/trl/bin/python]

Both sides begin with the same directory, a GPT-2 with random weights and a vocabulary of 256, as policy, reference, critic and
reward model: `tiny` has 2 layers, 2 heads and width 64, `small` 4 layers, 4 heads and width 128. An update has 32 answers of 32 tokens
to prompts of 16, two epochs of two minibatches, and AdamW. An update is everything: generation, scores, the passes before it and its
steps. exogym's maker and trainer take turns (staleness 0). Both sides run on the same cores. Two rates are printed: by the clock, which
counts on an idle machine only, and by the processor's time; neither includes the start. bench/peers/setup.sh trl installs TRL 1.12.0, the
last one with PPOTrainer.
"""
import argparse
import csv
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SIZES = {"tiny": "layers: 2, heads: 2, width: 64", "small": "layers: 4, heads: 4, width: 128"}
ANSWERS, TOKENS, UPDATES = 32, 32, 6

START = """exogym: 1
name: start
actors:
  reward: {class: reward_trainer, config: {model: {name: gpt, SIZE, context: 64, vocabulary: 256, values: true, activation: gelu_tanh},
                                            data: {path: pairs.jsonl}, steps: 1, optimizer: {lr: 1e-9}}}
"""
PPO = f"""exogym: 1
name: ppo
actors:
  maker:
    class: experience_maker
    config:
      model: {{name: gpt, path: runs/start/model_reward_0}}
      prompts: {{path: prompts.txt}}
      reward: {{name: model, path: runs/start/model_reward_0}}
      batch: {ANSWERS}
      epochs: 0
      generate: {{max_new_tokens: {TOKENS}, stop: []}}
  trainer:
    class: ppo_trainer
    config:
      model: {{name: gpt, path: runs/start/model_reward_0}}
      critic: {{name: gpt, path: runs/start/model_reward_0, values: true}}
      algorithm: {{name: ppo, kl_coef: 0.05}}
      batch: {ANSWERS}
      updates: {UPDATES}
      epochs: 2
      minibatches: 2
      optimizer: {{lr: 1e-4}}
      critic_optimizer: {{lr: 1e-4}}
edges:
  - {{from: maker, to: trainer, carries: experience, deadline: 10 min}}
  - {{from: trainer, to: maker, carries: parameters, route: broadcast, buffer: {{on_full: latest}}, deadline: 10 min}}
"""


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="ascii") as file:
        file.write(text)


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "TRL_EXPERIMENTAL_SILENCE": "1"})
    if done.returncode != 0:
        sys.exit("%s failed:\n%s" % (" ".join(command), (done.stdout + done.stderr)[-3000:]))
    return done.stdout


def seconds_of(exogym, cores, folder, updates):
    """The processor's time of a run with so many updates."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(["taskset", "-c", cores, exogym, "run", "ppo.yaml", "--overwrite", "--set", f"actors.trainer.config.updates={updates}"], folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ours(exogym, cores, folder):
    """Samples/s by the median time between versions, after the first, and by the processor's time of the updates after the first."""
    first = seconds_of(exogym, cores, folder, 1)
    cpu = (seconds_of(exogym, cores, folder, UPDATES) - first) / (UPDATES - 1)
    with open(os.path.join(folder, "runs/ppo/versions_trainer_0.csv"), encoding="ascii") as file:
        times = [float(row["time"]) for row in csv.DictReader(file)]
    return ANSWERS / statistics.median(b - a for a, b in zip(times[1:], times[2:])), ANSWERS / cpu


def theirs(python, threads, cores, folder):
    peer = os.path.join(ROOT, "bench/peers/ppo_trl.py")
    out = run(["taskset", "-c", cores, python, peer, "runs/start/model_reward_0", "runs/start/model_reward_0", "prompts.txt", "--answers",
               str(ANSWERS), "--tokens", str(TOKENS), "--updates", str(UPDATES), "--threads", str(threads)], folder)
    return tuple(float(re.search(name + r"=([0-9.]+)", out).group(1)) for name in ("samples_per_second", "samples_per_cpu_second"))


def compare(args, size):
    exogym, python = os.path.abspath(args.exogym), os.path.abspath(args.python)
    cores = ",".join(str(i) for i in sorted(os.sched_getaffinity(0))[:args.threads])
    with tempfile.TemporaryDirectory() as folder:
        write(folder, "prompts.txt", "".join(f"the prompt of {i:02d}\n" for i in range(64)))
        write(folder, "pairs.jsonl", "".join('{"prompt": "p", "chosen": "%s", "rejected": "b"}\n' % ("a" * (i + 1)) for i in range(16)))
        write(folder, "start.yaml", START.replace("SIZE", SIZES[size]))
        write(folder, "ppo.yaml", PPO)
        run([exogym, "run", "start.yaml"], folder)
        pairs = []
        for i in range(args.rounds):
            pairs.append((ours(exogym, cores, folder), theirs(python, args.threads, cores, folder)))
            for k, kind in enumerate(("clock", "processor")):
                mine, peer = pairs[-1][0][k], pairs[-1][1][k]
                print("%s, round %d, by the %s: exogym %.1f samples/s, TRL %.1f samples/s, ratio %.2f" % (size, i + 1, kind, mine, peer, mine / peer),
                      flush=True)
    for k, kind in enumerate(("clock", "processor")):
        print("%s, median ratio by the %s: %.2f" % (size, kind, statistics.median(a[k] / b[k] for a, b in pairs)), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--size", choices=SIZES, help="one of the sizes only")
    parser.add_argument("--exogym", default=os.path.join(ROOT, "build/release/exogym"))
    parser.add_argument("--python", default=os.path.join(ROOT, "build/peers/trl/bin/python"))
    args = parser.parse_args()
    for size in [args.size] if args.size else SIZES:
        compare(args, size)


if __name__ == "__main__":
    main()
