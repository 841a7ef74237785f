#!/usr/bin/env python3
"""Writes onebit_adam_golden.h: what DeepSpeed's 1-bit Adam makes of nodes, for tests/equiv/gradients.c.

This runs the files adam.py, nccl.py and utils.py of DeepSpeed 0.19.0 (later versions lack them) on the CPU: gloo takes the place of
NCCL, and NumPy that of CuPy. There is one matrix (12, 8), which four servers share without padding: DeepSpeed counts padding
in its scales. It starts with a call that sets up buffers and ignores the gradients. Made with PyTorch 2.15.0:
    pip download --no-deps --no-binary :all: deepspeed==0.19.0 && tar xzf deepspeed-0.19.0.tar.gz
    pip install torch numpy && python3 tests/golden/onebit_adam.py deepspeed-0.19.0 > tests/golden/onebit_adam_golden.h
"""
import contextlib
import importlib.util
import sys
import tempfile
import types

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing

import nodes

nodes.SHAPES, nodes.NUMEL = [(12, 8)], 96
STEPS, FREEZE, LR = 50, 10, 0.01
DECAYS = (0.0, 0.1)


class Bits:
    """deepspeed.runtime.compression.cupy.CupyBackend on NumPy."""

    def torch2cupy(self, tensor):
        return tensor.numpy()

    def cupy2torch(self, array):
        return torch.from_numpy(array)

    def compress_by_chunk(self, signs, chunks):
        return numpy.split(numpy.packbits(signs), chunks)


def module(name, **members):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)


def all_gather(outputs, tensor, group):
    """NCCL gathers a tensor without dimensions into tensors of one element; gloo does not."""
    return dist.all_gather(outputs, tensor.reshape(outputs[0].shape), group=group)


def load(folder):
    """OnebitAdam of DeepSpeed, with what its files import."""
    def device(_=None):
        return types.SimpleNamespace(use=lambda: None)

    accelerator = types.SimpleNamespace(empty_cache=lambda: None, device_name=lambda _=None: "cpu")
    module("cupy", zeros=numpy.zeros, unpackbits=numpy.unpackbits, cuda=types.SimpleNamespace(Device=device))
    comm = {name: getattr(dist, name) for name in ("new_group", "get_world_size", "get_rank", "all_to_all_single", "is_initialized")}
    module("deepspeed.comm", all_gather=all_gather, **comm)
    module("deepspeed", comm=sys.modules["deepspeed.comm"], __path__=[])
    for name in ("runtime", "utils", "runtime.compression", "runtime.comm"):
        module(f"deepspeed.{name}")
    module("deepspeed.accelerator", get_accelerator=lambda: accelerator)
    module("deepspeed.runtime.compression.cupy", CupyBackend=Bits)
    for name in ("deepspeed.runtime.utils", "deepspeed.utils.torch"):
        module(name, required_torch_version=lambda min_version: True)
    for name, path in (("deepspeed.runtime.comm.utils", "comm/utils.py"), ("deepspeed.runtime.comm.nccl", "comm/nccl.py"),
                       ("onebit", "fp16/onebit/adam.py")):
        spec = importlib.util.spec_from_file_location(name, f"{folder}/deepspeed/runtime/{path}")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules["onebit"].OnebitAdam


def train(node, results, meeting, folder):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=node, world_size=nodes.NODES)
    with contextlib.redirect_stdout(sys.stderr):
        for decay in DECAYS:
            engine = types.SimpleNamespace(mpu=None, local_rank=0, enable_backward_allreduce=True)
            param = torch.nn.Parameter(torch.tensor(nodes.initial(), dtype=torch.float32))
            optimizer = load(folder)([param], engine, lr=LR, freeze_step=FREEZE + 1, weight_decay=decay)
            for step in range(-1, STEPS):
                flat = nodes.gradient(param.detach().double().numpy(), node, max(step, 0))
                param.grad = torch.tensor(flat, dtype=torch.float32)
                if engine.enable_backward_allreduce:
                    dist.all_reduce(param.grad)
                    param.grad /= nodes.NODES
                optimizer.step()
            if node == 0:
                results[decay] = param.tolist()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with torch.multiprocessing.Manager() as manager, tempfile.TemporaryDirectory() as temporary:
        kept = manager.dict()
        torch.multiprocessing.spawn(train, args=(kept, f"{temporary}/meeting", sys.argv[1]), nprocs=nodes.NODES)
        nodes.write("onebit_adam", {f"case_{i}": kept[decay] for i, decay in enumerate(DECAYS)},
                    {"STEPS": STEPS, "NUMEL": nodes.NUMEL}, "onebit_adam.py")
