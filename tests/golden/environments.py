#!/usr/bin/python3
"""Writes tests/golden/environments_golden.h: trajectories of Gymnasium's Acrobot-v1, MountainCar-v0 and Pendulum-v1.

    tests/golden/environments.py [FILE]          needs gymnasium (pip install gymnasium)

tests/unit/environments.c holds environments/ against it. Numbers are written in hexadecimal: to the bit. tests/golden/cartpole.py does the
same for CartPole-v1.
"""
import os
import sys

import gymnasium
import numpy as np

random = np.random.default_rng(2025)
out = []


def numbers(values):
    return "{%s}" % ", ".join(float(v).hex() for v in values)


def trajectory(name, start, actions):
    """Steps from a state; an action is a choice, or the only number of a continuous action."""
    env = gymnasium.make(name)
    env.reset(seed=0)
    env.unwrapped.state = np.array(start, dtype=np.float64)
    rows = []
    for action in actions:
        given = int(action) if name != "Pendulum-v1" else np.array([action], dtype=np.float64)
        observation, reward, terminated, truncated, _ = env.step(given)
        rows.append("        {%s, %s,\n         %s,\n         %s, %d}," % (
            float(action).hex(), numbers(env.unwrapped.state), numbers(observation), float(reward).hex(),
            1 if terminated else 2 if truncated else 0))
        if terminated or truncated:
            break
    out.append("    {\"%s\", %s, %d, {\n%s\n    }}," % (name, numbers(start), len(rows), "\n".join(rows)))


def swing(start, steps):
    """Actions that push the Acrobot's second link in the direction in which it turns."""
    env = gymnasium.make("Acrobot-v1")
    env.reset(seed=0)
    env.unwrapped.state = np.array(start, dtype=np.float64)
    actions = []
    for _ in range(steps):
        actions.append(2 if env.unwrapped.state[3] > 0 else 0)
        env.step(actions[-1])
    return actions


def rock(start, steps):
    """Actions that push the car in the direction in which it rolls."""
    env = gymnasium.make("MountainCar-v0")
    env.reset(seed=0)
    env.unwrapped.state = np.array(start, dtype=np.float64)
    actions = []
    for _ in range(steps):
        actions.append(2 if env.unwrapped.state[1] > 0 else 0)
        env.step(actions[-1])
    return actions


trajectory("Acrobot-v1", random.uniform(-0.1, 0.1, 4), random.integers(3, size=40))
trajectory("Acrobot-v1", [0.05, -0.02, 0, 0.01], swing([0.05, -0.02, 0, 0.01], 100))
trajectory("Acrobot-v1", [3, -3, 12, -28], random.integers(3, size=10))  # near the limits
trajectory("MountainCar-v0", [-0.5, 0], random.integers(3, size=40))
trajectory("MountainCar-v0", [-0.45, 0], rock([-0.45, 0], 199))
trajectory("MountainCar-v0", [-1.15, -0.065], [0] * 5)  # against the wall
trajectory("Pendulum-v1", [3, 0.5], np.float32(random.uniform(-3, 3, 40)))
trajectory("Pendulum-v1", [-40, 7.9], [2.0] * 10)

target = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "environments_golden.h")
with open(target, "w") as file:
    file.write("/* Written by tests/golden/environments.py with Gymnasium %s; not to be edited. Read by tests/unit/environments.c. */\n"
               % gymnasium.__version__)
    file.write("#ifndef EXO_TEST_ENVIRONMENTS_GOLDEN_H\n#define EXO_TEST_ENVIRONMENTS_GOLDEN_H\n\n#include <stddef.h>\n\n")
    file.write("static const struct golden_trajectory {\n    const char *name;\n    double start[4];\n    size_t steps;\n"
               "    struct {\n        double action, state[4], observation[6], reward;\n        int end;\n    } step[200];\n"
               "} golden_trajectories[] = {\n")
    file.write("\n".join(out))
    file.write("\n};\n\n#endif\n")
