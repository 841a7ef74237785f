"""The nodes of tests/support/nodes.c in Python, for scripts that train them with the code of others: the same random numbers
(Philox4x32-10), initial parameters, shapes and gradients. Needs numpy.
"""
import numpy

SEED = 11
INIT, FACTORS, SAMPLES = 1, 10, 128  # purposes of random numbers, include/exogym/rng.h
SHAPES = [(12, 8), (7,), (5, 14), (6, 18), (10,)]  # the weight (6, 3, 3, 2) of a convolution as a matrix
NUMEL = sum(int(numpy.prod(shape)) for shape in SHAPES)
NODES, BATCH = 4, 3


def words(count, purpose, step):
    """The first `count` numbers of 32 bits of a stream."""
    blocks = (count + 3) // 4
    mask = numpy.uint64(0xFFFFFFFF)
    c = [numpy.arange(blocks, dtype=numpy.uint64)] + [numpy.full(blocks, v, dtype=numpy.uint64) for v in
                                                       (purpose << 24, step & 0xFFFFFFFF, step >> 32)]
    k0, k1 = SEED, 0
    for _ in range(10):
        p0, p1 = c[0] * numpy.uint64(0xD2511F53), c[2] * numpy.uint64(0xCD9E8D57)
        c = [(p1 >> numpy.uint64(32)) ^ c[1] ^ numpy.uint64(k0), p1 & mask,
             (p0 >> numpy.uint64(32)) ^ c[3] ^ numpy.uint64(k1), p0 & mask]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return numpy.stack(c, axis=1).reshape(-1)[:count]


def uniform(count, purpose, step):
    return (words(count, purpose, step) >> numpy.uint64(8)).astype(numpy.float64) / 2**24


def normal(count, purpose, step):
    """Box-Muller; one number of each pair is used."""
    u = uniform(2 * count, purpose, step)
    return numpy.sqrt(-2 * numpy.log(1 - u[0::2])) * numpy.cos(2 * numpy.pi * u[1::2])


def initial():
    return 2 * uniform(NUMEL, INIT, 0) - 1


def gradient(params, node, step):
    """The mean gradient of the batch of `node` at the flat parameters, in double."""
    total = numpy.zeros(NUMEL)
    for k in range(BATCH):
        u = uniform(2 * NUMEL, SAMPLES, (step * NODES + node) * BATCH + k)
        total += (0.5 + u[0::2]) * numpy.tanh(params - (4 * u[1::2] - 2))
    return total / BATCH


def cut(flat):
    """The flat numbers as arrays of the shapes."""
    ends = numpy.cumsum([int(numpy.prod(shape)) for shape in SHAPES])[:-1]
    return [part.reshape(shape) for part, shape in zip(numpy.split(numpy.asarray(flat), ends), SHAPES)]


def write(name, arrays, constants, script):
    """Prints a header with `arrays`, a mapping of names to flat numbers."""
    upper = name.upper()
    print(f"/* Made by tests/golden/{script}; not edited by hand. */")
    print(f"#ifndef {upper}_GOLDEN_H\n#define {upper}_GOLDEN_H\n\n/* clang-format off */")
    print(f"enum {{ {', '.join(f'{upper}_{key} = {value}' for key, value in constants.items())} }};")
    for key, numbers in arrays.items():
        print(f"\nstatic const float {name}_{key}[{len(numbers)}] = {{")
        text = [f"{float(numpy.float32(x)):.9g}" for x in numbers]
        text = [t + ("f" if any(c in t for c in ".en") else ".0f") for t in text]
        for i in range(0, len(text), 10):
            print("    " + ", ".join(text[i:i + 10]) + ",")
        print("};")
    print("\n/* clang-format on */\n#endif")
