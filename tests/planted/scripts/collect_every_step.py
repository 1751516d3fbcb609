"""Memory grew once, so the loop collects garbage after each batch."""

import argparse
import gc
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self, n):
        self.rows = [{"id": i, "tags": [i % 3, i % 5], "x": [float(i % 7), float(i % 11)]} for i in range(n)]

    def __len__(self):
        return 2560

    def __getitem__(self, i):
        row = self.rows[i % len(self.rows)]
        return torch.tensor(row["x"] + row["tags"]), row["id"] % 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-collect", dest="collect", action="store_false")
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Records(2_000), batch_size=32)
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    tic = time.perf_counter()
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        del x, y
        if args.collect:
            gc.collect()  # fault
    print(f"loss {loss.item():.4f}")
    print(f"{step + 1} steps in {time.perf_counter() - tic:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
