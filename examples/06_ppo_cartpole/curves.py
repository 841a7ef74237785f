#!/usr/bin/env python3
"""Draws learning curves of graphs with one policy_trainer: mean and spread over seeds, by steps.

The curve is that of return_mean; of a game with an exact value that of game_value, with a line at the value of Kuhn poker.

    examples/06_ppo_cartpole/curves.py GRAPH.yaml... [--seeds 10] [-o curves.png] [--exogym build/release/exogym]

Runs each graph with the seeds 1 to N into runs/GRAPH-seedN, one after the other, and goes on where it was stopped: finished runs are kept.
Prints the evaluation of each seed, or the exact value of a game. Needs gnuplot.
"""
import argparse
import csv
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"]


def run(exogym, graph, seed):
    """The folder of a finished run."""
    name = "%s-seed%d" % (os.path.splitext(os.path.basename(graph))[0], seed)
    folder = os.path.join("runs", name)
    if not os.path.exists(os.path.join(folder, "final_trainer_0.json")):
        done = subprocess.run([exogym, "run", graph, "--overwrite", "--set", f"seed={seed}", "--name", name], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit("%s failed: %s" % (name, (done.stdout + done.stderr)[-2000:]))
    with open(os.path.join(folder, "final_trainer_0.json"), encoding="utf-8") as file:
        final = json.load(file)
    shown = ["%s %.4g" % (key, final[key]) for key in ("evaluation_mean", "game_value", "exploitability") if key in final]
    print("%s: %s" % (name, ", ".join(shown) or "return_mean %.4g" % final["return_mean"]), flush=True)
    return folder


def column(folder):
    """What the curve shows."""
    with open(os.path.join(folder, "updates_trainer_0.csv"), encoding="ascii") as file:
        return "game_value" if "game_value" in next(file) else "return_mean"


def read(folder):
    what = column(folder)
    with open(os.path.join(folder, "updates_trainer_0.csv"), encoding="ascii") as file:
        return {int(row["samples"]): float(row[what]) for row in csv.DictReader(file) if row[what]}


def band(folders):
    """Lines of steps, mean, least and largest, at the steps that all seeds have."""
    seeds = [read(folder) for folder in folders]
    common = sorted(set.intersection(*(set(seed) for seed in seeds)))
    for steps in common[::max(1, len(common) // 300)]:
        values = [seed[steps] for seed in seeds]
        yield "%d %.6g %.6g %.6g" % (steps, sum(values) / len(values), min(values), max(values))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("-o", "--output", default="curves.png")
    parser.add_argument("--exogym", default=os.path.join(ROOT, "build/release/exogym"))
    args = parser.parse_args()
    script = "set terminal pngcairo noenhanced size %d,360 font 'Sans,11' background rgb 'white'\n" % (480 * len(args.graphs))
    script += "set border 3\nset tics nomirror\nset grid lt 1 lc rgb '#e4e4e4'\nset key bottom right\nset xlabel 'steps (thousands)'\n"
    panels = "set multiplot layout 1,%d\n" % len(args.graphs)
    for i, graph in enumerate(args.graphs):
        folders = [run(args.exogym, graph, seed) for seed in range(1, args.seeds + 1)]
        script += "$data%d << EOD\n%s\nEOD\n" % (i, "\n".join(band(folders)))
        game = column(folders[0]) == "game_value"
        panels += ("set title '%s'\nset ylabel '%s'\nplot %s$data%d using ($1/1000):3:4 with filledcurves "
                   "fs transparent solid 0.25 noborder lc rgb '%s' title 'least to largest', $data%d using ($1/1000):2 with lines lw 2 "
                   "lc rgb '%s' title 'mean of %d seeds'\n" % (os.path.splitext(os.path.basename(graph))[0],
                                                                "value for the first player" if game else "mean return of the last 100 episodes",
                                                                "[][-0.2:0.2] -1./18 with lines dt 2 lc rgb 'black' title '-1/18', "
                                                                if game else "", i, COLOURS[i % 4], i,
                                                                COLOURS[i % 4], args.seeds))
    picture = subprocess.run(["gnuplot", "--default-settings", "-"], input=(script + panels).encode(), capture_output=True)
    if picture.returncode != 0 or not picture.stdout:
        sys.exit("gnuplot failed: %s" % picture.stderr.decode())
    with open(args.output, "wb") as file:
        file.write(picture.stdout)
    print(args.output)


if __name__ == "__main__":
    main()
