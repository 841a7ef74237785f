#!/usr/bin/env python3
"""Simulates the bandwidth that data-parallel training, DiLoCo and Streaming DiLoCo need for a given
utilization of their processors, and prints it beside the published table (Streaming DiLoCo,
arXiv:2501.18512: 1B parameters, 0.1 s a step).

    bench/bandwidth_table.py [BUILD]

Each point is a run of bench/graphs/replicas.yaml on the virtual clock. The grid of bandwidths is
the paper's: 50 points from 0.1 to 1000 Gbit/s, evenly spaced by their logarithm. The exit status is
1 if a value is off by more than one step of the grid.
"""
import json
import subprocess
import sys
import tempfile

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build/release"
GRID = [10 ** (-1 + 4 * k / 49) for k in range(50)]
TARGETS = [50, 80, 90, 95, 99]
ROWS = {
    "data-parallel": ({"every": 1, "steps": 5}, [86.8, 152.6, 184.2, 222.3, 569]),
    "DiLoCo, H 100": ({"every": 100, "steps": 200}, [1.4, 6.2, 13.3, 23.3, 86.8]),
    "Streaming": ({"every": 100, "steps": 205, "fragments": 8}, [1.4, 5.2, 9.1, 16, 28.1]),
    "overlapped": ({"every": 100, "steps": 205, "fragments": 8, "delay": 1}, [1.4, 4.3, 6.2, 9.1, 11]),
    "overlapped, 4 bits": ({"every": 100, "steps": 205, "fragments": 8, "delay": 1, "bytes": "500 MB"}, [0.4, 0.9, 1.7, 2, 3]),
}


def utilization(bandwidth, variables, folder):
    command = [f"{BUILD}/exogym", "run", "bench/graphs/replicas.yaml", "--overwrite", "--json", "--save-dir", folder,
               "--set", f"variables.bandwidth={bandwidth:.9g} Gbit/s"]
    for name, value in variables.items():
        command += ["--set", f"variables.{name}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return 100 * json.loads(done.stdout)["actors"][0]["utilization"]


def nearest(value):
    return min(range(len(GRID)), key=lambda k: abs(GRID[k] - value) / GRID[k])


worst = 0
print(f"{'Gbit/s for utilization of':28}" + "".join(f"{t:>16} %" for t in TARGETS))
with tempfile.TemporaryDirectory() as folder:
    for name, (variables, published) in ROWS.items():
        cells = []
        for target, expected in zip(TARGETS, published):
            # Bisection for the first point that suffices: more bandwidth never lowers utilization.
            low, high = 0, len(GRID) - 1
            while low < high:
                middle = (low + high) // 2
                if utilization(GRID[middle], variables, folder) >= target:
                    high = middle
                else:
                    low = middle + 1
            off = low - nearest(expected)
            worst = max(worst, abs(off))
            cells.append(f"{GRID[low]:8.1f} ({expected:g}, {off:+d})")
        print(f"{name:28}" + "".join(f"{c:>18}" for c in cells))
print("in brackets: as published, and how many steps of the grid lie between")
sys.exit(1 if worst > 1 else 0)
