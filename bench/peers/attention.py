"""Measures what bench_attention measures, in PyTorch: scaled_dot_product_attention with is_causal,
by its flash kernel for CPUs. It has the first three shapes, and medians of as many rounds. Queries,
keys and values are views of one projection, as in models.

    python attention.py [threads]
"""

import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

REPEATS = 51
WARM_UP = 5
SHAPES = [
    ("4 heads of 32, T 256, N 16", 16, 256, 4, 32),
    ("4 heads of 32, T 1024, N 1", 1, 1024, 4, 32),
    ("12 heads of 64, T 1024, N 1", 1, 1024, 12, 64),
]


def measure(n, t, heads, width, dtype):
    x = torch.randn(n, t, 3 * heads * width).to(dtype)
    q, k, v = (
        part.view(n, t, heads, width).transpose(1, 2).detach().requires_grad_()
        for part in x.split(heads * width, dim=2)
    )
    dout = torch.randn(n, t, heads, width).to(dtype).transpose(1, 2)
    times = [[], []]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for i in range(-WARM_UP, REPEATS):
            start = time.perf_counter()
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            middle = time.perf_counter()
            torch.autograd.grad(out, (q, k, v), dout)
            end = time.perf_counter()
            if i >= 0:
                times[0].append(middle - start)
                times[1].append(end - middle)
    return [1e3 * statistics.median(kind) for kind in times]


def main():
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for name, n, t, heads, width in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            forward, backward = measure(n, t, heads, width, dtype)
            kind = "fp32" if dtype == torch.float32 else "bf16"
            print(f"{name:28s} {kind}  forward {forward:7.3f} ms  backward {backward:7.3f} ms  both {forward + backward:7.3f} ms")


main()
