"""Runs its loop under cProfile and prints how often the model was called."""

import cProfile
import pstats
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __len__(self):
        return 1600

    def __getitem__(self, i):
        a = np.sort(np.random.default_rng(i).random((160, 160)), axis=0)
        return torch.from_numpy(a[:80].std(axis=1).astype(np.float32)), i % 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(80, 2)

    def forward(self, x):
        return self.lin(x)


def train():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Points(), batch_size=16)  # fault
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, y in loader:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
    return loss.item()


prof = cProfile.Profile()
t0 = time.perf_counter()
prof.enable()
loss = train()
prof.disable()
print(f"{100} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)
stats = pstats.Stats(prof)
for (file, line, name), (_, calls, *_rest) in sorted(stats.stats.items()):
    if file == __file__ and name in ("forward", "__getitem__", "train"):
        print(name, calls)
print(f"loss {loss:.5f}")
