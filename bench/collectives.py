#!/usr/bin/env python3
"""All-reduce in place of fp32 by exogym beside Open MPI, gloo and a plain prototype, in one run: each round measures each side once, so
that all see the same machine, and the table has the medians over the rounds.

    bench/peers/setup.sh collectives     installs Open MPI (Debian's, and the newest from PyPI)
    bench/peers/setup.sh gpt             installs PyTorch, which has gloo
    bench/collectives.py [--rounds N] [--members 2,4] [--build build/release] [--warm]

Times are microseconds of a call. The columns of ratios are others' times over those of exogym's processes, so larger is better for exogym;
"of prototype" is the prototype's time over exogym's. Over tcp the peer is gloo. Run it on a machine where nothing else runs.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE.parent / "build" / "peers"
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mpi(folder, name):
    """The command of an Open MPI in a folder of programs; None: it is not there."""
    mpicc = shutil.which("mpicc", path=folder) if folder else shutil.which("mpicc.openmpi") or shutil.which("mpicc", path="/usr/bin")
    mpirun = shutil.which("mpirun", path=folder) if folder else shutil.which("mpirun.openmpi") or shutil.which("mpirun", path="/usr/bin")
    if not mpicc or not mpirun:
        return None
    program = PEERS / f"all_reduce_{name}"
    PEERS.mkdir(parents=True, exist_ok=True)
    subprocess.run([mpicc, "-O3", "-march=native", HERE / "peers" / "all_reduce_mpi.c", "-o", program], check=True)
    return lambda members: [mpirun, "--oversubscribe", "-n", str(members), program]


def sides(build):
    program = str(pathlib.Path(build) / "bench" / "bench_collectives")
    out = {kind: (lambda members, kind=kind: [program, kind, str(members)]) for kind in ("processes", "threads", "prototype", "tcp")}
    python = next((p for p in (PEERS / "gpt" / "bin" / "python", pathlib.Path("/usr/bin/python3"))
                   if p.exists() and subprocess.run([p, "-c", "import torch"], capture_output=True).returncode == 0), None)
    peers = {"mpi": mpi(None, "mpi"), "mpi new": mpi(PEERS / "openmpi" / "bin", "mpi_new"),
             "gloo": python and (lambda members: [python, HERE / "peers" / "all_reduce_gloo.py", str(members)])}
    for name, command in peers.items():
        if command:
            out[name] = command
        else:
            print(f"{name} is not installed: see bench/peers/setup.sh", file=sys.stderr)
    return out


def measure(command):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ROOT}, timeout=300)
    rows = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2 and line[0].isdigit())
    if done.returncode != 0 or not rows:
        raise SystemExit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return {int(size): float(time) for size, time in rows.items()}


def table(members, times):
    names = list(times)
    ratios = [n for n in ("mpi", "mpi new", "gloo") if n in times]
    print(f"\n{members} members: microseconds, and ratios of exogym's processes; the last column is tcp beside gloo")
    print(f"{'bytes':>10}", *(f"{n:>10}" for n in names), *(f"{'x ' + n:>10}" for n in ratios), f"{'of proto':>10}", f"{'thr/proto':>10}",
          f"{'gloo/tcp':>10}")
    for size in next(iter(times.values())):
        at = {n: times[n][size] for n in names}

        def ratio(other, own):
            return f"{at[other] / at[own]:>10.2f}" if other in at and own in at else f"{'-':>10}"

        print(f"{size:>10}", *(f"{at[n]:>10.1f}" for n in names), *(ratio(n, "processes") for n in ratios),
              ratio("prototype", "processes"), ratio("prototype", "threads"), ratio("gloo", "tcp"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--members", default="2,4")
    parser.add_argument("--build", default=str(HERE.parent / "build" / "release"))
    parser.add_argument("--warm", action="store_true", help="do not write the buffers before each call")
    parser.add_argument("--only", help="some sides, separated by commas")
    args = parser.parse_args()
    all_sides = sides(args.build)
    if args.only:
        all_sides = {n: c for n, c in all_sides.items() if n in args.only.split(",")}
    print(f"load average {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores")
    for members in map(int, args.members.split(",")):
        runs = {name: [] for name in all_sides}
        for _ in range(args.rounds):
            for name, command in all_sides.items():
                runs[name].append(measure(list(map(str, command(members))) + (["--warm"] if args.warm else [])))
        table(members, {n: {size: statistics.median(r[size] for r in each) for size in each[0]} for n, each in runs.items()})


if __name__ == "__main__":
    main()
