#!/usr/bin/env python3
"""Compares GPT-2's training step with PyTorch's, in alternation. Prints medians over the rounds,
and ratios.

    bench/gpt_step.py [--rounds 3] [--steps 5] [--threads 2] [--build build/release]
                      [--python build/peers/gpt/bin/python] [--base] [--keep] [--compile]

The settings are the small size (4 layers, 4 heads, width 128) with a vocabulary of 66 and of
50,304, with 16 sequences of 256 tokens and with one of 1,024. --base adds GPT-2's own size (12
layers, 12 heads, width 768) with one sequence of 1,024, with activation checkpoints unless --keep
is given. A step is forward, backward and AdamW; exogym updates parameters during backward.
bench/peers/setup.sh gpt installs the newest PyTorch.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SMALL = [("small", vocabulary, block, batch) for vocabulary in (66, 50304) for block, batch in ((256, 16), (1024, 1))]
BASE = [("base", 50304, 1024, 1)]


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("%s failed:\n%s" % (" ".join(command), done.stderr))
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description="GPT-2's training step beside PyTorch's.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--python", default=os.path.join(ROOT, "build/peers/gpt/bin/python"), help="one that has PyTorch")
    parser.add_argument("--base", action="store_true", help="also the base size: minutes a round, 6 GB")
    parser.add_argument("--keep", action="store_true", help="the base size without activation checkpoints: faster, in more memory")
    parser.add_argument("--compile", action="store_true", help="the peer with torch.compile")
    args = parser.parse_args()

    print("%-5s %5s %6s %5s %5s | %10s %10s %6s | %9s %9s %6s | %8s %8s" % (
        "size", "type", "vocab", "block", "batch", "exogym t/s", "torch t/s", "ratio", "MiB", "torch MiB", "part", "GFLOP/s", "of peak"))
    for size, vocabulary, block, batch in SMALL + (BASE if args.base else []):
        for dtype in ("fp32", "bf16"):
            keeps = ["--checkpoint", "1" if size == "base" and not args.keep else "0"]
            options = ["--size", size, "--vocabulary", str(vocabulary), "--block", str(block), "--batch", str(batch), "--dtype", dtype,
                       "--steps", str(args.steps), "--threads", str(args.threads)]
            ours, theirs = [], []
            for _ in range(args.rounds):
                ours.append(run([os.path.join(args.build, "bench/bench_gpt_step"), *options, *keeps]))
                theirs.append(run([args.python, os.path.join(ROOT, "bench/peers/gpt_step.py"), *options] + ["--compile"] * args.compile))

            def median(results, key):
                return statistics.median(r[key] for r in results)

            rate, peer = median(ours, "tokens_per_second"), median(theirs, "tokens_per_second")
            memory, peers = median(ours, "peak_mib"), median(theirs, "peak_mib")
            print("%-5s %5s %6d %5d %5d | %10.0f %10.0f %5.2fx | %9.0f %9.0f %6.2f | %8.0f %8.2f" % (
                size, dtype, vocabulary, block, batch, rate, peer, rate / peer, memory, peers, memory / peers,
                median(ours, "gflops"), median(ours, "of_peak")), flush=True)
    print("tokens a second, medians of %d rounds, %d threads; of peak: of fp32's, which bf16 exceeds" % (args.rounds, args.threads))


if __name__ == "__main__":
    main()
