#!/usr/bin/python3
"""The comparison of examples/01_compare, written in PyTorch: N processes with gloo on the loopback
interface.

    bench/peers/mnist_gloo.py [--strategy ddp|diloco|sparta|all] [--nodes 4] [--batch 256]
                              [--steps 20] ...

Each process has a copy of the CNN, its own share of Fashion-MNIST in shared memory, the same
augmentation, and AdamW. Each exchange is one flat tensor, which is the fastest way with gloo.
Prints for each strategy the seconds of a step: the mean over the measured steps (wall-clock time
between two barriers), and the median of rank 0's steps. There is no evaluation.
"""
import argparse
import gzip
import json
import math
import os
import socket
import statistics
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

MEAN, DEVIATION = 0.1307, 0.3081
ROTATE, TRANSLATE = 10.0, 0.1
LR, WEIGHT_DECAY, WARMUP, MAX_STEPS = 3e-4, 1e-4, 100, 150


def load(folder):
    def read(name, offset):
        with gzip.open(os.path.join(folder, name)) as file:
            return np.frombuffer(file.read(), np.uint8, offset=offset).copy()

    images = torch.from_numpy(read("train-images-idx3-ubyte.gz", 16)).view(-1, 1, 28, 28)
    labels = torch.from_numpy(read("train-labels-idx1-ubyte.gz", 8)).long()
    return images.share_memory_(), labels.share_memory_()


def mnist_cnn():
    def block(inputs, outputs):
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

    model = nn.Sequential(
        *block(1, 64), *block(64, 64), nn.MaxPool2d(2), nn.Dropout2d(0.25),
        *block(64, 128), *block(128, 128), nn.MaxPool2d(2), nn.Dropout2d(0.25),
        nn.Flatten(), nn.Linear(6272, 256), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(256, 10))
    assert sum(p.numel() for p in model.parameters()) == 1868234
    return model


def augment(images):
    """Rotates and translates each image (nearest neighbour, zeros outside), then normalizes it."""
    n, size = images.shape[0], images.shape[-1]
    angle = (torch.rand(n) * 2 - 1) * math.radians(ROTATE)
    shift = ((torch.rand(n, 2) * 2 - 1) * TRANSLATE * size).round() * 2 / size
    cos, sin = angle.cos(), angle.sin()
    theta = torch.stack([torch.stack([cos, -sin, shift[:, 0]], 1), torch.stack([sin, cos, shift[:, 1]], 1)], 1)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    moved = F.grid_sample(images.float().div_(255), grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return moved.sub_(MEAN).div_(DEVIATION)


class Batches:
    """Yields the batches of the rank's share of each epoch's permutation."""

    def __init__(self, images, labels, rank, nodes, batch, seed=42):
        self.images, self.labels, self.rank, self.nodes, self.batch, self.seed = images, labels, rank, nodes, batch, seed
        self.epoch, self.position, self.order = -1, 0, torch.empty(0, dtype=torch.long)

    def next(self):
        if self.position + self.batch > len(self.order):
            self.epoch += 1
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(len(self.labels), generator=generator)
            self.order, self.position = order[self.rank::self.nodes], 0
        chosen = self.order[self.position:self.position + self.batch]
        self.position += self.batch
        return augment(self.images[chosen]), self.labels[chosen]


# --- Strategies -----------------------------------------------------------------------------------


class Ddp:
    def __init__(self, params, optim, args):
        self.params, self.optim, self.nodes = params, optim, args.nodes

    def step(self, t):
        grads = [p.grad for p in self.params]
        flat = _flatten_dense_tensors(grads)
        dist.all_reduce(flat)
        flat.div_(self.nodes)
        for grad, mean in zip(grads, _unflatten_dense_tensors(flat, grads)):
            grad.copy_(mean)
        self.optim.step()


class Diloco:
    def __init__(self, params, optim, args):
        self.params, self.optim, self.nodes, self.interval = params, optim, args.nodes, args.interval
        self.outer = _flatten_dense_tensors([p.detach() for p in params]).requires_grad_()
        self.outer_optim = torch.optim.SGD([self.outer], lr=0.7, momentum=0.9, nesterov=True)

    def step(self, t):
        self.optim.step()
        if (t + 1) % self.interval != 0:
            return
        params = [p.detach() for p in self.params]
        mean = _flatten_dense_tensors(params)
        dist.all_reduce(mean)
        self.outer.grad = self.outer.detach() - mean.div_(self.nodes)
        self.outer_optim.step()
        for param, new in zip(params, _unflatten_dense_tensors(self.outer.detach(), params)):
            param.copy_(new)


class Sparta:
    def __init__(self, params, optim, args):
        self.params, self.optim, self.nodes, self.p = params, optim, args.nodes, args.p

    def step(self, t):
        self.optim.step()
        params = [p.detach() for p in self.params]
        flat = _flatten_dense_tensors(params)
        generator = torch.Generator().manual_seed(t)  # the same on every node: no indices are sent
        chosen = torch.nonzero(torch.rand(flat.numel(), generator=generator) < self.p).squeeze(1)
        values = flat[chosen]
        dist.all_reduce(values)
        flat[chosen] = values.div_(self.nodes)
        for param, new in zip(params, _unflatten_dense_tensors(flat, params)):
            param.copy_(new)


STRATEGIES = {"ddp": Ddp, "diloco": Diloco, "sparta": Sparta}

# --- A node ---------------------------------------------------------------------------------------


def node(rank, name, args, port, images, labels, results):
    torch.set_num_threads(args.threads)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=args.nodes)
    torch.manual_seed(42)  # all nodes begin with equal parameters
    model = mnist_cnn().train()
    torch.manual_seed(1000 + rank)
    params = list(model.parameters())
    optim = torch.optim.AdamW(params, lr=LR, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optim, lambda t: t / WARMUP if t < WARMUP else
        0.9 * 0.5 * (1 + math.cos(math.pi * (t - WARMUP) / (MAX_STEPS - WARMUP))) + 0.1)
    strategy = STRATEGIES[name](params, optim, args)
    batches = Batches(images, labels, rank, args.nodes, args.batch)
    layout = torch.channels_last if args.layout == "channels_last" else torch.contiguous_format
    model = model.to(memory_format=layout)

    seconds, start = [], 0.0
    for t in range(args.warmup + args.steps):
        if t == args.warmup:
            dist.barrier()
            start = time.perf_counter()
        begin = time.perf_counter()
        x, y = batches.next()
        optim.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bf16"):
            logits = model(x.contiguous(memory_format=layout))
        loss = F.cross_entropy(logits.float(), y)
        loss.backward()
        strategy.step(t)
        schedule.step()
        if t >= args.warmup:
            seconds.append(time.perf_counter() - begin)
    dist.barrier()
    if rank == 0:
        results.put({"mean": (time.perf_counter() - start) / args.steps, "median": statistics.median(seconds),
                     "loss": loss.item()})
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(name, args, images, labels):
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(node, (name, args, free_port(), images, labels, results), nprocs=args.nodes)
    return results.get()


def main():
    parser = argparse.ArgumentParser(description="The comparison of examples/01_compare in PyTorch with gloo.")
    parser.add_argument("--strategy", choices=[*STRATEGIES, "all"], default="all")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--batch", type=int, default=256, help="per node and step")
    parser.add_argument("--steps", type=int, default=20, help="measured steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32", help="bf16: autocast")
    parser.add_argument("--layout", choices=["default", "channels_last"], default="default")
    parser.add_argument("--threads", type=int, default=1, help="of each process; 0 tries 1 and 2 and takes the faster")
    parser.add_argument("--allocator", choices=["keep", "default"], default="keep",
                        help="keep: glibc keeps freed memory instead of giving it back after each layer")
    parser.add_argument("--interval", type=int, default=20, help="diloco's H")
    parser.add_argument("--p", type=float, default=0.005, help="sparta's share")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--json", action="store_true", help="one JSON object a strategy, a line each")
    args = parser.parse_args()

    # The nodes' processes read these when they start. By default malloc would not keep blocks as
    # large
        # as activations.
    if args.allocator == "keep":
        os.environ["GLIBC_TUNABLES"] = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592"

    images, labels = load(args.data)
    if args.threads == 0:
        steps, means = args.steps, {}
        args.steps = 3
        for args.threads in (1, 2):
            means[args.threads] = run("ddp", args, images, labels)["mean"]
        args.steps, args.threads = steps, min(means, key=means.get)

    for name in STRATEGIES if args.strategy == "all" else [args.strategy]:
        result = run(name, args, images, labels)
        rate = args.nodes * args.batch / result["mean"]
        if args.json:
            print(json.dumps({"strategy": name, "threads": args.threads, "seconds_per_step": result["mean"],
                              "median_step": result["median"], "samples_per_second": rate}), flush=True)
        else:
            print("%-7s %s %s, %d threads a process: %.3f s a step (median %.3f), %.0f images/s over %d nodes" % (
                name, args.dtype, args.layout, args.threads, result["mean"], result["median"], rate, args.nodes), flush=True)


if __name__ == "__main__":
    # Set before any child imports torch, because OpenMP reads it once.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
