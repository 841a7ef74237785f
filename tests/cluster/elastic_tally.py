#!/usr/bin/env python3
"""Whether an elastic run has used each sample as docs/elastic.md states, from its files alone.

    elastic_tally.py FOLDER STRATEGY H BATCH

The model is that of tests/plugins/tally.c, with sgd at learning rate 1: the sample i, whose token
is i, lowers the parameter i by 1 / (BATCH P) in a mean over P nodes. Rank r of N has the samples r,
r + N, r + 2 N, ... in this order. So the parameters of the averaged model say which samples count,
and how often.

ddp      every rank's samples count once each, without a gap, up to its position
diloco   the same; but a node that comes back begins with a copy of another one, whose samples since
         the last exchange then count twice, in one mean or, if that other node is lost before the
         next exchange, in two; at most H batches for each node that joined
noloco   no sample beyond the position of its rank; what a lost node did since it last had a partner
         is lost with it, here at most the batches of 8 rounds

async_diloco, with outer sgd at learning rate 1 and n = N: a change counts 1 / N, and less if some nodes have
         not got it at the end. No sample counts more, except those of the last steps of P nodes at the end,
         which are in no change: 1 / P. What a lost node did since its last change is lost, and its
         batches up to the end of its request

Also compares the node files of the checkpoints that are there: under ddp and diloco all nodes of a
checkpoint have the same parameters.
"""
import array
import csv
import glob
import hashlib
import json
import struct
import sys


def parameters(path):
    """The bytes of the parameters of a safetensors file."""
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    name = next(k for k in header if k in ("weight", "model.weight"))
    begin, end = header[name]["data_offsets"]
    return data[8 + size + begin : 8 + size + end]


def main():
    folder, strategy, H, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    nodes, wrong = 3, []
    members = list(csv.DictReader(open(folder + "/members.csv")))
    joined = sum(m["event"] == "joined" for m in members)
    left = sum(m["event"] == "left" for m in members)
    alone = any(int(m["present"]) < 2 for m in members)
    samples = int(list(csv.DictReader(open(folder + "/train.csv")))[-1]["examples_trained"])
    weights = array.array("f", parameters(folder + "/model.safetensors"))
    uses = [-w * batch for w in weights]

    total = gaps = 0
    for rank in range(nodes):
        own = uses[rank::nodes]
        end = max((k + 1 for k, u in enumerate(own) if u != 0), default=0)
        gaps += sum(u == 0 for u in own[:end])
        total += end
        if end % batch:
            wrong.append(f"rank {rank} ends within a batch, at its sample {end}")
    once = [1 / 2, 1 / 3] + ([1.0] if alone else [])
    odd, local = {}, 0
    for u in uses:
        if strategy == "async_diloco":
            if any(abs(u - v) < 1e-3 for v in (1 / 2, 1.0)):
                local += 1
            elif u < 0 or u > 1 / nodes + 1e-3:
                odd[round(u, 2)] = odd.get(round(u, 2), 0) + 1
        elif strategy != "noloco" and u != 0 and not any(abs(u - v) < 1e-3 for v in once):
            odd[round(u, 2)] = odd.get(round(u, 2), 0) + 1
    twice = 0
    for u in [1.0] + [round(a + b, 2) for a in (1, 1 / 2, 1 / 3) for b in (1, 1 / 2, 1 / 3)]:
        twice += odd.pop(u, 0) if strategy == "diloco" else 0
    if twice > joined * H * batch:
        wrong.append(f"{twice} samples count twice, {joined} nodes joined")
    if odd:
        wrong.append(f"samples count otherwise than once (count in the mean: samples): {odd}")
    if local > H * nodes * batch:
        wrong.append(f"{local} samples count in no change")
    if strategy == "async_diloco" and gaps > samples / 2:
        wrong.append(f"{gaps} of {samples} samples are lost")
    if strategy not in ("noloco", "async_diloco") and gaps:
        wrong.append(f"{gaps} samples are lost")
    if strategy != "async_diloco" and gaps > left * 8 * H * batch:
        wrong.append(f"{gaps} samples are lost, more than {left} deaths explain")
    if strategy == "noloco" and total > samples:
        wrong.append(f"samples count beyond the {samples} of the run, up to {total}")
    if strategy not in ("noloco", "async_diloco") and total != samples:
        wrong.append(f"{total} samples count instead of {samples}")
    for step in glob.glob(folder + "/checkpoints/step_*"):
        sums = {hashlib.sha256(parameters(f)).hexdigest() for f in glob.glob(step + "/node_*")}
        if strategy not in ("noloco", "async_diloco") and len(sums) != 1:
            wrong.append(f"{step}: the nodes have different parameters")
    print(f"{strategy}: {left} nodes left, {joined} joined; of {samples} samples {gaps} are lost "
          f"and {twice} count twice")
    for w in wrong:
        print(f"{strategy}: {w}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
