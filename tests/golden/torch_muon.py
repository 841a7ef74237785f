#!/usr/bin/env python3
"""Writes torch_muon_golden.h: what torch.optim.Muon makes of the matrices of muon.py, for tests/unit/muon.c.

PyTorch computes the Newton-Schulz iteration in bf16. `fp32` has the same code with torch.float32 in place of torch.bfloat16,
`bf16` that as it is. Made with PyTorch 2.15.0:
    pip install torch numpy && python3 tests/golden/torch_muon.py > tests/golden/torch_muon_golden.h
"""
import contextlib
import io
import types

import torch
import torch.optim._muon as code

with contextlib.redirect_stdout(io.StringIO()):
    import muon


class Torch(types.ModuleType):
    """torch, whose bfloat16 is float32."""

    bfloat16 = torch.float32

    def __getattr__(self, name):
        return getattr(torch, name)


def train(rows, cols, options, bf16):
    def matrix(flat):
        return torch.tensor(flat[: rows * cols], dtype=torch.float32).reshape(rows, cols)

    code.torch = torch if bf16 else Torch("torch")
    options = {key: value for key, value in {**muon.DEFAULTS, **options}.items()}
    param = torch.nn.Parameter(matrix(muon.start))
    optimizer = torch.optim.Muon([param], **options)
    for flat in muon.grads:
        param.grad = matrix(flat)
        optimizer.step()
    return param.detach().reshape(-1).tolist()


print("/* Made by tests/golden/torch_muon.py; not edited by hand. */")
print("#ifndef TORCH_MUON_GOLDEN_H\n#define TORCH_MUON_GOLDEN_H\n\n#include \"golden/muon_golden.h\"\n\n/* clang-format off */")
for name, bf16 in (("fp32", False), ("bf16", True)):
    muon.rows_of(f"torch_muon_{name}[MUON_CASES][MUON_MOST]", [train(*case, bf16) for case in muon.CASES])
print("/* clang-format on */\n#endif")
