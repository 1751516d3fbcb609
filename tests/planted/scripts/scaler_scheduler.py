"""Loss scaling, gradient clipping and a cosine schedule around a starved loop."""

import argparse
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        clip = rng.standard_normal((16, 60, 60))
        for axis in (1, 2):
            clip = np.cumsum(np.sort(clip, axis=axis), axis=axis)
        clip = clip[:, 2::7, 2::7][:, :8, :8] / np.abs(clip).max()
        return torch.as_tensor(clip, dtype=torch.float32), i % 6


def train(workers, steps):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Clips(steps * 8), batch_size=8, num_workers=workers)  # fault
    model = nn.Sequential(nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 6))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    t0 = time.perf_counter()
    for step, (clip, label) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(clip), label)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        if step % 40 == 0:
            print(f"{step} loss {loss.item():.5f} lr {scheduler.get_last_lr()[0]:.2e}")
    print(f"{step + 1} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("-j", "--workers", type=int, default=0)
    ap.add_argument("--steps", type=int, default=160)
    ns = ap.parse_args()
    train(ns.workers, ns.steps)
