#!/usr/bin/env bash
# Jobs against the rules of docs/strategies.md, written down a second time in Python without the engine: the order of the
# data, the steps, the rounds, and what the files say of them. Weights, losses and bytes have to agree.
. "${EXO_SOURCE:?: run this with ctest}/tests/cli/common.bash"

cat >rules.py <<'PYTHON'
import csv, json, math, random, struct, subprocess, sys

SEED, NODES, STEPS, BATCH, RATE, IN, HIDDEN, OUT = 2**33 + 5, 3, 14, 4, 0.2, 4, 5, 3
SHUFFLE, SELECT, ISLAND, EVAL = 2, 5, 6, 7  # purposes of random numbers, include/exogym/rng.h


def philox(purpose, node, step):
    """Philox4x32-10: the numbers of a stream."""
    block = 0
    while True:
        c, k = [block, purpose << 24 | node, step, 0], [SEED & 0xFFFFFFFF, SEED >> 32]
        for _ in range(10):
            a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [b >> 32 ^ c[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ c[3] ^ k[1], a & 0xFFFFFFFF]
            k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
        yield from c
        block += 1


def permutation(n, purpose, step, node=0):
    """Fisher-Yates; of small n no draw is rejected, but for one in some millions."""
    numbers, order = philox(purpose, node, step), list(range(n))
    for i in range(n, 1, -1):
        j = next(numbers) * i >> 32
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


def write_data(half, count):
    draw = random.Random(half)
    pixels = [[draw.randrange(256) for _ in range(IN)] for _ in range(count)]
    labels = [max(range(OUT), key=lambda c: x[c] + x[3] * c / 2) for x in pixels]
    with open(f"{half}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">4B3I", 0, 0, 8, 3, count, 2, 2) + bytes(sum(pixels, [])))
    with open(f"{half}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">4BI", 0, 0, 8, 1, count) + bytes(labels))
    return [([(p / 255 - 0.1307) / 0.3081 for p in x], y) for x, y in zip(pixels, labels)]


W1, B1, W2, B2 = 0, IN * HIDDEN, (IN + 1) * HIDDEN, (IN + 1 + OUT) * HIDDEN
NUMEL = B2 + OUT


def learn(w, samples):
    """The mean loss of the samples and its gradient."""
    loss, g = 0, [0] * NUMEL
    for x, y in samples:
        h = [max(0, w[B1 + i] + sum(w[W1 + i * IN + k] * x[k] for k in range(IN))) for i in range(HIDDEN)]
        z = [w[B2 + o] + sum(w[W2 + o * HIDDEN + i] * h[i] for i in range(HIDDEN)) for o in range(OUT)]
        total = sum(math.exp(v) for v in z)
        loss += (math.log(total) - z[y]) / len(samples)
        d = [(math.exp(v) / total - (o == y)) / len(samples) for o, v in enumerate(z)]
        for o in range(OUT):
            g[B2 + o] += d[o]
            for i in range(HIDDEN):
                g[W2 + o * HIDDEN + i] += d[o] * h[i]
        for i in range(HIDDEN):
            back = sum(d[o] * w[W2 + o * HIDDEN + i] for o in range(OUT)) if h[i] > 0 else 0
            g[B1 + i] += back
            for k in range(IN):
                g[W1 + i * IN + k] += back * x[k]
    return loss, g


def mean(vectors):
    return [sum(v) / len(vectors) for v in zip(*vectors)]


def batch(node, step):
    """Node r has every third sample of the epoch's order, from r on; full batches only."""
    per_epoch = len(train) // NODES // BATCH
    order = permutation(len(train), SHUFFLE, step // per_epoch)[node::NODES]
    first = step % per_epoch * BATCH
    return [train[i] for i in order[first:first + BATCH]]


def island(node, round, size):
    order = permutation(NODES, ISLAND, round)
    at = order.index(node)
    return sorted(order[at - at % size:at - at % size + size])


def sends(n, members, rank):
    """Bytes of a mean of n elements: of others' shards to them, then of the own one to all."""
    own = n // members + (rank < n % members)
    return 4 * (n - own + (members - 1) * own)


def islands(nodes, step, every, size):
    """The mean of islands, every H steps."""
    old = [list(n.w) for n in nodes]
    for r, n in enumerate(nodes if (step + 1) % every == 0 else []):
        members = island(r, step // every, size)
        n.w = mean([old[m] for m in members])
        n.bytes += sends(NUMEL, len(members), members.index(r))


def outer(node, target, lr, momentum, nesterov):
    """A step of SGD of the outer parameters to `target`."""
    for i in range(NUMEL):
        d = node.outer[i] - target[i]
        node.m[i] = momentum * node.m[i] + d
        node.outer[i] -= lr * (d + momentum * node.m[i] if nesterov else node.m[i])
    node.w = list(node.outer)


def diloco(nodes, step):
    if (step + 1) % 3 == 0:
        target = mean([n.w for n in nodes])
        for r, n in enumerate(nodes):
            outer(n, target, 0.7, 0.9, True)
            n.bytes += sends(NUMEL, NODES, r)


def noloco(nodes, step):
    """One of three nodes is alone, and keeps all that it has."""
    old = [list(n.w) for n in nodes]
    for r, n in enumerate(nodes if (step + 1) % 2 == 0 else []):
        pair = island(r, step // 2, 2)
        if len(pair) == 2:
            outer(n, mean([old[m] for m in pair]), 0.7, 0.5, False)
            n.bytes += sends(NUMEL, 2, pair.index(r))


def sparta(nodes, step):
    """A quarter of the coordinates in turn, of one random order."""
    parts = 4
    ends = [sum(NUMEL // parts + (q < NUMEL % parts) for q in range(p)) for p in range(parts + 1)]
    chosen = permutation(NUMEL, SELECT, 0, 1)[ends[step % parts]:ends[step % parts + 1]]
    average = mean([n.w for n in nodes])
    for r, n in enumerate(nodes):
        for i in chosen:
            n.w[i] = average[i]
        n.bytes += sends(len(chosen), NODES, r)


class Node:
    def __init__(self, first):
        self.w, self.outer, self.m, self.bytes = list(first), list(first), [0] * NUMEL, 0


def read(path):
    """The parameters of a file of safetensors, in the order of the model."""
    data = open(path, "rb").read()
    size, = struct.unpack("<Q", data[:8])
    header, values = json.loads(data[8:8 + size]), []
    for name in "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias":
        a, b = header["model." + name]["data_offsets"]
        values += struct.unpack(f"<{(b - a) // 4}f", data[8 + size + a:8 + size + b])
    return values


def run(name, strategy, steps, rate):
    job = {"seed": SEED, "model": {"name": "mlp", "in": IN, "hidden": HIDDEN, "out": OUT}, "nodes": NODES,
           "data": {"name": "fashion_mnist", "path": ".", "augment": False},
           "train": {"max_steps": steps, "batch_size": BATCH, "val_size": 9, "val_interval": 1},
           "strategy": {**strategy, "label": name, "optimizer": {"name": "sgd", "lr": rate}}}
    json.dump(job, open(name + ".json", "w"))
    subprocess.run([sys.argv[1], "run", name + ".json", "--no-plot"], check=True, capture_output=True, timeout=60)
    folder = f"runs/{name}/{name}"
    rows = lambda file: list(csv.DictReader(open(f"{folder}/{file}.csv")))
    return [read(f"{folder}/checkpoints/step_{steps:08d}/node_{r}.safetensors") for r in range(NODES)], rows


def near(what, got, want, bound=2e-6):
    if not abs(float(got) - want) <= bound:
        print(f"FAIL {what}: {got} instead of {want}")
        sys.exit(1)


def check(name, strategy, exchange, first):
    nodes, figures = [Node(first) for _ in range(NODES)], {}
    evaluated = [val[i] for i in permutation(len(val), EVAL, 0)[:9]]
    for step in range(STEPS + 1):
        figures[step, "validation.local.loss"] = learn(nodes[0].w, evaluated)[0]
        figures[step, "validation.global.loss"] = learn(mean([n.w for n in nodes]), evaluated)[0]
        if step == STEPS:
            break
        learnt = [learn(n.w, batch(r, step)) for r, n in enumerate(nodes)]
        for r, n in enumerate(nodes):
            gradient = mean([g for _, g in learnt]) if name == "ddp" else learnt[r][1]
            n.w = [w - RATE * g for w, g in zip(n.w, gradient)]
            n.bytes += sends(NUMEL, NODES, r) if name == "ddp" else 0
            figures[step + 1, f"node_{r}.loss"] = learnt[r][0]
        exchange(nodes, step)
    weights, rows = run(name, strategy, STEPS, RATE)
    for r, n in enumerate(nodes):
        for i in range(NUMEL):
            near(f"{name}: element {i} of node {r}", weights[r][i], n.w[i])
    meters = {(int(row["step"]), row["meter"]): row["value"] for row in rows("meters")}
    for key, value in figures.items():
        near(f"{name}: {key}", meters[key], value)
    for row in rows("ledger"):
        near(f"{name}: bytes of {row['actor']}", row["payload_bytes"], nodes[int(row["actor"][-1])].bytes, 0)


train, val = write_data("train", 47), write_data("t10k", 20)
begin = run("begin", {"name": "ddp"}, 1, 0)[0][0]  # a rate of 0 leaves the initial parameters
check("ddp", {"name": "ddp"}, lambda nodes, step: None, begin)
check("fedavg", {"name": "fedavg", "H": 2, "island_size": 2}, lambda nodes, step: islands(nodes, step, 2, 2), begin)
check("diloco", {"name": "diloco", "H": 3}, diloco, begin)
check("noloco", {"name": "noloco", "H": 2}, noloco, begin)
check("sparta", {"name": "sparta", "p": 0.25, "selector": "shuffled_sequential"}, sparta, begin)
PYTHON

timeout 100 python3 rules.py "$EXOGYM" || fail "a job differs from its rule"
