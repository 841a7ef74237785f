#!/usr/bin/env python3
"""Steps of environments in envpool: a line `NAME steps_per_second=...` for each, for bench/rl.py.

    env_steps.py [N] [SECONDS] [--threads T]

N instances get random actions that were drawn before, in the `gymnasium` interface of envpool. The figure is the best of five parts of
SECONDS of the process's time (all its threads), so that it is that of one core.
"""
import argparse
import time

import envpool
import numpy

NAMES = {"cartpole": "CartPole-v1", "acrobot": "Acrobot-v1", "mountain_car": "MountainCar-v0", "pendulum": "Pendulum-v1"}
PARTS, ROUNDS = 5, 64

parser = argparse.ArgumentParser()
parser.add_argument("n", nargs="?", type=int, default=1024)
parser.add_argument("seconds", nargs="?", type=float, default=1)
parser.add_argument("--threads", type=int, default=1)
args = parser.parse_args()

for name, task in NAMES.items():
    env = envpool.make(task, env_type="gymnasium", num_envs=args.n, num_threads=args.threads, seed=1)
    draws = numpy.random.default_rng(1)
    if name == "pendulum":
        actions = draws.uniform(-2, 2, (ROUNDS, args.n, 1)).astype(numpy.float32)
    else:
        actions = draws.integers(0, env.action_space.n, (ROUNDS, args.n)).astype(numpy.int32)
    env.reset()
    best = 0
    for _ in range(PARTS):
        start, steps = time.process_time(), 0
        while time.process_time() - start < args.seconds / PARTS:
            for i in range(ROUNDS):
                env.step(actions[i])
            steps += ROUNDS * args.n
        best = max(best, steps / (time.process_time() - start))
    print(f"{name} steps_per_second={best:.0f}", flush=True)
