"""Spectrogram classifier; the waveforms are augmented in the loader."""

import argparse
import sys
from time import perf_counter

import numpy as np
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(3)
        self.waves = rng.standard_normal((32, 16000)).astype(np.float32)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, idx):  # fault T8
        rng = np.random.default_rng(idx)
        wave = self.waves[idx % 32] + 0.1 * rng.standard_normal(16000).astype(np.float32)
        frames = np.lib.stride_tricks.sliding_window_view(wave, 400)[::80] * np.hanning(400)
        spec = np.log1p(np.abs(np.fft.rfft(frames, n=512)))
        return torch.tensor(spec[:192, :256].mean(axis=0), dtype=torch.float32), idx % 4


def build(args):
    net = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 4))
    return net, optim.AdamW(net.parameters(), lr=args.lr)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--lr", type=float, default=3e-4)
    ap.add_argument("--num-workers", type=int, default=1)
    args = ap.parse_args()
    torch.manual_seed(5)
    net, opt = build(args)
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(  # fault
        Waves(3200),
        batch_size=10,
        shuffle=False,
        num_workers=args.num_workers,
        persistent_workers=True,
    )
    n = 0
    t = perf_counter()
    for spec, target in loader:
        loss = criterion(net(spec), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        n += 1
        if n % 100 == 0:
            print(f"[{n}] {loss.item():.5f}")
    print(f"{n} steps in {perf_counter() - t:.2f} s", file=sys.stderr)
