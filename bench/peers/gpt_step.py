#!/usr/bin/env python3
"""The training step of a GPT-2 in PyTorch: forward, backward, AdamW. Prints tokens a second and the
peak memory, as bench_gpt_step does.

    bench/peers/gpt_step.py [--size small|base] [--vocabulary 66] [--block 256] [--batch 16]
                            [--dtype fp32|bf16] [--steps 5] [--threads 2] [--compile]
                            [--device cpu|cuda]

The model is nanoGPT's with PyTorch's fastest attention for CPUs, scaled_dot_product_attention. Its
weights are tied, and it has no dropout.
"""
import argparse
import json
import resource
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"small": (4, 4, 128), "sbase": (8, 8, 512), "base": (12, 12, 768)}


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, w = x.shape
        q, k, v = (p.view(n, t, self.heads, w // self.heads).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(w, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(n, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, heads, width, vocabulary, block):
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocabulary, width), nn.Embedding(block, width)
        self.blocks = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens, targets):
        x = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def main():
    parser = argparse.ArgumentParser(description="GPT-2's training step in PyTorch.")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--vocabulary", type=int, default=66)
    parser.add_argument("--block", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = GPT(*SIZES[args.size], args.vocabulary, args.block).to(args.device).train()
    step = torch.compile(model) if args.compile else model
    tokens = torch.randint(0, args.vocabulary, (args.batch, args.block), device=args.device)
    targets = torch.randint(0, args.vocabulary, (args.batch, args.block), device=args.device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)

    times = []
    for _ in range(args.steps + 2):
        before = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = step(tokens, targets)
        loss.backward()
        optimizer.step()
        loss.item()  # waits for the device
        times.append(time.perf_counter() - before)
    took = statistics.median(times[2:])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"tokens_per_second": args.batch * args.block / took, "step_ms": 1e3 * took, "peak_mib": peak,
                      "loss": loss.item(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
