#!/usr/bin/python3
"""The training step of the MNIST CNN in PyTorch: forward, backward, AdamW. Prints images a second,
as bench_cnn_step does.

    bench/peers/cnn_step.py [--dtype fp32|bf16] [--layout default|channels_last] [--batch 256]
                            [--steps 5] [--threads 2] [--allocator default|keep]
                            [--device cpu|cuda] [--compile]

`--allocator keep` tells the allocator to keep freed memory. By default glibc returns large blocks
to the system at once, and a step then spends part of its time on fresh pages.
"""
import argparse
import ctypes
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def network():
    def block(inputs, outputs):
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]

    return nn.Sequential(
        *block(1, 64), *block(64, 64), nn.MaxPool2d(2), nn.Dropout2d(0.25),
        *block(64, 128), *block(128, 128), nn.MaxPool2d(2), nn.Dropout2d(0.25),
        nn.Flatten(), nn.Linear(6272, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10))


def keep_freed_memory():
    m_trim_threshold, m_mmap_threshold = -1, -3
    libc = ctypes.CDLL("libc.so.6")
    libc.mallopt(m_mmap_threshold, 1 << 30)
    libc.mallopt(m_trim_threshold, (1 << 31) - 1)


def main():
    parser = argparse.ArgumentParser(description="The CNN's training step in PyTorch.")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--layout", choices=["default", "channels_last"], default="default")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--allocator", choices=["default", "keep"], default="default")
    args = parser.parse_args()

    if args.allocator == "keep":
        keep_freed_memory()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = network().to(args.device).train()
    assert sum(p.numel() for p in model.parameters()) == 1868234
    images, labels = torch.randn(args.batch, 1, 28, 28), torch.randint(0, 10, (args.batch,))
    images, labels = images.to(args.device), labels.to(args.device)
    if args.layout == "channels_last":
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    fused = {"fused": True} if args.device == "cuda" else {}  # which older versions do not know
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, **fused)

    if args.compile:
        model = torch.compile(model)

    times = []
    for step in range(args.steps + 3):
        before = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()  # waits for the device
        if step >= 3:
            times.append(time.perf_counter() - before)
    print("pytorch dtype=%s layout=%s allocator=%s batch=%d threads=%d images_per_second=%.1f" % (
        args.dtype, args.layout, args.allocator, args.batch, args.threads, args.batch / statistics.median(times)))


main()
