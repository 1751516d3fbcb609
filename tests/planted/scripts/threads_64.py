"""Sixty-four threads, whatever the machine has."""

import argparse
import sys
import time

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--threads", type=int, default=64)
ap.add_argument("--steps", type=int, default=120)
args = ap.parse_args()
torch.set_num_threads(args.threads)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
x, y = torch.randn(192, 512), torch.randint(0, 8, (192,))
t = time.perf_counter()
for k in range(args.steps):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
print(f"after {args.steps}: {loss.item():.3f}")
print(f"{args.steps} steps in {time.perf_counter() - t:.2f} s", file=sys.stderr)
