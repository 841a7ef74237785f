#!/usr/bin/env python3
"""Prints time and memory of a run on the virtual clock, by the number of emulated hosts.

    bench/thousand_hosts.py [BUILD [STRATEGY]]

The job is bench/graphs/thousand.yaml: a small model, 40 steps, homes with 20 Mbit/s up. STRATEGY, in
YAML, replaces its strategy, which is DiLoCo. Each run is its own process; figures are medians of
three runs.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build/release"
STRATEGY = ["--set", f"strategy={sys.argv[2]}"] if len(sys.argv) > 2 else []


def run(hosts, folder):
    command = [f"{BUILD}/exogym", "run", "bench/graphs/thousand.yaml", "--json", "--no-plot", "--overwrite", "--save-dir",
               folder,
               "--set", f"nodes={hosts}", "--set", f"hosts.home.count={hosts}", *STRATEGY]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{hosts} hosts: exogym ended with {status}")
    result = json.loads(out)["runs"][0]
    return result["wall_seconds"], usage.ru_maxrss / 1024, result["seconds"], usage.ru_utime + usage.ru_stime


print(f"{'hosts':>6} {'seconds':>9} {'CPU s':>8} {'ms a host':>10} {'MiB':>8} {'MiB a host':>11} {'predicted s':>12}")
with tempfile.TemporaryDirectory() as folder:
    for hosts in (125, 250, 500, 1000):
        runs = [run(hosts, folder) for _ in range(3)]
        wall, memory, predicted, cpu = (statistics.median(column) for column in zip(*runs))
        print(f"{hosts:6} {wall:9.2f} {cpu:8.2f} {1e3 * wall / hosts:10.2f} {memory:8.0f} {memory / hosts:11.2f} {predicted:12.3f}")
