"""Convolutional net with workers that keep up easily."""

import argparse
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(0)
        self.images = rng.integers(0, 255, (256, 1, 32, 32), dtype=np.uint8)
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.from_numpy(self.images[i % 256]).float() / 255, i % 10


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 24, 5)
        self.conv2 = nn.Conv2d(24, 48, 5)
        self.fc1 = nn.Linear(48 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Digits(4800), batch_size=48, num_workers=1, persistent_workers=True)
    net = LeNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    n, t = 0, time.perf_counter()
    for _ in range(args.epochs):
        for data, target in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(data), target)
            loss.backward()
            opt.step()
            n += 1
            if n % 50 == 0:
                print(f"Train [{n}] Loss: {loss.item():.5f}")
    print(f"{n} steps in {time.perf_counter() - t:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
