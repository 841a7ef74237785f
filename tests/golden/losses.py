#!/usr/bin/python3
"""Writes tests/golden/losses_golden.h: losses and their gradients by the formulas of the papers, in Python's double precision.

    tests/golden/losses.py [FILE]          needs Python alone

tests/unit/losses.c holds include/exogym/loss.h against it. Gradients are those of dual numbers (forward mode), so no derivative is written here.
Inputs are rounded to two digits; results are rounded to float once, and the test's tolerance covers the library's own rounding.
"""
import math
import os
import random
import struct
import sys

random.seed(2024)
out = []


class Dual:
    """A number and its derivatives by every input: {input: derivative}."""

    def __init__(self, value, by=None):
        self.value, self.by = value, by or {}

    @staticmethod
    def of(x):
        return x if isinstance(x, Dual) else Dual(float(x))

    def mix(self, other, value, mine, others):
        by = {k: mine * v for k, v in self.by.items()}
        for k, v in other.by.items():
            by[k] = by.get(k, 0.0) + others * v
        return Dual(value, by)

    def __add__(self, other):
        other = Dual.of(other)
        return self.mix(other, self.value + other.value, 1.0, 1.0)

    def __sub__(self, other):
        other = Dual.of(other)
        return self.mix(other, self.value - other.value, 1.0, -1.0)

    def __mul__(self, other):
        other = Dual.of(other)
        return self.mix(other, self.value * other.value, other.value, self.value)

    def __truediv__(self, other):
        other = Dual.of(other)
        return self.mix(other, self.value / other.value, 1 / other.value, -self.value / other.value ** 2)

    def __neg__(self):
        return self * -1.0

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other):
        return -(self - other)

    def __rtruediv__(self, other):
        return Dual.of(other) / self


def exp(x):
    e = math.exp(x.value)
    return Dual(e, {k: e * v for k, v in x.by.items()})


def log(x):
    return Dual(math.log(x.value), {k: v / x.value for k, v in x.by.items()})


def larger(a, b):
    return a if Dual.of(a).value >= Dual.of(b).value else b


def clip(x, low, high):
    return Dual.of(low) if x.value < low else Dual.of(high) if x.value > high else x


# --- Formulas
# ----------------------------------------------------------------------------------------------------------------


def log_softmax(row, temperature=1.0):
    scaled = [x / temperature for x in row]
    total = log(sum((exp(x) for x in scaled), Dual(0.0)))
    return [x - total for x in scaled]


def mean(terms, mask=None):
    mask = mask or [1.0] * len(terms)
    return sum((t * m for t, m in zip(terms, mask) if m != 0), Dual(0.0)) / sum(mask)


def cross_entropy(logits, targets):
    return mean([-log_softmax(row)[t] for row, t in zip(logits, targets) if t >= 0])


def entropy(row, temperature):
    log_p = log_softmax(row, temperature)
    return -sum((exp(x) * x for x in log_p), Dual(0.0))


def policy_loss(log_probs, old, advantages, mask, eps):
    terms = []
    for new, before, advantage in zip(log_probs, old, advantages):
        ratio = exp(new - before)
        terms.append(larger(-(ratio * advantage), -(clip(ratio, 1 - eps, 1 + eps) * advantage)))
    return mean(terms, mask)


def value_loss(values, old, returns, mask, eps):
    terms = []
    for value, before, target in zip(values, old, returns):
        plain = (value - target) * (value - target)
        near = before + clip(value - before, -eps, eps)
        terms.append(0.5 * (larger(plain, (near - target) * (near - target)) if eps > 0 else plain))
    return mean(terms, mask)


def ranking_loss(scores):
    return mean([-log(1.0 / (1.0 + exp(rejected - chosen))) for chosen, rejected in zip(scores[::2], scores[1::2])])


# --- Numbers
# -----------------------------------------------------------------------------------------------------------------


def draw(count, scale=1.0):
    return [round(random.gauss(0, scale), 2) for _ in range(count)]


def variables(values):
    return [Dual(v, {i: 1.0}) for i, v in enumerate(values)]


def rows_of(flat, columns):
    return [flat[i:i + columns] for i in range(0, len(flat), columns)]


def gradient(y, count):
    return [y.by.get(i, 0.0) for i in range(count)]


def single(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def number(value):
    """The shortest text that gives the float back."""
    value = single(value)
    text = [t for t in ("%.*g" % (digits, value) for digits in range(1, 10)) if single(float(t)) == value][0]
    return (text if any(c in text for c in ".en") else text + ".0") + "f"


def floats(values):
    return "(const float[]){%s}" % ", ".join(map(number, values)) if values is not None else "NULL"


def ints(values):
    return "(const int32_t[]){%s}" % ", ".join(map(str, values))


def wrap(text):
    lines, line = [], "        "
    for word in text.split(" "):
        if len(line) + len(word) > 118 and line.strip():
            lines.append(line.rstrip())
            line = "        "
        line += word + " "
    return "\n".join(lines + [line.rstrip()])


def table(name, declaration, cases):
    out.append("static const struct golden_%s {\n%s\n} golden_%s[] = {" % (name, declaration, name))
    for case in cases:
        out.append("    {\n" + "\n".join(wrap(".%s = %s," % field) for field in case) + "\n    },")
    out.append("};\n")


# --- Cases
# -------------------------------------------------------------------------------------------------------------------


def case_of_rows(rows, columns, temperature, scale):
    x, targets = draw(rows * columns, scale), [random.randrange(columns) for _ in range(rows)]
    targets[1] = targets[rows - 1] = -1
    logits, dy = rows_of(variables(x), columns), draw(rows)
    loss = cross_entropy(logits, targets)
    picked = [log_softmax(row, temperature)[t] if t >= 0 else Dual(0.0) for row, t in zip(logits, targets)]
    entropies = [entropy(row, temperature) for row in logits]
    by_picked = sum((p * d for p, d in zip(picked, dy)), Dual(0.0))
    by_entropy = sum((e * d for e, d in zip(entropies, dy)), Dual(0.0))
    n = rows * columns
    return [("rows", str(rows)), ("columns", str(columns)), ("temperature", number(temperature)), ("x", floats(x)),
            ("targets", ints(targets)), ("dy", floats(dy)), ("loss", number(loss.value)), ("dloss", floats(gradient(loss, n))),
            ("log_probs", floats([p.value for p in picked])), ("dlog_probs", floats(gradient(by_picked, n))),
            ("entropy", floats([e.value for e in entropies])), ("dentropy", floats(gradient(by_entropy, n)))]


def case_of_policy(count, eps, masked):
    old, advantages = [-abs(v) for v in draw(count)], draw(count)
    new = [round(o + d, 2) for o, d in zip(old, draw(count, 0.4))]
    mask = [float(random.randrange(3)) / 2 for _ in range(count)] if masked else None
    loss = policy_loss(variables(new), old, advantages, mask, eps)
    return [("count", str(count)), ("clip", number(eps)), ("x", floats(new)), ("old", floats(old)), ("with", floats(advantages)),
            ("mask", floats(mask)), ("loss", number(loss.value)), ("dx", floats(gradient(loss, count)))]


def case_of_value(count, eps, masked):
    old, returns = draw(count), draw(count, 1.5)
    new = [round(o + d, 2) for o, d in zip(old, draw(count, 0.5))]
    mask = [float(random.randrange(2)) for _ in range(count)] if masked else None
    loss = value_loss(variables(new), old, returns, mask, eps)
    return [("count", str(count)), ("clip", number(eps)), ("x", floats(new)), ("old", floats(old)), ("with", floats(returns)),
            ("mask", floats(mask)), ("loss", number(loss.value)), ("dx", floats(gradient(loss, count)))]


def case_of_ranking(pairs, scale):
    scores = draw(2 * pairs, scale)
    loss = ranking_loss(variables(scores))
    return [("count", str(2 * pairs)), ("x", floats(scores)), ("loss", number(loss.value)), ("dx", floats(gradient(loss, 2 * pairs)))]


out.append("""/* Written by tests/golden/losses.py; not to be edited. Read by tests/unit/losses.c. */
#ifndef EXO_TEST_LOSSES_GOLDEN_H
#define EXO_TEST_LOSSES_GOLDEN_H

#include <stddef.h>
#include <stdint.h>
""")
table("rows", "    size_t rows, columns;\n    float temperature;\n    const float *x;\n    const int32_t *targets;\n    const float *dy;\n"
      "    float loss;\n    const float *dloss, *log_probs, *dlog_probs, *entropy, *dentropy;",
      [case_of_rows(5, 2, 1.0, 1.0), case_of_rows(6, 5, 0.7, 2.0), case_of_rows(4, 7, 1.5, 8.0)])
terms = "    size_t count;\n    float clip;\n    const float *x, *old, *with, *mask;\n    float loss;\n    const float *dx;"
table("policy", terms, [case_of_policy(16, 0.2, False), case_of_policy(16, 0.1, True)])
table("value", terms, [case_of_value(12, 0.0, False), case_of_value(16, 0.4, True), case_of_value(16, 0.2, False)])
table("ranking", "    size_t count;\n    const float *x;\n    float loss;\n    const float *dx;",
      [case_of_ranking(1, 1.0), case_of_ranking(7, 2.0), case_of_ranking(3, 30.0)])
out.append("#endif")

path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "losses_golden.h")
with open(path, "w") as file:
    file.write("\n".join(out) + "\n")
