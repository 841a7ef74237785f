#!/usr/bin/python3
"""Writes tests/golden/ops_golden.h: what PyTorch says of the operations, of a small CNN and of a short training.

    tests/golden/ops.py [FILE]          needs Debian's python3-torch

tests/unit/golden.c holds the engine against it. Inputs are rounded to two digits, so that they are short and the same in
every precision; results are PyTorch's, computed in double precision and rounded to float once. So the tolerance of the test
has to cover the engine's own rounding only.
"""
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

random = np.random.default_rng(2024)
torch.set_default_dtype(torch.float64)
out = []


def draw(*shape, scale=1.0):
    values = np.round(random.standard_normal(shape) * scale, 2)
    return torch.tensor(values, requires_grad=True)


def number(value):
    # The shortest text that gives the float back.
    text = np.format_float_positional(np.float32(value), trim="0", fractional=False)
    if len(text) > 14:
        text = np.format_float_scientific(np.float32(value))
    return text + "f"


def tensor(value):
    """A C initializer of struct golden."""
    value = value.detach()
    dims = ", ".join(str(d) for d in value.shape)
    numbers = ", ".join(number(v) for v in value.reshape(-1).tolist())
    return "{%d, {%s}, (const float[]){%s}}" % (value.dim(), dims, numbers)


def labels(value):
    return "(const int32_t[]){%s}" % ", ".join(str(v) for v in value.tolist())


def wrap(text, indent):
    lines, line = [], indent
    for word in text.split(" "):
        if len(line) + len(word) + 1 > 120 and line.strip():
            lines.append(line.rstrip())
            line = indent
        line += word + " "
    lines.append(line.rstrip())
    return "\n".join(lines)


def struct(name, fields):
    """fields: a list of (name, C text) of one case."""
    return "    {\n" + "\n".join(wrap(".%s = %s," % field, "        ") for field in fields) + "\n    },"


def table(name, declaration, cases):
    out.append("static const struct golden_%s {\n%s\n} golden_%s[] = {" % (name, declaration, name))
    out.extend(struct(name, case) for case in cases)
    out.append("};\n")


def gradients(y, *inputs):
    """dy, and what it gives for each input."""
    dy = draw(*y.shape)
    grads = torch.autograd.grad(y, inputs, dy)
    return [dy] + list(grads)


def conv2d(x_shape, w_shape, bias, stride, padding):
    x, w = draw(*x_shape), draw(*w_shape, scale=0.5)
    b = draw(w_shape[0]) if bias else None
    y = F.conv2d(x, w, b, stride, padding)
    inputs = [x, w] + ([b] if bias else [])
    dy, *grads = gradients(y, *inputs)
    fields = [("stride", str(stride)), ("padding", str(padding)), ("x", tensor(x)), ("weight", tensor(w)), ("y", tensor(y)),
              ("dy", tensor(dy)), ("dx", tensor(grads[0])), ("dweight", tensor(grads[1]))]
    if bias:
        fields += [("bias", tensor(b)), ("dbias", tensor(grads[2]))]
    return fields


def batch_norm(shape, train, relu):
    channels = shape[1]
    x, w, b = draw(*shape), draw(channels), draw(channels)
    mean, var = draw(channels).detach(), draw(channels).detach().abs() + 0.5
    mean_after, var_after = mean.clone(), var.clone()
    y = F.batch_norm(x, mean_after, var_after, w, b, training=train, momentum=0.1, eps=1e-5)
    if relu:
        y = torch.relu(y)
    dy, dx, dw, db = gradients(y, x, w, b)
    return [("train", "true" if train else "false"), ("relu", "true" if relu else "false"), ("x", tensor(x)),
            ("weight", tensor(w)), ("bias", tensor(b)), ("mean", tensor(mean)), ("var", tensor(var)), ("y", tensor(y)),
            ("dy", tensor(dy)), ("dx", tensor(dx)), ("dweight", tensor(dw)), ("dbias", tensor(db)),
            ("mean_after", tensor(mean_after)), ("var_after", tensor(var_after))]


def unary(function, *shape, digits=2):
    x = torch.tensor(np.round(draw(*shape).detach().numpy(), digits), requires_grad=True)
    y = function(x)
    dy, dx = gradients(y, x)
    return [("x", tensor(x)), ("y", tensor(y)), ("dy", tensor(dy)), ("dx", tensor(dx))]


def linear(rows, features, outputs, bias):
    x, w = draw(rows, features), draw(outputs, features, scale=0.5)
    b = draw(outputs) if bias else None
    y = F.linear(x, w, b)
    dy, *grads = gradients(y, *([x, w, b] if bias else [x, w]))
    fields = [("x", tensor(x)), ("weight", tensor(w)), ("y", tensor(y)), ("dy", tensor(dy)), ("dx", tensor(grads[0])),
              ("dweight", tensor(grads[1]))]
    if bias:
        fields += [("bias", tensor(b)), ("dbias", tensor(grads[2]))]
    return fields


def cross_entropy(rows, classes, scale):
    logits = draw(rows, classes, scale=scale)
    target = torch.tensor(random.integers(0, classes, rows))
    loss = F.cross_entropy(logits, target)
    (dlogits,) = torch.autograd.grad(loss, [logits])
    return [("logits", tensor(logits)), ("labels", labels(target)), ("loss", number(loss.item())),
            ("dlogits", tensor(dlogits))]


def cnn():
    """conv-bn-relu, conv-bn-relu, pool, flatten, linear-relu-linear: the MNIST CNN in small, without dropout."""
    x = draw(4, 1, 7, 6)
    target = torch.tensor(random.integers(0, 4, 4))
    p = {
        "conv1.weight": draw(3, 1, 3, 3, scale=0.4), "conv1.bias": draw(3, scale=0.2),
        "bn1.weight": draw(3), "bn1.bias": draw(3),
        "conv2.weight": draw(4, 3, 3, 3, scale=0.3), "conv2.bias": draw(4, scale=0.2),
        "bn2.weight": draw(4), "bn2.bias": draw(4),
        "fc1.weight": draw(8, 36, scale=0.2), "fc1.bias": draw(8, scale=0.2),
        "fc2.weight": draw(4, 8, scale=0.4), "fc2.bias": draw(4, scale=0.2),
    }
    running = {"bn1": (torch.zeros(3), torch.ones(3)), "bn2": (torch.zeros(4), torch.ones(4))}

    def block(h, conv, bn, train):
        h = F.conv2d(h, p[conv + ".weight"], p[conv + ".bias"], padding=1)
        return torch.relu(F.batch_norm(h, *running[bn], p[bn + ".weight"], p[bn + ".bias"], training=train))

    def loss(train):
        h = block(block(x, "conv1", "bn1", train), "conv2", "bn2", train)
        h = F.max_pool2d(h, 2).flatten(1)
        h = torch.relu(F.linear(h, p["fc1.weight"], p["fc1.bias"]))
        return F.cross_entropy(F.linear(h, p["fc2.weight"], p["fc2.bias"]), target)

    train_loss = loss(True)
    grads = torch.autograd.grad(train_loss, list(p.values()))
    flat = lambda values: torch.cat([v.detach().reshape(-1) for v in values])
    return [("x", tensor(x)), ("labels", labels(target)), ("params", tensor(flat(p.values()))),
            ("loss", number(train_loss.item())), ("grads", tensor(flat(grads))),
            ("buffers", tensor(flat([v for pair in running.values() for v in pair]))),
            ("eval_loss", number(loss(False).item()))]


def curve():
    """Five steps of AdamW on an MLP with tanh, another batch each step: the loss before each step."""
    steps, rows = 5, 6
    x = draw(steps, rows, 5)
    target = torch.tensor(random.integers(0, 3, (steps, rows)))
    p = [draw(8, 5, scale=0.5), draw(8, scale=0.1), draw(3, 8, scale=0.5), draw(3, scale=0.1)]
    start = torch.cat([v.detach().reshape(-1) for v in p]).clone()
    optim = torch.optim.AdamW(p, lr=0.05, weight_decay=0.1)
    losses = []
    for step in range(steps):
        loss = F.cross_entropy(F.linear(torch.tanh(F.linear(x[step], p[0], p[1])), p[2], p[3]), target[step])
        losses.append(loss.detach())
        optim.zero_grad()
        loss.backward()
        optim.step()
    end = torch.cat([v.detach().reshape(-1) for v in p])
    return [("x", tensor(x)), ("labels", labels(target.reshape(-1))), ("params", tensor(start)), ("lr", number(0.05)),
            ("weight_decay", number(0.1)), ("losses", tensor(torch.stack(losses))), ("params_after", tensor(end))]


out.append("""/* Written by tests/golden/ops.py with PyTorch %s; not to be edited. Read by tests/unit/golden.c. */
#ifndef EXO_TEST_OPS_GOLDEN_H
#define EXO_TEST_OPS_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tensor, row-major. No data: there is none in this case. */
struct golden {
    size_t num_dims;
    size_t dims[4];
    const float *data;
};
""" % torch.__version__.split("a")[0])

table("conv2d", "    size_t stride, padding;\n    struct golden x, weight, bias, y, dy, dx, dweight, dbias;", [
    conv2d((2, 1, 5, 6), (3, 1, 3, 3), True, 1, 1),
    conv2d((2, 3, 5, 4), (2, 3, 3, 3), False, 1, 0),
    conv2d((1, 2, 7, 7), (3, 2, 3, 3), True, 2, 1),
    conv2d((2, 2, 6, 5), (2, 2, 5, 4), True, 1, 2),
    conv2d((2, 3, 4, 4), (4, 3, 1, 1), False, 1, 0),
    conv2d((1, 2, 7, 6), (2, 2, 2, 3), False, 3, 0),
    conv2d((1, 17, 3, 3), (18, 17, 1, 2), True, 1, 0),
])
table("batch_norm", "    bool train, relu;\n"
      "    struct golden x, weight, bias, mean, var, y, dy, dx, dweight, dbias, mean_after, var_after;",
      [batch_norm(shape, train, relu) for shape in [(3, 2, 4, 3), (5, 4)] for train in [True, False] for relu in [False, True]])
table("relu", "    struct golden x, y, dy, dx;", [unary(torch.relu, 2, 3, 3, 2), unary(torch.relu, 4, 5)])
table("tanh", "    struct golden x, y, dy, dx;", [unary(torch.tanh, 3, 7)])
# One digit: equal maxima happen.
table("max_pool2d", "    size_t size;\n    struct golden x, y, dy, dx;", [
    [("size", str(size))] + unary(lambda x: F.max_pool2d(x, size), *shape, digits=1)
    for size, shape in [(2, (2, 2, 4, 6)), (2, (1, 3, 5, 7)), (3, (2, 1, 7, 6))]])
table("linear", "    struct golden x, weight, bias, y, dy, dx, dweight, dbias;", [linear(3, 5, 4, True), linear(7, 3, 2, False)])
table("cross_entropy", "    struct golden logits;\n    const int32_t *labels;\n    float loss;\n    struct golden dlogits;",
      [cross_entropy(4, 10, 1), cross_entropy(3, 5, 30)])
table("cnn", "    struct golden x;\n    const int32_t *labels;\n    struct golden params;\n    float loss, eval_loss;\n"
      "    struct golden grads, buffers;", [cnn()])
table("curve", "    struct golden x;\n    const int32_t *labels;\n    struct golden params;\n    float lr, weight_decay;\n"
      "    struct golden losses, params_after;", [curve()])
out.append("#endif")

path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "ops_golden.h")
with open(path, "w") as file:
    file.write("\n".join(out) + "\n")
