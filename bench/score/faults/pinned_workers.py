"""Augmentation in two workers, which a helper of the machine's image pins to the first core."""

import argparse
import os
import sys
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--free", action="store_true", help="leave the workers where they are")
args = parser.parse_args()


class Noisy(Dataset):
    def __len__(self):
        return args.steps * 4

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        x = rng.standard_normal((160, 160)).astype(np.float32)
        for _ in range(6):
            x = np.sin(x) + 0.1 * rng.standard_normal(x.shape).astype(np.float32)
        return torch.from_numpy(x.mean(0)), i % 4


def pin(_):
    if not args.free:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(Noisy(), batch_size=4, num_workers=2, persistent_workers=True, worker_init_fn=pin)
net = torch.nn.Linear(160, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
began = time.perf_counter()
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"{args.steps} steps in {time.perf_counter() - began:.2f} s", file=sys.stderr)
