#!/usr/bin/env python3
"""Compares environments and PPO on CartPole-v1 with other libraries, in alternation, in one run.

    bench/rl.py steps [--rounds 3] [--instances 1024]
    bench/rl.py train [--rounds 3] [--seed 1] [--steps 500000]

`steps`: steps of environments a second of processor time, on one core: bench_environments beside envpool and PufferLib's CartPole in C.

`train`: time until the mean return of the last 100 episodes is 475: exogym with CleanRL's settings (cleanrl.yaml) and with those of
examples/06_ppo_cartpole/1m1t.yaml, beside Stable-Baselines3 with CleanRL's settings and CleanRL's ppo.py. Two times are printed: on the
clock and of the processor. Other work on the machine falsifies the first, not the second, by which the ratios are. exogym's time is that
of the whole command, with the evaluation of 100 episodes that follows, but without evaluations while it learns, which the others do not
make either; that of the others begins with training. Each round has the next seed, because how many steps a run takes depends on it. The
ratios are those of the sums over the rounds in which both reached the target.

bench/peers/setup.sh rl installs the peers in build/peers/rl. --build, --python and --cleanrl name other places.
"""
import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEERS = os.path.join(ROOT, "bench/peers")
EXAMPLE = os.path.join(ROOT, "examples/06_ppo_cartpole")
TARGET = 475


def output(command, folder=None, env=None):
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("%s failed:\n%s" % (" ".join(command), (done.stdout + done.stderr)[-3000:]))
    return done.stdout


# --- Steps of environments ---------------------------------------------------------------------------------------------------------------

def rates(text):
    return {name: float(rate) for name, rate in re.findall(r"^(\w+) steps_per_second=(\d+)$", text, re.M)}


def steps(args):
    sides = {"exogym": [os.path.join(args.build, "bench/bench_environments")], "envpool": [args.python, os.path.join(PEERS, "env_steps.py")],
             "PufferLib": [args.puffer]}
    measured = {side: [] for side in sides}
    for _ in range(args.rounds):
        for side, command in sides.items():
            if os.path.exists(command[0]):
                measured[side].append(rates(output(command + [str(args.instances), "1"])))
    for side, rounds in measured.items():
        if not rounds:
            print("%s is not installed: %s" % (side, sides[side][0]))
    for name in measured["exogym"][0]:
        ours = statistics.median(r[name] for r in measured["exogym"])
        line = "%-12s exogym %.2f M steps/s" % (name, ours / 1e6)
        for side in ("envpool", "PufferLib"):
            theirs = [r[name] for r in measured[side] if name in r]
            if theirs:
                line += ", %s %.2f M (ratio %.2f)" % (side, statistics.median(theirs) / 1e6, ours / statistics.median(theirs))
        print(line, flush=True)


# --- Time to the target ------------------------------------------------------------------------------------------------------------------

def child_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def exogym(args, graph, seed, folder):
    options = ["--set", f"seed={seed}", "--set", f"actors.trainer.config.target_return={TARGET}", "--set",
               "actors.trainer.config.evaluate=100", "--overwrite", "--no-plot"]
    if graph == "cleanrl":  # no evaluation before the end
        options += ["--set", "actors.trainer.config.evaluate_every=1000000"]
    wall, cpu = time.perf_counter(), child_seconds()
    output([os.path.join(args.build, "exogym"), "run", os.path.join(EXAMPLE, graph + ".yaml")] + options, folder)
    wall, cpu = time.perf_counter() - wall, child_seconds() - cpu
    with open(os.path.join(folder, "runs", graph, "final_trainer_0.json"), encoding="utf-8") as file:
        final = json.load(file)
    return {"steps": final["items"] * 512, "wall": wall, "cpu": cpu, "reached": final["return_mean"] >= TARGET,
            "evaluation": final["evaluation_mean"]}


def stable_baselines(args, seed, folder):
    text = output([args.python, os.path.join(PEERS, "ppo_sb3.py"), "--seed", str(seed), "--steps", str(args.steps), "--target",
                   str(TARGET)], folder)
    found = dict(re.findall(r"(\w+)=([0-9.]+)", text.splitlines()[-1]))
    return {"steps": int(found["steps"]), "wall": float(found["wall"]), "cpu": float(found["cpu"]), "reached": found["reached"] == "1",
            "evaluation": float(found["evaluation"])}


def process_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cleanrl(args, seed, folder):
    """Runs ppo.py as it is, reads the returns that it prints, and ends it at the target. Time begins with its first episode."""
    if not os.path.isdir(args.cleanrl_path):
        sys.exit("there is no %s: bench/peers/setup.sh rl installs there what CleanRL needs; --cleanrl-path names another folder"
                 % args.cleanrl_path)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": args.cleanrl_path}
    command = [args.python, "-u", args.cleanrl, "--seed", str(seed), "--no-cuda", "--total-timesteps", str(args.steps)]
    child = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    returns, step, wall, cpu, last = [], 0, None, 0, []
    for line in child.stdout:
        last = last[-20:] + [line]
        found = re.match(r"global_step=(\d+), episodic_return=\[?([0-9.]+)", line)
        if not found:
            continue
        if wall is None:
            wall, cpu = time.perf_counter(), process_seconds(child.pid)
        step = int(found.group(1))
        returns = returns[-99:] + [float(found.group(2))]
        if len(returns) == 100 and sum(returns) / 100 >= TARGET:
            break
    if wall is None:
        sys.exit("CleanRL's ppo.py printed no episode:\n" + "".join(last))
    result = {"steps": step, "wall": time.perf_counter() - wall, "cpu": process_seconds(child.pid) - cpu,
              "reached": sum(returns) / 100 >= TARGET, "evaluation": float("nan")}
    child.kill()
    child.wait()
    return result


def train(args):
    sides = {"exogym, cleanrl.yaml": lambda seed, folder: exogym(args, "cleanrl", seed, folder),
             "exogym, 1m1t.yaml": lambda seed, folder: exogym(args, "1m1t", seed, folder),
             "Stable-Baselines3": lambda seed, folder: stable_baselines(args, seed, folder),
             "CleanRL": lambda seed, folder: cleanrl(args, seed, folder)}
    sides = {side: measure for side, measure in sides.items() if not args.sides or side.split(", ")[-1] in args.sides.split(",")}
    measured = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.seed, args.seed + args.rounds):
            for side, measure in sides.items():
                r = measure(seed, folder)
                measured[side].append(r)
                print("seed %d  %-20s %7d steps, %7.2f s on the clock, %7.2f s of the processor, %s %d, evaluation %.1f" % (
                    seed, side, r["steps"], r["wall"], r["cpu"], "reached" if r["reached"] else "DID NOT REACH", TARGET, r["evaluation"]),
                    flush=True)
    for ours in [side for side in sides if side.startswith("exogym")]:
        for theirs in [side for side in sides if not side.startswith("exogym")]:
            pairs = [pair for pair in zip(measured[theirs], measured[ours]) if pair[0]["reached"] and pair[1]["reached"]]
            if not pairs:
                print("%s over %s: no seed with which both reached %d" % (ours, theirs, TARGET))
                continue
            ratios = [them["cpu"] / us["cpu"] for them, us in pairs]
            print("%s over %s: %.1f times (%.1f to %.1f) in %d of %d rounds; a step %.1f times" % (
                ours, theirs, sum(them["cpu"] for them, _ in pairs) / sum(us["cpu"] for _, us in pairs), min(ratios), max(ratios), len(pairs),
                args.rounds, sum(them["cpu"] for them, _ in pairs) / sum(them["steps"] for them, _ in pairs)
                / (sum(us["cpu"] for _, us in pairs) / sum(us["steps"] for _, us in pairs))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["steps", "train"])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=500000)
    parser.add_argument("--sides", help="some of cleanrl.yaml,1m1t.yaml,Stable-Baselines3,CleanRL; by default all, one after the other")
    parser.add_argument("--instances", type=int, default=1024)
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--python", default=os.path.join(ROOT, "build/peers/rl/bin/python"))
    parser.add_argument("--cleanrl", default=os.path.join(ROOT, "build/peers/rl/cleanrl/ppo.py"))
    parser.add_argument("--cleanrl-path", default=os.path.join(ROOT, "build/peers/rl/cleanrl/site"))
    parser.add_argument("--puffer", default=os.path.join(ROOT, "build/peers/rl/env_puffer"))
    args = parser.parse_args()
    args.rounds = args.rounds or 3
    args.build = os.path.abspath(args.build)
    (steps if args.part == "steps" else train)(args)


if __name__ == "__main__":
    main()
