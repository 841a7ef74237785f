#!/usr/bin/env python3
"""Predicts compute utilization of local SGD on four nodes and prints it beside measured values.

    bench/measured_grid.py [--build FOLDER] [--queue TIME] [H...]      # H: 1 and 8 unless given
    bench/measured_grid.py --calibrate

The measured values are published ones (2026): four L40S on links shaped by tc, 30.8 million
parameters in fp32, 26 ms of compute a step, medians of three runs. Utilization is the compute time
divided by the time of the run. A prediction is a run of bench/graphs/four_shaped.yaml on the virtual
clock. It has one calibrated constant, the queue of the shaped rates: --calibrate predicts the row
H = 1 with several queues and prints the error of each. The value is the one with the least mean
error, and no other row has been used to choose it.

The exit status is 1 if the rows with a measurement are off by more than 10 % in the mean or 20 % at
worst.
"""
import argparse
import json
import subprocess
import sys
import tempfile

RATES = ["50 Mbit/s", "200 Mbit/s", "1 Gbit/s", "5 Gbit/s"]
COMPUTE = 0.026  # seconds a step
SECONDS = [37.96, 8.28, 1.53, 0.344]  # of a step, measured at H = 1
MEASURED = {1: [100 * COMPUTE / s for s in SECONDS], 8: [0.54, 2.46, 12.19, 39.52]}  # utilization in %
QUEUES = ["0 s"] + [f"{ms} ms" for ms in range(14, 36, 2)]


def utilization(build, folder, rate, every, queue):
    """Percent, over four rounds of `every` steps."""
    variables = {"rate": rate, "every": every, "steps": 4 * every, "queue": queue}
    command = [f"{build}/exogym", "run", "bench/graphs/four_shaped.yaml", "--overwrite", "--json", "--save-dir", folder]
    for name, value in variables.items():
        command += ["--set", f"variables.{name}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return 100 * json.loads(done.stdout)["actors"][0]["utilization"]


def errors(predicted, measured):
    return [p / m - 1 for p, m in zip(predicted, measured)]


def calibrate(build, folder):
    print("queue   error of the utilization at H = 1: mean, worst")
    for queue in QUEUES:
        row = [abs(e) for e in errors([utilization(build, folder, r, 1, queue) for r in RATES], MEASURED[1])]
        print(f"{queue:7} {100 * sum(row) / len(row):5.1f} % {100 * max(row):5.1f} %")


def grid(build, folder, rows, queue):
    """Prints the rows; returns the errors of those that were measured and are not the calibrated one."""
    found = []
    print(f"{'utilization, %':16}" + "".join(f"{r:>24}" for r in RATES))
    for every in rows:
        predicted = [utilization(build, folder, r, every, queue) for r in RATES]
        cells = [f"{p:.3g}" for p in predicted]
        if every in MEASURED:
            off = errors(predicted, MEASURED[every])
            found += off if every != 1 else []
            cells = [f"{c} ({m:.3g}, {100 * e:+.1f} %)" for c, m, e in zip(cells, MEASURED[every], off)]
        print(f"H {every:<14}" + "".join(f"{c:>24}" for c in cells))
    print("in brackets: as measured, and the error of the prediction; H = 1 is the calibrated row")
    return found


def positive(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"H is a number of steps from 1 on, not '{text}'")
    return int(text)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--queue", default="22 ms", help="traffic that a shaped rate holds (22 ms)")
parser.add_argument("--calibrate", action="store_true", help="show how the queue was chosen")
parser.add_argument("H", nargs="*", type=positive, help="steps between two means (1 8)")
arguments = parser.parse_args()
with tempfile.TemporaryDirectory() as folder:
    if arguments.calibrate:
        calibrate(arguments.build, folder)
        sys.exit(0)
    found = grid(arguments.build, folder, arguments.H or [1, 8], arguments.queue)
if found:
    mean, worst = sum(map(abs, found)) / len(found), max(map(abs, found))
    print(f"error of the other measured rows: {100 * mean:.1f} % in the mean, {100 * worst:.1f} % at worst")
    sys.exit(1 if mean > 0.1 or worst > 0.2 else 0)
