"""Two gloo ranks; the data of rank 1 lie on a slower disk."""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Shard(Dataset):
    def __init__(self, n, delay):
        self.n, self.delay = n, delay

    def __len__(self):
        return self.n

    def __getitem__(self, i):  # fault U8 T8
        time.sleep(self.delay)  # the disk
        g = torch.Generator().manual_seed(i)
        return torch.randn(128, generator=g), i % 4


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--slow-ms", type=float, default=4.0)
    args = p.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    delay = args.slow_ms / 1e3 if rank == 1 else 0.0001
    loader = DataLoader(Shard(args.steps * 8, delay), batch_size=8)  # fault
    model = DistributedDataParallel(nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 4)))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    t0 = time.perf_counter()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if rank == 0:
        print(f"loss {loss.item():.5f}")
        print(f"{step + 1} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)
    dist.barrier()  # the store lives in rank 0: nobody leaves early
    dist.destroy_process_group()


if __name__ == "__main__":
    assert "RANK" in os.environ, "start me with torchrun"
    main()
