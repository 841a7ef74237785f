#!/usr/bin/env python3
"""Writes torchft_golden.h: histories of parameters that torchft recorded for streaming DiLoCo.

torchft's diloco_regression_test trains a model of two layers with one parameter each, in two replicas: parameters 1, gradients 2, inner
lr 1, outer lr 2 without momentum, sync_every 6, two fragments. Its fixtures have the parameters before each step.

    python3 tests/golden/torchft.py PATH/TO/torchft >tests/golden/torchft_golden.h
"""
import json
import pathlib
import sys

NAME = "torchft.diloco_regression_test.DiLoCoMockedUpdateTest.test_diloco_mocked_updates_%d.json"
CASES = [(0, 0), (0, 0.5), (0, 1), (1, 0), (1, 0.5), (1, 1)]  # fragment_sync_delay, fragment_update_alpha

folder = pathlib.Path(sys.argv[1]) / "test_fixtures"
print("/* Histories of parameters of torchft's streaming DiLoCo. Written by torchft.py. */")
print("#ifndef EXO_TORCHFT_GOLDEN_H\n#define EXO_TORCHFT_GOLDEN_H\n\n#include <stddef.h>\n")
print("static const struct {\n    int delay;\n    float alpha;\n    size_t steps;\n    float history[32][2]; /* before each step, of each layer */")
print("} torchft_cases[] = {")
for index, (delay, alpha) in enumerate(CASES):
    replicas = json.load(open(folder / (NAME % index)))
    histories = [replica[0]["history"] for replica in replicas]
    assert all(history == histories[0] for history in histories), "the replicas are equal"
    steps = [histories[0][str(step)] for step in range(len(histories[0]))]
    values = ["{%r, %r}" % tuple(step["layers.%d.weight" % layer][0][0] for layer in (0, 1)) for step in steps]
    print("    {%d, %s, %d,\n     {%s}}," % (delay, "%.1ff" % alpha, len(steps), ", ".join(v.replace("}", "f}").replace(",", "f,") for v in values)))
print("};\n\n#endif")
