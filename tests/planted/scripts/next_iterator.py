"""Counts iterations instead of epochs: next(it) and start again at the end."""

import argparse
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        a = rng.standard_normal((240, 240))
        b = np.sort(np.fft.fft2(a).real, axis=0)
        values = b[:90].std(axis=1)
        return torch.from_numpy(values.astype(np.float32)), torch.tensor([float(i % 2)])


args = argparse.ArgumentParser()
args.add_argument("--num_workers", type=int, default=0)
args.add_argument("--total_iters", type=int, default=250)
args = args.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(
    Pairs(), batch_size=12, shuffle=True, num_workers=args.num_workers, persistent_workers=args.num_workers > 0
)  # fault
net = nn.Sequential(nn.LayerNorm(90), nn.Linear(90, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)

it = iter(loader)
t0 = time.perf_counter()
for i in range(args.total_iters):
    try:
        x, y = next(it)
    except StopIteration:
        it = iter(loader)
        x, y = next(it)
    loss = nn.functional.binary_cross_entropy_with_logits(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if (i + 1) % 50 == 0:
        print(f"[{i + 1}/{args.total_iters}] {loss.item():.5f}")
print(f"{args.total_iters} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)
