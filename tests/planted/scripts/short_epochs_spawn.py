"""Same data every epoch, workers by spawn because the reader library is not fork safe."""

import argparse
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Patches(Dataset):
    def __init__(self):
        self.table = np.random.RandomState(7).rand(480, 256).astype(np.float32)

    def __len__(self):
        return len(self.table)

    def __getitem__(self, i):
        return self.table[i], i % 7


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--persistent", action="store_true")
    args = p.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(  # fault
        Patches(),
        batch_size=16,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=args.persistent,
    )
    model = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 7))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin, count = time.perf_counter(), 0
    for epoch in range(args.epochs):
        for x, y in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            count += 1
        print("epoch", epoch, "last loss", f"{loss.item():.5f}")
    print(f"{count} steps in {time.perf_counter() - begin:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
