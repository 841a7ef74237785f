#!/usr/bin/env python3
"""Writes powersgd_golden.h: what PyTorch's PowerSGD hook makes of the nodes of nodes.py, for tests/equiv/gradients.c.

Each node is a process of torch.distributed with gloo, which calls powerSGD_hook with its gradients in one bucket and then
takes a step of SGD. The first factors are ours, because PyTorch's random numbers are its own. Made with PyTorch 2.15.0:
    pip install torch numpy && python3 tests/golden/powersgd.py > tests/golden/powersgd_golden.h
"""
import sys
import tempfile

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

import nodes

RANKS, STEPS, LR = (1, 2, 3), 10, 0.1  # with these ranks all matrices are compressed


class Bucket:
    """What the hook uses of dist.GradBucket."""

    def __init__(self, flat):
        self.flat = flat

    def index(self):
        return 0

    def is_last(self):
        return True

    def buffer(self):
        return self.flat

    def gradients(self):
        sizes = [int(numpy.prod(shape)) for shape in nodes.SHAPES]
        return [part.view(shape) for part, shape in zip(torch.split(self.flat, sizes), nodes.SHAPES)]


def train(node, results, meeting):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=node, world_size=nodes.NODES)
    for rank in RANKS:
        state = PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2, min_compression_rate=1)
        state.iter = 2
        matrices = [shape for shape in nodes.SHAPES if len(shape) == 2]
        numbers = nodes.normal(sum(rank * cols for _, cols in matrices), nodes.FACTORS, 0)
        factors, at = [], 0
        for _, cols in matrices:  # ours are (rank, cols), PyTorch's (cols, rank)
            factors.append(numbers[at:at + rank * cols].reshape(rank, cols).T.reshape(-1))
            at += rank * cols
        state.q_memory_dict[0] = torch.tensor(numpy.concatenate(factors), dtype=torch.float32)
        state.p_memory_dict[0] = torch.empty(sum(rank * rows for rows, _ in matrices))
        params = torch.tensor(nodes.initial(), dtype=torch.float32)
        for step in range(STEPS):
            flat = torch.tensor(nodes.gradient(params.double().numpy(), node, step), dtype=torch.float32)
            params -= LR * powerSGD_hook(state, Bucket(flat)).wait()
        if node == 0:
            results[rank] = params.tolist()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    print(f"PyTorch {torch.__version__}", file=sys.stderr)
    with torch.multiprocessing.Manager() as manager, tempfile.TemporaryDirectory() as folder:
        kept = manager.dict()
        torch.multiprocessing.spawn(train, args=(kept, f"{folder}/meeting"), nprocs=nodes.NODES)
        nodes.write("powersgd", {f"rank_{rank}": kept[rank] for rank in RANKS},
                    {"STEPS": STEPS}, "powersgd.py")
