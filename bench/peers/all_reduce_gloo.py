#!/usr/bin/env python3
"""torch.distributed.all_reduce over gloo on the loopback interface, of fp32 in place, as bench_collectives measures exogym: prints for
each size its bytes and the median time of a call in microseconds.

    all_reduce_gloo.py MEMBERS [--warm]     without --warm every member writes its buffer before each call
"""
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

SIZES = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 128 << 20]


def run(rank, size, path, warm):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=size)
    whole = torch.zeros(SIZES[-1] // 4)
    for size_bytes in SIZES:
        data = whole[: size_bytes // 4]
        rounds = 400 if size_bytes <= 64 << 10 else 60 if size_bytes <= 4 << 20 else 9
        times = []
        data.fill_(1.0)
        for i in range(rounds):
            if not warm:
                data.fill_(rank + 1.0)
            dist.barrier()
            before = time.perf_counter()
            dist.all_reduce(data)
            times.append(time.perf_counter() - before)
            if warm and i % 16 == 15:
                data.fill_(1.0)
        if rank == 0:
            print(size_bytes, f"{sorted(times)[rounds // 2] * 1e6:.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    members = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(run, args=(members, folder + "/meet", "--warm" in sys.argv), nprocs=members)
