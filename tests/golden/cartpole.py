#!/usr/bin/python3
"""Writes tests/golden/cartpole_golden.h: what Gymnasium's CartPole-v1 does, step by step and through whole episodes.

    tests/golden/cartpole.py [FILE]          needs gymnasium (pip install gymnasium)

tests/unit/cartpole.c holds actors/cartpole.c against it. Numbers are written in hexadecimal: to the bit.
"""
import os
import sys

import gymnasium
import numpy as np

random = np.random.default_rng(2024)
out = []


def numbers(values):
    return "{%s}" % ", ".join(float(v).hex() for v in values)


def begin(state):
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)
    env.unwrapped.state = np.array(state, dtype=np.float64)
    return env


def end(terminated, truncated):
    return 1 if terminated else 2 if truncated else 0


# Single steps, from states within and near the limits.
out.append(
    "static const struct golden_step {\n"
    "    double before[4];\n    int action;\n    double after[4];\n    int end;\n} golden_steps[] = {"
)
for i in range(40):
    scale = np.array([2.4, 2.0, 0.2094, 2.0]) * (1.0 if i % 2 else 0.3)
    before = random.uniform(-1, 1, 4) * scale
    action = int(random.integers(2))
    env = begin(before)
    _, reward, terminated, truncated, _ = env.step(action)
    assert reward == 1.0
    out.append("    {%s,\n     %d,\n     %s,\n     %d}," % (
        numbers(before), action, numbers(env.unwrapped.state), end(terminated, truncated)))
out.append("};\n")

# Episodes under the rule "push right if a theta + b theta_dot + c x + d x_dot > 0": one that lasts,
# others that do not.
out.append(
    "static const struct golden_episode {\n"
    "    double start[4], rule[4];\n    uint32_t length;\n    int end;\n    double last[4];\n"
    "} golden_episodes[] = {"
)
for rule in [(1, 0.5, 0.05, 0.1), (1, 0, 0, 0), (0, 1, 0, 0), (1, 1, 0, 0), (-1, 0, 0, 0), (1, 0.5, 0.5, 1)]:
    start = random.uniform(-0.05, 0.05, 4)
    env = begin(start)
    length, terminated, truncated = 0, False, False
    while not (terminated or truncated):
        x, x_dot, theta, theta_dot = env.unwrapped.state
        a, b, c, d = rule
        _, _, terminated, truncated, _ = env.step(int(a * theta + b * theta_dot + c * x + d * x_dot > 0))
        length += 1
    out.append("    {%s,\n     %s,\n     %d, %d,\n     %s}," % (
        numbers(start), numbers(rule), length, end(terminated, truncated), numbers(env.unwrapped.state)))
out.append("};\n")

target = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "cartpole_golden.h")
with open(target, "w") as file:
    file.write("/* Written by tests/golden/cartpole.py with Gymnasium %s; not to be edited. Read by tests/unit/cartpole.c. */\n"
               % gymnasium.__version__)
    file.write("#ifndef EXO_TEST_CARTPOLE_GOLDEN_H\n#define EXO_TEST_CARTPOLE_GOLDEN_H\n\n#include <stdint.h>\n\n")
    file.write("\n".join(out))
    file.write("\n#endif\n")
