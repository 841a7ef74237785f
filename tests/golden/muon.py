#!/usr/bin/env python3
"""Writes muon_golden.h: what Muon makes of a few matrices, for tests/unit/muon.c.

The rule is that of torch.optim.Muon, written out in double precision. torch_muon.py has PyTorch's own numbers.
Needs nothing but Python:  python3 tests/golden/muon.py > tests/golden/muon_golden.h
"""
import math
import random
import struct

STEPS = 3
MOST = 144  # elements of the largest matrix

# rows, columns, options that differ from the defaults
CASES = [
    (12, 8, {}),
    (8, 12, {}),
    (9, 9, {"nesterov": False}),
    (3, 20, {"adjust_lr_fn": "match_rms_adamw"}),
    (20, 3, {"adjust_lr_fn": "match_rms_adamw", "lr": 0.02, "weight_decay": 0.5}),
    (20, 3, {"lr": 0.02, "weight_decay": 0.0, "momentum": 0.5}),
    (1, 6, {"momentum": 0.0}),
    (6, 1, {}),
    (12, 12, {"ns_steps": 3, "ns_coefficients": (2.0, -1.5, 0.5), "eps": 1.0}),
]
DEFAULTS = {"lr": 1e-3, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True, "ns_coefficients": (3.4445, -4.775, 2.0315),
            "ns_steps": 5, "eps": 1e-7, "adjust_lr_fn": "original"}


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def transposed(a):
    return [list(row) for row in zip(*a)]


def combined(terms):
    """The sum of factor * matrix over the (factor, matrix) in terms."""
    rows, cols = len(terms[0][1]), len(terms[0][1][0])
    return [[sum(f * m[i][j] for f, m in terms) for j in range(cols)] for i in range(rows)]


def newton_schulz(x, coefficients, steps, eps):
    tall = len(x) > len(x[0])
    x = transposed(x) if tall else x
    norm = max(math.sqrt(sum(v * v for row in x for v in row)), eps)
    x = [[v / norm for v in row] for row in x]
    a, b, c = coefficients
    for _ in range(steps):
        gram = product(x, transposed(x))
        update = combined([(b, gram), (c, product(gram, gram))])
        x = combined([(a, x), (1.0, product(update, x))])
    return transposed(x) if tall else x


def train(rows, cols, options, start, grads):
    """The matrix after the first and after the last step."""
    o = {**DEFAULTS, **options}
    shape = lambda flat: [flat[r * cols : (r + 1) * cols] for r in range(rows)]
    param, buffer = shape(start), shape([0.0] * (rows * cols))
    ratio = math.sqrt(max(1.0, rows / cols)) if o["adjust_lr_fn"] == "original" else 0.2 * math.sqrt(max(rows, cols))
    results = []
    for flat in grads:
        grad = shape(flat)
        buffer = combined([(o["momentum"], buffer), (1 - o["momentum"], grad)])
        update = combined([(1 - o["momentum"], grad), (o["momentum"], buffer)]) if o["nesterov"] else buffer
        update = newton_schulz(update, o["ns_coefficients"], o["ns_steps"], o["eps"])
        param = combined([(1 - o["lr"] * o["weight_decay"], param), (-o["lr"] * ratio, update)])
        results.append([v for row in param for v in row])
    return results[0], results[-1]


def yaml(value):
    if isinstance(value, bool):
        return str(value).lower()
    return "[" + ", ".join(map(repr, value)) + "]" if isinstance(value, tuple) else str(value)


def rows_of(name, table):
    print(f"static const float {name} = {{")
    for row in table:
        numbers = [f"{single(value):.9g}" for value in row]
        numbers = [n + ("f" if any(c in n for c in ".en") else ".0f") for n in numbers]
        print("    {" + ", ".join(numbers) + "},")
    print("};\n")


draw = random.Random(1)
start = [single(draw.gauss(0, 1)) for _ in range(MOST)]
grads = [[single(draw.gauss(0, 1) * 10 ** draw.uniform(-2, 1)) for _ in range(MOST)] for _ in range(STEPS)]

print("/* Made by tests/golden/muon.py; not edited by hand. */")
print("#ifndef MUON_GOLDEN_H\n#define MUON_GOLDEN_H\n\n#include <stddef.h>\n\n/* clang-format off */")
print(f"enum {{ MUON_MOST = {MOST}, MUON_STEPS = {STEPS}, MUON_CASES = {len(CASES)} }};\n")
print("/* A matrix of the first rows * cols numbers, and its options as a config has them. */")
print("static const struct { size_t rows, cols; const char *options; } muon_cases[MUON_CASES] = {")
for rows, cols, options in CASES:
    text = ", ".join(["name: muon"] + [f"{key}: {yaml(value)}" for key, value in options.items()])
    print(f'    {{{rows}, {cols}, "{{{text}}}"}},')
print("};\n")
rows_of("muon_start[1][MUON_MOST]", [start])
rows_of("muon_grads[MUON_STEPS][MUON_MOST]", grads)
print("/* Matrices after the first and the last step of each case. */")
results = []
for rows, cols, options in CASES:
    results += train(rows, cols, options, start[: rows * cols], [g[: rows * cols] for g in grads])
rows_of("muon_params[2 * MUON_CASES][MUON_MOST]", results)
print("/* clang-format on */\n#endif")
