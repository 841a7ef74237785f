#!/usr/bin/env python3
"""Writes demo_golden.h: what DeMo makes of the nodes of nodes.py, for tests/equiv/gradients.c.

This is the update of https://github.com/bloc97/DeMo (demo.py), written out in double with the DCT of SciPy: each matrix in
chunks whose sides are the largest divisors up to `chunk`, the k coefficients of largest magnitude, and for each coefficient
the mean over the nodes that sent it. Made with SciPy 1.x:
    pip install numpy scipy && python3 tests/golden/demo.py > tests/golden/demo_golden.h
"""
import numpy
import scipy.fft

import nodes

STEPS = 50
# k, chunk, beta, weight decay, lr; those of tests/equiv/gradients.c
CASES = [(5, 9, 0.95, 0.1, 0.01), (32, 64, 0.999, 0.0, 0.02), (2, 6, 0.9, 0.0, 0.01)]


def side(length, most):
    return max(d for d in range(1, min(length, most) + 1) if length % d == 0)


def encode(x, chunk):
    """Coefficients (chunks, elements of a chunk)."""
    if x.ndim == 1:
        return scipy.fft.dct(x.reshape(-1, side(len(x), chunk)), norm="ortho")
    h, w = side(x.shape[0], chunk), side(x.shape[1], chunk)
    blocks = x.reshape(x.shape[0] // h, h, x.shape[1] // w, w).transpose(0, 2, 1, 3)
    return scipy.fft.dctn(blocks, axes=(2, 3), norm="ortho").reshape(-1, h * w)


def decode(c, shape, chunk):
    if len(shape) == 1:
        return scipy.fft.idct(c, norm="ortho").reshape(shape)
    h, w = side(shape[0], chunk), side(shape[1], chunk)
    blocks = scipy.fft.idctn(c.reshape(shape[0] // h, shape[1] // w, h, w), axes=(2, 3), norm="ortho")
    return blocks.transpose(0, 2, 1, 3).reshape(shape)


def largest(c, k):
    """Which of the coefficients are sent."""
    sent = numpy.zeros(c.shape, dtype=bool)
    numpy.put_along_axis(sent, numpy.argsort(-numpy.abs(c), axis=1, kind="stable")[:, :k], True, axis=1)
    return sent


def train(k, chunk, beta, decay, lr):
    params = nodes.initial()
    delta = [[numpy.zeros(shape) for shape in nodes.SHAPES] for _ in range(nodes.NODES)]
    for step in range(STEPS):
        single = params.astype(numpy.float32).astype(numpy.float64)  # the nodes compute gradients of fp32
        grads = [nodes.cut(nodes.gradient(single, node, step)) for node in range(nodes.NODES)]
        update = []
        for i, shape in enumerate(nodes.SHAPES):
            values, counts = 0, 0
            for node in range(nodes.NODES):
                delta[node][i] = beta * delta[node][i] + lr * grads[node][i]
                c = encode(delta[node][i], chunk)
                sent = largest(c, k)
                delta[node][i] -= decode(numpy.where(sent, c, 0), shape, chunk)
                values, counts = values + numpy.where(sent, c, 0), counts + sent
            mean = values / numpy.maximum(counts, 1)
            update.append(numpy.sign(decode(mean, shape, chunk)).reshape(-1))
        params = params * (1 - lr * decay) - lr * numpy.concatenate(update)
    return params


nodes.write("demo", {f"case_{i}": train(*case) for i, case in enumerate(CASES)}, {"STEPS": STEPS}, "demo.py")
