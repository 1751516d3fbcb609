"""Two gloo ranks, eight micro-batches a step, gradients reduced after each of them."""

import argparse
import contextlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

p = argparse.ArgumentParser()
p.add_argument("--steps", type=int, default=40)
p.add_argument("--accum", type=int, default=8)
p.add_argument("--no-sync", action="store_true")
args = p.parse_args()
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Sequential(nn.EmbeddingBag(24000, 128), nn.Linear(128, 8))
model = DistributedDataParallel(net)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
gen = torch.Generator().manual_seed(rank)
t0 = time.perf_counter()
for step in range(args.steps):
    for micro in range(args.accum):
        x = torch.randint(0, 24000, (32, 8), generator=gen)
        y = torch.randint(0, 8, (32,), generator=gen)
        last = micro == args.accum - 1
        with model.no_sync() if args.no_sync and not last else contextlib.nullcontext():
            loss = nn.functional.cross_entropy(model(x), y) / args.accum
            loss.backward()  # fault
    opt.step()
    opt.zero_grad()
if rank == 0:
    print(f"loss {loss.item() * args.accum:.5f}")
    print(f"{args.steps} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)
dist.barrier()  # the store lives in rank 0: nobody leaves early
dist.destroy_process_group()
