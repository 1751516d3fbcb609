"""Triplet loss; every anchor, positive and negative goes through the net on its own."""

import argparse
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def embed(net, items, together):  # fault
    if together:
        return net(items)
    return torch.stack([net(item) for item in items])


p = argparse.ArgumentParser()
p.add_argument("--together", action="store_true")
args = p.parse_args()
torch.manual_seed(0)
data = TensorDataset(*(torch.randn(3200, 32) for _ in range(3)))
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
t0, n = time.perf_counter(), 0
for _ in range(4):
    for anchor, pos, neg in DataLoader(data, batch_size=64):
        a, b, c = (embed(net, z, args.together) for z in (anchor, pos, neg))  # fault
        loss = nn.functional.triplet_margin_loss(a, b, c)
        opt.zero_grad()
        loss.backward()  # fault
        opt.step()
        n += 1
    print(f"{n} {loss.item():.4f}")
print(f"{n} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)
