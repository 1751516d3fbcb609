"""An Accelerate loop with accumulation of two batches."""

import argparse
import sys
import time

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Molecules(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        xyz = rng.random((112, 3))
        d = np.sqrt(((xyz[:, None] - xyz[None]) ** 2).sum(-1) + 1e-9)
        energies = sum(np.sort(np.exp(-d * k), axis=1).sum(axis=0) for k in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)) / 112
        return torch.from_numpy(energies.astype(np.float32)), torch.tensor([float(energies[-1])])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--workers", type=int, default=0)
    p.add_argument("--steps", type=int, default=120)
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Sequential(nn.LayerNorm(112), nn.Linear(112, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Molecules(args.steps * 2 * 12), batch_size=12, num_workers=args.workers)  # fault
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    t0, micro = time.perf_counter(), 0
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        micro += 1
        if micro % 60 == 0:
            accelerator.print(f"micro {micro} loss {loss.item():.5f}")
    print(f"{micro // 2} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
