#!/usr/bin/env python3
"""Writes tests/golden/lunar_lander_golden.h: episodes of Gymnasium's LunarLander-v3.

    tests/golden/lunar_lander.py [FILE]          needs gymnasium[box2d] (pip install 'gymnasium[box2d]')

tests/unit/lunar_lander.c holds environments/box2d against it, from the same landscape, first force and noise of the engines, which the
script takes down as Gymnasium draws them. Each episode has its actions, and the observation and reward of each step.
"""
import os
import sys

import gymnasium
import numpy as np
from gymnasium.envs.box2d.lunar_lander import heuristic

STEPS = 400


class Recorder:
    """Gymnasium's generator, which remembers the numbers that it gave."""

    def __init__(self, generator):
        self.generator, self.drawn = generator, []

    def uniform(self, low, high, size=None):
        values = self.generator.uniform(low, high, size)
        self.drawn.extend(np.atleast_1d(values).tolist())
        return values

    def integers(self, low, high):
        value = self.generator.integers(low, high)
        self.drawn.append(float(value))
        return value


def numbers(values, digits=9):
    return "{%s}" % ", ".join("%.*g" % (digits, float(v)) for v in values)


def episode(kind, seed, **options):
    env = gymnasium.make("LunarLander-v3", **options)
    env.reset(seed=seed)
    inner = env.unwrapped
    inner._np_random = Recorder(inner._np_random)
    observation, _ = inner.reset()
    recorder, wind = inner._np_random, options.get("enable_wind", False)
    drawn = recorder.drawn
    start = {"heights": drawn[:12], "force": drawn[12:14], "wind": drawn[14:16] if wind else [0, 0], "first": drawn[-2:]}
    chance = np.random.default_rng(seed)
    rows = ["        {{0, 0}, %s, %s, 0, 0}," % (numbers(start["first"]), numbers(observation))]
    for step in range(STEPS):
        recorder.drawn = []
        if kind == "random":
            action = chance.uniform(-1, 1, 2) if options.get("continuous") else chance.integers(4)
        elif kind == "heuristic":
            action = heuristic(inner, observation)
        else:
            action = 0
        action = np.asarray(action, dtype=np.float32) if options.get("continuous") else int(action)
        observation, reward, terminated, _, _ = inner.step(action)
        rows.append("        {%s, %s, %s, %.9g, %d}," % (
            numbers(action) if options.get("continuous") else "{%d, 0}" % action, numbers(recorder.drawn[-2:]), numbers(observation),
            reward, terminated))
        if terminated:
            break
    print(kind, seed, options, len(rows) - 1, "steps, ends", bool(terminated))
    flags = "%d, %d" % (options.get("continuous", False), wind)
    return "    {\"%s %d\", %s, %s, %s, %s, %d, {\n%s\n    }}," % (
        kind, seed, flags, numbers(start["heights"], 17), numbers(start["force"], 17), numbers(start["wind"]), len(rows), "\n".join(rows))


out = [episode("heuristic", 1), episode("heuristic", 5), episode("random", 2), episode("fall", 3), episode("heuristic", 4, continuous=True),
       episode("random", 6, enable_wind=True)]
target = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "lunar_lander_golden.h")
with open(target, "w") as file:
    file.write("/* Written by tests/golden/lunar_lander.py with Gymnasium %s; not to be edited. Read by tests/unit/lunar_lander.c. */\n"
               % gymnasium.__version__)
    file.write("#ifndef EXO_TEST_LUNAR_LANDER_GOLDEN_H\n#define EXO_TEST_LUNAR_LANDER_GOLDEN_H\n\n#include <stddef.h>\n\n")
    file.write("static const struct golden_landing {\n    const char *name;\n    int continuous, wind;\n    double heights[12], force[2], phases[2];\n"
               "    size_t rows; /* the first is the beginning */\n    struct {\n        double action[2];\n"
               "        double noise[2], observation[8], reward;\n        int end;\n    } row[%d];\n} golden_landings[] = {\n" % (STEPS + 1))
    file.write("\n".join(out))
    file.write("\n};\n\n#endif\n")
