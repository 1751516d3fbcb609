"""num_workers=8 because the tutorial said so."""

import argparse
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self, n, passes):
        self.n = n
        self.passes = passes

    def __len__(self):
        return self.n

    def __getitem__(self, i):  # fault
        rng = np.random.RandomState(i)
        x = rng.rand(96, 96)
        for _ in range(self.passes):
            x = np.sort(np.fft.ifft2(np.fft.fft2(x) * 0.9).real, axis=0)
        x = x[:64, :64]
        return torch.as_tensor(x, dtype=torch.float32), i % 3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--passes", type=int, default=8)
    parser.add_argument("--batches", type=int, default=180)
    cfg = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    dl = DataLoader(Noisy(cfg.batches * 8, cfg.passes), batch_size=8, num_workers=cfg.workers)  # fault
    m = nn.Sequential(nn.Flatten(), nn.Linear(4096, 64), nn.ReLU(), nn.Linear(64, 3))
    o = torch.optim.Adam(m.parameters(), lr=1e-3)
    t = time.perf_counter()
    hist = []
    for x, y in dl:
        loss = nn.functional.cross_entropy(m(x), y)
        o.zero_grad()
        loss.backward()
        o.step()
        hist.append(loss.item())
    print("first", f"{hist[0]:.4f}", "last", f"{hist[-1]:.4f}")
    print(f"{len(hist)} steps in {time.perf_counter() - t:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
