"""Four micro-batches a step."""

import argparse
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        vol = rng.random((40, 40, 40), dtype=np.float32)
        spec = np.abs(np.fft.fftn(vol))
        small = spec.reshape(8, 5, 8, 5, 8, 5).mean(axis=(1, 3, 5))
        return torch.from_numpy(np.log1p(small).astype(np.float32)), np.int64(i % 3)


def main(accum, workers, steps):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Volumes(steps * accum * 4), batch_size=4, num_workers=workers)  # fault
    net = nn.Sequential(nn.Flatten(), nn.Linear(512, 96), nn.ReLU(), nn.Linear(96, 3))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    done, total, t0 = 0, 0.0, time.perf_counter()
    for micro, (vol, label) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(net(vol), label) / accum
        loss.backward()
        total += loss.item()
        if micro % accum == 0:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            done += 1
            if done % 40 == 0:
                print(f"step {done} loss {total / 40:.5f}")
                total = 0.0
    print(f"{done} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--accum", type=int, default=4)
    p.add_argument("--workers", type=int, default=0)
    p.add_argument("--steps", type=int, default=160)
    a = p.parse_args()
    main(a.accum, a.workers, a.steps)
